//! `tlsdyno load`: load on anybody's server, or the load process of an experiment.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::foreign::visible;
use tlsdyno_base::histogram::Percentiles;
use tlsdyno_base::units::{NONE, format_duration, format_rate};
use tlsdyno_base::{interrupt, open_files};
use tlsdyno_engine::load::{ErrorKind, Outcome, Plan};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::{ChangeLimit, Measure, WorkersModel, without_secrets};
use tlsdyno_record::store::load_run::{Asked, Summary};
use tlsdyno_record::store::{Machine, Record, Warning};
use tlsdyno_runner::kinds::flags::number;
use tlsdyno_runner::kinds::perform::ResultArgs;
use tlsdyno_runner::report::json;
use tlsdyno_runner::report::terminal::{Style, streamed_line, text};
use tlsdyno_runner::run::cpus;
use tlsdyno_stats::compared::verdict;
use tlsdyno_traffic::load::diagnosis::{self, Sent};
use tlsdyno_traffic::load::limit::{Limit, RunLimit};
use tlsdyno_traffic::load::options::{self, Options};
use tlsdyno_traffic::load::screen::{self, Display};
use tlsdyno_traffic::load::sweep::{self, ConnectionRange, RateRange};
use tlsdyno_traffic::load::threads::{Crew, Loops, Threads};
use tlsdyno_traffic::load::url::Url;
use tlsdyno_traffic::load::warning::{WORKER_LOST, is_a_miss, warnings};
use tlsdyno_traffic::load::{permission, plan, window_search};
use tlsdyno_traffic::machines::carried::{NETWORK_IS_HERE, UNIX_SOCKET_IS_HERE};
use tlsdyno_traffic::machines::crew::Workers;
use tlsdyno_traffic::machines::gather::{arguments_of_worker, gather, manifest};
use tlsdyno_traffic::machines::job;
use tlsdyno_traffic::network::Through;

use crate::compare::Gates;
use crate::file::LoadExperiment;
use crate::run_files::{check_endings, write_load, write_record};
use crate::subject::{self, Runs, WARM_UP};
use crate::summary::LoadSummary;
use crate::{conforming, run_page};

/// Load a server and measure it: throughput, latency by phase, handshakes by kind
///
/// A closed loop, in which every connection makes its next request as soon as the last response is complete, or with
/// --rate an open one. Without --reuse or --profile nothing is resumed and connections are kept; with --reuse each
/// connection makes one request (unless --requests-per-connection says otherwise) and exactly that share of them
/// resumes a session. Requests are HTTP/1.1; one loop on one CPU makes them unless --threads or --on gives more.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tlsdyno load https://localhost:8443/1k.bin --insecure
  tlsdyno load https://localhost:8443/ \
                        --reuse 80% --tls 1.3 --duration 30s --json
  tlsdyno load https://localhost:8443/ --threads auto
  tlsdyno load https://localhost:8443/ --rate 500/s \
                        --arrivals poisson
  tlsdyno load https://localhost:8443/ --profile continuous --session-limit \
                        500
  tlsdyno load http://[::1]:8080/ --connections 16 --requests-per-connection 100
  tlsdyno load \
                        https://shop.example/ --har shop.har --users 500 --duration 1m
  tlsdyno load https://localhost:8443/ \
                        --trace access.log

Phases: tcp_connect (connect called until the first bytes leave), full_handshake and resumed_handshake (ClientHello
sent until complete), first_byte and whole_response (request sent until then); with --rate also scheduled_response
(intended send time until the response is complete: connecting, handshake and waiting for a free user included).")]
pub struct Args {
    /// What to request, for example https://localhost:8443/1k.bin
    #[arg(required_unless_present = "job")]
    url: Option<String>,

