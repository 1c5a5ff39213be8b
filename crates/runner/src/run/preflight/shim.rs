//! The stages of the shim: what its counters say, how many bytes went each way, who resumes, and that unmatched clients
//! fail.

use anyhow::{Result, bail};
use tlsdyno_tls::{Settings, Stage, StageSet};

use super::{Attempt, Check};

/// Number of connections that must all resume with a perfect cache: enough to meet several workers.
const ATTEMPTS: usize = 8;

/// For the shim as a whole and each of its stages that is off.
pub(super) fn checks(attempt: &Attempt, checks: &mut Vec<Check>) -> Result<()> {
    checks.extend(counted(attempt));
    for stage in attempt.settings.stages_off.shim().iter() {
        match stage {
            Stage::SessionCache => session_cache(attempt, checks),
            Stage::Marshalling => marshalling(attempt, checks)?,
            Stage::Handshake => handshake(attempt, checks)?,
            Stage::RoundTrip => checks.extend(round_trip(attempt)),
            Stage::Setup => checks.push(fails(attempt, stage, StageSet::NONE.with(Stage::Setup))?),
            _ => bail!("no check of the preflight shows that {stage} is off"),
        }
    }
    Ok(())
}

/// The shim's counter for a connection of this kind.
pub(in crate::run) fn counter(off: StageSet, resumed: bool) -> &'static str {
    match (off.contains(Stage::Handshake), off.contains(Stage::RoundTrip), resumed) {
        _ if off.contains(Stage::Setup) => "minimal",
        (true, _, false) => "skeleton_full",
        (true, false, true) => "skeleton_resumed",
        (true, true, true) => "skeleton_fast",
        (false, true, true) => "fast_resume",
        (false, _, false) => "full_handshakes",
        (false, false, true) => "resumed_handshakes",
    }
}

/// The shim counted the one connection, and as the intended kind; also where no stage is off.
fn counted(attempt: &Attempt) -> Option<Check> {
    let counters = attempt.counted.shim?;
    let counter = counter(attempt.settings.stages_off, attempt.session.is_some());
    // A server that is a client of TLS too has more connections than ours.
    let passed = match attempt.target.is_tls_client {
        true => counters.get(counter) > Some(0),
        false => counters.get(counter) == Some(1) && counters.connections() == 1,
    };
    let name = format!("the shim counts one connection of {counter}");
    if counters.connections() == 0 && attempt.settings.stages_off.shim().is_empty() {
        // `openssl s_server`: libssl calls itself where its BIO is read. The stages of the provider need no shim.
        return Some(attempt.check(name, true, "none: the server leaves its handshakes to a BIO of libssl"));
    }
    Some(attempt.check(name, passed, counters.to_string()))
}

/// A client that has `stages` on, of which `stage` is checked, must fail.
fn fails(attempt: &Attempt, stage: Stage, stages: StageSet) -> Result<Check> {
    let on = |settings: &Settings| stages.iter().fold(settings.stages_off, StageSet::without);
    let settings = Settings { stages_off: on(attempt.settings), ..attempt.settings.clone() };
    let (failed, seen) = attempt.unmatched(&settings)?;
    Ok(attempt.check(format!("client without the no-op of {stage} fails"), failed, seen))
}

fn session_cache(attempt: &Attempt, checks: &mut Vec<Check>) {
    let target = attempt.target;
    if attempt.settings.stages_off.contains(Stage::Handshake) {
        // A skeleton has no sessions, only users who would have one.
        return;
    }
    let Some(session) = attempt.session else {
        if let Some(foreign) = target.foreign_session {
            let answer = attempt.exchange(Some(foreign));
            let full = answer.as_ref().is_ok_and(|answer| !answer.is_resumed());
            let seen = answer.map_or_else(
                |failure| failure.to_string(),
                |answer| if answer.is_resumed() { "it was resumed" } else { "a full handshake" }.to_owned(),
            );
            checks.push(Check::new("full: a client with another session gets a full handshake", full, seen));
        }
        return;
    };
    let is_resumed = |_: &usize| attempt.exchange(Some(session)).is_ok_and(|answer| answer.is_resumed());
    let resumed = (0..ATTEMPTS).filter(is_resumed).count();
    let name = "resumed: the perfect cache takes the universal session every time";
    checks.push(Check::new(name, resumed == ATTEMPTS, format!("{resumed} of {ATTEMPTS}")));
}

fn marshalling(attempt: &Attempt, checks: &mut Vec<Check>) -> Result<()> {
    let plain = attempt.counted.shim.and_then(|counters| counters.get("plain_connections"));
    let seen = format!("{} connections", plain.unwrap_or_default());
    checks.push(attempt.check("the shim sends data in plain", plain == Some(1), seen));
    // With a skeleton the handshake fails before there are data.
    if !attempt.settings.stages_off.contains(Stage::Handshake) {
        let stages = [Stage::Marshalling, Stage::RoundTrip].into_iter().collect();
        checks.push(fails(attempt, Stage::Marshalling, stages)?);
    }
    Ok(())
}

fn handshake(attempt: &Attempt, checks: &mut Vec<Check>) -> Result<()> {
    let stages = [Stage::Handshake, Stage::RoundTrip].into_iter().collect();
    checks.push(fails(attempt, Stage::Handshake, stages)?);
    checks.extend(bytes_as_scripted(attempt));
    Ok(())
}

/// A fast resumption is one flight of each end; the shim's counter says that there was one.
fn round_trip(attempt: &Attempt) -> Option<Check> {
    attempt.session?;
    if attempt.settings.stages_off.contains(Stage::Handshake) {
        return None;
    }
    let flights = attempt.answer.script.as_ref().map_or(0, |script| script.flights.len());
    Some(attempt.check("a resumed handshake has one flight each way", flights == 2, format!("{flights} flights")))
}

/// Handshakes have as many bytes each way as the recorded one.
fn bytes_as_scripted(attempt: &Attempt) -> Option<Check> {
    let scripts = attempt.settings.scripts.as_ref()?;
    let resumed = attempt.session.is_some();
    let script = if resumed { scripts.resumed.as_ref()? } else { &scripts.full };
    let expected = if resumed && attempt.settings.stages_off.contains(Stage::RoundTrip) {
        (u64::from(script.flights[0]), u64::from(script.flights[1]))
    } else {
        (script.client_bytes(), script.server_bytes())
    };
    let seen = (attempt.answer.overhead_out, attempt.answer.overhead_in);
    let text = format!("{} bytes out, {} in; a real handshake {} and {}", seen.0, seen.1, expected.0, expected.1);
    Some(attempt.check("the handshake has the bytes of a real one each way", seen == expected, text))
}
