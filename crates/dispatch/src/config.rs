//! What a dispatcher is told to do, by a TOML file or by flags; `validate` takes the same way as running.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, defaults_of};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::dispatch::{self, Check, CheckKind, Limits, Policy, ProxyHeader, Settings};
use tlsdyno_engine::time::Time;

use super::address;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// What status and errors call it; its address if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(deserialize_with = "address::read")]
    pub address: SocketAddr,
}

/// A dispatcher: what its file holds, and what its flags say. Its help texts are those of the flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where clients connect to; port 0: a free one. May be repeated
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::resolve)]
    #[serde(deserialize_with = "address::read_all")]
    pub listen: Vec<SocketAddr>,
    /// Where connections go. May be repeated
    #[arg(long = "backend", value_name = "ADDRESS:PORT", value_parser = Backend::resolve)]
    #[serde(rename = "backend")]
    pub backends: Vec<Backend>,
    /// How a backend is chosen
    #[arg(long, default_value_t = Policy::SessionAddress, value_parser = choice(Policy::ALL))]
    pub policy: Policy,
    /// Tell backends who the client is, in a PROXY protocol header
    #[arg(long, default_value_t, value_parser = choice(ProxyHeader::ALL))]
    pub proxy_protocol: ProxyHeader,
    /// Loops, each a thread; 0: one for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub loops: u32,
    /// How long it is remembered which backend holds a session (as long as the backends keep theirs), or an object
    /// that nobody asks for
    // What nginx, Apache, HAProxy and OpenSSL have unless told otherwise.
    #[arg(long, value_name = "TIME", default_value_t = Time::seconds(300))]
    pub session_timeout: Time,
    /// TLS 1.2 sessions, client addresses and, each by itself, objects that are remembered at once; 32 bytes each
    #[arg(long, value_name = "N", default_value_t = 131_072)]
    pub table_size: u32,
    /// How long open connections may go on after the first Ctrl-C
    #[arg(long, value_name = "TIME", default_value_t = Time::seconds(30))]
    pub drain_time: Time,
    /// Unix socket for status and metrics (`tlsdyno dispatch status`, `curl --unix-socket PATH http://d/metrics`)
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// Bounds. Times are written with their unit: "10s", "500ms".
    #[arg(skip)]
    pub limits: Limits,
    /// How backends are checked.
    #[arg(skip)]
    pub check: Check,
}

impl Default for Config {
    fn default() -> Config {
        defaults_of()
    }
}

pub const LOOPS_MAX: u32 = 256;

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, is no such TOML, or contradicts itself; ends the program with [`Fault::Input`].
    pub fn read(path: &Path) -> Result<Config> {
        let text = tlsdyno_base::input::text(path)
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
    pub fn settings(&self) -> Result<Settings> {
        ensure!(!self.listen.is_empty(), "`listen` names no address for clients to connect to");
        ensure!(self.loops <= LOOPS_MAX, "`loops` is {}, at most {LOOPS_MAX} make sense", self.loops);
        ensure!((1..=1 << 26).contains(&self.table_size), "`table_size` must be between 1 and {}", 1 << 26);
        let settings = Settings {
            backends: self.backends.iter().map(Backend::for_engine).collect(),
            policy: self.policy,
            proxy_header: self.proxy_protocol,
            limits: Limits { pipes: self.limits.pipes.min(100_000), ..self.limits },
            session_timeout_s: self.session_timeout_s()?,
            check: self.check,
        };
        self.check_bounds()?;
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

    fn check_bounds(&self) -> Result<()> {
        let Config { limits, check, .. } = self;
        ensure!((1..=1_000_000).contains(&limits.connections), "`connections` must be between 1 and 1000000");
        ensure!((64..=64 * 1024).contains(&limits.hello_bytes), "`hello_bytes` must be between 64 and 65536");
        ensure!(check.rise > 0 && check.fall > 0, "`rise` and `fall` of `check` must be at least 1");
        let times = [
            ("`hello_time`", limits.hello_time),
            ("`connect_time`", limits.connect_time),
            ("`idle_time`", limits.idle_time),
            ("`half_closed_time`", limits.half_closed_time),
            ("`interval` of `check`", check.interval),
            ("`timeout` of `check`", check.timeout),
        ];
        times.into_iter().try_for_each(|(name, time)| time.nanoseconds().map(drop).context(name))
    }

    fn session_timeout_s(&self) -> Result<u32> {
        let seconds = self.session_timeout.0.as_secs();
        ensure!((1..=10_000_000).contains(&seconds), "`session_timeout` must be at least one second");
        Ok(seconds as u32)
    }

    pub fn loops(&self) -> usize {
        match self.loops {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            loops => loops as usize,
        }
    }
}

impl Backend {
    fn resolve(text: &str) -> Result<Backend, String> {
        Ok(Backend { name: None, address: address::resolve(text)? })
    }

    fn for_engine(&self) -> dispatch::Backend {
        let name = self.name.clone().unwrap_or_else(|| self.address.to_string());
        dispatch::Backend { name, address: self.address }
    }
}