    /// Run the blocks of an experiment on command (one JSON line each on standard input)
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["url", "remote"])]
    job: Option<PathBuf>,

    /// Measured and printed, but not what was asked for (reuse, rate, hits per handshake): exit code 8 even where
    /// requests failed
    #[arg(long)]
    strict: bool,

    /// Run on this CPU only
    #[arg(long, value_name = "CPU", conflicts_with = "remote")]
    cpu: Option<usize>,

    /// Load with so many loops, each on a CPU of its own, with an exact share of the users, connections and rate;
    /// `auto`: one for each CPU that the server, where it is on this machine, does not need [default: one loop]. With
    /// --on or --engine so many in each worker
    #[arg(long, value_name = "N|auto", conflicts_with_all = ["cpu", "job", "against", "launch"])]
    threads: Option<Threads>,

    /// Also write the result to a file (several times): .json, .csv, .prom (Prometheus text), .html, or .hdr
    /// (percentiles of every phase, as HdrHistogram plots them); .json is what `tlsdyno compare` reads. Of --sweep and
    /// --against .html, .json and .csv
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Vec<PathBuf>,

    /// Rates one after the other, for example 100..5000, until the server is saturated: latency against throughput
    #[arg(long, value_name = "FROM..TO", conflicts_with_all = ["rate", "total_connections", "requests", "strict"])]
    sweep: Option<RateRange>,

    /// Look for the most connections whose clients keep their rate, for example 50..2000, by rounds around that number:
    /// at least 95 % of them receive --keep, and less than 1 % of requests fail. --duration is that of each run.
    /// Without --receive-rate by SPECweb99's rules, 400kbit of which 320kbit are kept
    #[arg(long, value_name = "FROM..TO")]
    #[arg(conflicts_with_all = ["rate", "total_connections", "requests", "strict", "sweep", "against", "connections"])]
    #[arg(conflicts_with_all = ["fail_if", "pause", "follow_redirects", "trace", "har"])]
    conforming: Option<ConnectionRange>,

    /// Rounds of --conforming around the number, from which its interval is
    #[arg(long, default_value_t = 5, value_name = "N", requires = "conforming")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,

    /// Each rate of --sweep is so many times the last
    #[arg(long, default_value_t = 1.5, value_name = "FACTOR", requires = "sweep")]
    #[arg(value_parser = number("a factor above 1, up to 1,000", 1.0..=1e3))]
    factor: f64,

    /// Load this URL too, in turn with the first, and say whether it is slower: both have the same flags, --duration is
    /// the time of each. Exit code 10: it is slower
    #[arg(long, value_name = "URL")]
    #[arg(conflicts_with_all = ["sweep", "total_connections", "requests", "job", "remote"])]
    against: Option<String>,

    /// Fail with exit code 12 where the run is beyond this limit, for example 'p99 > 50ms', 'hits/s < 2000' or
    /// 'errors > 0.1%' (several times); with --against a change, for example 'cpu/hit > +3%' or 'p99 > +20%', and then
    /// only the limits decide
    #[arg(long, value_name = "LIMIT", conflicts_with_all = ["sweep", "job"])]
    fail_if: Vec<Limit>,

    /// Keep the result as a record under this name (`tlsdyno list`), however short the run; without it one of 10 s or
    /// more is kept
    #[arg(long, value_name = "NAME", conflicts_with_all = ["job", "print_manifest"])]
    name: Option<String>,

    #[command(flatten)]
    pub(super) progress: screen::Flag,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(super) json: bool,

    // Their headings are those of whatever comes after them.
    #[command(flatten)]
    pub(super) options: Options,

    /// Print what --engine kubernetes would make, and end
    #[arg(long, requires = "image", help_heading = "Several machines")]
    print_manifest: bool,

    #[command(flatten, next_help_heading = "Several machines")]
    machines: WorkersModel,
}

pub fn run(args: &Args) -> Result<Exit> {
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    if let Some(cpu) = args.cpu {
        pin_to(cpu).or_fault(Fault::Environment)?;
    }
    if let Some(path) = &args.job {
        job::serve(path, &stop)?;
        return Ok(Exit::Done);
    }
    let to = Destination::of(args)?;
    let plan = plan::plan(&args.options, &to.url, to.address).or_fault(Fault::Usage)?;
    let has_several = args.sweep.is_some() || args.against.is_some() || args.conforming.is_some();
    check_endings(&args.output, has_several).or_fault(Fault::Usage)?;
    let (of_run, of_change) = limits(args).or_fault(Fault::Usage)?;
    if let Some(other) = &args.against {
        return against(args, to.text, other, of_change);
    }
    let (machines, may_load) = (&args.machines, &args.options.i_may_load_this);
    permission::check(&to.url.host, to.address, may_load).or_fault(Fault::Usage)?;
    let connections = args.conforming.map_or(args.options.connections, |range| range.to);
    // Workers make the connections; each of them has one to this process, and what starts it two files.
    let files = if machines.are_given() { 3 * machines.count() as u32 } else { connections };
    open_files::make_room_for(files).or_fault(Fault::Environment)?;
    if let Some(image) = machines.image.as_ref().filter(|_| args.print_manifest) {
        return tlsdyno_base::output::answer(manifest(machines, image, may_load, args.threads)?);
    }
    let gathered = match machines.are_given() {
        true => {
            let packer = Workers::check(&plan, machines.count()).or_fault(Fault::Usage)?;
            Some(gather(machines, packer, to.address, &arguments_of_worker(may_load, args.threads), &stop)?)
        }
        false => None,
    };
    let loops = loops(args, gathered.is_some(), &plan, to.address)?;
    let through = args.options.network.map(|network| Through::open(&network, loops.clone())).transpose()?;
    let here: &dyn Crew = through.as_ref().map_or(&loops, |through| through);
    let crew = gathered.as_ref().map_or(here, |gathered| &gathered.workers);
    match (args.sweep, args.conforming) {
        (Some(range), _) => sweep(args, range, &to, crew, &stop),
        (None, Some(range)) => conforming::run(args, range, args.rounds, &to, crew, &stop),
        (None, None) => once(args, &to, plan, crew, &of_run, &stop),
    }
}

