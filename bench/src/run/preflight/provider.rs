//! The stages of the provider: an unmatched client fails, or the call counters tell.

use anyhow::Result;
use tlsdyno_tls::{Effort, Settings, Stage};

use super::super::occurrence::{Occurrence, occurrence};
use super::{Attempt, Check};

/// For each stage of the provider that is off: an unmatched client, or the counters.
pub(super) fn checks(attempt: &Attempt, checks: &mut Vec<Check>) -> Result<()> {
    let (off, kind) = (attempt.settings.stages_off, attempt.kind());
    for stage in off.provider().iter() {
        let calls = &attempt.observed.calls;
        let count = calls.iter().find(|(counted, _)| *counted == stage).map_or(0, |(_, count)| *count);
        checks.push(match occurrence(stage, attempt.suite, attempt.session.is_some(), off) {
            Occurrence::OnTheWire => {
                let (failed, seen) = attempt.unmatched(&without(attempt.settings, stage))?;
                let name = format!("{kind}: client without the no-op of {stage} fails");
                Check::new(name, failed && count > 0, format!("{seen}; {count} calls in the matching handshake"))
            }
            Occurrence::Hidden => {
                Check::new(format!("{kind}: {stage} is replaced (call counter)"), count > 0, format!("{count} calls"))
            }
            Occurrence::Absent => Check::new(
                format!("{kind}: {stage} does not occur (call counter)"),
                count == 0 || attempt.target.is_tls_client,
                format!("{count} calls"),
            ),
        });
    }
    Ok(())
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
