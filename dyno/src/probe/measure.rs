//! One round at one site.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use tlsdyno_engine::sys::monotonic_ns;
use tlsdyno_tls::crypto::verify::{Certificate, KeyKind};
use tlsdyno_tls::{Session, SessionKind};

use super::connection::{Seen, connect, is_early_accepted, visit};
use super::fault::{Cause, Fault, FaultKind};
use super::round::{Facts, Resumption, Round};
use super::site::Site;
use crate::random::SplitMix64;

/// Makes a round: a look-up of the name, and connections to one address, one at a time. TCP alone stands at a random
/// place among them, so that nothing that follows a full handshake (a warm path, a busy server) falls on it alone.
pub fn measure(site: &Site, random: &mut SplitMix64) -> Round {
    let mut round = Round { site: site.name.clone(), started_unix_us: now_unix_us(), ..Round::default() };
    let mut steps = vec![Step::Full, Step::Resumed];
    if !site.options.no_early_data {
        steps.push(Step::Early);
    }
    steps.insert(random.below(steps.len() + 1), Step::Tcp);
    round.fault = Walk { site, round: &mut round, sessions: Vec::new() }.steps(&steps).err();
    round
}

#[derive(Clone, Copy)]
enum Step {
    Tcp,
    Full,
    Resumed,
    Early,
}

/// A round under way.
struct Walk<'a> {
    site: &'a Site,
    round: &'a mut Round,
    /// What the site gave, the oldest first; each is offered once, as it may be good for one use only.
    sessions: Vec<Session>,
}

impl Walk<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<(), Fault> {
        let began_ns = monotonic_ns();
        let found = self.site.look_up();
        self.round.lookup_ns = Some(monotonic_ns() - began_ns);
        let address = found.map_err(|cause| cause.in_step("lookup"))?;
        self.site.check_permission(address).map_err(|cause| cause.in_step("lookup"))?;
        self.round.facts.address = address.to_string();
        for step in steps {
            match step {
                Step::Tcp => self.tcp(address).map_err(|cause| cause.in_step("tcp")),
                Step::Full => self.full(address).map_err(|cause| cause.in_step("full")),
                Step::Resumed => self.resumed(address).map_err(|cause| cause.in_step("resumed")),
                Step::Early => self.early(address).map_err(|cause| cause.in_step("early")),
            }?;
        }
        Ok(())
    }

    fn tcp(&mut self, address: SocketAddr) -> Result<(), Cause> {
        let (_stream, tcp_ns) = connect(self.site, address)?;
        self.round.tcp_ns = Some(tcp_ns);
        Ok(())
    }

    fn full(&mut self, address: SocketAddr) -> Result<(), Cause> {
        let seen = visit(self.site, address, None, false)?;
        self.round.full = Some(seen.visit);
        let certificate_fault = self.take_facts(&seen);
        self.take(seen)?;
        match certificate_fault {
            Some(text) if self.site.options.verify => Err(Cause::new(FaultKind::Certificate, text)),
            _ => Ok(()),
        }
    }

    fn resumed(&mut self, address: SocketAddr) -> Result<(), Cause> {
        let Some(session) = self.session(|_| true) else {
            self.round.resumption = Resumption::NotGiven;
            return Ok(());
        };
        let seen = visit(self.site, address, Some(session), false)?;
        self.round.resumption = became(seen.handshake.resumed.is_some());
        self.round.resumed = seen.handshake.resumed.map(|_| seen.visit);
        self.take(seen)
    }

    fn early(&mut self, address: SocketAddr) -> Result<(), Cause> {
        let bytes = self.site.request.len();
        let Some(session) = self.session(|session| session.max_early_data() as usize >= bytes) else {
            self.round.early_data = Resumption::NotGiven;
            return Ok(());
        };
        let seen = visit(self.site, address, Some(session), true)?;
        let accepted = is_early_accepted(&seen.handshake);
        self.round.early_data = became(accepted);
        self.round.early = accepted.then_some(seen.visit);
        self.take(seen)
    }

    /// The newest session that fits.
    fn session(&mut self, fits: impl Fn(&Session) -> bool) -> Option<Session> {
        let at = self.sessions.iter().rposition(fits)?;
        Some(self.sessions.remove(at))
    }

    fn take(&mut self, seen: Seen) -> Result<(), Cause> {
        self.sessions.extend(seen.sessions);
        self.round.status = Some(seen.status);
        self.round.body_bytes = Some(seen.body_bytes);
        match seen.status {
            400.. => Err(Cause::new(FaultKind::Status, format!("the answer has status {}", seen.status))),
            _ => Ok(()),
        }
    }

    /// What the full handshake showed of the site; answers why its certificate cannot be trusted, if it cannot.
    fn take_facts(&mut self, seen: &Seen) -> Option<String> {
        let handshake = &seen.handshake;
        let session = seen.sessions.last();
        let chain: Vec<&[u8]> = seen.chain.iter().map(Vec::as_slice).collect();
        let now_unix_s = u64::try_from(self.round.started_unix_us / 1_000_000).unwrap_or(0);
        let verified = self.site.trust.verify(&chain, &self.site.url.host, now_unix_s);
        let fault = verified.err().map(|error| error.to_string());
        let leaf = chain.first().and_then(|der| Certificate::from_der(der).ok());
        self.round.facts = Facts {
            address: std::mem::take(&mut self.round.facts.address),
            version: handshake.version.to_string(),
            suite: handshake.suite.to_string(),
            group: handshake.group.map_or_else(String::new, |group| group.to_string()),
            session: session.map_or_else(String::new, |session| session_name(session.kind()).to_owned()),
            session_lifetime_s: session.map_or(0, Session::lifetime_s),
            key: leaf.map_or_else(String::new, |leaf| key_name(leaf.public_key.kind)),
            certificate_until_unix_s: leaf.map_or(0, |leaf| leaf.not_after_unix_s),
            certificate_fault: fault.clone().unwrap_or_default(),
            server: seen.server.clone(),
        };
        fault
    }
}

fn became(accepted: bool) -> Resumption {
    if accepted { Resumption::Accepted } else { Resumption::Rejected }
}

fn session_name(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Tls12Id => "ID",
        SessionKind::Tls12Ticket => "ticket",
        SessionKind::Tls13Psk => "PSK",
    }
}

fn key_name(kind: KeyKind) -> String {
    match kind {
        KeyKind::Rsa { modulus_bytes } => format!("RSA {}", modulus_bytes * 8),
        KeyKind::P256 => "P-256".to_owned(),
        KeyKind::P384 => "P-384".to_owned(),
        KeyKind::Ed25519 => "Ed25519".to_owned(),
        KeyKind::MlDsa44 => "ML-DSA-44".to_owned(),
        KeyKind::MlDsa65 => "ML-DSA-65".to_owned(),
        KeyKind::MlDsa87 => "ML-DSA-87".to_owned(),
        KeyKind::Other => "another kind".to_owned(),
    }
}

/// Microseconds since 1970 by the wall clock; negative before.
pub fn now_unix_us() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}