/// Loops for the load on this machine. With an emulated network, their CPUs leave the server alone, as the relay's
/// does.
fn loops(args: &Args, is_elsewhere: bool, plan: &Plan, address: SocketAddr) -> Result<Loops> {
    let of_network = args.options.network.filter(|_| args.cpu.is_none()).map(|_| Threads::Count(1));
    let loops = Loops::choose(args.threads.or(of_network).filter(|_| !is_elsewhere), Some(address));
    loops.check(plan).or_fault(Fault::Usage)?;
    if loops.crowded() > 0 {
        tell!("warning: {} loops share their CPU with another one; use fewer --threads", loops.crowded());
    }
    Ok(loops)
}

pub(super) struct Destination<'a> {
    /// The URL as typed.
    pub text: &'a str,
    pub url: Url,
    pub address: SocketAddr,
}

impl<'a> Destination<'a> {
    fn of(args: &'a Args) -> Result<Destination<'a>> {
        let text = args.url.as_deref().expect("clap requires the URL where there is no job");
        let url = Url::parse(text).or_fault(Fault::Usage)?;
        if args.machines.are_given() && args.options.unix.is_some() {
            return Err(anyhow!(UNIX_SOCKET_IS_HERE)).or_fault(Fault::Usage);
        }
        if args.machines.are_given() && args.options.network.is_some() {
            return Err(anyhow!(NETWORK_IS_HERE)).or_fault(Fault::Usage);
        }
        let address = options::address(&args.options, &url).or_fault(Fault::Unreachable)?;
        Ok(Destination { text, url, address })
    }
}

/// Runs the plan once, prints and keeps the result, and returns the exit code.
fn once(
    args: &Args,
    to: &Destination,
    plan: Plan,
    crew: &dyn Crew,
    limits: &[RunLimit],
    stop: &AtomicBool,
) -> Result<Exit> {
    let options = &args.options;
    let mut runs = Runs::begin(question(args, format!("What does {} serve?", to.text)), to.text);
    let display = Display::new(args.progress, to.text, crew);
    let outcome = match options.workload.searches_window() {
        true => window_search::smallest(plan, |plan| display.run(plan, stop))?,
        false => display.run(&plan, stop)?,
    };
    let sent = options::sent(options, &to.url, to.address);
    let asked = options::asked(options, &to.url);
    let (warnings, summary) = summed_up(to.text, asked, options, &sent, outcome, args.strict);
    print(&summary, args.json)?;
    if args.name.is_some() || is_worth_keeping(&summary.outcome, options.duration) {
        runs.add(to.text.to_owned(), summary.clone());
        keep(runs, !summary.outcome.stopped, args.json);
    } else if !args.json && summary.outcome.hits > 0 {
        let line = format!("\nNot kept as a record: runs below {KEPT_FROM} are not (--name NAME keeps one).\n");
        let _ = std::io::stdout().write_all(line.as_bytes());
    }
    for path in &args.output {
        write_load(path, &summary).or_fault(Fault::Store)?;
    }
    let broken: Vec<String> = limits.iter().filter_map(|limit| limit.broken_by(&summary)).collect();
    for limit in &broken {
        tell!("tlsdyno: {limit}");
    }
    let end = exit(&summary.outcome, &warnings, &sent, args.strict)?;
    Ok(if broken.is_empty() || end == Exit::Interrupted { end } else { Exit::Limit })
}

/// Minimum duration of a run without a name to be kept as a record.
const KEPT_FROM: Time = Time::seconds(10);

/// A run without a name is kept if it served requests, and lasted, or was to last, long enough.
fn is_worth_keeping(outcome: &Outcome, asked: Option<Time>) -> bool {
    let lasted = Duration::from_nanos(outcome.elapsed_ns);
    outcome.hits > 0 && asked.map_or(lasted, |asked| asked.0.max(lasted)) >= KEPT_FROM.0
}

/// The question of a record, with the name given to it.
pub(super) fn question(args: &Args, question: String) -> String {
    match &args.name {
        Some(name) => format!("{name}: {question}"),
        None => question,
    }
}

/// The limits of --fail-if: on a run, or on the change between two URLs.
fn limits(args: &Args) -> Result<(Vec<RunLimit>, Vec<ChangeLimit>)> {
    let (mut of_run, mut of_change) = (Vec::new(), Vec::new());
    for limit in &args.fail_if {
        match limit {
            Limit::Run(limit) => of_run.push(limit.clone()),
            Limit::Change(limit) => of_change.push(limit.clone()),
        }
    }
    match args.against {
        Some(_) => ensure!(
            of_run.is_empty(),
            "with --against a limit is on a change: write it with its sign, for example 'cpu/hit > +3%'"
        ),
        None => ensure!(
            of_change.is_empty(),
            "`{}` limits a change; say from what (--against URL), or compare results (`tlsdyno compare --fail-if`)",
            of_change[0]
        ),
    }
    Ok((of_run, of_change))
}

/// Loads two URLs in turn, and returns whether the second is slower.
fn against(args: &Args, url: &str, other: &str, limits: Vec<ChangeLimit>) -> Result<Exit> {
    let mut options = args.options.clone();
    let each = options.duration.take().unwrap_or(DURATION_AGAINST);
    let experiment = LoadExperiment {
        question: question(args, format!("Is {other} slower than {url}?")),
        url: url.to_owned(),
        against: Some(other.to_owned()),
        measure: Measure { time_s: 2.0 * (each.0 + WARM_UP).as_secs_f64(), ..Measure::default() },
        ..LoadExperiment::default()
    };
    let (end, record) = subject::perform(&experiment, &options, &ResultArgs::of(args.json, None))?;
    args.output.iter().try_for_each(|path| write_record(path, &record)).or_fault(Fault::Store)?;
    let comparisons = LoadSummary::of(&record).map(|summary| summary.against).unwrap_or_default();
    let gates = Gates { tolerance: None, strict: args.strict, fail_if: limits };
    Ok(if end == Exit::Done { gates.exit(verdict(&comparisons), &comparisons) } else { end })
}

/// Default duration for each of two URLs.
const DURATION_AGAINST: Time = Time::seconds(10);

/// Runs the rates of --sweep and prints them.
fn sweep(args: &Args, range: RateRange, to: &Destination, crew: &dyn Crew, stop: &AtomicBool) -> Result<Exit> {
    ensure!(args.factor > 1.0, "--factor must be above 1");
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(out, "latency from the intended send time; {}\n", sweep::RATE_RULE)?;
        writeln!(out, "{}", streamed_line(SWEEP_WIDTHS, ["asked", "achieved", "p50", "p90", "p99"]))?;
    }
    let Destination { text, url, address } = to;
    let question = question(args, format!("How does the latency of {text} grow with its throughput?"));
    let mut runs = Runs::begin(question, text);
    let display = Display::of_steps(args.progress, text, crew);
    let load = |plan: &_| display.run(plan, stop);
    let sent = options::sent(&args.options, url, *address);
    let mut points: Vec<Point> = Vec::new();
    sweep::by_rate(&args.options, url, *address, range.rates(args.factor), load, |rate, outcome, saturated| {
        let asked = Asked { rate_per_second: Some(rate), ..options::asked(&args.options, url) };
        let (_, run) = summed_up(text, asked, &args.options, &sent, outcome, false);
        runs.add(format!("{rate}/s"), run.clone());
        for loss in &run.outcome.losses {
            tell!("warning: {loss}");
        }
        let point = Point { run, saturated };
        if !args.json {
            // Nobody is helped by ending the sweep because its display went away; the last write tells.
            let _ = writeln!(out, "{}", sweep_line(&point)).and_then(|()| out.flush());
        }
        points.push(point);
        Ok(())
    })?;
    if args.json {
        let object = serde_json::json!({"format": 1, "rule": sweep::RATE_RULE, "points": points});
        writeln!(out, "{object:#}").context("failed to print")?;
    }
    let record = keep(runs, !stop.load(Ordering::Relaxed), args.json);
    args.output.iter().try_for_each(|path| write_record(path, &record)).or_fault(Fault::Store)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    ensure!(
        points.iter().any(|point| point.run.outcome.hits > 0),
        "not one request succeeded; without --sweep the cause is named"
    );
    let is_whole = points.iter().all(|point| point.run.outcome.losses.is_empty());
    Ok(if is_whole { Exit::Done } else { Exit::Invalid })
}

