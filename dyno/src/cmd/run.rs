//! `tlsdyno run FILE.toml`, and what it shares with `ablate`: running an experiment and showing its result.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::flags::{FarArgs, libraries};
use crate::choice::choice;
use crate::exit::{self, Exit};
use crate::fault::{Fault, OrFault};
use crate::foreign::visible;
use crate::load::options::Options;
use crate::model::array::{ArrayExperiment, Proxy};
use crate::model::cluster::ClusterExperiment;
use crate::model::load_experiment::LoadExperiment;
use crate::model::primitives::PrimitivesExperiment;
use crate::model::probe_experiment::ProbeExperiment;
use crate::model::profile::ProfileExperiment;
use crate::model::steps::StepsExperiment;
use crate::model::{CertificateKind, ConfigurationModel, Experiment, Measure, ServerName, Tls};
use crate::probe::simulation;
use crate::report::Style;
use crate::run::files::AnyExperiment;
use crate::run::observer::Observer;
use crate::run::runner::Finished;
use crate::run::schedule::Schedule;
use crate::run::single::run as run_experiment;
use crate::run::{array, cluster, cpus, files, primitives, profile, steps, url};
use crate::stats::counts::Counts;
use crate::stats::profile::ProfileSummary;
use crate::stats::statement::FEW_ROUNDS;
use crate::store::{Record, Warning};
use crate::{interrupt, report};

/// Runs an experiment: a TOML file, or one that comes with tlsdyno, by its name
///
/// For example `tlsdyno run coarfa-2006-fig7 --server apache-prefork`, or `tlsdyno run remedies`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A file (`tlsdyno ablate --print-experiment` writes one to start from) or a name from --list
    #[arg(value_name = "EXPERIMENT", required_unless_present = "list")]
    file: Option<PathBuf>,
    /// List the experiments that come with tlsdyno, with their questions and times, and run nothing
    #[arg(long, exclusive = true)]
    list: bool,
    /// Bound on the measuring time, for example 90 or 3m, instead of the file's
    #[arg(short, short_alias = 'd', long, alias = "duration", value_name = "TIME", value_parser = super::seconds)]
    time: Option<f64>,
    /// Server under test, instead of the file's
    #[arg(long, value_parser = choice(ServerName::configured()))]
    server: Option<ServerName>,
    /// The OpenSSL of the server under test by its prefix, or twice, two that are compared, instead of the file's
    #[arg(long, value_name = "PREFIX", num_args = 1)]
    library: Vec<PathBuf>,
    /// Certificate, instead of the file's
    #[arg(long, value_name = "TYPE", value_parser = choice(CertificateKind::ALL))]
    cert: Option<CertificateKind>,
    /// Seed of the order of blocks, instead of the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Let servers without stages listen at --address: workers and this machine are served, and who sits between can
    /// read and forge everything
    #[arg(long, requires = "remote")]
    allow_insecure_listen: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten, next_help_heading = "Several machines")]
    far: FarArgs,
}

/// Where results go, and what else can be done with an experiment.
#[derive(clap::Args, Clone, Debug)]
pub struct OutputArgs {
    #[command(flatten)]
    results: ResultArgs,
    /// Print the experiment as TOML and run nothing
    #[arg(long, help_heading = "Output")]
    print_experiment: bool,
}

/// Where results go.
#[derive(clap::Args, Clone, Debug)]
pub struct ResultArgs {
    /// Print one JSON object (docs/FORMAT.md) instead of the table
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Where the report goes; if it cannot be written there, nothing is measured and the exit code is 1
    #[arg(long, alias = "output", value_name = "FILE", default_value = "report.html", help_heading = "Output")]
    report: PathBuf,
    /// Write no report
    #[arg(long, help_heading = "Output")]
    no_report: bool,
}

