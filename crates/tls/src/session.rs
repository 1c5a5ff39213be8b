//! Sessions that a later connection can resume.

use std::fmt;
use std::sync::Arc;

use tlsdyno_wire::codec::{DecodeError, Reader, put_u16, put_vector16};

use crate::crypto::hash::Digest;
use crate::named;
use crate::suite::{Suite, Version};

named! {
    /// The three ways of resuming, by the names used in reports.
    pub enum SessionKind: "kind of session" {
        /// TLS 1.2, session kept by the server under an id (RFC 5246 section 7.3).
        Tls12Id = "TLS 1.2 id",
        /// TLS 1.2, session kept by the client in a ticket (RFC 5077).
        Tls12Ticket = "TLS 1.2 ticket",
        /// TLS 1.3, pre-shared key with a fresh (EC)DH exchange (RFC 9846 section 2.2).
        Tls13Psk = "TLS 1.3 PSK",
    }
}

impl SessionKind {
    /// The version whose sessions these are.
    pub const fn version(self) -> Version {
        match self {
            SessionKind::Tls13Psk => Version::Tls13,
            _ => Version::Tls12,
        }
    }
}

/// Seconds for which a TLS 1.2 session without lifetime hint is offered (RFC 5246 appendix F.1.4 suggests an upper
/// limit of 24 hours).
const LIFETIME_UNKNOWN_S: u32 = 24 * 3600;
/// No TLS 1.3 ticket lives longer (RFC 9846 section 4.6.1): 7 days.
const LIFETIME_MAX_S: u32 = 7 * 24 * 3600;

/// A session to be resumed, any number of times; a clone shares the same bytes.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

/// As [`Session::to_bytes`] has it.
#[cfg(feature = "serde")]
impl serde::Serialize for Session {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_bytes().serialize(serializer)
    }
}

/// The session counts as received at 0.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Session {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Session, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Session::from_bytes(&bytes, 0).map_err(serde::de::Error::custom)
    }
}

/// A session that cannot be read back: written by another version of this program, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no session that this version wrote")]
pub struct BadSession;

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
    /// Bytes of early data that the server takes with it; 0: none.
    max_early_data: u32,
    origin: Origin,
}

/// Whose session it is, and how sure of that the client was: a resumption verifies nothing anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub server_name: Option<Arc<str>>,
    pub verified: bool,
}

#[derive(Clone)]
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

pub(crate) struct Established12 {
    pub suite: Suite,
    pub master: [u8; 48],
    pub extended_master_secret: bool,
    pub origin: Origin,
}

