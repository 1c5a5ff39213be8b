//! A round in virtual time: what a real round took on this machine, and the network that is played in front of it.

use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::time::Time;
use tlsdyno_probe::round::Visit;
use tlsdyno_probe::{Fault, FaultKind, Resumption, Round};
use tlsdyno_tls::Version;

use super::file::SimulatedSite;
use super::network::{Fate, Phase};

/// How long each step may take.
const PATIENCE_NS: u64 = 10_000_000_000;
/// The first time-out of a SYN (RFC 6298 section 2.1), doubled each time.
const SYN_TIMEOUT_NS: u64 = 1_000_000_000;
/// The least time-out of anything else, as Linux has it.
const RETRANSMIT_MIN_NS: u64 = 200_000_000;

/// The round at a site that begins at that moment, made of a real one. Its stamps are those of virtual time.
pub fn round(site: &SimulatedSite, real: &Round, started_unix_us: i64, random: &mut SplitMix64) -> Round {
    let mut round = Round {
        site: real.site.clone(),
        started_unix_us,
        lookup_ns: real.lookup_ns,
        resumption: Resumption::Untried,
        early_data: Resumption::NotGiven,
        facts: real.facts.clone(),
        ..Round::default()
    };
    let mut walk = VirtualRound { site, unix_s: started_unix_us.div_euclid(1_000_000), random };
    let outcome = walk.steps(real, &mut round);
    round.fault = outcome.err().map(|(step, kind)| Fault {
        step: step.to_owned(),
        kind,
        text: "so the simulated network had it".to_owned(),
    });
    round
}

struct VirtualRound<'a> {
    site: &'a SimulatedSite,
    unix_s: i64,
    random: &'a mut SplitMix64,
}

impl VirtualRound<'_> {
    fn steps(&mut self, real: &Round, round: &mut Round) -> Result<(), (&'static str, FaultKind)> {
        let local_tcp_ns = real.tcp_ns.unwrap_or(0);
        round.tcp_ns = Some(self.connect(local_tcp_ns).map_err(|kind| ("tcp", kind))?);
        if let Some(full) = real.full {
            // A full handshake takes two round trips in TLS 1.2, a resumed one takes one.
            let round_trips = if self.site.tls.version == Version::Tls13 { 1 } else { 2 };
            let visit = self.visit(full, round_trips, ns(self.site.full_handshake_more));
            round.full = Some(visit.map_err(|kind| ("full", kind))?);
            (round.status, round.body_bytes) = (real.status, real.body_bytes);
        }
        round.resumption = real.resumption;
        if let Some(resumed) = real.resumed {
            round.resumed = Some(self.visit(resumed, 1, 0).map_err(|kind| ("resumed", kind))?);
        }
        Ok(())
    }

    fn connect(&mut self, local_ns: u64) -> Result<u64, FaultKind> {
        let refused = (FaultKind::Refused, FaultKind::ConnectTimeout);
        self.round_trip(Phase::Tcp, SYN_TIMEOUT_NS, refused).map(|network_ns| network_ns + local_ns)
    }

    fn visit(&mut self, real: Visit, round_trips: u32, more_ns: u64) -> Result<Visit, FaultKind> {
        let tcp_ns = self.connect(real.tcp_ns)?;
        let late = (FaultKind::Reset, FaultKind::HandshakeTimeout);
        let first_ns = self.round_trip(Phase::Handshake, RETRANSMIT_MIN_NS, late)?;
        let mut handshake_ns = real.handshake_ns + more_ns + first_ns;
        for _ in 1..round_trips {
            handshake_ns += self.round_trip(Phase::Handshake, RETRANSMIT_MIN_NS, late)?;
        }
        let silent = (FaultKind::Reset, FaultKind::Timeout);
        let answer_ns = self.round_trip(Phase::Answer, RETRANSMIT_MIN_NS, silent)? + ns(self.site.answer_more);
        Ok(Visit {
            tcp_ns,
            hello_ns: real.hello_ns + first_ns,
            handshake_ns,
            first_byte_ns: real.first_byte_ns + answer_ns,
            whole_ns: real.whole_ns + answer_ns,
        })
    }

    /// A packet there and one back; lost ones are sent again.
    fn round_trip(
        &mut self,
        phase: Phase,
        timeout_ns: u64,
        (reset, late): (FaultKind, FaultKind),
    ) -> Result<u64, FaultKind> {
        let network = &self.site.network;
        match network.fate(phase, self.random) {
            Fate::Good => {}
            Fate::Reset => return Err(reset),
            Fate::Blackhole => return Err(late),
        }
        let (mut waited_ns, mut timeout_ns) = (0, timeout_ns);
        while network.is_lost(phase, self.random) || network.is_lost(phase, self.random) {
            waited_ns += timeout_ns;
            timeout_ns *= 2;
            if waited_ns > PATIENCE_NS {
                return Err(late);
            }
        }
        let mut delay_ns = || network.delay_ns(phase, self.unix_s, self.random);
        let all_ns = waited_ns + delay_ns() + delay_ns();
        if all_ns > PATIENCE_NS { Err(late) } else { Ok(all_ns) }
    }
}

fn ns(time: Option<Time>) -> u64 {
    time.map_or(0, |time| time.ns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_record::model::Tls;

    fn real() -> Round {
        let visit = |handshake_ns| Some(Visit { tcp_ns: 1, hello_ns: 2, handshake_ns, first_byte_ns: 3, whole_ns: 4 });
        Round {
            tcp_ns: Some(1),
            full: visit(1000),
            resumed: visit(100),
            resumption: Resumption::Accepted,
            ..Round::default()
        }
    }

    fn played(text: &str, version: Version) -> Round {
        let tls = Tls { version, ..Tls::default() };
        let site = SimulatedSite { network: toml::from_str(text).unwrap(), tls, ..SimulatedSite::default() };
        round(&site, &real(), 0, &mut SplitMix64::new(1))
    }

    /// T = 2d; full minus resumed is a round trip and the cryptography in TLS 1.2, the cryptography alone in TLS 1.3.
    #[test]
    fn round_trips_are_those_of_the_protocols() {
        for (version, more_ns) in [(Version::Tls12, 50_000_000), (Version::Tls13, 0)] {
            let round = played("all.delay = \"25ms\"", version);
            assert_eq!(round.tcp_ns, Some(50_000_001));
            let (full, resumed) = (round.full.unwrap(), round.resumed.unwrap());
            assert_eq!(full.handshake_ns - resumed.handshake_ns, more_ns + 900);
            assert_eq!((full.hello_ns, full.whole_ns), (50_000_002, 50_000_004));
        }
    }

    #[test]
    fn networks_fail_in_the_phase_that_they_are_told_to() {
        for (text, step, kind) in [
            ("[tcp]\nreset_percent = 100", "tcp", FaultKind::Refused),
            ("[tcp]\nblackhole_percent = 100", "tcp", FaultKind::ConnectTimeout),
            ("[handshake]\nreset_percent = 100", "full", FaultKind::Reset),
            ("[handshake]\nloss_percent = 100", "full", FaultKind::HandshakeTimeout),
            ("[answer]\nblackhole_percent = 100", "full", FaultKind::Timeout),
            ("[answer]\ndelay = \"6s\"", "full", FaultKind::Timeout),
        ] {
            let round = played(text, Version::Tls13);
            let fault = round.fault.unwrap();
            assert_eq!((fault.step.as_str(), fault.kind), (step, kind), "{text}");
            assert_eq!((round.full, round.resumption), (None, Resumption::Untried));
        }
    }
}