impl ResultArgs {
    /// Without a report, unless one is named.
    pub fn of(json: bool, report: Option<PathBuf>) -> ResultArgs {
        ResultArgs { json, no_report: report.is_none(), report: report.unwrap_or_default() }
    }
}

/// Runs the experiment.
pub fn run(args: &Args) -> Result<Exit> {
    let Some(file) = &args.file else {
        super::print(listing()?)?;
        return Ok(Exit::Done);
    };
    let experiment = files::find(file).or_fault(Fault::Input)?;
    use AnyExperiment::{Primitives, Probe, Steps};
    let is_loaded_here = matches!(experiment, Primitives(_) | Steps(_) | Probe(_));
    let takes_workers = || -> Result<()> {
        ensure!(
            !is_loaded_here || !args.far.workers.are_given(),
            "{} is measured from this machine only; workers make the load of experiments that compare servers, arrays, \
             clusters and curves over reuse, and of URLs",
            file.display()
        );
        Ok(())
    };
    takes_workers().or_fault(Fault::Usage)?;
    ensure!(
        args.library.is_empty() || matches!(experiment, AnyExperiment::Server(_)),
        "--library is for experiments with one server, which {} is not",
        file.display()
    );
    match experiment {
        AnyExperiment::Server(experiment) => run_server(*experiment, file, args),
        AnyExperiment::Cluster(experiment) => run_cluster(*experiment, args),
        AnyExperiment::Load(experiment) => run_load(experiment, args),
        AnyExperiment::Array(experiment) => run_array(experiment, args),
        AnyExperiment::Probe(experiment) => run_probe(experiment, args),
        AnyExperiment::Primitives(experiment) => run_primitives(experiment, args),
        AnyExperiment::Steps(experiment) => run_steps(experiment, args),
    }
}

fn run_server(mut experiment: Experiment, file: &Path, args: &Args) -> Result<Exit> {
    if !args.library.is_empty() {
        experiment.use_libraries(libraries(&args.library)?);
    }
    if let Some(server) = args.server {
        ensure!(
            experiment.server.kind != ServerName::Command,
            "{} measures a server command of its own; leave --server out",
            file.display()
        );
        experiment.server.kind = server;
        leave_out_unable(&mut experiment);
    }
    change(&mut experiment.measure, &mut experiment.tls, args);
    let mut address = None;
    args.far.give(&mut experiment.workers, &mut address);
    if experiment.server.kind != ServerName::Command {
        experiment.server.address = address.map(|ip| ip.to_string()).or(experiment.server.address);
    }
    ensure!(
        experiment.server.kind != ServerName::Command || args.far.address.is_none(),
        "{} names the address of its server command; change it there",
        file.display()
    );
    experiment.server.allow_insecure_listen |= args.allow_insecure_listen;
    experiment.check().or_fault(Fault::Usage)?;
    check_cpus(&experiment).or_fault(Fault::Input)?;
    perform(&experiment, &args.output)
}

/// Leaves out the remedies that a server named instead of the file's cannot have, and says so. What is asked for by
/// name elsewhere stays, and is refused.
fn leave_out_unable(experiment: &mut Experiment) {
    let unable = |model: &ConfigurationModel| {
        let workers = model.processors.map_or(1, |processors| processors.count);
        experiment.check_sessions(&model.tls.applied(&experiment.tls), workers).err()
    };
    let is_asked = |name: &str| {
        let compared = experiment.comparisons.iter().any(|of| of.a == name || of.b == name);
        compared || experiment.shares.iter().any(|of| of.on == name || of.off.as_deref() == Some(name))
    };
    let models = experiment.configurations.iter().filter(|model| !model.is_untouched() && !is_asked(&model.name));
    let found: Vec<(String, anyhow::Error)> =
        models.filter_map(|model| Some((model.name.clone(), unable(model)?))).collect();
    let of_remedy = |name: &str| experiment.remedies.iter().any(|of| of.configuration == name);
    let found: Vec<_> = found.into_iter().filter(|(name, _)| of_remedy(name)).collect();
    for (name, why) in found {
        tell!("tlsdyno: \"{name}\" is left out: {why}");
        experiment.configurations.retain(|model| model.name != name);
        experiment.remedies.retain(|of| of.configuration != name && of.over.as_ref() != Some(&name));
    }
}

