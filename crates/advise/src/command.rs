//! `tlsdyno advise`: flags become an experiment on an installed server, after what its files say.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;
use tlsdyno_ablation::command::installed_server;
use tlsdyno_ablation::subject;
use tlsdyno_base::choice::choice;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::foreign::harmless_json;
use tlsdyno_base::interrupt;
use tlsdyno_installed::found::{self, Found};
use tlsdyno_installed::{patch, session_line};
use tlsdyno_record::model::{ConfigurationModel, Experiment, ServerName};
use tlsdyno_record::store::Record;
use tlsdyno_report::markdown;
use tlsdyno_runner::kinds::flags::{ApplicationArgs, TimeArgs, rate, requests_each};
use tlsdyno_runner::kinds::perform::{OutputArgs, Shown, perform_and_keep};
use tlsdyno_runner::kinds::{AnySummary, Kind, Progress};
use tlsdyno_runner::report::document::{Document, Section};
use tlsdyno_runner::report::{Style, terminal};
use tlsdyno_runner::run::check::CheckExperiment;
use tlsdyno_servers::directives::Setting;

use crate::advice::Advice;
use crate::kind::Advised;
use crate::reading::Reading;
use crate::record::AdviceModel;
use crate::remedies::{self, Considered};
use crate::{page, rules};

/// What to change on an installed server, what it would gain, and whether that is worth it
///
/// Without a file it only reads: which servers are installed, what their files say of certificates, versions, sessions
/// and logs, and what it would try. With the configuration of an nginx, Apache, HAProxy or lighttpd it measures that on
/// a copy beside the server that runs, which is not touched, and tells what each remedy saves. It does not advise what
/// is there already.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno advise
  tlsdyno advise /etc/nginx/nginx.conf --rate 300 --hits-per-handshake 4
  tlsdyno advise /etc/nginx/nginx.conf --trace /var/log/nginx/access.log
  tlsdyno advise /etc/haproxy/haproxy.cfg --apply 'ECDSA certificate, session tickets'
  tlsdyno advise /etc/apache2/apache2.conf --diff > tls.patch
  tlsdyno advise /etc/nginx/nginx.conf --reading --markdown")]
pub struct Args {
    /// The configuration of an nginx, Apache, HAProxy or lighttpd [default: read what is installed, measure nothing]
    config: Option<PathBuf>,
    /// Whose configuration it is [default: told from the file]
    #[arg(long, value_parser = choice(ServerName::configured()), requires = "config", help_heading = "Server")]
    server: Option<ServerName>,
    /// Print the copy that would be measured, with what becomes of everything in its first lines
    #[arg(long, requires = "config", help_heading = "Server")]
    print_config: bool,
    /// Read its files only
    #[arg(long, help_heading = "Server")]
    reading: bool,
    /// The name that clients ask for, with its port where that is not 443 [default: of the default server]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    host: Option<String>,
    #[command(flatten, next_help_heading = "Server")]
    applications: ApplicationArgs,
    /// Visitors speak HTTP/1.1, also where the server offers HTTP/2
    #[arg(long, help_heading = "Your site")]
    http1: bool,
    /// A further header of each request, for example 'Authorization: Basic …' (several times)
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = "Server")]
    header: Vec<String>,
    /// Certificate, with its chain, for a server that asks its clients for one (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key", help_heading = "Server")]
    client_cert: Option<PathBuf>,
    /// Key of --client-cert (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", requires = "client_cert", help_heading = "Server")]
    client_key: Option<PathBuf>,
    /// Its pages and visitors: an access log in common or combined format, plain or gzip
    #[arg(long, value_name = "FILE", help_heading = "Your site")]
    trace: Option<PathBuf>,
    /// Its pages, where no log tells: a path or URL in each line [default: the front page]
    #[arg(long, value_name = "FILE", conflicts_with = "trace", help_heading = "Your site")]
    paths: Option<PathBuf>,
    /// Requests for each connection and its handshake, where no log tells
    #[arg(long, value_name = "N", value_parser = requests_each, conflicts_with = "trace", help_heading = "Your site")]
    hits_per_handshake: Option<f64>,
    /// Requests a second of your site: savings are told in CPUs [default: the log's average]
    #[arg(long, value_name = "N", value_parser = rate, help_heading = "Your site")]
    rate: Option<f64>,
    /// Measures these remedies together, too, beside what the single ones predict (comma-separated; a few words of a
    /// name do)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "config", help_heading = "Measuring")]
    apply: Vec<String>,
    /// Prints the lines as a patch against your own files, for `patch -p1 -d /`: of --apply, or of what saves; with
    /// --reading of all that would be tried
    #[arg(long, requires = "config", conflicts_with_all = ["json", "markdown"], help_heading = "Output")]
    diff: bool,
    #[command(flatten)]
    time: TimeArgs<120, 30>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args) -> Result<Exit> {
    match &args.config {
        None => read_all(args),
        Some(path) if args.print_config => {
            let copy = installed_server::printed(path, args.server, args.host.as_deref()).or_fault(Fault::Input)?;
            tlsdyno_base::output::print(copy)?;
            Ok(Exit::Done)
        }
        Some(path) => advise(args, path),
    }
}

