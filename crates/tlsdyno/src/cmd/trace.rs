//! `tlsdyno trace`: look at, import and make workloads.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Subcommand;

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::kinds::flags::number;
use crate::model::workload::{HarSpec, NamesSpec, WorkloadSpec};
use crate::report::document::Document;
use crate::report::terminal::{self, Style};
use crate::report::{html, workload};
use tlsdyno_workloads::flags::{ReplayArgs, Specweb99Args, WorkloadChoice};
use tlsdyno_workloads::{Summary, make, scan_log, write_docroot, write_log};

/// Look at, import and make workloads
///
/// A workload is the name of a synthetic one (ecommerce, department, specweb96, specweb99, cdnow), an access log in
/// common or combined format, plain or gzip, or what a browser recorded (a file whose name ends in .har).
/// docs/WORKLOADS.md says where the synthetic ones come from.
#[derive(Debug, clap::Args)]
#[command(after_long_help = include_str!("replay.txt"))]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print a workload in numbers: hits, users, sessions, sizes, statuses, malformed lines; of a log also the percent
    /// reuse that it gives for a range of session lifetimes and limits
    ///
    /// A log of any length is read in one pass and in memory for the users of an hour. With --replay (or --pages,
    /// --keep-alive) it is read as for a load instead, and the pages, connections, objects and files of that are
    /// shown.
    Show {
        #[command(flatten)]
        workload: WorkloadArgs,
        /// Log: show how it is replayed
        #[arg(long = "replay", conflicts_with = "html")]
        as_replayed: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Log: also write the percent reuse as a chart, a page that works offline
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Write the files that a workload needs into DIR/docroot, and its numbers into DIR/summary.json
    Import {
        #[command(flatten)]
        workload: WorkloadArgs,
        /// A directory that does not exist yet, or is empty
        #[arg(short, long, value_name = "DIR")]
        output: PathBuf,
        /// Print the numbers as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write a workload as an access log in combined format
    Synth {
        #[command(flatten)]
        workload: WorkloadArgs,
        /// The file to write; without it the log goes to standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("trace_session_lifetime", |flag| flag.alias("session-lifetime")))]
#[command(mut_arg("trace_keep_alive", |flag| flag.alias("keep-alive")))]
struct WorkloadArgs {
    /// ecommerce, department, specweb96, specweb99, cdnow, or the path of an access log or HAR file
    #[arg(value_name = "WORKLOAD|FILE")]
    workload: String,
    /// Users: of twelve requests each in ecommerce, 100 in specweb96 and specweb99, 25 in cdnow, all of a HAR file
    /// [default: 1000]
    #[arg(long, value_name = "N")]
    users: Option<u32>,
    /// department: 1 is the size in the paper, 100,000 hits and a corpus of 530 MB [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = number("a factor from 0.0001 to 1,000", 1e-4..=1e3))]
    scale: Option<f64>,
    /// ecommerce, department, specweb96, specweb99: seed of the random choices [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// specweb99: simultaneous connections that its directories are for [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "directories")]
    connections: Option<u32>,
    #[command(flatten)]
    specweb99: Specweb99Args,
    #[command(flatten)]
    replay: ReplayArgs,
}

/// The kinds of workload, to say which flags belong to which.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Synthetic(WorkloadChoice),
    Recording,
    Log,
}

impl Kind {
    fn of(text: &str) -> Kind {
        if let Ok(choice) = <WorkloadChoice as clap::ValueEnum>::from_str(text, false) {
            return Kind::Synthetic(choice);
        }
        let extension = Path::new(text).extension();
        if extension.is_some_and(|extension| extension.eq_ignore_ascii_case("har")) {
            Kind::Recording
        } else {
            Kind::Log
        }
    }

    fn has_users(self) -> bool {
        !matches!(self, Kind::Log | Kind::Synthetic(WorkloadChoice::Department))
    }

    fn has_seed(self) -> bool {
        !matches!(self, Kind::Log | Kind::Recording | Kind::Synthetic(WorkloadChoice::Cdnow))
    }
}

impl WorkloadArgs {
    /// The workload asked for.
    ///
    /// # Errors
    /// A flag that means nothing for it: better than silently measuring something else.
    fn spec(&self) -> anyhow::Result<WorkloadSpec> {
        let kind = Kind::of(&self.workload);
        self.ensure_flags_fit(kind).or_fault(Fault::Usage)?;
        let seed = self.seed.unwrap_or(1);
        let users = self.users.unwrap_or(1_000);
        Ok(match kind {
            Kind::Synthetic(choice) => {
                let spec = choice.spec(Some(users), self.scale.unwrap_or(1.0), seed);
                self.specweb99.applied(spec, self.connections.unwrap_or(64)).or_fault(Fault::Usage)?
            }
            Kind::Recording => {
                WorkloadSpec::Har { path: PathBuf::from(&self.workload), har: HarSpec { users, ..HarSpec::default() } }
            }
            Kind::Log => self.replay.workload(PathBuf::from(&self.workload), NamesSpec::Files),
        })
    }

    fn ensure_flags_fit(&self, kind: Kind) -> anyhow::Result<()> {
        let flags = [
            ("--users", self.users.is_some(), kind.has_users()),
            ("--scale", self.scale.is_some(), kind == Kind::Synthetic(WorkloadChoice::Department)),
            ("--seed", self.seed.is_some(), kind.has_seed()),
            ("--connections", self.connections.is_some(), kind == Kind::Synthetic(WorkloadChoice::Specweb99)),
        ];
        for (flag, given, fits) in flags {
            let what = if kind == Kind::Log { "an access log" } else { self.workload.as_str() };
            ensure!(!given || fits, "{flag} means nothing for {what}; leave it out");
        }
        if !matches!(kind, Kind::Synthetic(_)) {
            self.specweb99.ensure_absent(&self.workload)?;
        }
        if kind != Kind::Log {
            self.replay.ensure_absent(&self.workload)?;
        }
        Ok(())
    }
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Show { workload, as_replayed, json, html } => show(workload, *as_replayed, *json, html.as_deref())?,
        Action::Import { workload, output, json } => import(workload, output, *json)?,
        Action::Synth { workload, output } => synth(workload, output.as_deref())?,
    }
    Ok(Exit::Done)
}

fn show(args: &WorkloadArgs, as_replayed: bool, json: bool, html: Option<&Path>) -> anyhow::Result<()> {
    let spec = args.spec()?;
    let WorkloadSpec::Trace { path, exclude, replay } = &spec else {
        ensure_fault!(Usage, !as_replayed, "--replay is for access logs; leave it out");
        ensure_fault!(Usage, html.is_none(), "--html is for access logs; leave it out");
        return print_workload(&make(&spec)?.summary, json);
    };
    if as_replayed || args.replay.pages || args.replay.keep_alive.is_some() {
        ensure_fault!(
            Usage,
            html.is_none(),
            "--html is about the log, --pages and --keep-alive about its replay; leave one out"
        );
        return print_workload(&make(&spec)?.summary, json);
    }
    let scan = scan_log(path, exclude, replay)?;
    if let Some(path) = html {
        let page = html::page(&workload::log(&scan)).context("failed to make the page")?;
        fs::write(path, page)
            .with_context(|| format!("failed to write {}", path.display()))
            .or_fault(Fault::Environment)?;
    }
    print(&scan, json, || workload::log(&scan))
}

fn print_workload(summary: &Summary, json: bool) -> anyhow::Result<()> {
    print(summary, json, || workload::workload(summary))
}

fn print(numbers: &impl serde::Serialize, json: bool, document: impl FnOnce() -> Document) -> anyhow::Result<()> {
    crate::output::print(if json {
        crate::output::json_of(numbers)?
    } else {
        terminal::text(&document(), Style::of_stdout())
    })
}

fn import(workload: &WorkloadArgs, output: &Path, json: bool) -> anyhow::Result<()> {
    let is_occupied = fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_some());
    ensure_fault!(Usage, !is_occupied, "{} is not empty; name a directory that does not exist yet", output.display());
    let site = make(&workload.spec()?)?;
    write_docroot(&site, &output.join("docroot"))?;
    let summary = output.join("summary.json");
    fs::write(&summary, crate::output::json_of(&site.summary)?)
        .with_context(|| format!("failed to write {}", summary.display()))?;
    print_workload(&site.summary, json)
}

fn synth(workload: &WorkloadArgs, output: Option<&Path>) -> anyhow::Result<()> {
    let site = make(&workload.spec()?)?;
    let Some(path) = output else {
        let mut out = BufWriter::new(std::io::stdout().lock());
        return write_log(&site.workload, &mut out).and_then(|()| out.flush()).context("failed to print");
    };
    let written = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        write_log(&site.workload, &mut out)?;
        out.flush()
    };
    written().with_context(|| format!("failed to write {}", path.display())).or_fault(Fault::Environment)
}
