//! What a round found out about a site.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tlsdyno_tls::named;

use super::fault::Fault;

/// One round at one site. Times are nanoseconds of the monotonic clock; only `started_unix_us` is of the wall clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub site: String,
    /// The place that it was seen from; empty: nobody named it.
    #[serde(default)]
    pub vantage: String,
    /// When it began, by the wall clock: microseconds since 1970 (UTC).
    pub started_unix_us: i64,
    pub lookup_ns: Option<u64>,
    /// TCP alone: Goldberg's T.
    pub tcp_ns: Option<u64>,
    /// A full handshake and a GET.
    pub full: Option<Visit>,
    /// A handshake that offers the session of the full one, and a GET.
    pub resumed: Option<Visit>,
    /// A resumed handshake with the GET in the hello (TLS 1.3 early data), where the site's ticket allows that.
    pub early: Option<Visit>,
    /// What became of the offer to resume.
    pub resumption: Resumption,
    pub early_data: Resumption,
    /// What became of a session from an earlier round, where one was offered.
    pub kept: Option<Kept>,
    /// HTTP status of the last answer.
    pub status: Option<u16>,
    /// Bytes of its body.
    pub body_bytes: Option<u64>,
    /// What went wrong first, if anything did; no step follows it.
    pub fault: Option<Fault>,
    /// What changes seldom.
    pub facts: Facts,
}

/// The phases of one connection, in nanoseconds. They begin when the program sends, and end when packets arrive at this
/// machine, by the kernel's stamps; where it gives none, when the program got to see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// SYN until SYN-ACK, as the kernel has it; where a packet was sent again, `connect` called until connected.
    pub tcp_ns: u64,
    /// ClientHello sent until the first bytes of the server's flight arrive.
    pub hello_ns: u64,
    /// ClientHello sent until the handshake is complete: Goldberg's S.
    pub handshake_ns: u64,
    /// Finished and request sent (they travel together; early data: the hello sent) until the first byte of the answer.
    pub first_byte_ns: u64,
    /// Finished and request sent until the last byte of the answer: Goldberg's H.
    pub whole_ns: u64,
}

/// A session of an earlier round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub age_s: u32,
    /// What became of it. `NotGiven`: its lifetime, as the site gave it, was over, and it was not offered.
    pub became: Resumption,
}

impl Visit {
    /// From `connect` until the last byte, without early data, which travel while the handshake goes on.
    pub fn total_ns(&self) -> u64 {
        self.tcp_ns + self.handshake_ns + self.whole_ns
    }
}

named! {
    /// What became of an offer.
    #[derive(Default)]
    pub enum Resumption: "resumption" {
        /// The round did not get that far.
        #[default]
        Untried = "untried",
        /// The site gave nothing to offer.
        NotGiven = "not_given",
        /// Offered, and the site wanted a full handshake (or the request after it) all the same.
        Rejected = "rejected",
        /// Taken.
        Accepted = "accepted",
    }
}

impl Resumption {
    pub fn is_offered(self) -> bool {
        matches!(self, Resumption::Accepted | Resumption::Rejected)
    }
}

/// What is the same in most rounds of a site; a change of it is worth a look.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The address that all connections of the round went to.
    pub address: String,
    pub version: String,
    pub suite: String,
    /// Group of the full handshake's key agreement.
    pub group: String,
    /// How the site keeps sessions: by ID, ticket or PSK.
    pub session: String,
    /// Seconds for which a session may be resumed, as the site says.
    pub session_lifetime_s: u32,
    /// The name of the key that its tickets are encrypted with, in hexadecimal digits, where they show one.
    pub ticket_key: String,
    /// The certificate's key, for example `RSA 2048`.
    pub key: String,
    /// Last second of the certificate's validity, in Unix time; 0: unknown.
    pub certificate_until_unix_s: u64,
    /// Why the certificate cannot be trusted; empty: it can.
    pub certificate_fault: String,
    /// The header `Server`.
    pub server: String,
}

/// Between the URL and the vantage in the name of a series. URLs have no blanks.
const FROM: &str = " from ";

impl Round {
    /// The name of what is compared over time: the site, as seen from one place.
    pub fn series(&self) -> String {
        series(&self.site, &self.vantage)
    }

    /// Site and vantage of a series.
    pub fn of_series(name: &str) -> (&str, &str) {
        name.split_once(FROM).unwrap_or((name, ""))
    }

    /// Lets go of all that was measured: what went wrong makes it worthless.
    pub fn discard(&mut self) {
        let kept = Round {
            site: std::mem::take(&mut self.site),
            vantage: std::mem::take(&mut self.vantage),
            started_unix_us: self.started_unix_us,
            fault: self.fault.take(),
            facts: Facts { address: std::mem::take(&mut self.facts.address), ..Facts::default() },
            ..Round::default()
        };
        *self = kept;
    }

    /// What resumption saved of this round's TCP, handshake and answer together, in percent: Goldberg's (W − C)/W with
    /// T of TCP alone and H of the full connection, so that only the handshakes differ.
    pub fn saving_percent(&self) -> Option<f64> {
        let (tcp_ns, full, resumed) = (self.tcp_ns?, self.full?, self.resumed?);
        let without = tcp_ns + full.handshake_ns + full.whole_ns;
        Some(100.0 * (full.handshake_ns as f64 - resumed.handshake_ns as f64) / without as f64)
    }

    /// Days until the certificate is no longer valid; negative: since then.
    pub fn certificate_days_left(&self) -> Option<i64> {
        let until = i64::try_from(self.facts.certificate_until_unix_s).ok().filter(|until| *until > 0)?;
        Some((until - self.started_unix_us.div_euclid(1_000_000)).div_euclid(86_400))
    }
}

pub fn series(site: &str, vantage: &str) -> String {
    if vantage.is_empty() { site.to_owned() } else { format!("{site}{FROM}{vantage}") }
}

/// Microseconds since 1970 by the wall clock; negative before.
pub fn now_unix_us() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_left_are_whole_and_may_be_negative() {
        let days = |until: u64| {
            let facts = Facts { certificate_until_unix_s: until, ..Facts::default() };
            Round { started_unix_us: 1_000_000 * 86_400 * 10, facts, ..Round::default() }.certificate_days_left()
        };
        assert_eq!(days(86_400 * 10 - 1), Some(-1));
        assert_eq!([days(86_400 * 10), days(86_400 * 13 - 1), days(86_400 * 13)], [Some(0), Some(2), Some(3)]);
        assert_eq!(days(0), None);
    }
}
