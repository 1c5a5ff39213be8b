//! `tlsdyno dispatch` as a dispatcher of an experiment.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tlsdyno_dispatch::config::{Backend, Config};
use tlsdyno_dispatch::control;
use tlsdyno_dispatch::status::Status;
use tlsdyno_engine::dispatch::{Check, CheckKind, Policy};
use tlsdyno_engine::time::Time;

use super::super::launch::own_executable;
use super::super::{InstancePlace, Prepared};
use super::Made;

const CONFIG_FILE: &str = "dispatch.toml";
const CONTROL_FILE: &str = "control";
/// How long the servers of an experiment keep their sessions; the dispatcher remembers them as long (Apostolopoulos et
/// al. 2000: the same time-out on both sides gives near perfect reuse).
const SESSION_TIMEOUT: Time = Time::seconds(3600);

#[derive(Debug)]
struct Counter(PathBuf);

impl super::Counter for Counter {
    fn read(&mut self) -> Result<Vec<u64>> {
        let status: Status =
            serde_json::from_str(&control::ask(&self.0, "/status")?).context("read the dispatcher's status")?;
        Ok(status.backends.iter().map(|backend| backend.connections).collect())
    }
}

pub(super) fn prepare(
    policy: Policy,
    backends: &[SocketAddr],
    timeout_s: Option<u32>,
    place: InstancePlace,
) -> Result<Made> {
    let control = place.own.join(CONTROL_FILE);
    let config = Config {
        listen: vec![place.address()],
        policy,
        loops: 1,
        session_timeout: timeout_s.map_or(SESSION_TIMEOUT, |seconds| Time::seconds(seconds.into())),
        drain_time: Time::seconds(1),
        control: Some(control.clone()),
        // Checks would cost the backends CPU time that belongs to no request.
        check: Check { kind: CheckKind::None, ..Check::default() },
        backends: backends.iter().map(|&address| Backend { name: None, address }).collect(),
        ..Config::default()
    };
    let text = toml::to_string(&config).context("write the dispatcher's configuration")?;
    let path = place.write(CONFIG_FILE, &text)?;
    let arguments = vec!["dispatch".into(), "--config".into(), path.into()];
    let prepared = Prepared {
        config: text,
        version: format!("tlsdyno {} dispatch", env!("CARGO_PKG_VERSION")),
        ..Prepared::new(own_executable()?.get_program(), arguments)
    };
    Ok((prepared, Box::new(Counter(control))))
}
