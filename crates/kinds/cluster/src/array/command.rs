//! `tlsdyno array`: none to several proxies that end TLS in front of one transaction server. Flags build the same
//! experiment that TOML files hold.

use std::path::PathBuf;

use anyhow::{Result, bail};
use tlsdyno_ablation::Ablation;
use tlsdyno_base::choice::{choice, defaults_of, flags_of};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::serve::Transaction;
use tlsdyno_record::model::CertificateKind;
use tlsdyno_runner::kinds::flags::{FarArgs, RepeatArgs, TimeArgs, TlsArgs, parse_transaction};
use tlsdyno_runner::kinds::perform::OutputArgs;
use tlsdyno_runner::kinds::{AnyExperiment, find};

use crate::array::Arrays;
use crate::array::file::{Array, ArrayExperiment, PageCost};

/// How many proxies a site needs at its reuse: throughput, half serving points, CPU of each machine
///
/// Starts one transaction server (`tlsdyno serve --transaction`: a page of stated cost, one after the other) and
/// proxies that end TLS in front of it, each under a quota of CPU time; measures pages a second at each percent reuse
/// for each number of proxies, and of the server without TLS; tells at which reuse each number serves half of that
/// (Mraz, Witting and Dantzig 2002, Figure 8), and fits T = min(P, N / ((1 - r) H + e)).
///
/// A proxy of today ends TLS so fast that beside pages of 7 ms its half serving point would be at 0 %. So pages are
/// made shorter until a full handshake, at the proxy's quota, is as many of them as the paper's half serving points
/// imply by our reckoning (30 to 40); the scale is printed. --pages-per-handshake 0 leaves them as they are.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno array --proxy haproxy --proxies 0,1,2,3,4 --transaction 7ms --reuse 0,50,75,90,96,98
  tlsdyno array --proxy nginx --proxies 1,2 --cert p-256 --pages-per-handshake 0 --transaction 500us
  tlsdyno array --by connections --proxies 3 --spread round-robin,shared-keys,dispatcher --reuse 80
  tlsdyno array --config mraz-2002-fig8 --time 300")]
pub struct Args {
    /// Take everything from this TOML file, or from an experiment that comes with tlsdyno (`tlsdyno run` does the
    /// same)
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = flags_of::<Flags>())]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten, next_help_heading = "Several machines")]
    far: FarArgs,
}

/// What a file says instead.
#[derive(clap::Args, Clone, Debug)]
struct Flags {
    #[command(flatten)]
    array: Array,
    /// What a page costs the transaction server, before it is scaled: 7ms or wait:7ms takes this time beside the
    /// server, as on a machine behind it; cpu:2ms its CPU time
    #[arg(long, value_name = "COST", default_value = "7ms", value_parser = parse_transaction, help_heading = "Array")]
    transaction: Transaction,
    #[command(flatten)]
    tls: TlsArgs,
    /// Certificate: with RSA-4096 a full handshake costs some hundred times what passing a page on does
    #[arg(long, value_name = "TYPE", default_value_t = ArrayExperiment::tls_default().certificate())]
    #[arg(value_parser = choice(CertificateKind::ALL), help_heading = "TLS")]
    cert: CertificateKind,
    #[command(flatten)]
    time: TimeArgs<180, 40>,
    #[command(flatten)]
    repeat: RepeatArgs,
}

pub fn run(args: &Args) -> Result<Exit> {
    let mut experiment = match &args.config {
        None => args.flags.experiment().or_fault(Fault::Usage)?,
        Some(which) => {
            find::<ArrayExperiment>(&[&Ablation, &Arrays], which, "an array of proxies").or_fault(Fault::Input)?
        }
    };
    args.far.give(&mut experiment.workers, &mut experiment.array.address);
    experiment.perform(&args.output)
}

impl Default for Array {
    /// Mraz et al. 2002, Figure 8; its points imply 30 to 40 pages for each handshake.
    fn default() -> Array {
        defaults_of::<Args>().flags.array
    }
}

impl Flags {
    fn experiment(&self) -> Result<ArrayExperiment> {
        let (cost, transaction_ns) = match self.transaction {
            Transaction { cpu_ns: 0, wait_ns, .. } => (PageCost::Wait, wait_ns),
            Transaction { cpu_ns, wait_ns: 0, .. } => (PageCost::Cpu, cpu_ns),
            _ => bail!("--transaction of an array takes a wait or CPU time, not both"),
        };
        let counts: Vec<String> = self.array.proxies.iter().map(ToString::to_string).collect();
        let counts = match &counts[..] {
            [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            one => one.concat(),
        };
        Ok(ArrayExperiment {
            question: format!("What do {counts} proxies ({}) make of a transaction server's reuse?", self.array.proxy),
            array: Array { transaction_us: transaction_ns as f64 / 1e3, transaction_cost: cost, ..self.array.clone() },
            tls: self.tls.with(Some(self.cert)),
            measure: self.repeat.measure(self.time.seconds()),
            workers: None,
            paper: None,
        })
    }
}
