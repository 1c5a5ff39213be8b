//! `tlsdyno plan`: records and traffic become sizes.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::choice::{choice, percent};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_cost::choice::Choice;
use tlsdyno_engine::dispatch::Policy;
use tlsdyno_record::store::{self, Record};
use tlsdyno_report::terminal::Style;
use tlsdyno_report::{html, markdown, terminal};
use tlsdyno_runner::kinds::flags::{number, rate, requests_each};
use tlsdyno_runner::kinds::perform::ResultArgs;
use tlsdyno_tls::Version;

use crate::check::{self, Checked};
use crate::costs::Costs;
use crate::lifetimes::Lifetimes;
use crate::measured::Source;
use crate::model::{Machines, Prediction, Site};
use crate::page::{self, Alternative, Plan};
use crate::simulated::SimulateArgs;
use crate::traffic::Traffic;
use crate::what_if::{self, Change};

const MACHINES_MOST: i64 = 1_000_000;

/// How many machines carry a site, from measured costs, and how long its visitors wait
///
/// Takes what connections and requests cost from records of cost, ablate, cluster and array, with their intervals,
/// and tells for each number of machines how much of them the site takes. A simulation in virtual time tells what
/// follows when sessions are lost. Nothing is measured here.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno plan --from last --rate 2000 --reuse 70
  tlsdyno plan --from 3fd1 77ab --rate 2000 --reuse 70 --servers 2 --proxies 0,1,2 --markdown
  tlsdyno plan --from last --trace access.log --what-if 'p-256, shared ticket keys, keep-alive 60s'
  tlsdyno plan --from last --watched site.json --requests-per-connection 3
  tlsdyno plan --from last --rate 2000 --reuse 70 --servers 4 --storm restart,deploy --price 0.04")]
pub struct Args {
    /// Records that tell costs: ids as in `tlsdyno list`, `last`, or files. Behind a `@`, which of its configurations
    /// do, by number, from 1: `3fd1@1+5`; `@0`: none, so that only its differences serve --what-if
    #[arg(long, value_name = "RECORD", num_args = 1.., required = true, help_heading = "Costs")]
    from: Vec<String>,
    /// A record whose cells are predicted from these costs: predicted beside measured, with the errors. Where it is
    /// among those of --from its other configurations are predicted, at its own pace. With --what-if it is of a server
    /// that has these changes
    #[arg(long, value_name = "RECORD", help_heading = "Costs")]
    check: Option<String>,
    /// What runs of one configuration differ by on this machine, per cent (standard deviation) [default: told by four
    /// records or more; else unknown]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Costs")]
    between_runs: Option<f64>,
    /// Your traffic: an access log in common or combined format, plain or gzip
    #[arg(long, value_name = "FILE", help_heading = "Your site")]
    trace: Option<PathBuf>,
    /// Your traffic as it is now: what `tlsdyno top --listen :443 --once 60s --json` wrote. It does not tell requests
    #[arg(long, value_name = "FILE", conflicts_with = "trace", requires = "requests_per_connection")]
    #[arg(help_heading = "Your site")]
    watched: Option<PathBuf>,
    /// Requests a second [default: the log's busiest minute, or as watched]
    #[arg(long, value_name = "N", value_parser = rate, help_heading = "Your site")]
    #[arg(required_unless_present_any = ["trace", "watched"])]
    rate: Option<f64>,
    /// Connections that offer a session again, per cent [default: as in the log, or 0]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Your site")]
    reuse: Option<f64>,
    /// Requests on each connection [default: as in the log, or 1]
    #[arg(long, value_name = "N", value_parser = requests_each, help_heading = "Your site")]
    requests_per_connection: Option<f64>,
    /// Size of a response [default: as in the log, or as measured]
    #[arg(long, value_name = "BYTES", help_heading = "Your site")]
    #[arg(value_parser = number("a number of bytes from 1 to a trillion", 1.0..=1e12))]
    bytes: Option<f64>,
    /// Numbers of servers [default: as few as carry the site]
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Machines")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MACHINES_MOST))]
    servers: Vec<u32>,
    /// Numbers of proxies that end TLS before them; 0: the servers end it
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0", help_heading = "Machines")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=MACHINES_MOST))]
    proxies: Vec<u32>,
    /// CPUs of a machine, each as those of the records
    #[arg(long, value_name = "CPUS", default_value_t = 1.0, help_heading = "Machines")]
    #[arg(value_parser = number("a number of CPUs from 0.001 to 1,024", 1e-3..=1024.0))]
    cpus: f64,
    /// How connections come to the machines that end TLS
    #[arg(long, value_name = "POLICY", value_parser = choice(Policy::ALL), default_value_t = Policy::Session)]
    #[arg(help_heading = "Machines")]
    policy: Policy,
    /// These machines share the keys of their session tickets
    #[arg(long, help_heading = "Machines")]
    shared_keys: bool,
    /// Changes, each alone and all together: p-256, rsa-2048, hybrid group, accelerator 4x, shared ticket keys,
    /// keep-alive 60s, or a TOML file of your own
    #[arg(long, value_name = "CHANGES", value_delimiter = ',', help_heading = "What if")]
    what_if: Vec<String>,
    /// Price of a core for an hour
    #[arg(long, value_name = "PRICE", help_heading = "Machines")]
    #[arg(value_parser = number("a price from 0.000001 to a million", 1e-6..=1e6))]
    price: Option<f64>,
    #[command(flatten)]
    simulated: SimulateArgs,
    #[command(flatten)]
    output: ResultArgs,
}

