//! Whether a server did what its mode says: by the counters of provider, shim and doubler.

use std::collections::BTreeMap;

use tlsdyno_engine::load::Outcome;
use tlsdyno_native::DoublingCounters;
use tlsdyno_tls::{Stage, StageSet};

use super::instruments::Counted;
use super::preflight::shim::counter;
use super::testbed::ServerUnderTest;

#[derive(Debug, Default)]
pub struct ModeCheck {
    /// Stages whose calls were counted with full handshakes, by configuration.
    calls: BTreeMap<usize, StageSet>,
}

impl ModeCheck {
    /// Says why the counters contradict that exactly the stages of this configuration were off or doubled, for exactly
    /// the connections of `outcome`; `None`: no contradiction.
    pub fn fault(
        &mut self,
        (index, server): (usize, &ServerUnderTest),
        outcome: &Outcome,
        before: &Counted,
        after: &Counted,
    ) -> Option<String> {
        let (off, on_the_wire) = (server.model.noop, server.model.stages_on_the_wire());
        let since = after.since(*before);
        if let (Some(after), Some(counted)) = (after.shim, since.shim) {
            let [full, resumed] = [false, true].map(|resumed| counted.get(counter(off, resumed)).unwrap_or_default());
            // A minimal set-up is neither, and so counted under one name for both.
            let of_mode = if counter(off, false) == counter(off, true) { full } else { full + resumed };
            let is_exact = of_mode == outcome.connections && counted.connections() == outcome.connections;
            let is_enough = server.is_tls_client && of_mode >= outcome.connections;
            // `openssl s_server` leaves its handshakes to a BIO of libssl, as the preflight has said.
            let is_unseen = after.connections() == 0 && on_the_wire.shim().is_empty();
            if !(is_exact || is_enough || is_unseen) {
                let counted = if counted.connections() > 0 { counted.to_string() } else { "none".to_owned() };
                return Some(format!("of {} connections the shim counted {counted}", outcome.connections));
            }
        }
        if let Some(counted) = since.doubler {
            return self.doubled_otherwise((index, server), outcome, counted);
        }
        let counted = since.provider?;
        let wrong = counted.of_stages().find(|(stage, _, calls)| *calls > 0 && !on_the_wire.contains(*stage));
        if let Some((stage, name, calls)) = wrong {
            return Some(format!("{stage} was on, and yet {name} was called {calls} times as a no-op"));
        }
        // What resumed handshakes do without cannot be told from one that was left on.
        if outcome.handshakes.full == 0 {
            return None;
        }
        let seen: StageSet = on_the_wire.provider().iter().filter(|stage| counted.total(*stage) > 0).collect();
        let silent = self.missing_of(index, seen)?;
        Some(format!("{silent} was off, and yet no call of it was counted"))
    }

    /// Says why the doubler's counters contradict that exactly the stages of this configuration were doubled.
    fn doubled_otherwise(
        &mut self,
        (index, server): (usize, &ServerUnderTest),
        outcome: &Outcome,
        counted: DoublingCounters,
    ) -> Option<String> {
        let wanted = server.doubled().stages;
        let seen: StageSet = Stage::PROVIDER.into_iter().filter(|stage| counted.doubled(*stage) > 0).collect();
        if let Some(wrong) = seen.iter().find(|stage| !wanted.contains(*stage)) {
            return Some(format!("{wrong} was to be computed once, and yet some of it was computed twice: {counted}"));
        }
        if counted.event("lost") > 0 {
            return Some(format!("{} second computations failed", counted.event("lost")));
        }
        // A key of ML-KEM takes its encoding only once.
        let always = |name: &str| name != "key_decode";
        let once = counted
            .of_stages()
            .find(|(stage, name, [calls, doubled])| seen.contains(*stage) && always(name) && doubled < calls);
        if let Some((_, name, [calls, doubled])) = once {
            return Some(format!("of {calls} calls of {name} {doubled} were computed twice"));
        }
        if outcome.handshakes.full == 0 {
            return None;
        }
        let silent = self.missing_of(index, seen)?;
        Some(format!("{silent} was to be computed twice, and yet no call of it was"))
    }

    /// A stage that is not in `seen`, but was in earlier work of this configuration.
    fn missing_of(&mut self, index: usize, seen: StageSet) -> Option<Stage> {
        let usual = self.calls.entry(index).or_insert(seen);
        let silent = usual.iter().find(|stage| !seen.contains(*stage));
        *usual = usual.union(seen);
        silent
    }
}
