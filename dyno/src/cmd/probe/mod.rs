//! `tlsdyno probe`: what users far away feel.

mod report;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, anyhow};

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::foreign::visible;
use crate::interrupt;
use crate::probe::entry::Entry;
use crate::probe::robot::{self, FOREIGN_EVERY_MIN, Orders};
use crate::probe::store::{Store, default_path};
use crate::probe::{FaultKind, Round, Site, SiteOptions, measure, nagios};
use crate::random::SplitMix64;
use crate::report::probe;
use crate::report::terminal::{Style, text};
use crate::time::Time;

/// Probe sites: what a full and a resumed handshake cost a user, beside TCP and the answer
///
/// A round at a site looks its name up and makes connections one after the other, all to one address: TCP alone; a full
/// handshake and a GET; the same with the session of the first; the same with early data, where the site's ticket
/// allows that. docs/PROBE.md says what is measured and how.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  tlsdyno probe https://localhost:8443/ --once
  tlsdyno probe https://shop.example/ --i-may-probe shop.example --every 1m
  tlsdyno probe https://shop.example/ --i-may-probe shop.example --once --json
  tlsdyno probe report --html probe.html

With --nagios: one line with performance data, and the exit codes of monitoring plugins (0 OK, 1 WARNING: the
certificate is not trusted or ends within 14 days, 2 CRITICAL: a step failed, 3 UNKNOWN)."
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// What to probe, for example https://shop.example/
    #[arg(required = true)]
    url: Vec<String>,

    #[command(flatten)]
    options: SiteOptions,

    /// One round at each site
    #[arg(long, required_unless_present = "every", conflicts_with = "every")]
    once: bool,

    /// A round at each site so often, for example 1m, until --for is over or Ctrl-C; at least 10s between two rounds at
    /// a host that is not this machine
    #[arg(long, value_name = "TIME")]
    every: Option<Time>,

    /// How long to go on [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", requires = "every")]
    duration: Option<Time>,

    /// Where rounds are kept [default: probe.sqlite beside the records; with --once they are kept only where this is
    /// given]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,

    /// A name for the place that the sites are seen from
    #[arg(long, value_name = "NAME", default_value = "here")]
    vantage: String,

    /// How long single rounds are kept; what they come to in each hour is kept for ever
    #[arg(long, value_name = "TIME", default_value = "168h", requires = "every")]
    keep_rounds: Time,

    /// Largest size of the file in which rounds wait for the store, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, requires = "every")]
    spool_bytes: u64,

    /// Print one JSON object for each round, one a line
    #[arg(long)]
    json: bool,

    /// Print what monitoring systems of the Nagios family read
    #[arg(long, conflicts_with_all = ["json", "every"])]
    nagios: bool,

    /// Print nothing about rounds
    #[arg(long, short, conflicts_with_all = ["json", "once"])]
    quiet: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Report(report::Args),
}

/// The exit code of monitoring plugins for "could not be asked".
const NAGIOS_UNKNOWN: i32 = 3;

/// Probes.
pub fn run(args: &Args) -> Result<Exit> {
    if let Some(Action::Report(args)) = &args.action {
        return report::run(args);
    }
    match sites(args) {
        Ok(sites) => match args.every {
            Some(every) => go_on(args, every, &sites),
            None => once(args, &sites),
        },
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
    let mut random = random();
    let order: Vec<usize> = (0..sites.len()).collect();
    let mut rounds = Vec::new();
    for site in random.shuffled(&order) {
        interrupt::check(&stop)?;
        rounds.push((site, measure(&sites[site], &mut random)));
    }
    rounds.sort_by_key(|(site, _)| *site);
    let rounds: Vec<Round> = rounds.into_iter().map(|(_, round)| round).collect();
    if let Some(path) = &args.store {
        let run = format!("{} once {}", args.vantage, random.next_u64());
        let entries: Vec<Entry> = rounds.iter().map(|round| Entry::made(&run, 0, round.clone())).collect();
        Store::open(path)?.add(&entries)?;
    }
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

fn random() -> SplitMix64 {
    SplitMix64::new(RandomState::new().build_hasher().finish())
}

/// The robot.
fn go_on(args: &Args, every: Time, sites: &[Site]) -> Result<Exit> {
    let foreign = sites.iter().find(|site| every.0 < FOREIGN_EVERY_MIN && site.is_foreign());
    if let Some(site) = foreign {
        let error = anyhow!("{} is not this machine; give it at least 10s between two rounds (--every)", site.name);
        return Err(error).or_fault(Fault::Usage);
    }
    every.nanoseconds().or_fault(Fault::Usage)?;
    let path = match &args.store {
        Some(path) => path.clone(),
        None => default_path()?,
    };
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let orders = Orders {
        sites,
        every: every.0,
        duration: args.duration.map(|duration| duration.0),
        vantage: &args.vantage,
        raw_hours: args.keep_rounds.0.as_secs().div_ceil(3600),
        spool_bytes_max: args.spool_bytes,
    };
    if !args.quiet && !args.json {
        println!("rounds go to {}", visible(&path.display().to_string()));
    }
    let see = |entry: &Entry| {
        let line = match args.json {
            true => serde_json::to_string(&entry.round).unwrap_or_default() + "\n",
            false => visible(&probe::line(&entry.round)).replace('\n', " ") + "\n",
        };
        if !args.quiet {
            // Whoever stops reading does not stop the robot.
            let _ = print(&line);
        }
    };
    let done = robot::run(&orders, &path, &mut random(), &stop, &see)?;
    if !args.json {
        print(&probe::done(&done))?;
    }
    if done.is_spooled || done.dropped_count > 0 {
        let error = anyhow!(
            "the store did not take all rounds: {} were dropped, and the next robot on it takes those that wait in \
             the spool",
            done.dropped_count
        );
        return Err(error).or_fault(Fault::Store);
    }
    Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Done })
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