pub fn run(args: &Args) -> Result<Exit> {
    let traffic = match (&args.trace, &args.watched) {
        (Some(path), _) => Some(Traffic::of(path, None)),
        (None, path) => path.as_ref().map(|path| Traffic::watched(path, args.requests_per_connection.unwrap_or(1.0))),
    };
    let traffic = traffic.transpose().or_fault(Fault::Input)?;
    let site = site(args, traffic.as_ref())?;
    let changes = what_if::find(&args.what_if).or_fault(Fault::Usage)?;
    let sources = sources(args).or_fault(Fault::Input)?;
    let all: Vec<Source> = sources.iter().map(|(source, _)| source.clone()).collect();
    let costs = Costs::of(&all, args.between_runs.map(|percent| percent / 100.0)).or_fault(Fault::Input)?;
    costs.refused().map_or(Ok(()), |why| Err(Fault::Input.wrap(anyhow!(why))))?;
    let (predictions, missing) = predicted(args, &site, &costs, None);
    ensure_fault!(
        Input,
        !predictions.is_empty(),
        "these records do not tell the cost of a {}",
        missing.join("; nor of a ")
    );
    let said = traffic.iter().map(|of| of.sentence.clone()).collect();
    let mut plan = Plan { missing: &missing, said, ..Plan::of(&site, &costs, &predictions) };
    if let Some(base) = plan.answered().filter(|_| !changes.is_empty()) {
        plan.add_what_ifs(&alternatives(args, (&site, &costs), &changes, base.machines));
    }
    if let Some(which) = &args.check {
        let record = store::find(which).or_fault(Fault::Input)?;
        let checked = checked(args, (&site, &costs), (&sources, &changes), &record).or_fault(Fault::Input)?;
        plan.said.push(check::sentence(&checked));
        plan.more.push(check::section(&checked));
        plan.json.push(("check", serde_json::to_value(&checked)?));
    }
    let of_log = traffic.as_ref().filter(|of| !of.lifetimes.is_empty());
    if let (Some(traffic), Some(machines)) = (of_log, plan.answered().map(|of| of.machines)) {
        let named = |change: &Change| {
            let (_, costs) = change.made(&site, &costs, None).ok().filter(|(of, _)| *of == site)?;
            Some((format!(" with {}", change.name), costs))
        };
        let lifetimes = Lifetimes {
            of: &traffic.lifetimes,
            is_renewed: costs.told.agreed.contains(&Choice::Version(Version::Tls13)),
            keys_change_s: args.simulated.rotate_keys.map(|time| (time.ns() / 1_000_000_000) as u32),
            changed: changes.iter().filter_map(named).collect(),
        };
        lifetimes.add_to(&mut plan, machines);
    }
    args.simulated.add_to(&mut plan)?;
    show(args, &plan)?;
    Ok(Exit::Done)
}

/// The cells of a record beside what is predicted of them. With changes the record is one of a server that has them.
fn checked(
    args: &Args,
    (site, costs): (&Site, &Costs),
    (sources, changes): (&[(Source, Vec<usize>)], &[Change]),
    record: &Record,
) -> Result<Vec<Checked>> {
    let own = sources.iter().position(|(of, _)| of.id == record.id);
    let without = own.map_or(&[][..], |own| &sources[own].1);
    let made = changes.iter().try_fold(costs.clone(), |costs, change| {
        change.made(site, &costs, args.trace.as_deref()).map(|(_, costs)| costs)
    });
    let costs = made.map_err(|missing| anyhow!("{missing}"))?;
    check::check(record, &own.map_or_else(|| costs.clone(), |own| costs.at_pace_of(own)), without)
}

