//! `tlsdyno worker`: makes a part of the load that a coordinator (`tlsdyno load --workers`) has made.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use tlsdyno_servers::watch::{CpuOwner, Watch};

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::interrupt;
use crate::load::threads::{Loops, Threads};
use crate::machines::token::Token;
use crate::machines::worker::{Setting, work};
use crate::time::Time;

/// Make a part of a load that `tlsdyno load` on another machine coordinates
///
/// It dials the coordinator, which it knows by the certificate that the token file names, and takes loads from that one
/// only. It ends with the coordinator: at its word, when the connection breaks, or 5 s after its last word.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tlsdyno worker --join load1.example:7000 --token-file token --may-load big.example --threads auto
  tlsdyno worker --join load1.example:7000 --token-file token --cpu-of 4711

It is started by what `tlsdyno load --launch` names, or by ssh, Slurm or Kubernetes: docs/MACHINES.md.")]
pub struct Args {
    /// Where the coordinator listens
    #[arg(long, value_name = "HOST:PORT")]
    join: String,

    /// The token file of its run, readable by this user only; `-`: standard input
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,

    /// Load this host too, and not just servers on this machine (several times): whoever starts a worker answers for
    /// what it loads
    #[arg(long, value_name = "HOST")]
    may_load: Vec<String>,

    /// Loops, each on a CPU of its own; `auto`: one for each CPU [default: one loop]
    #[arg(long, value_name = "N|auto")]
    threads: Option<Threads>,

    /// Tell `tlsdyno cost` the CPU time of this process with its children, or of the processes that listen there
    #[arg(long, value_name = "PID|IP:PORT")]
    cpu_of: Option<CpuOwner>,

    /// How long to try to reach the coordinator
    #[arg(long, default_value = "30s", value_name = "TIME")]
    join_within: Time,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let watch = args.cpu_of.map(Watch::new).transpose().or_fault(Fault::Environment)?;
    let setting = Setting {
        join: args.join.clone(),
        token: Token::read(&args.token_file).or_fault(Fault::Input)?,
        within: Duration::from_nanos(args.join_within.nanoseconds()?),
        may_load: args.may_load.clone(),
        loops: Loops::choose(args.threads, None),
        observer: watch.map(|mut watch| RefCell::new(Box::new(move |look| watch.observe(look)) as _)),
    };
    work(&setting, &stop)?;
    Ok(Exit::Done)
}
