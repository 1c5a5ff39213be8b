//! `tlsdyno dispatch`: the session-aware dispatcher.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use tlsdyno_base::choice::{choice, flags_of};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::output;
use tlsdyno_engine::dispatch::{Check, CheckKind, Limits};
use tlsdyno_engine::time::Time;

use crate::config::Config;
use crate::control;
use crate::service::{End, Service};
use crate::status::Status;

/// Pass TLS connections through to backends, each to the one that holds its session
///
/// It does not decrypt anything and needs nothing from the backends. Ctrl-C ends it once the open connections are done;
/// a second one at once.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
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

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Take everything from this TOML file
    #[arg(long, value_name = "FILE", conflicts_with_all = [flags_of::<Config>(), flags_of::<BoundArgs>()].concat())]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Config,
    #[command(flatten)]
    bounds: BoundArgs,
    /// Print each address that clients can connect to on standard output, one per line
    #[arg(long)]
    print_address: bool,
}

/// The bounds and checks that have flags.
#[derive(Debug, clap::Args)]
struct BoundArgs {
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
}

pub fn run(args: &Args) -> Result<Exit> {
    match &args.action {
        Some(Action::Validate { file }) => {
            let config = Config::read(file)?;
            let (file, backends) = (file.display(), config.backends.len());
            output::answer(format!("{file} is valid: {backends} backends, {}\n", config.policy))
        }
        Some(Action::Status { control, json, metrics }) => output::answer(status(control, *json, *metrics)?),
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
    let backends = match config.backends.len() {
        1 => "1 backend".to_owned(),
        several => format!("{several} backends"),
    };
    let policy = config.policy;
    let service = Service::new(config)?;
    let end = service.run(args.config.as_deref(), |addresses| {
        for address in addresses {
            if args.print_address {
                // The dispatcher goes on for its clients, whoever has stopped reading.
                let _ = output::print(format!("{address}\n"));
            } else {
                tell!("dispatching {address} to {backends} by {policy}");
            }
        }
    })?;
    Ok(match end {
        End::Drained => Exit::Done,
        End::Cut => Exit::Interrupted,
    })
}

fn from_flags(RunArgs { flags, bounds, .. }: &RunArgs) -> Config {
    let limits = Limits {
        connections: bounds.max_connections,
        connections_per_address: bounds.max_per_address,
        hello_time: bounds.hello_time,
        connect_time: bounds.connect_time,
        idle_time: bounds.idle_time,
        ..Limits::default()
    };
    let check = Check { kind: bounds.check, interval: bounds.check_interval, ..Check::default() };
    Config { limits, check, ..flags.clone() }
}
