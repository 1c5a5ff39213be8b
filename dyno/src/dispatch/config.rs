//! What a dispatcher is told to do, as a TOML file holds it. Flags build the same structure, and `validate` takes the
//! same way as running.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_engine::dispatch::{self, CheckKind, Policy, ProxyHeader, Settings};

use super::address;
use crate::fault::{Fault, OrFault};
use crate::time::Time;

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// What status and errors call it; its address if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it listens.
    #[serde(deserialize_with = "address::read")]
    pub address: SocketAddr,
}

/// Bounds. Times are written with their unit: "10s", "500ms".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Most open connections; more wait in the kernel's queue.
    pub connections: u32,
    /// Most open connections of one client address; 0: no limit.
    pub connections_per_address: u32,
    /// Most bytes of a ClientHello, or of a first request line, that are held; a longer one is forwarded without being
    /// understood.
    pub hello_bytes: u32,
    /// How long a client may take for it.
    pub hello_time: Time,
    /// How long connecting to a backend may take before the next one is tried.
    pub connect_time: Time,
    /// How long neither side may send anything.
    pub idle_time: Time,
    /// How long the other side may be silent after one has ended its direction.
    pub half_closed_time: Time,
    /// Most pipes for splicing at the same time.
    pub pipes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 8192,
            connections_per_address: 0,
            hello_bytes: 16 * 1024,
            hello_time: Time::seconds(10),
            connect_time: Time::seconds(3),
            idle_time: Time::seconds(300),
            half_closed_time: Time::seconds(60),
            pipes: 256,
        }
    }
}

/// How backends are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// What is done.
    pub kind: CheckKind,
    /// From one check to the next.
    pub interval: Time,
    /// A check that takes longer has failed.
    pub timeout: Time,
    /// Successes in a row after which a backend is up again.
    pub rise: u32,
    /// Failures in a row, of checks or of connections, after which it is down.
    pub fall: u32,
}

impl Default for Check {
    fn default() -> Check {
        Check { kind: CheckKind::Tcp, interval: Time::seconds(2), timeout: Time::seconds(1), rise: 2, fall: 3 }
    }
}

impl Check {
    fn for_engine(&self) -> Result<dispatch::Check> {
        ensure!(self.rise > 0 && self.fall > 0, "`rise` and `fall` of `check` must be at least 1");
        Ok(dispatch::Check {
            kind: self.kind,
            interval_ns: self.interval.nanoseconds().context("`interval` of `check`")?,
            timeout_ns: self.timeout.nanoseconds().context("`timeout` of `check`")?,
            rise: self.rise,
            fall: self.fall,
        })
    }
}

/// A dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where clients connect to.
    #[serde(deserialize_with = "address::read_all")]
    pub listen: Vec<SocketAddr>,
    /// How a backend is chosen.
    #[serde(default = "default_policy")]
    pub policy: Policy,
    /// What backends are told about the client.
    #[serde(default)]
    pub proxy_protocol: ProxyHeader,
    /// Loops, each a thread; 0: one for each processor.
    #[serde(default)]
    pub loops: u32,
    /// How long it is remembered which backend holds a session: as long as the backends keep theirs.
    #[serde(default = "default_session_timeout")]
    pub session_timeout: Time,
    /// TLS 1.2 sessions, and client addresses, that are remembered at once; 32 bytes each.
    #[serde(default = "default_table_size")]
    pub table_size: u32,
    /// How long open connections may go on after the first Ctrl-C.
    #[serde(default = "default_drain_time")]
    pub drain_time: Time,
    /// Unix socket for status and metrics; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// Bounds.
    #[serde(default)]
    pub limits: Limits,
    /// How backends are checked.
    #[serde(default)]
    pub check: Check,
    /// The backends.
    #[serde(rename = "backend", default)]
    pub backends: Vec<Backend>,
}

/// The policy unless another is asked for.
pub const fn default_policy() -> Policy {
    Policy::SessionAddress
}