/// Lists the installed servers, and what their files say.
fn read_all(args: &Args) -> Result<Exit> {
    let found = found::all();
    ensure_fault!(
        Input,
        !found.is_empty(),
        "no nginx, Apache, HAProxy or lighttpd is installed here: name a configuration, or measure a server that runs \
         with `tlsdyno cost https://…`"
    );
    let (mut sections, mut all) = (Vec::new(), Vec::new());
    for Found { server, path } in &found {
        match Reading::of(path, Some(*server), args.host.as_deref(), args.trace.as_deref()) {
            Ok(reading) => {
                let next = format!("To measure that: tlsdyno advise {}", path.display());
                let considered = remedies::considered(&reading, args.trace.is_some());
                let read = read_model(&reading, &considered, args.rate);
                sections.extend(page::reading(&read));
                sections.push(Section::default().text(next));
                all.push(serde_json::json!({ "file": path, "advice": read }));
            }
            Err(error) => {
                sections.push(Section::titled("", path.display().to_string()).text(format!("{error:#}")));
            }
        }
    }
    show(args, &Document::from_sections(sections), &all)?;
    Ok(Exit::Done)
}

fn read(args: &Args, path: &Path) -> Result<Reading> {
    let began = Instant::now();
    let read = Reading::of(path, args.server, args.host.as_deref(), args.trace.as_deref()).or_fault(Fault::Input)?;
    tell!("read in {:.1} s", began.elapsed().as_secs_f64());
    Ok(read)
}

/// As records keep it and every page shows it.
fn read_model(reading: &Reading, considered: &[Considered], rate: Option<f64>) -> AdviceModel {
    let log = session_line(reading.server, &reading.facts.access_logs)
        .map(|line| format!("A log that tells of sessions: {line}"));
    AdviceModel {
        server: reading.brief(),
        reading: reading.told(),
        notes: log.into_iter().chain(rules::all().into_iter().map(|(told, _)| told)).collect(),
        considered: considered.iter().map(|of| of.model(reading.server)).collect(),
        rate_per_s: rate.or(reading.mean_rate_per_s()),
    }
}

fn advise(args: &Args, path: &Path) -> Result<Exit> {
    let reading = read(args, path)?;
    let considered = remedies::considered(&reading, args.trace.is_some());
    let chosen = remedies::chosen(&considered, &args.apply).or_fault(Fault::Usage)?;
    let read = read_model(&reading, &considered, args.rate);
    let unspoken = remedies::unspoken_groups(&reading);
    let has_to_try = unspoken.is_none() && considered.iter().any(|of| of.change.is_some());
    if args.diff && (args.reading || !has_to_try) {
        let is_written = |of: &&Considered| !of.is_apart && (of.change.is_some() || unspoken.is_some());
        let all = || considered.iter().filter(is_written).collect();
        return print_patch(path, &reading, &considered, &if chosen.is_empty() { all() } else { chosen });
    }
    if args.reading || !has_to_try {
        let mut sections = page::reading(&read);
        let nothing = match unspoken {
            Some(groups) => format!("Nothing can be measured: tlsdyno's client speaks none of {groups}."),
            None => "Nothing is left to measure here. What TLS costs: tlsdyno ablate --server-config FILE".to_owned(),
        };
        sections.extend((!has_to_try).then(|| Section::default().text(nothing)));
        let brief = args.output.results.markdown.then(|| page::brief(&read, None));
        let document = brief.unwrap_or_else(|| Document::from_sections(sections));
        show(args, &document, &serde_json::json!({ "advice": read }))?;
        return Ok(Exit::Done);
    }
    let (mut experiment, told) = experiment(args, path, &reading, &considered)?;
    if args.output.print_experiment {
        tlsdyno_base::output::print(experiment.to_toml()?)?;
        return Ok(Exit::Done);
    }
    if !args.output.results.json && !args.output.results.markdown && !args.diff {
        show(args, &Document::from_sections(page::reading(&read)), &())?;
    }
    experiment.advice = Some(serde_json::to_value(&read)?);
    told.iter().for_each(|line| tell!("{line}"));
    let run = |stop: &AtomicBool, progress: &mut Progress| {
        let began = Instant::now();
        progress.show(Box::new(|record, rows| Advised.so_far(record, rows)));
        let finished = subject::run(&experiment, stop, progress);
        tell!("measured after {:.0} s", began.elapsed().as_secs_f64());
        finished
    };
    if args.diff {
        let mut progress = Progress::of(&Advised);
        let stop = interrupt::flag(Exit::Interrupted as i32)?;
        let finished = run(&stop, &mut progress);
        progress.clear();
        let advice = Advice::of(&finished?.record).context("too little was measured")?;
        tell!("{}", advice.told());
        let saves = |of: &&Considered| advice.saves(of.id) && !of.is_apart;
        let wanted = if chosen.is_empty() { considered.iter().filter(saves).collect() } else { chosen };
        return print_patch(path, &reading, &considered, &wanted);
    }
    let pasted = |record: &Record, summary: &dyn AnySummary| {
        summary.document(record).pasted(page::brief(&read, Advice::of(record).as_ref()))
    };
    let pasted: Option<&Shown> = if args.output.results.markdown { Some(&pasted) } else { None };
    perform_and_keep(&Advised, &args.output.results, &run, pasted).map(|(exit, _)| exit)
}

