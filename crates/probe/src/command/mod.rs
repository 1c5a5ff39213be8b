//! `tlsdyno probe`: what users far away feel.

mod config;
mod example;
mod report;
mod serve;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Result, anyhow, ensure};
use tlsdyno_base::choice::flags_of;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::foreign::visible;
use tlsdyno_base::interrupt;
use tlsdyno_base::output::print;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::time::Time;
use tlsdyno_report::terminal::{Style, text};

use crate::entry::Entry;
use crate::robot::{self, Done, Orders, keep_alone};
use crate::site::FOREIGN_EVERY_MIN;
use crate::store::Address;
use crate::{FaultKind, Keeping, Round, Site, SiteOptions, SiteSpec, measure, nagios, page};
use config::{Settings, StoreArgs};

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
  tlsdyno probe --config sites.toml --store postgres://robot@db.example/probe
  tlsdyno probe report --html probe.html
  tlsdyno probe serve --listen 127.0.0.1:9115

With --nagios: one line with performance data, and the exit codes of monitoring plugins (0 OK, 1 WARNING: the
certificate is not trusted or ends within 14 days, 2 CRITICAL: a step failed, 3 UNKNOWN)."
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// What to probe, for example https://shop.example/
    #[arg(required_unless_present = "config")]
    url: Vec<String>,

    #[command(flatten)]
    options: SiteOptions,

    /// Sites and settings from a file (`tlsdyno probe example config` prints one); flags go before its settings
    #[arg(long, value_name = "FILE", conflicts_with = "url", conflicts_with_all = flags_of::<SiteOptions>())]
    config: Option<PathBuf>,

    /// One round at each site
    #[arg(long, conflicts_with = "every")]
    once: bool,

    /// How long to go on [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", conflicts_with = "once")]
    duration: Option<Time>,

    #[command(flatten)]
    settings: Settings,

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
    Serve(serve::Args),
    Example(example::Args),
}

/// The exit code of monitoring plugins for "could not be asked".
const NAGIOS_UNKNOWN: i32 = 3;
pub fn run(args: &Args) -> Result<Exit> {
    match &args.action {
        Some(Action::Report(args)) => return report::run(args),
        Some(Action::Serve(args)) => return serve::run(args),
        Some(Action::Example(args)) => return example::run(args),
        None => {}
    }
    match plan(args) {
        Ok((settings, sites)) => match settings.every {
            Some(every) => go_on(args, every, &settings, &sites),
            None => once(args, &settings, &sites),
        },
        Err(error) if args.nagios => {
            let _ = print(format!("TLS UNKNOWN - {}\n", visible(&format!("{error:#}"))));
            std::process::exit(NAGIOS_UNKNOWN);
        }
        Err(error) => Err(error),
    }
}

/// Flags and file together, and the sites. Without a time between rounds there is one round at each.
fn plan(args: &Args) -> Result<(Settings, Vec<Site>)> {
    let of_flags = |url: &String| SiteSpec { url: url.clone(), every: None, options: args.options.clone() };
    let (file, specs) = match &args.config {
        Some(path) => config::read(path).or_fault(Fault::Input)?,
        None => (Settings::default(), args.url.iter().map(of_flags).collect()),
    };
    let mut settings = args.settings.clone().or(file);
    settings.every = settings.every.filter(|_| !args.once && !args.nagios);
    ensure_fault!(
        Usage,
        settings.every.is_some() || args.once || args.nagios,
        "say how often: --once, or --every TIME"
    );
    let mut sites = Site::all(&specs, settings.vantage.as_deref().unwrap_or_default()).or_fault(Fault::Usage)?;
    let paces = Address::of_user().and_then(|address| address.robots_directory()).ok();
    sites.iter_mut().try_for_each(|site| site.prepare(paces.as_deref())).or_fault(Fault::Usage)?;
    if let Some(every) = settings.every {
        check_pace(&sites, every).or_fault(Fault::Usage)?;
    }
    Ok((settings, sites))
}

fn check_pace(sites: &[Site], every: Time) -> Result<()> {
    every.nanoseconds()?;
    let is_too_fast = |site: &&Site| site.every.unwrap_or(every.0) < FOREIGN_EVERY_MIN && site.is_foreign;
    let found = sites.iter().find(is_too_fast).map_or("", |site| &site.name);
    ensure!(found.is_empty(), "{found} is not this machine; give it at least 10s between two rounds (--every)");
    Ok(())
}

