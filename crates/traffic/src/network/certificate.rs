//! The bytes of a server's certificate: as it comes, compressed (RFC 8879), and kept by the client (RFC 7924).

use serde::{Deserialize, Serialize};
use tlsdyno_base::bootstrap::{Estimate, estimate_column};
use tlsdyno_sys::thread_cpu_ns;
use tlsdyno_tls::compressed::{inflates, what_if_compressed};
use tlsdyno_wire::handshake;

/// What a server may send before the client has acknowledged anything, bytes: ten segments of Ethernet (RFC 6928
/// section 2).
const INITIAL_WINDOW_BYTES: u64 = 14_600;
const SEGMENT_BYTES: u64 = 1_460;
/// What stands for a certificate that the client has: its SHA-256 (RFC 7924 section 4).
const HASH_BYTES: u64 = 32;
/// Batches by which the time of inflating one is told, and how many each has.
const BATCHES: u32 = 12;
const OF_BATCH: u32 = 50;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    pub message_bytes: u64,
    /// Bytes of the CompressedCertificate message that zlib makes of it at its best level.
    pub compressed_bytes: u64,
    /// Bytes of the server's part of a full handshake, records whole.
    pub flight_bytes: u64,
    /// CPU time that a client takes to inflate one, nanoseconds, by batch.
    pub inflate_ns: Vec<f64>,
    /// Why the server does not compress it for clients that ask; `None`: it does.
    pub refused: Option<String>,
}

/// The server's flight with one form of its certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    pub name: &'static str,
    pub message_bytes: u64,
    pub flight_bytes: u64,
}

impl Certificate {
    /// `chain_der`: the server's own certificate first.
    pub fn new(chain_der: &[Vec<u8>], flight_bytes: u64, refused: Option<String>) -> Certificate {
        let (message_bytes, body) = what_if_compressed(chain_der);
        let batch = |_| {
            let began = thread_cpu_ns();
            let inflated = (0..OF_BATCH).filter(|_| inflates(std::hint::black_box(&body))).count();
            (thread_cpu_ns() - began) as f64 / inflated.max(1) as f64
        };
        let compressed_bytes = (handshake::HEADER + body.len()) as u64;
        let inflate_ns = (0..BATCHES).map(batch).collect();
        Certificate { message_bytes: message_bytes as u64, compressed_bytes, flight_bytes, inflate_ns, refused }
    }

    /// The flight as it comes, and as it would come otherwise.
    pub fn forms(&self) -> [Form; 3] {
        let form = |name, message_bytes| {
            let flight_bytes = self.flight_bytes.saturating_sub(self.message_bytes) + message_bytes;
            Form { name, message_bytes, flight_bytes }
        };
        [
            form("as it comes", self.message_bytes),
            form("compressed by zlib", self.compressed_bytes),
            form("kept by the client", HASH_BYTES),
        ]
    }

    /// CPU time that a client takes to inflate one, nanoseconds.
    pub fn inflating_ns(&self) -> Estimate {
        estimate_column(&self.inflate_ns.iter().copied().map(Some).collect())
    }
}

impl Form {
    pub fn segments(&self) -> u64 {
        self.flight_bytes.div_ceil(SEGMENT_BYTES)
    }

    /// Windows that the server fills one after the other, each twice the one before (RFC 5681 section 3.1), without
    /// losses. The client waits a round trip for each.
    pub fn round_trips(&self) -> u32 {
        (1..).find(|trips| INITIAL_WINDOW_BYTES * ((1 << trips) - 1) >= self.flight_bytes).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_fits_the_initial_window_once_it_is_compressed() {
        let certificate = |byte: u8| (0..9_000u32).map(|at| if at % 3 == 0 { byte } else { at as u8 }).collect();
        let chain: Vec<Vec<u8>> = (0..2).map(certificate).collect();
        let certificate = Certificate::new(&chain, 18_500, Some("no".to_owned()));
        assert_eq!(certificate.message_bytes, 4 + 4 + 2 * (3 + 9_000 + 2));
        let [plain, compressed, kept] = certificate.forms();
        assert_eq!((plain.segments(), plain.round_trips(), compressed.round_trips()), (13, 2, 1));
        assert_eq!(kept.flight_bytes, 18_500 - certificate.message_bytes + 32);
        assert!(compressed.flight_bytes < 5_000 && certificate.inflating_ns().value > 0.0, "{certificate:?}");
        let trips = |flight_bytes| Form { flight_bytes, ..kept.clone() }.round_trips();
        assert_eq!([14_600, 14_601, 43_800, 43_801].map(trips), [1, 2, 2, 3]);
    }
}