fn run_cluster(mut experiment: ClusterExperiment, args: &Args) -> Result<Exit> {
    experiment.cluster.server = args.server.unwrap_or(experiment.cluster.server);
    change(&mut experiment.measure, &mut experiment.tls, args);
    args.far.give(&mut experiment.workers, &mut experiment.cluster.address);
    perform_cluster(&experiment, &args.output)
}

fn run_array(mut experiment: ArrayExperiment, args: &Args) -> Result<Exit> {
    if let Some(server) = args.server {
        let name = if server == ServerName::Builtin { Proxy::Own.name() } else { server.name() };
        let proxy = name.parse::<Proxy>().context("an array has proxies; --server is one of them");
        experiment.array.proxy = proxy.or_fault(Fault::Usage)?;
    }
    change(&mut experiment.measure, &mut experiment.tls, args);
    args.far.give(&mut experiment.workers, &mut experiment.array.address);
    perform_array(&experiment, &args.output)
}

fn run_primitives(mut experiment: PrimitivesExperiment, args: &Args) -> Result<Exit> {
    let without_cert = || -> Result<()> {
        ensure!(args.cert.is_none(), "primitives have no certificate; leave --cert out");
        Ok(())
    };
    without_cert().or_fault(Fault::Usage)?;
    experiment.server.kind = args.server.unwrap_or(experiment.server.kind);
    experiment.measure.time_s = args.time.unwrap_or(experiment.measure.time_s);
    experiment.measure.seed = args.seed.or(experiment.measure.seed);
    perform_primitives(&experiment, &args.output)
}

fn run_steps(mut experiment: StepsExperiment, args: &Args) -> Result<Exit> {
    experiment.server.kind = args.server.unwrap_or(experiment.server.kind);
    if let Some(key) = args.cert {
        experiment.steps.keys = vec![key];
    }
    experiment.measure.time_s = args.time.unwrap_or(experiment.measure.time_s);
    experiment.measure.seed = args.seed.or(experiment.measure.seed);
    steps::check(&experiment)?;
    let run = |stop: &AtomicBool, progress: &mut Progress| steps::run(&experiment, stop, progress);
    perform_with(&args.output, &|| experiment.to_toml(), &run)
}

fn run_load(mut experiment: LoadExperiment, args: &Args) -> Result<Exit> {
    let foreign = args.server.is_none() && args.cert.is_none();
    ensure!(foreign, "{} is loaded as it is; leave --server and --cert out", experiment.url);
    experiment.measure.time_s = args.time.unwrap_or(experiment.measure.time_s);
    experiment.measure.seed = args.seed.or(experiment.measure.seed);
    experiment.workers = args.far.workers.given().or(experiment.workers);
    url::check(&experiment, None).or_fault(Fault::Usage)?;
    let run = |stop: &AtomicBool, progress: &mut Progress| url::run(&experiment, None, stop, progress);
    perform_with(&args.output, &|| Ok(toml::to_string(&experiment)?), &run)
}

