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

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
pub use configurations::{can_resume, checks_of, kinds, start_and_check};
use serde::{Deserialize, Serialize};
use tlsdyno_engine::load::Expect;
use tlsdyno_tls::{Config, EarlyData, Session, Settings, Stage, Suite};

use crate::exchange::{Answer, Exchange, Failure, TIME_LIMIT, exchange};
use crate::native::{Doubled, Doubling, DoublingCounters, Injection, ShimCounters, ShimInjection};

/// The check that a client of the configuration is answered.
const ASKED: &str = "full: matching client passes";

/// One check and what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked, for example `full: client without the no-op of kdf fails`.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// What was seen.
    pub seen: String,
    /// A process of the server died meanwhile, as `seen` says.
    #[serde(default)]
    pub crashed: bool,
}

impl Check {
    /// A check with its finding.
    pub fn new(name: impl Into<String>, passed: bool, seen: impl Into<String>) -> Check {
        Check { name: name.into(), passed, seen: seen.into(), crashed: false }
    }
}

/// Lets a death explain why checks failed. Where none did it is a failure of its own: a client that had to fail has
/// brought the server down, or it died of something else.
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

/// What the preflight needs to know of one configuration.
pub struct Target<'a> {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The matching client's settings; `None` for plain HTTP.
    pub settings: Option<&'a Settings>,
    /// The provider inside the server, if there is one.
    pub injection: Option<&'a Injection>,
    /// The shim inside the server, if there is one.
    pub shim: Option<&'a ShimInjection>,
    /// The doubler inside the server, if there is one, and what it computes twice.
    pub doubler: Option<(&'a Doubling, Doubled)>,
    /// A session that this server has never made: a perfect cache must not take it.
    pub foreign_session: Option<&'a Session>,
    /// A whole GET request.
    pub request: &'a [u8],
    /// What it must be answered with.
    pub expect: Expect,
    /// Sessions must be resumable, so that resumed handshakes are checked too.
    pub resumable: bool,
    /// The server asks others over TLS for what it answers: what its libraries count is not of our connections only.
    pub is_tls_client: bool,
}

/// Runs every check that needs connections.
pub fn preflight(target: &Target) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let Some(settings) = target.settings else {
        let answer = exchange(target.address, None, None, target.request);
        checks.push(response_check("plain request answered", &answer, target));
        return Ok(checks);
    };
    let config = compile(settings)?;
    let full = observed(target, &config, None)?;
    checks.push(response_check(ASKED, &full.answer, target));
    // What answers otherwise than expected would do so in all that follows.
    let (true, Ok(answer)) = (checks.iter().all(|check| check.passed), &full.answer) else {
        return Ok(checks);
    };
    // A minimal set-up negotiates none: it has the one that it was given.
    let suite = answer.handshake.as_ref().map_or(settings.suites[0], |handshake| handshake.suite);
    let has_handshakes = !settings.stages_off.contains(Stage::Setup);
    let attempt = Attempt { target, settings, config: &config, suite, session: None, observed: &full };
    attempt.stage_checks(&mut checks)?;
    if target.resumable && has_handshakes {
        resumed_checks(target, settings, &config, suite, answer.sessions.last().cloned(), &mut checks)?;
    }
    if !settings.stages_off.is_empty() {
        // A server that failed the unmatched clients because it went down would fail this one too.
        let Observed { answer, .. } = observed(target, &config, None)?;
        checks.push(response_check("afterwards: matching client passes again", &answer, target));
    }
    Ok(checks)
}

/// The counters once they stand still: the server may still be busy with the end of an earlier connection.
fn settled<C: PartialEq>(read: impl Fn() -> Result<C>) -> Result<C> {
    const PAUSE: Duration = Duration::from_millis(5);
    const PAUSES_MAX: u32 = 40;
    let mut counters = read()?;
    for _ in 0..PAUSES_MAX {
        std::thread::sleep(PAUSE);
        let later = read()?;
        if later == counters {
            break;
        }
        counters = later;
    }
    Ok(counters)
}

