//! Sessions that a later connection can resume.

use std::fmt;
use std::sync::Arc;

use crate::crypto::hash::Digest;
use crate::suite::{Suite, Version};

/// The three ways of resuming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionKind {
    /// TLS 1.2, session kept by the server under an id (RFC 5246 section 7.3).
    Tls12Id,
    /// TLS 1.2, session kept by the client in a ticket (RFC 5077).
    Tls12Ticket,
    /// TLS 1.3, pre-shared key with a fresh (EC)DH exchange (RFC 9846 section 2.2).
    Tls13Psk,
}

impl SessionKind {
    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            SessionKind::Tls12Id => "TLS 1.2 id",
            SessionKind::Tls12Ticket => "TLS 1.2 ticket",
            SessionKind::Tls13Psk => "TLS 1.3 PSK",
        }
    }

    /// The version whose sessions these are.
    pub const fn version(self) -> Version {
        match self {
            SessionKind::Tls13Psk => Version::Tls13,
            _ => Version::Tls12,
        }
    }
}

impl fmt::Display for SessionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Seconds for which a TLS 1.2 session without lifetime hint is offered (RFC 5246 appendix F.1.4 suggests an upper limit of 24 hours).
const LIFETIME_UNKNOWN_S: u32 = 24 * 3600;
/// No TLS 1.3 ticket lives longer (RFC 9846 section 4.6.1): 7 days.
const LIFETIME_MAX_S: u32 = 7 * 24 * 3600;

/// A session to be resumed, any number of times; a clone shares the same bytes.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    kind: SessionKind,
    /// Session id, ticket, or PSK identity.
    identity: Box<[u8]>,
    secret: Secret,
    suite: Suite,
    extended_master_secret: bool,
    created_ms: u64,
    lifetime_s: u32,
    age_add: u32,
    origin: Origin,
}

/// Whose session it is, and how sure of that the client was: a resumption verifies nothing anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The name of the settings.
    pub server_name: Option<Arc<str>>,
    /// Chain and signature were verified.
    pub verified: bool,
}

enum Secret {
    Master([u8; 48]),
    Psk(Digest),
}

impl fmt::Debug for Session {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("kind", &self.0.kind)
            .field("suite", &self.0.suite)
            .field("created_ms", &self.0.created_ms)
            .field("lifetime_s", &self.0.lifetime_s)
            .finish_non_exhaustive()
    }
}

/// What a TLS 1.2 session is made of.
pub(crate) struct Established12 {
    pub suite: Suite,
    pub master: [u8; 48],
    pub extended_master_secret: bool,
    pub origin: Origin,
}

impl Session {
    /// A TLS 1.2 session kept by the server under `id`.
    pub(crate) fn tls12_id(established: &Established12, id: &[u8], now_ms: u64) -> Session {
        Session::tls12(SessionKind::Tls12Id, established, id, LIFETIME_UNKNOWN_S, now_ms)
    }

    /// A TLS 1.2 session in a ticket; a hint of 0 leaves the lifetime to the client (RFC 5077 section 3.3).
    pub(crate) fn tls12_ticket(established: &Established12, ticket: &[u8], hint_s: u32, now_ms: u64) -> Session {
        let lifetime_s = if hint_s == 0 { LIFETIME_UNKNOWN_S } else { hint_s };
        Session::tls12(SessionKind::Tls12Ticket, established, ticket, lifetime_s, now_ms)
    }

    fn tls12(kind: SessionKind, established: &Established12, identity: &[u8], lifetime_s: u32, now_ms: u64) -> Session {
        Session(Arc::new(Inner {
            kind,
            identity: identity.into(),
            secret: Secret::Master(established.master),
            suite: established.suite,
            extended_master_secret: established.extended_master_secret,
            created_ms: now_ms,
            lifetime_s,
            age_add: 0,
            origin: established.origin.clone(),
        }))
    }

    /// A TLS 1.3 ticket with its pre-shared key.
    pub(crate) fn tls13(
        suite: Suite,
        psk: Digest,
        ticket: &[u8],
        lifetime_s: u32,
        age_add: u32,
        origin: Origin,
        now_ms: u64,
    ) -> Session {
        Session(Arc::new(Inner {
            kind: SessionKind::Tls13Psk,
            identity: ticket.into(),
            secret: Secret::Psk(psk),
            suite,
            extended_master_secret: false,
            created_ms: now_ms,
            lifetime_s: lifetime_s.min(LIFETIME_MAX_S),
            age_add,
            origin,
        }))
    }

    /// How it would be resumed.
    pub fn kind(&self) -> SessionKind {
        self.0.kind
    }

    /// The suite of the connection that it comes from. TLS 1.2 resumes with this suite, TLS 1.3 with any of the same hash.
    pub fn suite(&self) -> Suite {
        self.0.suite
    }