/// Weeks of a probe in virtual time. It has no blocks, and so its rounds go to no store of records.
fn run_probe(mut experiment: ProbeExperiment, args: &Args) -> Result<Exit> {
    for site in &mut experiment.probe.site {
        site.server.kind = args.server.unwrap_or(site.server.kind);
        site.tls.certificate = args.cert.or(site.tls.certificate);
    }
    experiment.measure.time_s = args.time.unwrap_or(experiment.measure.time_s);
    experiment.measure.seed = args.seed.or(experiment.measure.seed);
    simulation::check(&experiment).or_fault(Fault::Input)?;
    if args.output.print_experiment {
        super::print(toml::to_string(&experiment)?)?;
        return Ok(Exit::Done);
    }
    let results = &args.output.results;
    let report = (!results.no_report).then_some(results.report.as_path());
    if let Some(path) = report {
        refuse_unwritable(path)?;
    }
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let sites = simulation::run(&experiment, &stop)?;
    let document = report::probe::simulated(&experiment, &sites);
    if let Some(path) = report {
        std::fs::write(path, report::html::page(&document)?)
            .with_context(|| format!("failed to write the report {}", path.display()))?;
    }
    super::print(match results.json {
        true => serde_json::to_string_pretty(&sites)? + "\n",
        false => report::terminal::text(&document, Style::of_stdout()),
    })?;
    Ok(Exit::Done)
}

/// The same for the load on a URL by the flags of a command line. Answers what was measured too.
pub fn perform_load(experiment: &LoadExperiment, options: &Options, results: &ResultArgs) -> Result<(Exit, Record)> {
    url::check(experiment, Some(options)).or_fault(Fault::Usage)?;
    perform_and_answer(results, &|stop, progress| url::run(experiment, Some(options), stop, progress))
}

/// What flags say instead of the file.
fn change(measure: &mut Measure, tls: &mut Tls, args: &Args) {
    measure.time_s = args.time.unwrap_or(measure.time_s);
    measure.seed = args.seed.or(measure.seed);
    tls.certificate = args.cert.or(tls.certificate);
}

/// The experiments that come with tlsdyno: name, measuring time, question.
fn listing() -> Result<String> {
    let widest = files::EMBEDDED.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, experiment) in files::all()? {
        text.push_str(&format!("{name:widest$}  {:>4.0} s  {}\n", experiment.measure().time_s, experiment.question()));
    }
    Ok(text)
}

/// Refuses CPUs that this process may not use.
pub fn check_cpus(experiment: &Experiment) -> Result<()> {
    cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu).map(drop)
}

/// Runs `experiment` and shows its result as asked.
pub fn perform(experiment: &Experiment, output: &OutputArgs) -> Result<Exit> {
    perform_with(output, &|| experiment.to_toml(), &|stop, progress| run_experiment(experiment, stop, progress))
}

/// The same for a cluster.
pub fn perform_cluster(experiment: &ClusterExperiment, output: &OutputArgs) -> Result<Exit> {
    experiment.check().or_fault(Fault::Usage)?;
    let run = |stop: &AtomicBool, progress: &mut Progress| cluster::run(experiment, stop, progress);
    perform_with(output, &|| experiment.to_toml(), &run)
}

/// The same for a profile.
pub fn perform_profile(experiment: &ProfileExperiment, results: &ResultArgs) -> Result<Exit> {
    profile::check(experiment)?;
    perform_and_show(results, &|stop, progress| profile::run(experiment, stop, progress))
}

/// The same for handshakes step by step.
pub fn perform_steps(experiment: &StepsExperiment, results: &ResultArgs) -> Result<Exit> {
    steps::check(experiment)?;
    perform_and_show(results, &|stop, progress| steps::run(experiment, stop, progress))
}

/// The same for primitives.
pub fn perform_primitives(experiment: &PrimitivesExperiment, output: &OutputArgs) -> Result<Exit> {
    experiment.check().or_fault(Fault::Usage)?;
    let run = |stop: &AtomicBool, progress: &mut Progress| primitives::run(experiment, stop, progress);
    perform_with(output, &|| experiment.to_toml(), &run)
}

/// The same for an array of proxies.
pub fn perform_array(experiment: &ArrayExperiment, output: &OutputArgs) -> Result<Exit> {
    experiment.check().or_fault(Fault::Usage)?;
    let run = |stop: &AtomicBool, progress: &mut Progress| array::run(experiment, stop, progress);
    perform_with(output, &|| experiment.to_toml(), &run)
}

