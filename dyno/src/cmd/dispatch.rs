//! `tlsdyno dispatch`: the session-aware dispatcher.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{ArgGroup, Subcommand};
use tlsdyno_engine::dispatch::{CheckKind, Policy, ProxyHeader};

use crate::choice::choice;
use crate::dispatch::address;
use crate::dispatch::config::{self, Backend, Check, Config, Limits};
use crate::dispatch::control;
use crate::dispatch::service::{End, Service};
use crate::dispatch::status::Status;
use crate::exit::Exit;
use crate::time::Time;

/// Pass TLS connections through to backends, each to the one that holds its session
///
/// It does not decrypt anything and needs nothing from the backends. Ctrl-C ends it once the open connections are done;
/// a second one at once.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    group = ArgGroup::new("what").args(["config", "listen"]).multiple(false),
    after_help = "\
Examples:
  tlsdyno dispatch --listen 127.0.0.1:8443 --backend 127.0.0.1:9001 --backend 127.0.0.1:9002
  tlsdyno dispatch --config dispatch.toml        SIGHUP reads the file again
  tlsdyno dispatch validate dispatch.toml"
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check a configuration file, exactly as running it would, without opening a port
    Validate {
        /// The file
        file: PathBuf,
    },
    /// Print what a running dispatcher says about itself
    Status {
        /// Its --control socket
        #[arg(long, value_name = "PATH")]
        control: PathBuf,
        /// As JSON
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// As Prometheus reads it
        #[arg(long)]
        metrics: bool,
    },
}

/// Flags that the file has instead.
const IN_FILE: [&str; 15] = [
    "backend",
    "policy",
    "proxy_protocol",
    "loops",
    "session_timeout",
    "table_size",
    "drain_time",
    "control",
    "max_connections",
    "max_per_address",
    "hello_time",
    "connect_time",
    "idle_time",
    "check",
    "check_interval",
];

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Take everything from this TOML file
    #[arg(long, value_name = "FILE", conflicts_with_all = IN_FILE)]
    config: Option<PathBuf>,
    /// Where clients connect to; port 0: a free one. May be repeated
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::resolve)]
    listen: Vec<SocketAddr>,
    /// Where connections go. May be repeated
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::resolve)]
    backend: Vec<SocketAddr>,
    /// How a backend is chosen
    #[arg(long, default_value_t = config::default_policy(), value_parser = choice(Policy::ALL))]
    policy: Policy,
    /// Tell backends who the client is, in a PROXY protocol header
    #[arg(long, default_value_t, value_parser = choice(ProxyHeader::ALL))]
    proxy_protocol: ProxyHeader,
    /// Loops, each a thread; 0: one for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    loops: u32,
    /// How long it is remembered which backend holds a session (as long as the backends keep theirs), or an object
    /// that nobody asks for
    #[arg(long, value_name = "TIME", default_value_t = config::default_session_timeout())]
    session_timeout: Time,
    /// TLS 1.2 sessions, client addresses and, each by itself, objects that are remembered at once; 32 bytes each
    #[arg(long, value_name = "N", default_value_t = config::default_table_size())]
    table_size: u32,
    /// How long open connections may go on after the first Ctrl-C
    #[arg(long, value_name = "TIME", default_value_t = config::default_drain_time())]
    drain_time: Time,
    /// Unix socket for status and metrics (`tlsdyno dispatch status`, `curl --unix-socket PATH http://d/metrics`)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Most open connections; more wait in the kernel's queue
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    max_connections: u32,
    /// Most open connections of one client address; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_per_address: u32,
    /// How long a client may take for its ClientHello, or its first request line
    #[arg(long, value_name = "TIME", default_value_t = Limits::default().hello_time)]
    hello_time: Time,
    /// How long connecting to a backend may take before the next one is tried
    #[arg(long, value_name = "TIME", default_value_t = Limits::default().connect_time)]
    connect_time: Time,
    /// How long neither side may send anything
    #[arg(long, value_name = "TIME", default_value_t = Limits::default().idle_time)]
    idle_time: Time,
    /// How backends are checked
    #[arg(long, default_value_t = CheckKind::Tcp, value_parser = choice(CheckKind::ALL))]
    check: CheckKind,
    /// From one check to the next
    #[arg(long, value_name = "TIME", default_value_t = Check::default().interval)]
    check_interval: Time,
    /// Print each address that clients can connect to on standard output, one per line
    #[arg(long)]
    print_address: bool,
}

/// Runs, or checks a file.
pub fn run(args: &Args) -> Result<Exit> {
    match &args.action {
        Some(Action::Validate { file }) => {
            let config = Config::read(file)?;
            println!("{} is valid: {} backends, {}", file.display(), config.backends.len(), config.policy);
            Ok(Exit::Done)
        }
        Some(Action::Status { control, json, metrics }) => {
            print!("{}", status(control, *json, *metrics)?);
            Ok(Exit::Done)
        }
        None => dispatch(&args.run),
    }
}

fn status(control: &Path, json: bool, metrics: bool) -> Result<String> {
    if metrics {
        return control::ask(control, "/metrics");
    }
    let answer = control::ask(control, "/status")?;
    if json {
        return Ok(answer + "\n");
    }
    let status: Status = serde_json::from_str(&answer).context("the dispatcher is of another version")?;
    Ok(status.text())
}

fn dispatch(args: &RunArgs) -> Result<Exit> {
    let config = match &args.config {
        Some(file) => Config::read(file)?,
        None => from_flags(args),
    };
    let backends = config.backends.len();
    let policy = config.policy;
    let service = Service::new(config)?;
    let end = service.run(args.config.as_deref(), |addresses| {
        for address in addresses {
            if args.print_address {
                println!("{address}");
            } else {
                eprintln!("dispatching {address} to {backends} backends by {policy}");
            }
        }
    })?;
    Ok(match end {
        End::Drained => Exit::Done,
        End::Cut => Exit::Interrupted,
    })
}

fn from_flags(args: &RunArgs) -> Config {
    Config {
        listen: args.listen.clone(),
        policy: args.policy,
        proxy_protocol: args.proxy_protocol,
        loops: args.loops,
        session_timeout: args.session_timeout,
        table_size: args.table_size,
        drain_time: args.drain_time,
        control: args.control.clone(),
        limits: Limits {
            connections: args.max_connections,
            connections_per_address: args.max_per_address,
            hello_time: args.hello_time,
            connect_time: args.connect_time,
            idle_time: args.idle_time,
            ..Limits::default()
        },
        check: Check { kind: args.check, interval: args.check_interval, ..Check::default() },
        backends: args.backend.iter().map(|&address| Backend { name: None, address }).collect(),
    }
}