/// Sums up a run, with its warnings.
pub(super) fn summed_up(
    text: &str,
    asked: Asked,
    options: &Options,
    sent: &Sent,
    outcome: Outcome,
    strict: bool,
) -> (Vec<Warning>, Summary) {
    let warnings = warnings(&outcome, sent, &asked, strict);
    let effort = sent.offered.is_some().then(|| options::effort(options).to_string());
    let told = warnings.iter().map(Warning::to_string).collect();
    let summary = Summary::of(without_secrets(text), effort, asked, outcome, told);
    (warnings, Summary { machine: Some(Machine::here()), ..summary })
}

/// Ends the record and prints where it is. A failure to keep it does not change the exit code: the result was printed.
pub(super) fn keep(runs: Runs, finished: bool, json: bool) -> Record {
    let (record, kept) = runs.keep(finished);
    match kept {
        Ok(()) if !json => {
            let line = format!("\nRecord {id}: `tlsdyno report {id}` shows it again.\n", id = record.id);
            let _ = std::io::stdout().write_all(line.as_bytes());
        }
        Ok(()) => {}
        Err(error) => tell!("warning: no record was kept: {}", visible(&error.to_string())),
    }
    record
}

/// Widths of the columns of --sweep.
const SWEEP_WIDTHS: [usize; 5] = [14, 14, 12, 12, 12];