/// What becomes of the site on all machines that are asked for and on these, and the costs that are missing for some.
fn predicted(args: &Args, site: &Site, costs: &Costs, also: Option<Machines>) -> (Vec<Prediction>, Vec<String>) {
    let (mut predictions, mut missing) = (Vec::new(), Vec::new());
    let mut all: Vec<Machines> =
        args.proxies.iter().flat_map(|proxies| machines(args, site, costs, *proxies)).collect();
    all.extend(also.filter(|also| !all.contains(also)));
    for machines in all {
        let lacks = costs.missing(&site.needs(machines, costs));
        if lacks.is_empty() {
            predictions.push(site.predict(costs, machines, args.price));
        }
        missing.extend(lacks);
    }
    missing.sort_unstable();
    missing.dedup();
    (predictions, missing)
}

/// The numbers of servers that are asked for, or those around the fewest that carry the site.
fn machines(args: &Args, site: &Site, costs: &Costs, proxies: u32) -> Vec<Machines> {
    let with = |servers: &u32| Machines { servers: *servers, proxies };
    match args.servers.is_empty() {
        true => site.around_fewest(costs, proxies),
        false => args.servers.iter().map(with).collect(),
    }
}

/// Each change alone, and all of those that are possible together; on the machines of the answer, too.
fn alternatives(args: &Args, (site, costs): (&Site, &Costs), changes: &[Change], base: Machines) -> Vec<Alternative> {
    let log = args.trace.as_deref();
    let told = |name: String, is_there: bool, made: Result<(Site, Costs), String>| {
        let outcome = made.and_then(|(site, costs)| {
            let (predictions, missing) = predicted(args, &site, &costs, Some(base));
            if predictions.is_empty() { Err(missing.join("; ")) } else { Ok(predictions) }
        });
        Alternative { name, is_there, outcome }
    };
    let alone = |change: &Change| told(change.name.clone(), change.is_there(costs), change.made(site, costs, log));
    let mut all: Vec<Alternative> = changes.iter().map(alone).collect();
    let mut possible: Vec<&Change> = changes.iter().filter(|change| change.made(site, costs, log).is_ok()).collect();
    possible.sort_by_key(|change| change.is_factor());
    if possible.len() > 1 {
        let together = possible
            .iter()
            .try_fold((site.clone(), costs.clone()), |(site, costs), change| change.made(&site, &costs, log));
        let names: Vec<&str> = possible.iter().map(|change| change.name.as_str()).collect();
        all.push(told(format!("together: {}", names.join(", ")), false, together));
    }
    all
}

fn site(args: &Args, traffic: Option<&Traffic>) -> Result<Site> {
    let of_log = |of: fn(&Traffic) -> f64| traffic.map(of);
    let rate_per_s = args.rate.or(of_log(|of| of.peak_per_s)).unwrap_or_default();
    let requests = args.requests_per_connection.or(of_log(|of| of.requests_per_connection)).unwrap_or(1.0);
    Ok(Site {
        rate_per_s,
        requests_per_connection: requests,
        reuse_fraction: args
            .reuse
            .map(|percent| percent / 100.0)
            .or(of_log(|of| of.reuse_fraction))
            .unwrap_or_default(),
        kilobytes: args.bytes.map(|bytes| bytes / 1e3).or(traffic.and_then(|of| of.kilobytes)),
        cpus: args.cpus,
        policy: args.policy,
        shares_keys: args.shared_keys,
    })
}

/// What the records say, each with the indices of the configurations that tell it; empty: all.
fn sources(args: &Args) -> Result<Vec<(Source, Vec<usize>)>> {
    let source = |which: &String| -> Result<(Source, Vec<usize>)> {
        let is_list = |cells: &str| cells.chars().all(|one| one.is_ascii_digit() || one == '+');
        let (name, cells) = which.rsplit_once('@').filter(|(_, cells)| is_list(cells)).unwrap_or((which, ""));
        let numbers = cells.split('+').filter_map(|number| number.parse::<usize>().ok()?.checked_sub(1));
        let numbers: Vec<usize> = numbers.collect();
        let source = Source::of(&store::find(name)?, (!cells.is_empty()).then_some(&numbers))?;
        Ok((source, numbers))
    };
    let told = |which| source(which).with_context(|| format!("record {which} cannot be planned from"));
    args.from.iter().map(told).collect()
}

fn show(args: &Args, plan: &Plan<'_>) -> Result<()> {
    let document = page::document(plan);
    if let Some(path) = args.output.report() {
        std::fs::write(path, html::page(&document)?)
            .with_context(|| format!("failed to write {}; name another file with --report", path.display()))?;
    }
    let mut text = match (args.output.json, args.output.markdown) {
        (true, _) => serde_json::to_string_pretty(&page::json(plan))? + "\n",
        (false, true) => markdown::text(&document),
        (false, false) => terminal::text(&document, Style::of_stdout()),
    };
    if let Some(path) = args.output.report().filter(|_| !args.output.json && !args.output.markdown) {
        text.push_str(&format!("\nReport: {}\n", path.display()));
    }
    tlsdyno_base::output::print(text)
}
