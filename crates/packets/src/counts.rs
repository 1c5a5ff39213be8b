//! What was counted at a listener.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tlsdyno_base::histogram::{self, Percentiles};
use tlsdyno_wire::hello::{TLS12, TLS13};

use crate::handshake::{Handshake, Outcome};
use crate::names::Names;

/// Most code points of a kind that are counted apart: a client may make up any.
const MOST_CODES: usize = 64;
/// Bounds of times that the histogram tells apart, nanoseconds.
const BOUNDS_NS: (u64, u64) = (1_000, 600_000_000_000);

macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: u64,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name { $($(#[$field_meta])* pub $field: u64,)* }

        impl $name {
            fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// New connections by what became of them: each is in one of these at its end, or when its handshake is over.
    pub struct Connections {
        /// Their handshake was complete, and full.
        pub full_handshakes: u64,
        /// Their handshake was complete, and resumed a session.
        pub resumed_handshakes: u64,
        /// The client sent an alert after the ServerHello. In TLS 1.3 nobody can tell what it said.
        pub refused_by_clients: u64,
        /// The client closed after the ServerHello without a word.
        pub left_by_clients: u64,
        /// The server sent an alert or closed.
        pub closed_by_servers: u64,
        /// No ServerHello came in time, or before the client went or the server reset.
        pub without_answers: u64,
        /// A ServerHello came, and then nothing in time.
        pub unfinished_handshakes: u64,
        /// No whole ClientHello came: scanners, health checks, SYN floods.
        pub without_hellos: u64,
        /// What came first was no TLS.
        pub without_tls_records: u64,
        /// Bytes are missing in the capture, or a hello breaks its form or is longer than 16 KiB.
        pub unreadable_handshakes: u64,
        /// Given up while they went on, because too many did.
        pub given_up_handshakes: u64,
    }
}

counters! {
    /// What clients offered, in all hellos of handshakes that are over. A HelloRetryRequest makes no second hello.
    pub struct Offers {
        /// ClientHellos that came whole.
        pub hellos: u64,
        /// Those that offer TLS 1.3.
        pub tls13_hellos: u64,
        /// Those that offer early data. Whether a server takes it cannot be seen.
        pub early_data_hellos: u64,
        /// Those that offer HTTP/2 in ALPN. What a server chooses cannot be seen in TLS 1.3.
        pub http2_hellos: u64,
        /// Those that offer HTTP/1.1 in ALPN.
        pub http1_hellos: u64,
        /// Those that offer any protocol in ALPN.
        pub alpn_hellos: u64,
        /// Those that take a certificate with a P-256 key (ecdsa_secp256r1_sha256).
        pub ecdsa_hellos: u64,
    }
}

counters! {
    /// Complete handshakes by what was agreed on.
    pub struct Agreed {
        /// Handshakes of TLS 1.3.
        pub tls13_handshakes: u64,
        /// Handshakes of TLS 1.2.
        pub tls12_handshakes: u64,
        /// Handshakes of older versions.
        pub older_handshakes: u64,
        /// Those in which the client offered a session. A session id in a hello that offers TLS 1.3 too may be none's:
        /// it counts only where it was taken.
        pub resumption_offered_count: u64,
        /// Those in which the client offered a session and the server did not take it.
        pub resumption_refused_count: u64,
        /// Those with a HelloRetryRequest.
        pub retried_handshakes: u64,
    }
}

counters! {
    /// Bytes of TCP, of connections whose beginning and end passed. A direction of 4 GiB or more counts what is left of
    /// it when as many as possible of 4 GiB are taken away, because sequence numbers tell no more.
    pub struct Traffic {
        /// Connections.
        pub connections: u64,
        /// Bytes that clients sent.
        pub client_bytes: u64,
        /// Bytes that servers sent.
        pub server_bytes: u64,
        /// Datagrams of UDP to the listener's address, which may be QUIC: nothing else of them is read.
        pub datagrams: u64,
    }
}

/// What was counted at one listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Connections that clients began to open, by their SYN. Connections that are older than the capture are in none of
    /// these numbers.
    pub opened_connections: u64,
    /// What became of them.
    pub connections: Connections,
    /// What clients offered.
    pub offers: Offers,
    /// Hellos that offer a group in supported_groups, by its code point (IANA's TLS Supported Groups).
    pub offered_groups: BTreeMap<u16, u64>,
    /// Complete handshakes by what was agreed on.
    pub agreed: Agreed,
    /// Complete handshakes of TLS 1.3 with a key agreement, by the code point of its group.
    pub chosen_groups: BTreeMap<u16, u64>,
    /// Complete handshakes by the code point of their suite (IANA's TLS Cipher Suites).
    pub chosen_suites: BTreeMap<u16, u64>,
    /// Names that hellos ask for, if they are kept.
    #[serde(default, rename = "names_by_hellos", skip_serializing_if = "Names::is_empty")]
    pub names: Names,
    /// Bytes and datagrams.
    pub traffic: Traffic,
    /// Nanoseconds from the last byte of the ClientHello to the first of the ServerHello; after a HelloRetryRequest, of
    /// the second hello.
    #[serde(with = "as_text")]
    pub hello_to_answer_ns: Histogram<u64>,
}

/// A histogram as records keep it: HdrHistogram's V2 in base64.
mod as_text {
    use serde::de::Error;

    use super::*;

    pub fn serialize<S: serde::Serializer>(histogram: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&histogram::encode(histogram))
    }

    pub fn deserialize<'d, D: serde::Deserializer<'d>>(from: D) -> Result<Histogram<u64>, D::Error> {
        let text = String::deserialize(from)?;
        histogram::decode(&text).ok_or_else(|| D::Error::custom("not an HdrHistogram in base64"))
    }
}

impl Default for Counts {
    fn default() -> Counts {
        let (low, high) = BOUNDS_NS;
        Counts {
            opened_connections: 0,
            connections: Connections::default(),
            offers: Offers::default(),
            offered_groups: BTreeMap::new(),
            agreed: Agreed::default(),
            chosen_groups: BTreeMap::new(),
            chosen_suites: BTreeMap::new(),
            names: Names::default(),
            traffic: Traffic::default(),
            hello_to_answer_ns: Histogram::new_with_bounds(low, high, 2).expect("the bounds are in order"),
        }
    }
}

impl Counts {
    /// Complete handshakes.
    pub fn complete(&self) -> u64 {
        self.connections.full_handshakes + self.connections.resumed_handshakes
    }

    /// Handshakes that began with a whole hello and were broken off.
    pub fn broken_off(&self) -> u64 {
        let of = &self.connections;
        of.refused_by_clients
            + of.left_by_clients
            + of.closed_by_servers
            + of.without_answers
            + of.unfinished_handshakes
    }

    /// Median, 99th percentile and largest of the time from hello to answer, nanoseconds, to two significant digits.
    pub fn hello_to_answer(&self) -> Percentiles {
        histogram::percentiles(&self.hello_to_answer_ns)
    }

    /// Adds what another interval of the same listener, or another listener, counted.
    pub fn add(&mut self, other: &Counts) {
        self.opened_connections += other.opened_connections;
        self.connections.add(&other.connections);
        self.offers.add(&other.offers);
        self.agreed.add(&other.agreed);
        self.traffic.add(&other.traffic);
        self.names.add(&other.names);
        let codes = [
            (&mut self.offered_groups, &other.offered_groups),
            (&mut self.chosen_groups, &other.chosen_groups),
            (&mut self.chosen_suites, &other.chosen_suites),
        ];
        for (own, others) in codes {
            others.iter().for_each(|(code, count)| count_code(own, *code, *count));
        }
        // Both have the same bounds, but for one that was read from a foreign file, whose values are cut to them.
        let values = other.hello_to_answer_ns.iter_recorded();
        values.for_each(|value| {
            self.hello_to_answer_ns.saturating_record_n(value.value_iterated_to(), value.count_at_value())
        });
    }

    /// Counts a handshake that is over.
    pub(crate) fn note(&mut self, outcome: Outcome, handshake: Option<&Handshake>) {
        *self.place(outcome) += 1;
        let Some(handshake) = handshake else { return };
        if let Some(waited_ns) = handshake.waited_ns() {
            self.hello_to_answer_ns.saturating_record(waited_ns);
        }
        let Some(offer) = &handshake.offer else { return };
        self.offers.add(&Offers {
            hellos: 1,
            tls13_hellos: offer.has_tls13.into(),
            early_data_hellos: offer.has_early_data.into(),
            http2_hellos: offer.has_http2.into(),
            http1_hellos: offer.has_http1.into(),
            alpn_hellos: offer.has_alpn.into(),
            ecdsa_hellos: offer.has_ecdsa.into(),
        });
        offer.groups.iter().for_each(|group| count_code(&mut self.offered_groups, *group, 1));
        offer.name.iter().for_each(|name| self.names.count(name, 1));
        let is_resumed = outcome == Outcome::Resumed;
        let (Some(answer), true) = (&handshake.answer, is_resumed || outcome == Outcome::Full) else {
            return;
        };
        self.agreed.add(&Agreed {
            tls13_handshakes: (answer.version == TLS13).into(),
            tls12_handshakes: (answer.version == TLS12).into(),
            older_handshakes: (answer.version < TLS12).into(),
            resumption_offered_count: (is_resumed || offer.has_session).into(),
            resumption_refused_count: (!is_resumed && offer.has_session).into(),
            retried_handshakes: handshake.is_retried.into(),
        });
        answer.group.iter().for_each(|group| count_code(&mut self.chosen_groups, *group, 1));
        count_code(&mut self.chosen_suites, answer.suite, 1);
    }

    /// Counts a handshake that is followed no further.
    pub(crate) fn give_up(&mut self) {
        self.connections.given_up_handshakes += 1;
    }

    fn place(&mut self, outcome: Outcome) -> &mut u64 {
        let of = &mut self.connections;
        match outcome {
            Outcome::Full => &mut of.full_handshakes,
            Outcome::Resumed => &mut of.resumed_handshakes,
            Outcome::RefusedByClient => &mut of.refused_by_clients,
            Outcome::LeftByClient => &mut of.left_by_clients,
            Outcome::ClosedByServer => &mut of.closed_by_servers,
            Outcome::NoAnswer => &mut of.without_answers,
            Outcome::Unfinished => &mut of.unfinished_handshakes,
            Outcome::WithoutHello => &mut of.without_hellos,
            Outcome::NotTls => &mut of.without_tls_records,
            Outcome::Unreadable => &mut of.unreadable_handshakes,
        }
    }
}

fn count_code(codes: &mut BTreeMap<u16, u64>, code: u16, count: u64) {
    if codes.len() < MOST_CODES || codes.contains_key(&code) {
        *codes.entry(code).or_default() += count;
    }
}
