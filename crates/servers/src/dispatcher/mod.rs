//! Dispatchers before a cluster of servers: ours, and those that people have. Each is a process of its own, started
//! with a generated configuration in a private directory and accounted for like a server.

mod haproxy;
mod nginx;
mod own;

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_base::interrupt;
use tlsdyno_record::model::Policy;

use super::instance::start_by;
use super::{Instance, InstancePlace, Prepared, ServerName, ServerSpec};

/// How long a dispatcher that listens may take until it tells of its connections. One that never does is found when it
/// is asked.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const ANSWERS_POLL: Duration = Duration::from_millis(2);

pub fn refuse_missing(policy: Policy) -> Result<()> {
    match policy {
        Policy::Own(_) | Policy::UriHash | Policy::Direct => Ok(()),
        Policy::HaproxyRoundRobin | Policy::HaproxySource | Policy::HaproxyStick => haproxy::program().map(drop),
        Policy::NginxHash => nginx::program().map(drop),
    }
}

/// Where a dispatcher tells how many connections it has passed to each backend.
trait Counter: Debug {
    /// So many so far, in the order of the backends.
    fn read(&mut self) -> Result<Vec<u64>>;
}

type Made = (Prepared, Box<dyn Counter>);

#[derive(Debug)]
pub struct Dispatcher {
    pub instance: Instance,
    backends: usize,
    counter: Box<dyn Counter>,
}

/// Starts a dispatcher before `backends` in a directory of its own inside `run`, which listens at `ip`, on processor
/// `cpu` and with one thread. `timeout_s`: how long ours remembers a session; `None`: an hour.
pub fn start(
    policy: Policy,
    backends: &[SocketAddr],
    ip: IpAddr,
    cpu: usize,
    timeout_s: Option<u32>,
    run: &Path,
) -> Result<Dispatcher> {
    ensure!(!backends.is_empty(), "a dispatcher needs a backend");
    // Of the specification only processor and address count here.
    let spec = ServerSpec { cpus: vec![cpu], ip: Some(ip), ..ServerSpec::new(ServerName::Builtin, run.to_owned()) };
    let mut counter = None;
    let instance = start_by(&spec, run, |place| {
        let (prepared, counts) = prepare(policy, backends, timeout_s, place)?;
        counter = Some(counts);
        Ok(prepared)
    })
    .with_context(|| format!("failed to start the dispatcher `{}`", policy.name()))?;
    let mut counter = counter.context("a dispatcher that started was prepared")?;
    // It listens before it has opened the socket by which it tells.
    let limit = Instant::now() + ANSWERS_WITHIN;
    while counter.read().is_err() && Instant::now() < limit {
        interrupt::check_this_process().context("stopped while a dispatcher was starting")?;
        sleep(ANSWERS_POLL);
    }
    Ok(Dispatcher { instance, backends: backends.len(), counter })
}

fn prepare(policy: Policy, backends: &[SocketAddr], timeout_s: Option<u32>, place: InstancePlace) -> Result<Made> {
    match policy {
        Policy::Own(rule) => own::prepare(rule, backends, timeout_s, place),
        Policy::HaproxyRoundRobin | Policy::HaproxySource | Policy::HaproxyStick => {
            haproxy::prepare(policy, backends, place)
        }
        Policy::NginxHash => nginx::prepare(backends, place),
        Policy::UriHash | Policy::Direct => bail!("without a dispatcher there is none to start"),
    }
}

impl Dispatcher {
    /// Connections made to each backend so far, in the order of the backends.
    pub fn connections(&mut self) -> Result<Vec<u64>> {
        let counts = self.counter.read()?;
        ensure!(
            counts.len() == self.backends,
            "the dispatcher tells of {} backends, but has {}",
            counts.len(),
            self.backends
        );
        Ok(counts)
    }
}
