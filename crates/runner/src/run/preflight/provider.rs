//! The stages of the provider: an unmatched client fails, or the call counters tell.

use anyhow::Result;
use tlsdyno_tls::{Effort, Settings, Stage};

use super::super::occurrence::{Occurrence, occurrence};
use super::{Attempt, Check};

/// For each stage of the provider that is off: by an unmatched client, or by the counters.
pub(super) fn checks(attempt: &Attempt, checks: &mut Vec<Check>) -> Result<()> {
    let off = attempt.settings.stages_off;
    for stage in off.provider().iter() {
        let count = attempt.counted.provider.map_or(0, |counters| counters.total(stage));
        let (what, passed) = match occurrence(stage, attempt.suite, attempt.session.is_some(), off) {
            Occurrence::OnTheWire => {
                let (failed, seen) = attempt.unmatched(&without(attempt.settings, stage))?;
                let name = format!("client without the no-op of {stage} fails");
                let seen = format!("{seen}; {count} calls in the matching handshake");
                checks.push(attempt.check(name, failed && count > 0, seen));
                continue;
            }
            Occurrence::Hidden => ("is replaced", count > 0),
            Occurrence::Absent => ("does not occur", count == 0 || attempt.target.is_tls_client),
        };
        checks.push(attempt.check(format!("{stage} {what} (call counter)"), passed, format!("{count} calls")));
    }
    Ok(())
}

/// Checks that a full handshake raised the provider's counters of the configuration's hardware.
pub(super) fn counted_once(full: &Attempt) -> Vec<Check> {
    let check = |&(counter, name): &(&str, &str)| {
        let count = full.counted.provider.and_then(|counters| counters.get(counter)).unwrap_or_default();
        Check::new(name, count == 1, format!("{count} in one full handshake"))
    };
    full.target.hardware.iter().map(check).collect()
}

/// The client without the no-op of `stage`, which the server has.
fn without(settings: &Settings, stage: Stage) -> Settings {
    let mut settings = settings.clone();
    settings.stages_off = settings.stages_off.without(stage);
    if stage == Stage::Authentication {
        // Only an honest client looks at real signatures.
        settings.effort = Effort::Honest;
    }
    settings
}
