//! `tlsdyno cost`: what TLS costs a server that runs, on any TLS library. Flags build the same experiment that TOML
//! files hold.

use anyhow::Result;
use tlsdyno_base::exit::Exit;
use tlsdyno_bench::kinds::AnyExperiment;
use tlsdyno_bench::kinds::flags::TimeArgs;
use tlsdyno_bench::kinds::perform::OutputArgs;
use tlsdyno_record::model::Measure;

use crate::file::{Cost, CostExperiment};

/// What TLS costs a server that runs, on any TLS library, from outside
///
/// The client makes connections that go less and less far: TCP alone, a hello that is refused, the server's part of the
/// handshake, a whole one, a request; full and resumed. The server's CPU time is read from /proc for each. The
/// differences are what a signature, a key agreement, a retry or a larger certificate costs this server. Nothing is
/// loaded into it and nothing of it is changed, but its error log tells of the handshakes that were broken off.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno cost https://127.0.0.1:8443/
  tlsdyno cost https://127.0.0.1:8443/ --rate 300
  tlsdyno cost https://127.0.0.1:8443/ --pid 4711 --time 3m --json")]
pub struct Args {
    /// What to request
    url: String,
    /// The process that serves it, with its children, for example a container's main process [default: whichever
    /// listens there]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// New connections a second of your server: costs are told in CPUs too
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// You may load this host, which is not this machine
    #[arg(long = "i-may-load-this", value_name = "HOST")]
    may_load: Vec<String>,
    #[command(flatten)]
    time: TimeArgs<60, 15>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the experiment of the flags.
pub fn run(args: &Args) -> Result<Exit> {
    let experiment = CostExperiment {
        question: "What does TLS cost this server, from outside?".to_owned(),
        cost: Cost { url: args.url.clone(), pid: args.pid, rate_per_s: args.rate, may_load: args.may_load.clone() },
        measure: Measure { time_s: args.time.seconds(), ..Measure::default() },
    };
    experiment.perform(&args.output)
}