/// See [`Config::drain_time`].
pub const fn default_drain_time() -> Time {
    Time::seconds(30)
}

/// See [`Config::session_timeout`]: what nginx, Apache, HAProxy and OpenSSL have unless told otherwise.
pub const fn default_session_timeout() -> Time {
    Time::seconds(300)
}

/// See [`Config::table_size`].
pub const fn default_table_size() -> u32 {
    131_072
}

/// Most loops.
pub const LOOPS_MAX: u32 = 256;

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, is no such TOML, or contradicts itself; ends the program with [`Fault::Input`].
    pub fn read(path: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("failed to read the dispatcher's configuration {}", path.display()))
            .or_fault(Fault::Input)?;
        let parse = || -> Result<Config> {
            let config: Config = toml::from_str(&text)?;
            config.settings()?;
            Ok(config)
        };
        parse()
            .with_context(|| format!("the dispatcher's configuration {} is wrong", path.display()))
            .or_fault(Fault::Input)
    }

    /// Checks everything that can be checked without the network, and puts it as the engine wants it.
    ///
    /// # Errors
    /// What contradicts itself, by its name in the file.
    pub fn settings(&self) -> Result<Settings> {
        ensure!(!self.listen.is_empty(), "`listen` names no address for clients to connect to");
        ensure!(self.loops <= LOOPS_MAX, "`loops` is {}, at most {LOOPS_MAX} make sense", self.loops);
        ensure!((1..=1 << 26).contains(&self.table_size), "`table_size` must be between 1 and {}", 1 << 26);
        let settings = Settings {
            backends: self.backends.iter().map(Backend::for_engine).collect(),
            policy: self.policy,
            proxy_header: self.proxy_protocol,
            limits: self.limits.for_engine()?,
            session_timeout_s: self.session_timeout_s()?,
            check: self.check.for_engine()?,
        };
        settings.check()?;
        ensure!(
            self.policy != Policy::Lard || self.check.kind != CheckKind::Hello,
            "policy `lard` is for backends that speak plain HTTP, to which check `hello` speaks TLS; use check `tcp`"
        );
        for backend in &self.backends {
            ensure!(backend.address.port() != 0, "backend {} has no port", backend.address);
            if self.listen.contains(&backend.address) {
                bail!(
                    "{} is both an address to listen on and a backend: connections would go round for ever",
                    backend.address
                );
            }
        }
        for (index, address) in self.listen.iter().enumerate() {
            let again = address.port() != 0 && self.listen[..index].contains(address);
            ensure!(!again, "`listen` names {address} twice");
        }
        Ok(settings)
    }

    fn session_timeout_s(&self) -> Result<u32> {
        let seconds = self.session_timeout.0.as_secs();
        ensure!((1..=10_000_000).contains(&seconds), "`session_timeout` must be at least one second");
        Ok(seconds as u32)
    }

    /// Loops to run.
    pub fn loops(&self) -> usize {
        match self.loops {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            loops => loops as usize,
        }
    }
}

impl Backend {
    fn for_engine(&self) -> dispatch::Backend {
        let name = self.name.clone().unwrap_or_else(|| self.address.to_string());
        dispatch::Backend { name, address: self.address }
    }
}

impl Limits {
    fn for_engine(&self) -> Result<dispatch::Limits> {
        ensure!((1..=1_000_000).contains(&self.connections), "`connections` must be between 1 and 1000000");
        ensure!((64..=64 * 1024).contains(&self.hello_bytes), "`hello_bytes` must be between 64 and 65536");
        let time = |time: Time, name| time.nanoseconds().context(format!("`{name}`"));
        Ok(dispatch::Limits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            hello_bytes: self.hello_bytes as usize,
            hello_ns: time(self.hello_time, "hello_time")?,
            connect_ns: time(self.connect_time, "connect_time")?,
            idle_ns: time(self.idle_time, "idle_time")?,
            half_closed_ns: time(self.half_closed_time, "half_closed_time")?,
            pipes: self.pipes.min(100_000),
        })
    }
}