/// Measurement at one rate.
#[derive(Serialize)]
struct Point {
    #[serde(flatten)]
    run: Summary,
    /// By [`sweep::RATE_RULE`].
    saturated: bool,
}

fn sweep_line(Point { run, saturated }: &Point) -> String {
    let asked = format_rate(run.asked.rate_per_second.unwrap_or(0.0));
    let latency = |of: fn(&Percentiles) -> u64| {
        run.latency().map_or(NONE.to_owned(), |latency| format_duration(of(latency) as f64))
    };
    let [p50, p90, p99] = [latency(|of| of.p50), latency(|of| of.p90), latency(|of| of.p99)];
    let end = if *saturated { "   saturated" } else { "" };
    streamed_line(SWEEP_WIDTHS, [&asked, &format_rate(run.hits_per_second), &p50, &p90, &p99]) + end
}

fn print(summary: &Summary, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let text = match json {
        true => json::load(summary).context("failed to encode the result")?,
        // The screen has gone by now; its terminal gets what a file would get.
        false => text(&run_page::document(summary), Style { rich: false, ..Style::of_stdout() }),
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("failed to print")
}

/// Exit code after a run that was printed.
fn exit(outcome: &Outcome, warnings: &[Warning], sent: &Sent, strict: bool) -> Result<Exit> {
    if outcome.stopped {
        return Ok(Exit::Interrupted);
    }
    if outcome.hits == 0 {
        let why = diagnosis::explain(outcome, sent);
        let local = diagnosis::main_kind(outcome).is_some_and(ErrorKind::is_local);
        let fault = if local { Fault::Environment } else { Fault::Unreachable };
        return Err(anyhow::anyhow!("not one request succeeded: {why}")).or_fault(fault);
    }
    let missed = warnings.iter().any(is_a_miss);
    let lost = warnings.iter().any(|warning| warning.code == WORKER_LOST);
    Ok(match (outcome.errors.is_empty(), missed) {
        (false, true) if strict || lost => Exit::Invalid,
        (false, _) => Exit::Errors,
        (true, true) => Exit::Invalid,
        (true, false) => Exit::Done,
    })
}

fn pin_to(cpu: usize) -> Result<()> {
    cpus::stay_on(cpu).with_context(|| format!("failed to move to CPU {cpu}; `nproc --all` tells how many there are"))
}
