//! Certificates that are compressed (RFC 8879), by zlib.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use tlsdyno_wire::handshake::{Body, Certificate13, CompressedCertificate};
use tlsdyno_wire::hello::Extensions;
use tlsdyno_wire::limits;

use crate::error::{Alert, Error};

/// The number of zlib (RFC 8879 section 7.3).
pub(crate) const ZLIB: u16 = 1;

/// The body of the Certificate message that such a message holds.
pub(crate) fn inflated(body: &[u8]) -> Result<Vec<u8>, Error> {
    let CompressedCertificate { algorithm, uncompressed_bytes, compressed } = CompressedCertificate::decode(body)?;
    if algorithm != ZLIB {
        return Err(Error::illegal("the server compressed its certificate by an algorithm that was not offered"));
    }
    let bad = |what| Error::PeerMisbehaved { what, alert: Alert::BAD_CERTIFICATE };
    if uncompressed_bytes > limits::CERTIFICATE {
        return Err(bad("the server's compressed certificate is longer than certificates may be"));
    }
    // One byte more than there should be, so that what is longer does not end; nothing grows beyond it.
    let mut certificate = Vec::with_capacity(uncompressed_bytes + 1);
    let ended = Decompress::new(true).decompress_vec(compressed, &mut certificate, FlushDecompress::Finish);
    match ended {
        Ok(Status::StreamEnd) if certificate.len() == uncompressed_bytes => Ok(certificate),
        _ => Err(bad("the server's compressed certificate does not have the length that it says")),
    }
}

/// Bytes of a chain's Certificate message of TLS 1.3 (RFC 9846 section 4.4.2), header included, and the body of the
/// CompressedCertificate that zlib makes of it at its best level (RFC 8879 section 4). `chain_der`: end entity first.
pub fn what_if_compressed(chain_der: &[Vec<u8>]) -> (usize, Vec<u8>) {
    let none = Extensions::default();
    let mut plain = Vec::new();
    let chain = chain_der.iter().map(|der| (der.as_slice(), none)).collect();
    Certificate13 { context: &[], chain }.encode(&mut plain);
    let mut compressed = Vec::with_capacity(plain.len() + 1024);
    // It has room for more than zlib adds to what does not compress, so that it ends.
    let _ = Compress::new(Compression::best(), true).compress_vec(&plain, &mut compressed, FlushCompress::Finish);
    let mut body = Vec::new();
    let uncompressed_bytes = plain.len();
    CompressedCertificate { algorithm: ZLIB, uncompressed_bytes, compressed: &compressed }.encode(&mut body);
    (tlsdyno_wire::handshake::HEADER + plain.len(), body)
}

/// Whether a client can make a certificate of the body of a CompressedCertificate: what it does for one.
pub fn inflates(body: &[u8]) -> bool {
    inflated(body).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_compressed_comes_out_and_nothing_else_does() {
        let chain = [vec![7; 3000], (0..=255).cycle().take(900).collect()];
        let (bytes, body) = what_if_compressed(&chain);
        let plain = inflated(&body).unwrap();
        assert_eq!(plain.len() + tlsdyno_wire::handshake::HEADER, bytes);
        let certificate = Certificate13::decode(&plain).unwrap();
        assert!(certificate.chain.iter().map(|(der, _)| der.to_vec()).eq(chain));
        assert!(body.len() < 600, "{}", body.len());
        let other = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = body.clone();
            change(&mut body);
            inflated(&body).map_err(|error| error.to_string()).unwrap_err()
        };
        assert!(other(&|body| body[1] = 2).contains("not offered"));
        for by in [1, 255] {
            assert!(other(&|body| body[4] = body[4].wrapping_add(by)).contains("does not have the length"));
        }
        assert!(other(&|body| body[2] = 2).contains("longer than certificates may be"));
    }

    proptest! {
        /// Whatever comes is refused or has the length that it says.
        #[test]
        fn no_bytes_make_more_than_they_say(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(certificate) = inflated(&body) {
                prop_assert_eq!(certificate.len(), CompressedCertificate::decode(&body).unwrap().uncompressed_bytes);
            }
        }
    }
}
