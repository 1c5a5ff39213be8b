//! The checks that each configuration must pass before it is measured (`docs/NOOP.md`).
//!
//! They catch vacuous no-ops: a stage that was switched off on paper only. Where a stage shows on the wire, a client
//! without the no-op must fail; where it does not, the provider's call counters must tell.

mod configurations;
mod doubler;
pub mod negotiated;
mod paths;
mod provider;
pub(in crate::run) mod shim;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tlsdyno_base::exchange::{Answer, Exchange, Failure, exchange_within};
use tlsdyno_engine::load::Expect;
use tlsdyno_native::Doubled;
use tlsdyno_tls::{Config, EarlyData, Session, Settings, Stage, Suite};

use super::instruments::{Counted, Instruments};
pub use configurations::{checks_of, roles, start_and_check};
use negotiated::Asked;

/// Name of the check that the server answers a matching client.
const ASKED: &str = "full: matching client passes";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub passed: bool,
    pub seen: String,
    /// A process of the server died during the check, as `seen` says.
    #[serde(default)]
    pub crashed: bool,
}

impl Check {
    pub fn new(name: impl Into<String>, passed: bool, seen: impl Into<String>) -> Check {
        Check { name: name.into(), passed, seen: seen.into(), crashed: false }
    }
}

/// Adds a process's death to the checks that failed. Without a failed check the death is one: a client that had to fail
/// has crashed the server, or it died of something else.
pub fn explain(checks: &mut Vec<Check>, death: &str) {
    if checks.iter().all(|check| check.passed) {
        checks.push(Check { crashed: true, ..Check::new("no process of the server dies", false, death) });
        return;
    }
    for check in checks.iter_mut().filter(|check| !check.passed) {
        check.seen = format!("{}; {death}", check.seen);
        check.crashed = true;
    }
}

pub struct Target<'a> {
    pub address: SocketAddr,
    /// The matching client's settings; `None` for plain HTTP.
    pub settings: Option<&'a Settings>,
    /// HTTP/2 is spoken without TLS.
    pub prior_knowledge: bool,
    /// Libraries in the server.
    pub instruments: &'a Instruments,
    /// Stages that the doubler computes twice.
    pub doubled: Doubled,
    /// Required results of handshakes; `None`: whatever the client offers.
    pub asked: Option<&'a Asked>,
    /// Counters of the provider that a full handshake must raise by one, each with the reason.
    pub hardware: Vec<(&'static str, &'static str)>,
    /// A session of another server, which a perfect cache must refuse.
    pub foreign_session: Option<&'a Session>,
    /// A whole GET request.
    pub request: &'a [u8],
    pub expect: Expect,
    /// Sessions must be resumable; resumed handshakes are then checked too.
    pub resumable: bool,
    /// Connections of this run resume: a server that takes no session cannot be measured.
    pub resumes: bool,
    /// The server is a TLS client too: its libraries' counters include connections to others.
    pub is_tls_client: bool,
    /// Timeout of an answer.
    pub time_limit: Duration,
}

/// All checks that need connections.
pub fn preflight(target: &Target) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let Some(settings) = target.settings else {
        let answer = Exchange::connect(target.address, target.time_limit)
            .map(|exchange| exchange.with_prior_knowledge(target.prior_knowledge))
            .and_then(|exchange| exchange.asking(None, None, target.request, b"")?.whole());
        checks.push(response_check("plain request answered", &answer, target));
        return Ok(checks);
    };
    let config = compile(settings)?;
    let (answer, counted) = observed(target, &config, None)?;
    checks.push(response_check(ASKED, &answer, target));
    // What answers otherwise than expected would do so in all that follows.
    let (true, Ok(answer)) = (checks[0].passed, &answer) else {
        return Ok(checks);
    };
    // A minimal set-up negotiates none: it has the one that it was given.
    let suite = answer.handshake.as_ref().map_or(settings.suites[0], |handshake| handshake.suite);
    let full = Attempt { target, settings, config: &config, suite, session: None, answer, counted };
    full.stage_checks(&mut checks)?;
    checks.extend(provider::counted_once(&full));
    if target.resumable && !settings.stages_off.contains(Stage::Setup) {
        resumed_checks(&full, &mut checks)?;
    } else {
        checks.extend(negotiated::check_no_resumption(&full));
    }
    if !settings.stages_off.is_empty() {
        // A server that failed the unmatched clients because it went down would fail this one too.
        let answer = full.exchange(None);
        checks.push(response_check("afterwards: matching client passes again", &answer, target));
    }
    Ok(checks)
}

/// A matching exchange that passed, full or resumed, as the basis of the stages' checks.
struct Attempt<'a> {
    target: &'a Target<'a>,
    settings: &'a Settings,
    config: &'a Arc<Config>,
    suite: Suite,
    /// Session that was resumed; `None`: a full handshake.
    session: Option<&'a Session>,
    answer: &'a Answer,
    /// Counters of the server's libraries for this exchange.
    counted: Counted,
}

