//! What the shim's stages need of real connections before there are no-op ones: the flights of real handshakes, and
//! sessions.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tlsdyno_base::exchange::{Answer, exchange_within};
use tlsdyno_tls::{Script, Scripts, Session, Settings, StageSet};

use super::preflight::compile;
use super::request::TIME_LIMIT_COUNTED;

/// Handshakes of a server without no-ops.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The flights of its handshakes.
    pub scripts: Scripts,
    /// A session that only this server knows; `None`: it issues none.
    pub session: Option<Session>,
}

/// Records a full and, where the server issues sessions, a resumed handshake.
pub fn record(address: SocketAddr, settings: &Settings, request: &[u8]) -> Result<Recording> {
    let settings =
        Settings { stages_off: StageSet::NONE, early_data: false, universal: None, scripts: None, ..settings.clone() };
    let config = compile(&settings)?;
    let ask = |session| exchange_within(TIME_LIMIT_COUNTED, address, Some(&config), session, request);
    let answer = ask(None).context("failed to record a full handshake of the untouched server")?;
    let full = script(&answer)?;
    let Some(session) = answer.sessions.last().cloned() else {
        return Ok(Recording { scripts: Scripts { full, resumed: None }, session: None });
    };
    let answer = ask(Some(session.clone())).context("failed to record a resumed handshake of the untouched server")?;
    let resumed = answer.is_resumed().then(|| script(&answer)).transpose()?;
    Ok(Recording { scripts: Scripts { full, resumed }, session: Some(session) })
}

fn script(answer: &Answer) -> Result<Script> {
    let script = answer.script.clone().context("plain HTTP has no handshakes to record")?;
    let fault = script.fault();
    ensure!(fault.is_none(), "a recorded handshake cannot be played: {}", fault.unwrap_or_default());
    Ok(script)
}

/// The universal session of a perfect cache: that of the first full handshake that the server completes. Fails where it
/// issues none.
pub fn universal_session(address: SocketAddr, settings: &Settings, request: &[u8]) -> Result<Session> {
    let config = compile(&Settings { universal: None, ..settings.clone() })?;
    let answer = exchange_within(TIME_LIMIT_COUNTED, address, Some(&config), None, request)
        .context("failed to make the universal session")?;
    let session = answer.sessions.last().cloned();
    session.context("failed to make the universal session: the server handed out none")
}
