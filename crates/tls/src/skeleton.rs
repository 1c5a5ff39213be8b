//! Handshakes that nobody computes: skeletons of scripted sizes (docs/NOOP.md, "handshake").

use std::sync::Arc;

use tlsdyno_wire::record;

use crate::config::Config;
use crate::error::{Alert, Error};
use crate::script::Script;
use crate::session::{Session, SessionKind};
use crate::suite::Version;

/// The byte that marks a first flight as none of a real handshake, and a record as none of TLS.
pub(crate) const MARK: u8 = 0xd5;
/// Bytes in front of what a first flight holds: record header, mark, kind.
const HEAD: usize = record::HEADER + 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full = 0,
    Resumed = 1,
    /// Resumed, and data follow at once.
    AtOnce = 2,
}

pub(crate) struct Skeleton {
    config: Arc<Config>,
    kind: Kind,
    /// How it resumes; `None`: it does not.
    resumes: Option<SessionKind>,
    done: usize,
    /// Bytes received of the flight that comes.
    received: u32,
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
        let walk = Skeleton { config: Arc::clone(config), kind, resumes, done: 1, received: 0 };
        walk.put_first(out);
        walk
    }

    fn put_first(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let bytes = (self.script().flights[0] as usize).max(HEAD);
        let [high, low] = ((bytes - record::HEADER) as u16).to_be_bytes();
        out.extend_from_slice(&[record::HANDSHAKE, 3, 1, high, low, MARK, self.kind as u8]);
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
        self.kind == Kind::AtOnce
    }

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
                self.complete(out);
            }
        }
        Ok(used)
    }

    fn take(&mut self, bytes: &[u8], size: u32) -> Result<(), Error> {
        if self.received == 0 && bytes[0] != record::HANDSHAKE {
            return Err(unlike_skeleton(NO_SKELETON));
        }
        self.received += bytes.len() as u32;
        if self.received == size && bytes.last() != Some(&0) {
            return Err(unlike_skeleton("a flight of its skeleton handshake does not end in 0"));
        }
        Ok(())
    }

    /// A flight of the server is there: sends the client's next.
    fn complete(&mut self, out: &mut Vec<u8>) {
        self.done += 1;
        self.received = 0;
        // Flights alternate: this one is the client's.
        if self.done < self.flights() {
            let start = out.len();
            out.push(record::HANDSHAKE);
            out.resize(start + self.script().flights[self.done] as usize, 0);
            self.done += 1;
        }
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

const NO_SKELETON: &str = "it does not answer with a skeleton handshake (does it have `handshake` off?)";

fn unlike_skeleton(what: &'static str) -> Error {
    Error::PeerMisbehaved { what, alert: Alert::UNEXPECTED_MESSAGE }
}