impl Attempt<'_> {
    fn kind(&self) -> &'static str {
        if self.session.is_some() { "resumed" } else { "full" }
    }

    fn check(&self, name: impl Display, passed: bool, seen: impl Into<String>) -> Check {
        Check::new(format!("{}: {name}", self.kind()), passed, seen)
    }

    fn stage_checks(&self, checks: &mut Vec<Check>) -> Result<()> {
        provider::checks(self, checks)?;
        doubler::checks(self, checks);
        shim::checks(self, checks)?;
        checks.extend(negotiated::checks(self));
        Ok(())
    }

    /// Another exchange of the matching client.
    fn exchange(&self, session: Option<&Session>) -> Result<Answer, Failure> {
        let target = self.target;
        exchange_within(target.time_limit, target.address, Some(self.config), session.cloned(), target.request)
    }

    /// Tries a client with other settings. Returns whether TLS failed, and the finding. A refused session with a full
    /// handshake instead is no failure, as it would hide the resumed case.
    fn unmatched(&self, settings: &Settings) -> Result<(bool, String)> {
        // Ends what a server with data in plain takes for the head of a request, so that it answers at once.
        const BLANK_LINES: &[u8] = b"\r\n\r\n\r\n";
        let config = compile(settings)?;
        let (address, session) = (self.target.address, self.session.cloned());
        let answer = Exchange::connect(address, self.target.time_limit)
            .and_then(|exchange| exchange.asking(Some(&config), session, self.target.request, BLANK_LINES)?.whole());
        Ok(match &answer {
            Err(failure) => (failure.is_tls(), failure.to_string()),
            Ok(answer) => (false, format!("completed with status {}", answer.status)),
        })
    }
}

/// Offers a session of a full handshake, which the server must take if connections of the run resume.
fn resumed_checks(full: &Attempt, checks: &mut Vec<Check>) -> Result<()> {
    let is_needless = !full.target.resumes && !full.settings.stages_off.contains(Stage::SessionCache);
    let refused = |what: &str| match is_needless {
        true => format!("{what}, as all handshakes of this run are"),
        false => format!("{what}; switch tickets or the session cache on, or measure with --reuse 0%"),
    };
    let Some(session) = full.answer.sessions.last() else {
        let seen = refused("the server offered no session: full handshakes");
        checks.push(Check::new("resumed: the server offers a session", is_needless, seen));
        return Ok(());
    };
    let (answer, counted) = observed(full.target, full.config, Some(session.clone()))?;
    checks.push(response_check("resumed: matching client passes", &answer, full.target));
    let Ok(answer) = &answer else { return Ok(()) };
    let accepted = answer.is_resumed();
    let seen = if accepted { "accepted".to_owned() } else { refused("a full handshake instead") };
    checks.push(Check::new("resumed: the server accepts the session", accepted || is_needless, seen));
    if let Some(handshake) = answer.handshake.as_ref().filter(|_| full.settings.early_data) {
        let taken = handshake.early_data == EarlyData::Accepted;
        checks.push(Check::new("resumed: the server takes early data", taken, format!("{:?}", handshake.early_data)));
    }
    if accepted {
        Attempt { session: Some(session), answer, counted, ..*full }.stage_checks(checks)?;
    }
    Ok(())
}

/// One exchange, and the counters for it.
fn observed(
    target: &Target,
    config: &Arc<Config>,
    session: Option<Session>,
) -> Result<(Result<Answer, Failure>, Counted)> {
    let before = target.instruments.settled()?;
    let answer = exchange_within(target.time_limit, target.address, Some(config), session, target.request);
    Ok((answer, target.instruments.settled()?.since(before)))
}

pub fn compile(settings: &Settings) -> Result<Arc<Config>> {
    Ok(Arc::new(Config::new(settings.clone()).context("settings of the lean client")?))
}

fn response_check(name: &str, answer: &Result<Answer, Failure>, target: &Target) -> Check {
    let (right, seen) = paths::judge(answer, target.request, &target.expect);
    Check::new(name, right, seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_explains_failed_checks_or_fails_one_itself() {
        let death = "process 9 was killed by signal 11, SIGSEGV, in libcrypto.so.3";
        let mut checks = vec![Check::new("a", true, "mapped"), Check::new("b", false, "closed")];
        explain(&mut checks, death);
        assert_eq!(checks[0], Check::new("a", true, "mapped"));
        assert_eq!(checks[1].seen, format!("closed; {death}"));
        assert!(checks[1].crashed && checks.len() == 2);
        checks.truncate(1);
        explain(&mut checks, death);
        assert!(!checks[1].passed && checks[1].crashed && checks[1].seen == death, "{checks:?}");
    }
}
