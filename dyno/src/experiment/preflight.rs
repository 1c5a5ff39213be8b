//! The checks that each configuration must pass before it is measured (`docs/NOOP.md`).
//!
//! They catch vacuous no-ops: a stage that was switched off on paper only. Where a stage shows on the wire, a client
//! without the no-op must fail; where it does not, the provider's call counters must tell.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Config, Effort, Session, Settings, Stage, Suite};

use super::exchange::{Answer, Failure, exchange};
use super::occurrence::{Occurrence, occurrence};
use crate::native::Injection;

/// One check and what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked, for example `full: client without the no-op of kdf fails`.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// What was seen.
    pub seen: String,
}

impl Check {
    /// A check with its finding.
    pub fn new(name: impl Into<String>, passed: bool, seen: impl Into<String>) -> Check {
        Check { name: name.into(), passed, seen: seen.into() }
    }
}

/// What the preflight needs to know of one configuration.
pub struct Subject<'a> {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The matching client's settings; `None` for plain HTTP.
    pub settings: Option<&'a Settings>,
    /// The provider inside the server, if there is one.
    pub injection: Option<&'a Injection>,
    /// A whole GET request.
    pub request: &'a [u8],
    /// Length of the body it must be answered with; `None`: any.
    pub body_bytes: Option<u64>,
    /// Sessions must be resumable, so that resumed handshakes are checked too.
    pub resumable: bool,
}

/// Runs every check that needs connections.
pub fn preflight(subject: &Subject) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let Some(settings) = subject.settings else {
        let answer = exchange(subject.address, None, None, subject.request);
        checks.push(response_check("plain request answered", &answer, subject.body_bytes));
        return Ok(checks);
    };
    let config = compile(settings)?;
    let (full, answer) = counted(subject, &config, None)?;
    checks.push(response_check("full: matching client passes", &answer, subject.body_bytes));
    let Ok(answer) = answer else {
        return Ok(checks);
    };
    let Some(suite) = answer.handshake.as_ref().map(|handshake| handshake.suite) else {
        return Ok(checks);
    };
    stage_checks(subject, settings, suite, None, &full, &mut checks)?;
    if subject.resumable {
        resumed_checks(subject, settings, &config, suite, answer.sessions.last().cloned(), &mut checks)?;
    }
    if !settings.stages_off.is_empty() {
        // A server that failed the unmatched clients because it went down would fail this one too.
        let (_, answer) = counted(subject, &config, None)?;
        checks.push(response_check("afterwards: matching client passes again", &answer, subject.body_bytes));
    }
    Ok(checks)
}

fn resumed_checks(
    subject: &Subject,
    settings: &Settings,
    config: &Arc<Config>,
    suite: Suite,
    session: Option<Session>,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let Some(session) = session else {
        let seen = "the server offered no session; switch tickets or the session cache on, or measure with --reuse 0%";
        checks.push(Check::new("resumed: the server offers a session", false, seen));
        return Ok(());
    };
    let (calls, answer) = counted(subject, config, Some(session.clone()))?;
    checks.push(response_check("resumed: matching client passes", &answer, subject.body_bytes));
    let Ok(answer) = answer else { return Ok(()) };
    let accepted = answer.handshake.as_ref().is_some_and(|handshake| handshake.resumed.is_some());
    checks.push(Check::new(
        "resumed: the server accepts the session",
        accepted,
        if accepted { "accepted" } else { "a full handshake instead" },
    ));
    if accepted {
        stage_checks(subject, settings, suite, Some(session), &calls, checks)?;
    }
    Ok(())
}

/// Calls of each stage during one exchange.
type Calls = Vec<(Stage, u64)>;

/// One exchange with the provider's counters before and after.
fn counted(
    subject: &Subject,
    config: &Arc<Config>,
    session: Option<Session>,
) -> Result<(Calls, Result<Answer, Failure>)> {
    let before = subject.injection.map(Injection::counters).transpose()?;
    let answer = exchange(subject.address, Some(config), session, subject.request);
    let after = subject.injection.map(Injection::counters).transpose()?;
    let calls = match (before, after) {
        (Some(before), Some(after)) => {
            Stage::PROVIDER.into_iter().map(|stage| (stage, (after - before).of(stage))).collect()
        }
        _ => Vec::new(),
    };
    Ok((calls, answer))
}

/// For each stage that is off: an unmatched client, or the counters.
fn stage_checks(
    subject: &Subject,
    settings: &Settings,
    suite: Suite,
    session: Option<Session>,
    calls: &Calls,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let kind = if session.is_some() { "resumed" } else { "full" };
    for stage in settings.stages_off.iter() {
        let count = calls.iter().find(|(counted, _)| *counted == stage).map_or(0, |(_, count)| *count);
        let check = match occurrence(stage, suite, session.is_some(), settings.stages_off) {
            Occurrence::OnTheWire => {
                let unmatched = unmatched(settings, stage)?;
                let answer = exchange(subject.address, Some(&unmatched), session.clone(), subject.request);
                // A session refused and a full handshake made instead would hide the resumed case: that is no failure.
                let (failed, seen) = match &answer {
                    Err(failure) => (failure.is_tls(), failure.to_string()),
                    Ok(answer) => (false, format!("completed with status {}", answer.status)),
                };
                let name = format!("{kind}: client without the no-op of {stage} fails");
                Check::new(name, failed && count > 0, format!("{seen}; {count} calls in the matching handshake"))
            }
            Occurrence::Hidden => {
                Check::new(format!("{kind}: {stage} is replaced (call counter)"), count > 0, format!("{count} calls"))
            }
            Occurrence::Absent => Check::new(
                format!("{kind}: {stage} does not occur (call counter)"),
                count == 0,
                format!("{count} calls"),
            ),
        };
        checks.push(check);
    }
    Ok(())
}

/// The client that has `stage` on while the server has it off.
fn unmatched(settings: &Settings, stage: Stage) -> Result<Arc<Config>> {
    let mut settings = settings.clone();
    settings.stages_off = settings.stages_off.without(stage);
    if stage == Stage::Authentication {
        // Only an honest client looks at real signatures.
        settings.effort = Effort::Honest;
    }
    compile(&settings)
}

/// Compiles client settings.
pub fn compile(settings: &Settings) -> Result<Arc<Config>> {
    Ok(Arc::new(Config::new(settings.clone()).context("settings of the lean client")?))
}

fn response_check(name: &str, answer: &Result<Answer, Failure>, body_bytes: Option<u64>) -> Check {
    match answer {
        Err(failure) => Check::new(name, false, failure.to_string()),
        Ok(answer) => {
            let right = answer.status == 200 && body_bytes.is_none_or(|bytes| bytes == answer.body_bytes);
            Check::new(name, right, format!("status {}, {} bytes", answer.status, answer.body_bytes))
        }
    }
}