/// A matching exchange that passed, full or resumed, from which the stages are checked.
struct Attempt<'a> {
    target: &'a Target<'a>,
    settings: &'a Settings,
    config: &'a Arc<Config>,
    suite: Suite,
    /// What it resumed; `None`: a full handshake.
    session: Option<&'a Session>,
    observed: &'a Observed,
}

impl Attempt<'_> {
    fn kind(&self) -> &'static str {
        if self.session.is_some() { "resumed" } else { "full" }
    }

    fn stage_checks(&self, checks: &mut Vec<Check>) -> Result<()> {
        provider::checks(self, checks)?;
        doubler::checks(self, checks);
        shim::checks(self, checks)
    }

    /// How a client with other settings fares: whether TLS failed, and what was seen. A session refused and a full
    /// handshake made instead would hide the resumed case: that is no failure.
    fn unmatched(&self, settings: &Settings) -> Result<(bool, String)> {
        // Ends what a server with data in plain takes for the head of a request, so that it answers at once.
        const BLANK_LINES: &[u8] = b"\r\n\r\n\r\n";
        let config = compile(settings)?;
        let (address, session) = (self.target.address, self.session.cloned());
        let answer = Exchange::connect(address, TIME_LIMIT)
            .and_then(|exchange| exchange.asking(Some(&config), session, self.target.request, BLANK_LINES)?.whole());
        Ok(match &answer {
            Err(failure) => (failure.is_tls(), failure.to_string()),
            Ok(answer) => (false, format!("completed with status {}", answer.status)),
        })
    }
}

fn resumed_checks(
    target: &Target,
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
    let resumed = observed(target, config, Some(session.clone()))?;
    checks.push(response_check("resumed: matching client passes", &resumed.answer, target));
    let Ok(answer) = &resumed.answer else { return Ok(()) };
    let accepted = answer.is_resumed();
    let seen = if accepted { "accepted" } else { "a full handshake instead" };
    checks.push(Check::new("resumed: the server accepts the session", accepted, seen));
    if let Some(handshake) = answer.handshake.as_ref().filter(|_| settings.early_data) {
        let taken = handshake.early_data == EarlyData::Accepted;
        checks.push(Check::new("resumed: the server takes early data", taken, format!("{:?}", handshake.early_data)));
    }
    if accepted {
        let attempt = Attempt { target, settings, config, suite, session: Some(&session), observed: &resumed };
        attempt.stage_checks(checks)?;
    }
    Ok(())
}

/// One exchange, and what provider, shim and doubler counted meanwhile.
struct Observed {
    /// Calls of each stage of the provider.
    calls: Vec<(Stage, u64)>,
    /// What the shim saw.
    shim: Option<ShimCounters>,
    /// What the doubler did.
    doubler: Option<DoublingCounters>,
    /// How it ended.
    answer: Result<Answer, Failure>,
}

/// One exchange with the counters before and after.
fn observed(target: &Target, config: &Arc<Config>, session: Option<Session>) -> Result<Observed> {
    let before = target.injection.map(|injection| settled(|| injection.counters())).transpose()?;
    let shim_before = target.shim.map(|shim| settled(|| shim.counters())).transpose()?;
    let doubler_before = target.doubler.map(|(doubling, _)| settled(|| doubling.counters())).transpose()?;
    let answer = exchange(target.address, Some(config), session, target.request);
    let doubler_after = target.doubler.map(|(doubling, _)| settled(|| doubling.counters())).transpose()?;
    let doubler = doubler_before.zip(doubler_after).map(|(before, after)| after - before);
    let after = target.injection.map(Injection::counters).transpose()?;
    let shim_after = target.shim.map(ShimInjection::counters).transpose()?;
    let calls = match (before, after) {
        (Some(before), Some(after)) => {
            Stage::PROVIDER.into_iter().map(|stage| (stage, (after - before).of(stage))).collect()
        }
        _ => Vec::new(),
    };
    let shim = shim_before.zip(shim_after).map(|(before, after)| after - before);
    Ok(Observed { calls, shim, doubler, answer })
}

/// Compiles client settings.
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
