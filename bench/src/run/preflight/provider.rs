//! The stages of the provider: an unmatched client fails, or the call counters tell.

use anyhow::Result;
use tlsdyno_tls::{Effort, Settings, Stage};

use super::super::occurrence::{Occurrence, occurrence};
use super::{Attempt, Check};

/// For each stage of the provider that is off: an unmatched client, or the counters.
pub(super) fn checks(attempt: &Attempt, checks: &mut Vec<Check>) -> Result<()> {
    let off = attempt.settings.stages_off;
    for stage in off.provider().iter() {
        let count = attempt.counted.provider.map_or(0, |counters| counters.of(stage));
        checks.push(match occurrence(stage, attempt.suite, attempt.session.is_some(), off) {
            Occurrence::OnTheWire => {
                let (failed, seen) = attempt.unmatched(&without(attempt.settings, stage))?;
                let name = format!("client without the no-op of {stage} fails");
                attempt.check(name, failed && count > 0, format!("{seen}; {count} calls in the matching handshake"))
            }
            Occurrence::Hidden => {
                let name = format!("{stage} is replaced (call counter)");
                attempt.check(name, count > 0, format!("{count} calls"))
            }
            Occurrence::Absent => {
                let name = format!("{stage} does not occur (call counter)");
                attempt.check(name, count == 0 || attempt.target.is_tls_client, format!("{count} calls"))
            }
        });
    }
    Ok(())
}

/// Whether a full handshake has made the provider count what the configuration declares of hardware.
pub(super) fn counted_once(full: &Attempt) -> Vec<Check> {
    let check = |&(counter, name): &(&str, &str)| {
        let count = full.counted.provider.and_then(|counters| counters.get(counter)).unwrap_or_default();
        Check::new(name, count == 1, format!("{count} in one full handshake"))
    };
    full.target.hardware.iter().map(check).collect()
}

/// The client that has `stage` on while the server has it off.
fn without(settings: &Settings, stage: Stage) -> Settings {
    let mut settings = settings.clone();
    settings.stages_off = settings.stages_off.without(stage);
    if stage == Stage::Authentication {
        // Only an honest client looks at real signatures.
        settings.effort = Effort::Honest;
    }
    settings
}