pub(crate) struct Ticket13<'a> {
    pub identity: &'a [u8],
    pub lifetime_s: u32,
    pub age_add: u32,
    pub max_early_data: u32,
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
            max_early_data: 0,
            origin: established.origin.clone(),
        }))
    }

    /// A TLS 1.3 ticket with its pre-shared key.
    pub(crate) fn tls13(suite: Suite, psk: Digest, ticket: &Ticket13<'_>, origin: Origin, now_ms: u64) -> Session {
        Session(Arc::new(Inner {
            kind: SessionKind::Tls13Psk,
            identity: ticket.identity.into(),
            secret: Secret::Psk(psk),
            suite,
            extended_master_secret: false,
            created_ms: now_ms,
            lifetime_s: ticket.lifetime_s.min(LIFETIME_MAX_S),
            age_add: ticket.age_add,
            max_early_data: ticket.max_early_data,
            origin,
        }))
    }

    /// What a user holds after a skeleton handshake: it stands for a session, and cannot be resumed but by another
    /// skeleton.
    pub(crate) fn of_skeleton(kind: SessionKind, suite: Suite, origin: Origin, now_ms: u64) -> Session {
        Session(Arc::new(Inner {
            kind,
            identity: Box::default(),
            secret: Secret::Master([0; 48]),
            suite,
            extended_master_secret: false,
            created_ms: now_ms,
            lifetime_s: u32::MAX,
            age_add: 0,
            max_early_data: 0,
            origin,
        }))
    }

    /// The same session as one that never ends: the perfect cache keeps its universal session for ever.
    pub(crate) fn without_end(&self) -> Session {
        let inner = &self.0;
        Session(Arc::new(Inner {
            kind: inner.kind,
            identity: inner.identity.clone(),
            secret: inner.secret.clone(),
            suite: inner.suite,
            extended_master_secret: inner.extended_master_secret,
            created_ms: inner.created_ms,
            lifetime_s: u32::MAX,
            age_add: inner.age_add,
            max_early_data: inner.max_early_data,
            origin: inner.origin.clone(),
        }))
    }

    /// The session as bytes that [`Session::from_bytes`] reads, in this version of the program. They hold its secret.
    pub fn to_bytes(&self) -> Vec<u8> {
        let inner = &self.0;
        let mut out = vec![inner.kind as u8];
        put_u16(&mut out, inner.suite.code());
        let (is_psk, secret) = (matches!(inner.secret, Secret::Psk(_)), self.secret());
        let verified = inner.origin.verified;
        out.extend([inner.extended_master_secret, verified, inner.origin.server_name.is_some(), is_psk].map(u8::from));
        for number in [inner.lifetime_s, inner.age_add, inner.max_early_data] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for field in [&inner.identity, secret, inner.origin.server_name.as_deref().unwrap_or_default().as_bytes()] {
            put_vector16(&mut out, |out| out.extend_from_slice(field));
        }
        out
    }

    /// Reads what [`Session::to_bytes`] wrote. The session counts as received at `now_ms`: the clocks of two processes
    /// may differ.
    ///
    /// # Errors
    /// [`BadSession`].
    pub fn from_bytes(bytes: &[u8], now_ms: u64) -> Result<Session, BadSession> {
        Session::read(bytes, now_ms).ok().flatten().ok_or(BadSession)
    }

    fn read(bytes: &[u8], now_ms: u64) -> Result<Option<Session>, DecodeError> {
        let mut reader = Reader::new("session", bytes);
        let kinds = [SessionKind::Tls12Id, SessionKind::Tls12Ticket, SessionKind::Tls13Psk];
        let kind = kinds.get(usize::from(reader.u8()?));
        let suite = Suite::from_code(reader.u16()?);
        let [extended_master_secret, verified, named, is_psk] = reader.array::<4>()?.map(|flag| flag != 0);
        let (lifetime_s, age_add, max_early_data) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (identity, secret, name) = (reader.vector16()?, reader.vector16()?, reader.vector16()?);
        reader.finish()?;
        let (Some(&kind), Some(suite), Ok(name)) = (kind, suite, std::str::from_utf8(name)) else {
            return Ok(None);
        };
        let secret = match is_psk {
            true if secret.len() == suite.hash().digest_bytes() => Secret::Psk(Digest::copy_of(secret)),
            false if secret.len() == 48 => Secret::Master(secret.try_into().expect("48 bytes")),
            _ => return Ok(None),
        };
        Ok(Some(Session(Arc::new(Inner {
            kind,
            identity: identity.into(),
            secret,
            suite,
            extended_master_secret,
            created_ms: now_ms,
            lifetime_s,
            age_add,
            max_early_data,
            origin: Origin { server_name: named.then(|| Arc::from(name)), verified },
        }))))
    }

    /// The mechanism that would resume the session.
    pub fn kind(&self) -> SessionKind {
        self.0.kind
    }

    /// The suite of the connection that it comes from. TLS 1.2 resumes with this suite, TLS 1.3 with any of the same
    /// hash.
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

    /// The first bytes of its ticket or PSK identity, where many servers put the name of their key; `None`: it is an
    /// ID, or shorter.
    pub fn identity_start(&self, bytes: usize) -> Option<&[u8]> {
        let is_ticket = self.0.kind != SessionKind::Tls12Id;
        self.0.identity.get(..bytes).filter(|_| is_ticket)
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

    /// Bytes of early data that the server announced to take with it (RFC 9846 section 4.6.1); 0: none.
    pub fn max_early_data(&self) -> u32 {
        self.0.max_early_data
    }

    /// Master secret or pre-shared key.
    pub(crate) fn secret(&self) -> &[u8] {
        match &self.0.secret {
            Secret::Master(master) => master,
            Secret::Psk(psk) => psk.as_slice(),
        }
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
        let ticket = |lifetime_s, now_ms| {
            let ticket = Ticket13 { identity: b"ticket", lifetime_s, age_add: 5, max_early_data: 0 };
            Session::tls13(Suite::Tls13Aes128Gcm, psk, &ticket, origin("localhost", true), now_ms)
        };
        let endless = ticket(u32::MAX, 0);
        let ticket = ticket(10, 1_000_000);
        assert!(ticket.is_usable(1_000_000) && ticket.is_usable(1_009_999) && !ticket.is_usable(1_010_000));
        assert!(ticket.without_end().is_usable(1_010_000));
        assert_eq!(endless.lifetime_s(), 7 * 24 * 3600);
        let unspecified = Session::tls12_ticket(&established(), b"ticket", 0, 0);
        assert_eq!(unspecified.lifetime_s(), 24 * 3600);
        assert_eq!(Session::tls12_ticket(&established(), b"ticket", 300, 0).lifetime_s(), 300);
    }

    #[test]
    fn the_age_is_masked_and_wraps() {
        let psk = Digest::zero(Hash::Sha256);
        let ticket = Ticket13 { identity: b"ticket", lifetime_s: 10, age_add: u32::MAX, max_early_data: 0 };
        let ticket = Session::tls13(Suite::Tls13Aes128Gcm, psk, &ticket, origin("localhost", true), 1000);
        assert_eq!(ticket.obfuscated_age(1000), u32::MAX);
        assert_eq!(ticket.obfuscated_age(1003), 2);
        // A clock that ran backwards makes no age of half a century.
        assert_eq!(ticket.obfuscated_age(500), u32::MAX);
    }

    #[test]
    fn sessions_survive_the_way_to_another_process() {
        let ticket = Ticket13 { identity: b"ticket", lifetime_s: 10, age_add: 77, max_early_data: 16384 };
        let psk = Digest::filled(Hash::Sha384, 9);
        let anonymous = Origin { server_name: None, verified: true };
        for session in [
            Session::tls12_id(&established(), &[3; 32], 7),
            Session::tls12_ticket(&established(), b"ticket", 300, 7),
            Session::tls13(Suite::Tls13Aes256Gcm, psk, &ticket, anonymous, 7),
        ] {
            let bytes = session.to_bytes();
            let read = Session::from_bytes(&bytes, 500).unwrap();
            assert_eq!(read.to_bytes(), bytes);
            assert_eq!((read.created_ms(), read.kind(), read.suite()), (500, session.kind(), session.suite()));
            assert_eq!(read.secret(), session.secret());
            assert!(read.suits(&session.0.origin) && read.identity() == session.identity());
            for cut in 0..bytes.len() {
                assert_eq!(Session::from_bytes(&bytes[..cut], 0).err(), Some(BadSession), "cut at {cut}");
            }
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let text = format!("{:?}", Session::tls12_id(&established(), &[3; 32], 7));
        assert_eq!(text, "Session { kind: Tls12Id, suite: RsaAes128Sha, created_ms: 7, lifetime_s: 86400, .. }");
    }
}
