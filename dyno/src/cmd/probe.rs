//! `tlsdyno probe`: what users far away feel.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;

use anyhow::{Context, Result, anyhow};

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::foreign::visible;
use crate::interrupt;
use crate::probe::{FaultKind, Round, Site, SiteOptions, measure, nagios};
use crate::random::SplitMix64;
use crate::report::probe;
use crate::report::terminal::{Style, text};

/// Probe sites: what a full and a resumed handshake cost a user, beside TCP and the answer
///
/// A round at a site looks its name up and makes connections one after the other, all to one address: TCP alone; a full
/// handshake and a GET; the same with the session of the first; the same with early data, where the site's ticket
/// allows that. docs/PROBE.md says what is measured and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tlsdyno probe https://localhost:8443/ --once
  tlsdyno probe https://shop.example/ --i-may-probe shop.example --once --json

With --nagios: one line with performance data, and the exit codes of monitoring plugins (0 OK, 1 WARNING: the
certificate is not trusted or ends within 14 days, 2 CRITICAL: a step failed, 3 UNKNOWN).")]
pub struct Args {
    /// What to probe, for example https://shop.example/
    #[arg(required = true)]
    url: Vec<String>,

    #[command(flatten)]
    options: SiteOptions,

    /// One round at each site
    #[arg(long, required = true)]
    once: bool,

    /// Print one JSON object for each round, one a line
    #[arg(long)]
    json: bool,

    /// Print what monitoring systems of the Nagios family read
    #[arg(long, conflicts_with = "json")]
    nagios: bool,
}

/// The exit code of monitoring plugins for "could not be asked".
const NAGIOS_UNKNOWN: i32 = 3;

/// Probes.
pub fn run(args: &Args) -> Result<Exit> {
    match sites(args) {
        Ok(sites) => once(args, &sites),
        Err(error) if args.nagios => {
            println!("TLS UNKNOWN - {}", visible(&format!("{error:#}")));
            std::process::exit(NAGIOS_UNKNOWN);
        }
        Err(error) => Err(error),
    }
}

fn sites(args: &Args) -> Result<Vec<Site>> {
    let sites = Site::all(&args.url, &args.options).or_fault(Fault::Usage)?;
    sites.iter().try_for_each(Site::check).or_fault(Fault::Usage)?;
    Ok(sites)
}

fn once(args: &Args, sites: &[Site]) -> Result<Exit> {
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let mut random = SplitMix64::new(RandomState::new().build_hasher().finish());
    let order: Vec<usize> = (0..sites.len()).collect();
    let mut rounds = Vec::new();
    for site in random.shuffled(&order) {
        interrupt::check(&stop)?;
        rounds.push((site, measure(&sites[site], &mut random)));
    }
    rounds.sort_by_key(|(site, _)| *site);
    let rounds: Vec<Round> = rounds.into_iter().map(|(_, round)| round).collect();
    if args.nagios {
        let (line, state) = nagios::line(&rounds);
        print(&(visible(&line).replace('\n', " ") + "\n"))?;
        std::process::exit(state as i32);
    }
    let shown = match args.json {
        true => rounds.iter().map(|round| Ok(serde_json::to_string(round)? + "\n")).collect::<Result<String>>()?,
        false => text(&probe::rounds(&rounds), Style::of_stdout()),
    };
    print(&shown)?;
    exit(&rounds)
}

/// How the program ends after rounds that were printed.
fn exit(rounds: &[Round]) -> Result<Exit> {
    let good = rounds.iter().filter(|round| round.is_good()).count();
    if good > 0 {
        return Ok(if good == rounds.len() { Exit::Done } else { Exit::Errors });
    }
    let faults = || rounds.iter().filter_map(|round| round.fault.as_ref());
    let fault = match faults().all(|fault| fault.kind == FaultKind::Local) {
        true => Fault::Environment,
        false => Fault::Unreachable,
    };
    let first = faults().next().map_or(String::new(), |fault| format!(": {} ({})", fault.text, fault.kind));
    Err(anyhow!("not one round succeeded{first}")).or_fault(fault)
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("failed to print")
}
