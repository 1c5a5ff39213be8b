//! `tlsdyno advise`: flags become an experiment on an installed server, after what its files say.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_bench::kinds::ablation::{self, subject};
use tlsdyno_bench::kinds::flags::TimeArgs;
use tlsdyno_bench::kinds::perform::{OutputArgs, perform_showing};
use tlsdyno_bench::report::document::{Document, Section};
use tlsdyno_bench::report::{Style, terminal};
use tlsdyno_bench::run::check::CheckExperiment;
use tlsdyno_record::model::{ConfigurationModel, Experiment, ServerName};
use tlsdyno_report::markdown;

use crate::advice::Advice;
use crate::found::{self, Found};
use crate::page;
use crate::reading::Reading;
use crate::remedies::{self, Considered, Outcome};

/// What to change on an installed server, what it would gain, and whether that is worth it
///
/// Without a file it only reads: which servers are installed, what their files say of certificates, versions, sessions
/// and logs, and what it would try. With the configuration of an nginx it measures that on a copy beside the server
/// that runs, which is not touched, and tells what each remedy saves. It does not advise what is there already.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno advise
  tlsdyno advise /etc/nginx/nginx.conf --rate 300 --hits-per-handshake 4
  tlsdyno advise /etc/nginx/nginx.conf --trace /var/log/nginx/access.log
  tlsdyno advise /etc/nginx/nginx.conf --reading --markdown")]
pub struct Args {
    /// The configuration of the server (nginx) [default: read what is installed, measure nothing]
    config: Option<PathBuf>,
    /// Read its files only
    #[arg(long, help_heading = "Server")]
    reading: bool,
    /// The name that clients ask for, with its port where that is not 443 [default: of the default server]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    host: Option<String>,
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
    #[arg(long, value_name = "N", conflicts_with = "trace", help_heading = "Your site")]
    hits_per_handshake: Option<f64>,
    /// Requests a second of your site: savings are told in CPUs [default: the log's average]
    #[arg(long, value_name = "N", help_heading = "Your site")]
    rate: Option<f64>,
    #[command(flatten)]
    time: TimeArgs<120, 30>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Reads, and measures where a configuration is named.
pub fn run(args: &Args) -> Result<Exit> {
    ensure_fault!(Usage, args.rate.is_none_or(|rate| rate.is_finite() && rate > 0.0), "--rate is a number above 0");
    match &args.config {
        None => read_all(args),
        Some(path) => advise(args, path),
    }
}

/// What is installed here, and what its files say.
fn read_all(args: &Args) -> Result<Exit> {
    let found = found::all();
    ensure_fault!(
        Input,
        !found.is_empty(),
        "no nginx, Apache, HAProxy or lighttpd is installed here: name a configuration, or measure a server that runs \
         with `tlsdyno cost https://…`"
    );
    let mut sections = Vec::new();
    for Found { server, path } in &found {
        if *server != ServerName::Nginx {
            let text = format!(
                "{} is there; this program does not read it yet. What TLS costs that server: tlsdyno cost https://…",
                path.display()
            );
            sections.push(Section::titled("", server.name()).text(text));
            continue;
        }
        match Reading::of(path, args.host.as_deref(), args.trace.as_deref()) {
            Ok(reading) => {
                let next = format!("To measure that: tlsdyno advise {}", path.display());
                sections.extend(page::reading(&reading, &remedies::considered(&reading, args.trace.is_some())));
                sections.push(Section::default().text(next));
            }
            Err(error) => sections.push(Section::titled("", path.display().to_string()).text(format!("{error:#}"))),
        }
    }
    show(args, &Document::of(sections))?;
    Ok(Exit::Done)
}

fn advise(args: &Args, path: &Path) -> Result<Exit> {
    let reading = Reading::of(path, args.host.as_deref(), args.trace.as_deref()).or_fault(Fault::Input)?;
    let considered = remedies::considered(&reading, args.trace.is_some());
    let mut sections = page::reading(&reading, &considered);
    let has_to_try = considered.iter().any(|of| matches!(of.outcome, Outcome::Tried(_)));
    if args.reading || !has_to_try {
        let nothing = "Nothing is left to try on this server. What TLS costs it: tlsdyno ablate --server-config FILE";
        sections.extend((!has_to_try).then(|| Section::default().text(nothing)));
        show(args, &Document::of(sections))?;
        return Ok(Exit::Done);
    }
    let (experiment, told) = experiment(args, path, &reading, &considered)?;
    if args.output.print_experiment {
        tlsdyno_base::output::print(experiment.to_toml()?)?;
        return Ok(Exit::Done);
    }
    if !args.output.results.json {
        show(args, &Document::of(sections.clone()))?;
    }
    told.iter().for_each(|line| tell!("{line}"));
    let rate = args.rate.or(reading.mean_rate_per_s());
    let (exit, _) = perform_showing(
        &ablation::Ablation,
        &args.output.results,
        &|stop, progress| subject::run(&experiment, stop, progress),
        &|record, summary| {
            let advice = Advice::of(record, &considered, rate);
            page::document(summary.document(record), advice.as_ref(), sections.clone())
        },
    )?;
    Ok(exit)
}

/// Prints a document as it is asked for.
fn show(args: &Args, document: &Document) -> Result<()> {
    tlsdyno_base::output::print(match args.output.results.markdown {
        true => markdown::text(document),
        false => terminal::text(document, Style::of_stdout()) + "\n",
    })
}

/// The server as it is, each remedy that is tried, and plain HTTP, on a copy.
fn experiment(
    args: &Args,
    path: &Path,
    reading: &Reading,
    considered: &[Considered],
) -> Result<(Experiment, Vec<String>)> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text cannot be measured");
    let mut words = vec!["--server-config".to_owned(), text(path)?, "--until".to_owned(), "0".to_owned()];
    words.extend(["--time".to_owned(), args.time.seconds().to_string()]);
    let mut flag = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| [name.to_owned(), value]).into_iter().flatten());
    };
    flag("--host", args.host.clone());
    args.header.iter().for_each(|header| flag("--header", Some(header.clone())));
    flag("--client-cert", args.client_cert.as_deref().map(text).transpose()?);
    flag("--client-key", args.client_key.as_deref().map(text).transpose()?);
    flag("--trace", args.trace.as_deref().map(text).transpose()?);
    flag("--paths", args.paths.as_deref().map(text).transpose()?);
    let of_log = reading.hits_per_handshake().filter(|_| args.trace.is_none());
    let hits = args.hits_per_handshake.or(of_log.map(|hits| (10.0 * hits).round() / 10.0));
    flag("--hits-per-handshake", hits.map(|hits| hits.to_string()));
    let (mut experiment, told) = ablation::command::of_words(&words)?;
    let (tried, remedies) = remedies::models(considered);
    let is_kept = |model: &ConfigurationModel| model.is_untouched() || model.plain_http;
    let ends: Vec<ConfigurationModel> = experiment.configurations.iter().filter(|of| is_kept(of)).cloned().collect();
    let (plain, as_is): (Vec<_>, Vec<_>) = ends.into_iter().partition(|model| model.plain_http);
    experiment.configurations = [as_is, tried, plain].concat();
    experiment.remedies = remedies;
    experiment.question = "What should be changed on this server, and what would it gain?".to_owned();
    experiment.check().or_fault(Fault::Usage)?;
    Ok((experiment, told))
}
