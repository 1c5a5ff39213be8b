//! Handshakes that nobody computes: skeletons of scripted sizes and fast resumption (docs/NOOP.md, "handshake" and
//! "round_trip").

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use tlsdyno_wire::record;

use crate::client::Entropy;
use crate::config::Config;
use crate::crypto::hash::Transcript;
use crate::crypto::kdf::prf12;
use crate::crypto::protect::KEY_BLOCK_MAX;
use crate::error::{Alert, Error};
use crate::noop::StageSet;
use crate::script::Script;
use crate::session::{Session, SessionKind};
use crate::suite::{Hash, Suite, Version};

/// The byte that marks a first flight as none of a real handshake.
const MARK: u8 = 0xd5;
/// Bytes in front of what a first flight holds: record header, mark, kind.
const HEAD: usize = record::HEADER + 2;
/// Bytes of a client's or server's random.
const RANDOM: usize = 32;
/// Bytes of verify data, as in a Finished of TLS 1.2 (RFC 5246 section 7.4.9).
const VERIFY_DATA: usize = 12;
/// Bytes of the reply to a fast resumption that say something: its first, the server's random, verify data.
pub(crate) const REPLY_HEAD: usize = 1 + RANDOM + VERIFY_DATA;

/// What a first flight asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full = 0,
    Resumed = 1,
    /// Resumed, and data follow at once.
    AtOnce = 2,
    /// The same, with the computation of a resumed handshake.
    Fast = 3,
}

/// A skeleton under way.
pub(crate) struct Skeleton {
    config: Arc<Config>,
    kind: Kind,
    /// How it resumes; `None`: it does not.
    resumes: Option<SessionKind>,
    /// Flights that are complete.
    done: usize,
    /// Bytes received of the flight that comes.
    received: u32,
    proof: Option<Box<Proof>>,
}

/// What proves that the server of a fast resumption holds the session.
struct Proof {
    session: Session,
    client_random: [u8; RANDOM],
    /// Hash of the first flight.
    transcript: Transcript,
    reply: [u8; REPLY_HEAD],
}

impl Skeleton {
    /// Appends the first flight of a skeleton. `holds_session`: the user could resume.
    pub fn begin(config: &Arc<Config>, holds_session: bool, at_once: bool, out: &mut Vec<u8>) -> Skeleton {
        let resumes = holds_session && config.resumed_script().is_some();
        let kind = match (resumes, at_once) {
            (false, _) => Kind::Full,
            (true, false) => Kind::Resumed,
            (true, true) => Kind::AtOnce,
        };
        let resumes = (kind != Kind::Full).then(|| kind_of_session(config));
        let walk = Skeleton { config: Arc::clone(config), kind, resumes, done: 1, received: 0, proof: None };
        walk.put_first(&[], out);
        walk
    }

    /// Appends the first flight of a fast resumption of `session`. The configuration has the script of a resumed
    /// handshake.
    pub fn fast(config: &Arc<Config>, session: Session, entropy: &mut dyn Entropy, out: &mut Vec<u8>) -> Skeleton {
        let mut client_random = [0; RANDOM];
        entropy.fill(&mut client_random);
        let identity = session.identity();
        let identity = &identity[..identity.len().min(32)];
        let mut content = Vec::with_capacity(RANDOM + 1 + identity.len());
        content.extend_from_slice(&client_random);
        content.push(identity.len() as u8);
        content.extend_from_slice(identity);
        let resumes = Some(session.kind());
        let mut walk =
            Skeleton { config: Arc::clone(config), kind: Kind::Fast, resumes, done: 1, received: 0, proof: None };
        let start = out.len();
        walk.put_first(&content, out);
        let mut transcript = Transcript::new(Hash::Sha256, config.settings().stages_off);
        transcript.update(&out[start..]);
        walk.proof = Some(Box::new(Proof { session, client_random, transcript, reply: [0; REPLY_HEAD] }));
        walk
    }

    fn put_first(&self, content: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let bytes = (self.script().flights[0] as usize).max(HEAD + content.len());
        let [high, low] = ((bytes - record::HEADER) as u16).to_be_bytes();
        out.extend_from_slice(&[record::HANDSHAKE, 3, 1, high, low, MARK, self.kind as u8]);
        out.extend_from_slice(content);
        out.resize(start + bytes, 0);
    }

    fn script(&self) -> &Script {
        let scripts = self.config.settings().scripts.as_ref().expect("configurations with skeletons have scripts");
        match self.kind {
            Kind::Full => &scripts.full,
            _ => scripts.resumed.as_ref().expect("only what has a script is resumed"),
        }
    }

    /// How it resumes; `None`: it does not.
    pub fn resumes(&self) -> Option<SessionKind> {
        self.resumes
    }

