//! What the doubler computes twice: its counters tell. Any client must pass, which the exchange itself shows.

use tlsdyno_native::Doubled;
use tlsdyno_tls::{Stage, StageSet};

use super::super::occurrence::{Occurrence, occurrence};
use super::{Attempt, Check};

/// Checks each doubled stage, and all others.
pub(super) fn checks(attempt: &Attempt, checks: &mut Vec<Check>) {
    let Some(counted) = attempt.counted.doubler else { return };
    let Doubled { stages: doubled, copies } = attempt.target.doubled;
    for stage in doubled.iter() {
        // Both halves of a record are one computation, or two that are counted apart.
        let is_whole = stage.together().iter().all(|of_set| doubled.contains(of_set));
        let counters = if is_whole { stage.together() } else { StageSet::NONE.with(stage) };
        let count: u64 = counters.iter().map(|stage| counted.doubled(stage)).sum();
        let resumed = attempt.session.is_some();
        let occurs = occurrence(stage, attempt.suite, resumed, StageSet::NONE) != Occurrence::Absent;
        let what = if occurs { "is computed twice" } else { "does not occur" };
        let name = format!("{stage} {what} (call counter)");
        checks.push(attempt.check(name, (count > 0) == occurs, format!("{count} calls doubled")));
    }
    let others: Vec<Stage> = Stage::PROVIDER.into_iter().filter(|stage| !doubled.contains(*stage)).collect();
    let passed = others.iter().all(|stage| counted.doubled(*stage) == 0) && counted.event("lost") == 0;
    checks.push(attempt.check("nothing else is computed twice", passed, counted.to_string()));
    if copies {
        let copied = counted.event("copies");
        checks.push(attempt.check("records are copied", copied > 0, format!("{copied} copied")));
    }
}