fn perform_with(
    output: &OutputArgs,
    toml: &dyn Fn() -> Result<String>,
    run: &dyn Fn(&AtomicBool, &mut Progress) -> Result<Finished>,
) -> Result<Exit> {
    if output.print_experiment {
        super::print(toml()?)?;
        return Ok(Exit::Done);
    }
    perform_and_show(&output.results, run)
}

/// Runs `experiment`, shows its result as asked, and answers it.
pub fn perform_and_keep(experiment: &Experiment, output: &ResultArgs) -> Result<(Exit, Record)> {
    perform_and_answer(output, &|stop, progress| run_experiment(experiment, stop, progress))
}

fn perform_and_show(output: &ResultArgs, run: &dyn Fn(&AtomicBool, &mut Progress) -> Result<Finished>) -> Result<Exit> {
    perform_and_answer(output, run).map(|(exit, _)| exit)
}

fn perform_and_answer(
    output: &ResultArgs,
    run: &dyn Fn(&AtomicBool, &mut Progress) -> Result<Finished>,
) -> Result<(Exit, Record)> {
    let report = (!output.no_report).then_some(output.report.as_path());
    if let Some(path) = report {
        refuse_unwritable(path)?;
    }
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let mut progress = Progress::default();
    let result = run(&stop, &mut progress);
    progress.clear();
    let finished = result?;
    let record = &finished.record;
    // The file first: who closes the pipe of the table still gets the report. A report that fails does not cost the
    // table.
    let written = report.map_or(Ok(()), |path| write_report(record, path));
    let place = report.filter(|_| written.is_ok() && !output.json);
    let mut text = shown(record, output.json);
    if let Some(path) = place {
        text.push_str(&format!("\nReport: {}\n", path.display()));
    }
    super::print(text)?;
    written?;
    Ok((exit_of(&finished), finished.record))
}

fn write_report(record: &Record, path: &Path) -> Result<()> {
    std::fs::write(path, report::html(record)?).with_context(|| {
        format!("failed to write the report {}; `tlsdyno report` writes it again from the store", path.display())
    })
}

fn shown(record: &Record, json: bool) -> String {
    if json { report::json_text(record) + "\n" } else { report::terminal_text(record, Style::of_stdout()) }
}

/// Whether the record holds what was asked for. What went wrong was already said in the result's warnings.
fn exit_of(finished: &Finished) -> Exit {
    let record = &finished.record;
    let invalid = record.configurations.iter().any(|configuration| !configuration.valid)
        || record.blocks.iter().any(|block| !block.valid)
        || record.warnings.iter().any(|warning| matches!(warning, Warning::Missed { .. }))
        || ProfileSummary::of(record).is_some_and(|profile| profile.is_contradicted())
        || Counts::of(record).is_some_and(|counts| counts.impossible(record).is_some());
    match &finished.cut_short {
        Some(error) => exit::code_of(error),
        None if invalid => Exit::Invalid,
        None if !finished.stored => Exit::Store,
        None => Exit::Done,
    }
}

/// A report that cannot be written is better known before minutes of measuring than after.
fn refuse_unwritable(path: &Path) -> Result<()> {
    let existed = path.exists();
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("the report cannot be written to {}; choose another --report FILE", path.display()))?;
    if !existed {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Progress on standard error: a bar on a terminal, one line per step otherwise.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    /// What was measured so far, as a table, when it was made, and how long that took.
    so_far: String,
    shown: Option<(Instant, Duration)>,
    /// When a line was last printed, where there is no terminal.
    told: Instant,
}

/// How often the table of what was measured so far is renewed.
const RENEWED: Duration = Duration::from_secs(5);
/// And no more often than this many times what it takes to make: that is no time of measuring.
const RENEWED_TIMES: u32 = 20;
/// How often somebody who has no bar to look at is told how far it is.
const TOLD: Duration = Duration::from_secs(10);
/// Its rows.
const ROWS_SO_FAR: usize = 12;