    /// The caller's time when the session was received, in milliseconds.
    pub fn created_ms(&self) -> u64 {
        self.0.created_ms
    }

    /// Seconds for which the server promises to know it; the client's own bound where the server said nothing.
    pub fn lifetime_s(&self) -> u32 {
        self.0.lifetime_s
    }

    /// Whether it may still be offered at `now_ms` (same clock as at creation).
    pub fn is_usable(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.0.created_ms) < u64::from(self.0.lifetime_s) * 1000
    }

    /// Bytes that this session occupies, for bounds on session stores.
    pub fn size_bytes(&self) -> usize {
        size_of::<Inner>() + self.0.identity.len() + 2 * size_of::<usize>()
    }

    /// Whether it belongs to the server that `wanted` is about, and is as well verified as sessions of `wanted` are.
    pub(crate) fn suits(&self, wanted: &Origin) -> bool {
        self.0.origin.server_name == wanted.server_name && (self.0.origin.verified || !wanted.verified)
    }

    pub(crate) fn identity(&self) -> &[u8] {
        &self.0.identity
    }

    pub(crate) fn extended_master_secret(&self) -> bool {
        self.0.extended_master_secret
    }

    /// The age as sent in TLS 1.3: in milliseconds, plus the server's mask (RFC 9846 section 4.2.11.1).
    pub(crate) fn obfuscated_age(&self, now_ms: u64) -> u32 {
        let age_ms = now_ms.saturating_sub(self.0.created_ms) as u32; // below 7 days, which fits
        age_ms.wrapping_add(self.0.age_add)
    }

    pub(crate) fn psk(&self) -> Option<&Digest> {
        match &self.0.secret {
            Secret::Psk(psk) => Some(psk),
            Secret::Master(_) => None,
        }
    }

    pub(crate) fn master(&self) -> Option<&[u8; 48]> {
        match &self.0.secret {
            Secret::Master(master) => Some(master),
            Secret::Psk(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Hash;

    fn origin(server_name: &str, verified: bool) -> Origin {
        Origin { server_name: Some(server_name.into()), verified }
    }

    fn established() -> Established12 {
        let origin = origin("localhost", false);
        Established12 { suite: Suite::RsaAes128Sha, master: [1; 48], extended_master_secret: true, origin }
    }

    #[test]
    fn sessions_suit_their_own_server_and_no_stricter_client() {
        let unverified = Session::tls12_id(&established(), &[3; 32], 7);
        assert!(unverified.suits(&origin("localhost", false)));
        assert!(!unverified.suits(&origin("localhost", true)));
        assert!(!unverified.suits(&origin("other.example", false)));
        assert!(!unverified.suits(&Origin { server_name: None, verified: false }));
        let verified = Established12 { origin: origin("localhost", true), ..established() };
        let verified = Session::tls12_id(&verified, &[3; 32], 7);
        assert!(verified.suits(&origin("localhost", true)) && verified.suits(&origin("localhost", false)));
    }

    #[test]
    fn sessions_end_with_their_lifetime() {
        let psk = Digest::zero(Hash::Sha256);
        let ticket = Session::tls13(Suite::Tls13Aes128Gcm, psk, b"ticket", 10, 5, origin("localhost", true), 1_000_000);
        assert!(ticket.is_usable(1_000_000) && ticket.is_usable(1_009_999) && !ticket.is_usable(1_010_000));
        let endless = Session::tls13(Suite::Tls13Aes128Gcm, psk, b"ticket", u32::MAX, 5, origin("localhost", true), 0);
        assert_eq!(endless.lifetime_s(), 7 * 24 * 3600);
        let unspecified = Session::tls12_ticket(&established(), b"ticket", 0, 0);
        assert_eq!(unspecified.lifetime_s(), 24 * 3600);
        assert_eq!(Session::tls12_ticket(&established(), b"ticket", 300, 0).lifetime_s(), 300);
    }

    #[test]
    fn the_age_is_masked_and_wraps() {
        let psk = Digest::zero(Hash::Sha256);
        let ticket =
            Session::tls13(Suite::Tls13Aes128Gcm, psk, b"ticket", 10, u32::MAX, origin("localhost", true), 1000);
        assert_eq!(ticket.obfuscated_age(1000), u32::MAX);
        assert_eq!(ticket.obfuscated_age(1003), 2);
        // A clock that ran backwards makes no age of half a century.
        assert_eq!(ticket.obfuscated_age(500), u32::MAX);
    }

    #[test]
    fn secrets_are_not_printed() {
        let text = format!("{:?}", Session::tls12_id(&established(), &[3; 32], 7));
        assert_eq!(text, "Session { kind: Tls12Id, suite: RsaAes128Sha, created_ms: 7, lifetime_s: 86400, .. }");
    }
}