fn once(args: &Args, settings: &Settings, sites: &[Site]) -> Result<Exit> {
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let address = settings.store.asked()?;
    let mut random = random();
    let order: Vec<usize> = (0..sites.len()).collect();
    let mut rounds = Vec::new();
    for site in random.shuffled(&order) {
        interrupt::check(&stop)?;
        rounds.push((site, measure(&sites[site], &mut random, &mut Keeping::default())));
    }
    rounds.sort_by_key(|(site, _)| *site);
    let rounds: Vec<Round> = rounds.into_iter().map(|(_, round)| round).collect();
    let kept = address.map_or(Ok(()), |address| {
        let entry = |round: &Round| Entry::alone("once", random.next_u64() >> 1, round.clone());
        let entries: Vec<Entry> = rounds.iter().map(entry).collect();
        // The store may be that of a robot which keeps its rounds longer: only who asks for it lets go of any.
        let raw_hours = settings.keep_rounds.map_or(u64::MAX, |_| settings.raw_hours());
        keep_alone(&entries, &address, raw_hours, settings.spool_bytes())
    });
    if args.nagios {
        if let Err(error) = kept {
            tell!("warning: {}", visible(&format!("{error:#}")));
        }
        let (line, state) = nagios::line(&rounds);
        print(visible(&line).replace('\n', " ") + "\n")?;
        std::process::exit(state as i32);
    }
    let shown = match args.json {
        true => rounds.iter().map(|round| Ok(serde_json::to_string(round)? + "\n")).collect::<Result<String>>()?,
        false => text(&page::rounds(&rounds), Style::of_stdout()),
    };
    print(shown)?;
    kept.or_fault(Fault::Store)?;
    exit(&rounds)
}

fn random() -> SplitMix64 {
    SplitMix64::new(RandomState::new().build_hasher().finish())
}

fn go_on(args: &Args, every: Time, settings: &Settings, sites: &[Site]) -> Result<Exit> {
    let address = settings.store.address()?;
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let orders = Orders {
        sites,
        every: every.0,
        duration: args.duration.map(|duration| duration.0),
        raw_hours: settings.raw_hours(),
        spool_bytes_max: settings.spool_bytes(),
    };
    if !args.quiet && !args.json {
        // As below: the robot goes on.
        let _ = print(format!("rounds go to {}\n", visible(&address.to_string())));
    }
    let see = |entry: &Entry| {
        let line = match args.json {
            true => serde_json::to_string(&entry.round).unwrap_or_default() + "\n",
            false => visible(&page::line(&entry.round)).replace('\n', " ") + "\n",
        };
        if !args.quiet {
            // Whoever stops reading does not stop the robot.
            let _ = print(line);
        }
    };
    let done = robot::run(&orders, &address, &mut random(), &stop, &see)?;
    if !args.json {
        print(page::done(&done))?;
    }
    if done.damaged_count > 0 {
        let place = address.robots_directory()?.join("damaged");
        tell!("warning: {} lines of a spool could not be read; they are in {}", done.damaged_count, place.display());
    }
    let directory = address.robots_directory()?;
    if let Some(what) = not_stored(&done, &directory.display().to_string()) {
        return Err(anyhow!("the store did not take all rounds: {what}")).or_fault(Fault::Store);
    }
    Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Done })
}

/// What became of rounds that are not in the store; `None`: all are there.
fn not_stored(done: &Done, directory: &str) -> Option<String> {
    let mut parts = Vec::new();
    if done.is_spooled {
        parts.push(format!("some wait in the spool in {directory}, and the next robot on this store takes them"));
    }
    if done.dropped_count > 0 {
        parts.push(format!("{} found no room and are told as missed", done.dropped_count));
    }
    if done.lost_count > 0 {
        parts.push(format!("{} are lost, for {directory} could not be written either", done.lost_count));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// How the program ends after rounds that were printed.
fn exit(rounds: &[Round]) -> Result<Exit> {
    let good = rounds.iter().filter(|round| round.fault.is_none()).count();
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