impl Default for Progress {
    fn default() -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        Progress { bar, terminal, so_far: String::new(), shown: None, told: Instant::now() }
    }
}

impl Progress {
    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, text: &str) {
        let text = visible(text);
        if self.terminal {
            self.bar.println(text);
        } else {
            tell!("{text}");
        }
    }
}

/// What the rounds are to do, as far as is known before them.
fn measuring(schedule: &Schedule, configurations: usize, left: Duration) -> String {
    let (rounds, round_s, left_s) = (schedule.rounds_expected, schedule.round.as_secs_f64(), left.as_secs_f64());
    let text = format!("measuring {configurations} configurations in random order for at most {left_s:.0} s");
    let wanted_s = round_s * f64::from(FEW_ROUNDS);
    let blocks = match schedule.requests_per_block {
        0 | 1 => String::new(),
        requests => format!(", {requests} requests a block"),
    };
    match () {
        () if left.is_zero() => format!("measuring {configurations} configurations: warming up took the time"),
        () if wanted_s > left_s * 1.5 => format!(
            "{text}; a round takes about {round_s:.0} s, and fewer than {FEW_ROUNDS} resolve nothing: \
             give --time {:.0}",
            (wanted_s * 2.0 / 10.0).ceil() * 10.0
        ),
        () => format!("{text}, up to {rounds} rounds of {round_s:.1} s{blocks}"),
    }
}

/// Resolution of the bar; measuring time is a fraction, not a count.
const BAR_LENGTH: u64 = 1000;

impl Observer for Progress {
    fn step(&mut self, text: &str) {
        self.bar.set_message(visible(text).into_owned());
        if !self.terminal {
            tell!("{text}");
            self.told = Instant::now();
        }
    }

    fn tell(&mut self, text: &str) {
        self.line(text);
    }

    fn preflight(&mut self, name: &str, passed: usize, failed: &[String]) {
        for check in failed {
            self.line(&format!("preflight of \"{name}\" failed: {check}"));
        }
        if failed.is_empty() && !self.terminal {
            let checks = if passed == 1 { "check" } else { "checks" };
            tell!("preflight of \"{name}\": {passed} {checks} passed");
        }
    }

    fn warn(&mut self, text: &str) {
        self.line(&format!("warning: {text}"));
    }

    fn measuring(&mut self, schedule: &Schedule, configurations: usize, left: Duration) {
        self.line(&measuring(schedule, configurations, left));
        self.bar.set_length(BAR_LENGTH);
        let style = ProgressStyle::with_template("{spinner} [{bar:30}] {prefix}  {msg}");
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    }

    fn progress(&mut self, elapsed: Duration, time: Duration, text: &str) {
        let done = elapsed.as_secs_f64() / time.as_secs_f64();
        self.bar.set_position((done.min(1.0) * BAR_LENGTH as f64) as u64);
        let left = time.saturating_sub(elapsed);
        let times = format!("{:.0} s, {:.0} s left", elapsed.as_secs_f64(), left.as_secs_f64());
        if !self.terminal && self.told.elapsed() >= TOLD {
            tell!("{text}: {times}");
            self.told = Instant::now();
        }
        self.bar.set_prefix(times);
        self.bar.set_message(format!("{text}\n{}", self.so_far));
    }

    fn interim(&mut self, record: &Record) {
        let is_due = |(shown, took): (Instant, Duration)| shown.elapsed() >= RENEWED.max(took * RENEWED_TIMES);
        if self.terminal && self.shown.is_none_or(is_due) {
            let began = Instant::now();
            self.so_far = report::so_far(record, ROWS_SO_FAR);
            self.shown = Some((Instant::now(), began.elapsed()));
        }
    }

    fn finished(&mut self) {
        self.bar.set_message("evaluating");
    }
}
