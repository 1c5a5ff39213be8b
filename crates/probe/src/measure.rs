//! One round at one site.

use std::net::{IpAddr, SocketAddr};

use rustix::time::{ClockId, clock_gettime};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_sys::monotonic_ns;
use tlsdyno_tls::crypto::verify::{Certificate, KeyKind};
use tlsdyno_tls::{EarlyData, Session, SessionKind};

use super::connection::{Seen, connect, stamp_packets, visit};
use super::fault::{Cause, Fault, FaultKind};
use super::kept::Keeping;
use super::round::{Facts, Kept, Resumption, Round, now_unix_us};
use super::site::Site;

/// The machine slept if its two clocks went apart by more than this, in nanoseconds.
const SLEPT_NS: u64 = 50_000_000;

/// So many characters of what a server calls itself are kept.
const SERVER_NAME_MAX: usize = 80;

/// Makes a round: a look-up of the name, and connections to one address, one at a time. TCP alone stands at a random
/// place among them, so that nothing that follows a full handshake (a warm path, a busy server) falls on it alone.
/// `keeping` is what earlier rounds of the site left.
pub fn measure(site: &Site, random: &mut SplitMix64, keeping: &mut Keeping) -> Round {
    stamp_packets();
    site.pace();
    let mut round = Round {
        site: site.name.clone(),
        vantage: site.vantage.clone(),
        started_unix_us: now_unix_us(),
        ..Round::default()
    };
    let mut steps: Vec<Step<'_>> = vec![("full", RoundUnderWay::full), ("resumed", RoundUnderWay::resumed)];
    if !site.options.no_early_data {
        steps.push(("early", RoundUnderWay::early));
    }
    steps.insert(random.below(steps.len() + 1), ("tcp", RoundUnderWay::tcp));
    steps.push(("kept", RoundUnderWay::kept));
    let began = (awake_ns(), monotonic_ns());
    let mut walk = RoundUnderWay { site, round: &mut round, sessions: Vec::new(), local: None, keeping };
    let outcome = walk.steps(&steps);
    let spare = std::mem::take(&mut walk.sessions);
    keeping.keep(spare, awake_ns());
    let elapsed = (awake_ns() - began.0, monotonic_ns() - began.1);
    round.fault = outcome.err().or_else(|| slept(elapsed).then(asleep));
    if round.fault.as_ref().is_some_and(|fault| [FaultKind::Moved, FaultKind::Asleep].contains(&fault.kind)) {
        round.discard();
    }
    round
}

/// Whether the machine slept: of the two clocks only the first goes on meanwhile.
fn slept((with_sleep_ns, without_ns): (u64, u64)) -> bool {
    with_sleep_ns.saturating_sub(without_ns) > SLEPT_NS
}

fn asleep() -> Fault {
    Cause::new(FaultKind::Asleep, "this machine slept within the round").in_step("round")
}

/// The clock of schedules and ages: it never goes back, and goes on while the machine sleeps.
pub fn awake_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A step, by its name in faults.
type Step<'a> = (&'static str, fn(&mut RoundUnderWay<'a>, SocketAddr) -> Result<(), Cause>);

struct RoundUnderWay<'a> {
    site: &'a Site,
    round: &'a mut Round,
    /// What the site gave, the oldest first; each is offered once, as it may be good for one use only.
    sessions: Vec<Session>,
    /// Address of this machine's end of the first connection.
    local: Option<IpAddr>,
    keeping: &'a mut Keeping,
}