    /// Data may be sent right behind the first flight.
    pub fn sends_at_once(&self) -> bool {
        matches!(self.kind, Kind::AtOnce | Kind::Fast)
    }

    /// The client may send data.
    pub fn is_ready(&self) -> bool {
        self.done >= self.ready_after()
    }

    fn ready_after(&self) -> usize {
        if self.sends_at_once() { 2 } else { self.script().ready_after }
    }

    fn flights(&self) -> usize {
        if self.sends_at_once() { 2 } else { self.script().flights.len() }
    }

    /// Every flight is there; what follows is data.
    pub fn is_over(&self) -> bool {
        self.done == self.flights()
    }

    /// What the user may resume afterwards: nothing after a resumed connection, which took its session from one like
    /// this.
    pub fn session(&self, now_ms: u64) -> Option<Session> {
        let config = &self.config;
        let resumable = self.kind == Kind::Full && config.resumed_script().is_some();
        let suite = config.settings().suites[0];
        resumable.then(|| Session::of_skeleton(kind_of_session(config), suite, config.origin(), now_ms))
    }

    /// Takes bytes of the server; answers how many belong to the handshake. Appends what is to be sent.
    pub fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
        let mut used = 0;
        while !self.is_over() && used < bytes.len() {
            let size = self.script().flights[self.done];
            let taken = ((size - self.received) as usize).min(bytes.len() - used);
            self.take(&bytes[used..used + taken], size)?;
            used += taken;
            if self.received == size {
                self.complete(out)?;
            }
        }
        Ok(used)
    }

    fn take(&mut self, bytes: &[u8], size: u32) -> Result<(), Error> {
        if self.received == 0 && bytes[0] != record::HANDSHAKE {
            return Err(unlike_skeleton(NO_SKELETON));
        }
        if let Some(proof) = &mut self.proof {
            let place = &mut proof.reply[REPLY_HEAD.min(self.received as usize)..];
            let said = place.len().min(bytes.len());
            place[..said].copy_from_slice(&bytes[..said]);
        }
        self.received += bytes.len() as u32;
        if self.received == size && bytes.last() != Some(&0) {
            return Err(unlike_skeleton("a flight of its skeleton handshake does not end in 0"));
        }
        Ok(())
    }

    /// A flight of the server is there: checks its proof, and sends the client's next.
    fn complete(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(proof) = self.proof.take() {
            proof.check(self.config.settings().stages_off)?;
        }
        self.done += 1;
        self.received = 0;
        // Flights alternate: this one is the client's.
        if self.done < self.flights() {
            let start = out.len();
            out.push(record::HANDSHAKE);
            out.resize(start + self.script().flights[self.done] as usize, 0);
            self.done += 1;
        }
        Ok(())
    }
}

/// The kind of session that a real server of this configuration would make.
fn kind_of_session(config: &Config) -> SessionKind {
    let settings = config.settings();
    match settings.suites[0].version() {
        Version::Tls13 => SessionKind::Tls13Psk,
        Version::Tls12 if settings.tickets => SessionKind::Tls12Ticket,
        Version::Tls12 => SessionKind::Tls12Id,
    }
}

impl Proof {
    /// Does what a resumed handshake of TLS 1.2 does: a key block, here dropped, and the check of the server's verify
    /// data.
    fn check(self, off: StageSet) -> Result<(), Error> {
        let secret = self.session.secret();
        let (server_random, verify_data) = self.reply[1..].split_at(RANDOM);
        let mut block = [0; KEY_BLOCK_MAX];
        let block = &mut block[..key_block_bytes(self.session.suite())];
        prf12(Hash::Sha256, off, secret, b"key expansion", &[server_random, &self.client_random], block);
        let mut transcript = self.transcript;
        transcript.update(server_random);
        let mut expected = [0; VERIFY_DATA];
        prf12(Hash::Sha256, off, secret, b"server finished", &[transcript.current().as_slice()], &mut expected);
        verify_slices_are_equal(verify_data, &expected).map_err(|_| Error::BadFinished)
    }
}

/// Bytes of keys, MAC keys and IVs of both directions.
fn key_block_bytes(suite: Suite) -> usize {
    match suite.version() {
        Version::Tls13 => 2 * (suite.protection().key_bytes() + 12),
        Version::Tls12 => suite.protection().key_block_bytes(),
    }
}

const NO_SKELETON: &str =
    "it does not answer with a skeleton handshake (does it have `handshake` or `round_trip` off?)";

fn unlike_skeleton(what: &'static str) -> Error {
    Error::PeerMisbehaved { what, alert: Alert::UNEXPECTED_MESSAGE }
}