/// Fails without remedies: it names those that a patch has only where they are asked for.
fn print_patch(path: &Path, reading: &Reading, considered: &[Considered], remedies: &[&Considered]) -> Result<Exit> {
    let apart = considered.iter().filter(|of| of.is_apart && !of.settings.is_empty()).map(|of| of.id.name());
    ensure_fault!(
        Input,
        !remedies.is_empty(),
        "no remedy surely saves, or is tried unasked, so that there is no patch. Only by --apply: {}",
        apart.collect::<Vec<_>>().join(", ")
    );
    let settings: Vec<Setting> = remedies.iter().flat_map(|of| of.settings.clone()).collect();
    let patch = patch(path, reading.server, reading.host.as_deref(), &settings).or_fault(Fault::Input)?;
    tell!("{}", patch.tried);
    if String::from_utf8_lossy(&patch.bytes).contains("+++ b/etc/letsencrypt/") {
        tell!(
            "certbot no longer renews a file of its own that was changed: the patch changes one below /etc/letsencrypt"
        );
    }
    tlsdyno_base::output::print(patch.bytes)?;
    Ok(Exit::Done)
}

/// In the format that the flags ask for.
fn show(args: &Args, document: &Document, json: &impl Serialize) -> Result<()> {
    let results = &args.output.results;
    tlsdyno_base::output::print(match (results.json, results.markdown) {
        (true, _) => harmless_json(&serde_json::to_string_pretty(json)?).into_owned() + "\n",
        (false, true) => markdown::text(document),
        (false, false) => terminal::text(document, Style::of_stdout()) + "\n",
    })
}

fn experiment(
    args: &Args,
    path: &Path,
    reading: &Reading,
    considered: &[Considered],
) -> Result<(Experiment, Vec<String>)> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text cannot be measured");
    let mut words = vec!["--server-config".to_owned(), text(path)?, "--until".to_owned(), "0".to_owned()];
    words.extend(["--time".to_owned(), args.time.seconds().to_string()]);
    words.extend(args.applications.words());
    words.extend((reading.facts.http2 && !args.http1).then(|| "--http2".to_owned()));
    let mut flag = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| [name.to_owned(), value]).into_iter().flatten());
    };
    flag("--server", args.server.map(|server| server.name().to_owned()));
    flag("--host", args.host.clone());
    args.header.iter().for_each(|header| flag("--header", Some(header.clone())));
    flag("--client-cert", args.client_cert.as_deref().map(text).transpose()?);
    flag("--client-key", args.client_key.as_deref().map(text).transpose()?);
    flag("--trace", args.trace.as_deref().map(text).transpose()?);
    flag("--paths", args.paths.as_deref().map(text).transpose()?);
    let of_log = reading.hits_per_handshake().filter(|_| args.trace.is_none());
    let hits = args.hits_per_handshake.or(of_log.map(|hits| (10.0 * hits).round() / 10.0));
    flag("--hits-per-handshake", hits.map(|hits| hits.to_string()));
    let (mut experiment, told) = tlsdyno_ablation::command::of_words(&words)?;
    let (mut tried, remedies) = remedies::models(considered);
    tried.extend(remedies::together(&remedies::chosen(considered, &args.apply)?));
    let is_kept = |model: &ConfigurationModel| model.is_untouched() || model.plain_http;
    let ends: Vec<ConfigurationModel> = experiment.configurations.iter().filter(|of| is_kept(of)).cloned().collect();
    let (plain, as_is): (Vec<_>, Vec<_>) = ends.into_iter().partition(|model| model.plain_http);
    experiment.configurations = [as_is, tried, plain].concat();
    experiment.remedies = remedies;
    experiment.question = "What should be changed on this server, and what would it gain?".to_owned();
    experiment.check().or_fault(Fault::Usage)?;
    Ok((experiment, told))
}