impl<'a> RoundUnderWay<'a> {
    fn steps(&mut self, steps: &[Step<'a>]) -> Result<(), Fault> {
        let began_ns = monotonic_ns();
        let found = self.site.look_up();
        self.round.lookup_ns = Some(monotonic_ns() - began_ns);
        let address = found.map_err(|cause| cause.in_step("lookup"))?;
        self.site.check_permission(address).map_err(|cause| cause.in_step("lookup"))?;
        self.round.facts.address = address.to_string();
        steps.iter().try_for_each(|(name, step)| step(self, address).map_err(|cause| cause.in_step(name)))
    }

    /// All connections of a round must go the same way, or their times cannot be compared: a laptop that changes from
    /// one network to another has another address.
    fn stays_at(&mut self, local: Option<IpAddr>) -> Result<(), Cause> {
        match (self.local, local) {
            (Some(before), Some(now)) if before != now => {
                Err(Cause::new(FaultKind::Moved, format!("this machine's address changed from {before} to {now}")))
            }
            (None, Some(_)) => {
                self.local = local;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn tcp(&mut self, address: SocketAddr) -> Result<(), Cause> {
        let (stream, tcp_ns) = connect(self.site, address)?;
        self.round.tcp_ns = Some(tcp_ns);
        self.stays_at(stream.local_addr().ok().map(|local| local.ip()))
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
        let accepted = seen.handshake.early_data == EarlyData::Accepted;
        self.round.early_data = became(accepted);
        self.round.early = accepted.then_some(seen.visit);
        self.take(seen)
    }

    fn kept(&mut self, address: SocketAddr) -> Result<(), Cause> {
        let Some(due) = self.keeping.due(awake_ns()) else {
            return Ok(());
        };
        if due.age_s >= due.session.lifetime_s() {
            self.round.kept = Some(Kept { age_s: due.age_s, became: Resumption::NotGiven });
            return Ok(());
        }
        let seen = visit(self.site, address, Some(due.session), false)?;
        self.round.kept = Some(Kept { age_s: due.age_s, became: became(seen.handshake.resumed.is_some()) });
        self.take(seen)
    }

    /// The newest session that fits.
    fn session(&mut self, fits: impl Fn(&Session) -> bool) -> Option<Session> {
        let at = self.sessions.iter().rposition(fits)?;
        // What may be used many times need not be used up.
        let is_single = self.sessions[at].kind() == SessionKind::Tls13Psk;
        Some(if is_single { self.sessions.remove(at) } else { self.sessions[at].clone() })
    }

    fn take(&mut self, seen: Seen) -> Result<(), Cause> {
        self.stays_at(seen.local)?;
        let answer = seen.answer;
        self.sessions.extend(answer.sessions);
        self.round.status = Some(answer.status);
        self.round.body_bytes = Some(answer.body_bytes);
        match answer.status {
            400.. => Err(Cause::new(FaultKind::Status, format!("the answer has status {}", answer.status))),
            _ => Ok(()),
        }
    }

    /// What the full handshake showed of the site; answers why its certificate cannot be trusted, if it cannot.
    fn take_facts(&mut self, seen: &Seen) -> Option<String> {
        let handshake = &seen.handshake;
        let session = seen.answer.sessions.last();
        let chain: Vec<&[u8]> = seen.answer.chain.iter().map(Vec::as_slice).collect();
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
            ticket_key: self.keeping.key_name(&seen.answer.sessions),
            key: leaf.map_or_else(String::new, |leaf| key_name(leaf.public_key.kind)),
            certificate_until_unix_s: leaf.map_or(0, |leaf| leaf.not_after_unix_s),
            certificate_fault: fault.clone().unwrap_or_default(),
            server: seen.answer.header("Server").unwrap_or_default().chars().take(SERVER_NAME_MAX).collect(),
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
        KeyKind::P521 => "P-521".to_owned(),
        KeyKind::Ed25519 => "Ed25519".to_owned(),
        KeyKind::MlDsa44 => "ML-DSA-44".to_owned(),
        KeyKind::MlDsa65 => "ML-DSA-65".to_owned(),
        KeyKind::MlDsa87 => "ML-DSA-87".to_owned(),
        KeyKind::Other => "another kind".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_slept_if_its_clocks_went_apart() {
        assert!(!slept((3_000_000_000, 3_000_000_100)) && !slept((3_010_000_000, 3_000_000_000)));
        assert!(slept((3_600_000_000_000, 1_000_000_000)));
    }
}
