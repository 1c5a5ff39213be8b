//! The load on a server that is there, by its URL: `tlsdyno load`, `tlsdyno reuse`, `tlsdyno compare`.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

mod check;
pub mod command;
pub mod compare;
pub mod compared;
mod conforming;
pub mod curve;
pub mod file;
mod in_turns;
pub mod over_reuse;
pub mod page;
mod points;
mod record;
pub mod run_files;
pub mod run_page;
pub mod sizes;
mod started_server;
pub mod subject;
pub mod summary;

use anyhow::{Result, ensure};
use serde::Serialize;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::subcommand::{Subcommand, subcommand};
use tlsdyno_record::store::load_run::Summary;
use tlsdyno_record::store::{LOAD, OfKind, Record};
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, any_kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;
use tlsdyno_stats::compared::{Word, verdict};

use self::file::LoadExperiment;

pub use self::record::{LoadRecord, LoggedReuse};
use self::summary::LoadSummary;

pub struct Loads;

impl OfKind for LoadRecord {
    const FIELD: &'static str = LOAD;
}

impl Kind for Loads {
    any_kind!(LoadExperiment, LoadRecord, LoadSummary);

    fn key(&self) -> &'static str {
        "url"
    }

    fn commands(&self) -> Vec<Subcommand> {
        vec![
            subcommand!("reuse", curve::command).with_short_help(
                &["url", "by", "levels", "plain", "connections", "insecure", "duration", "json", "report"],
                "tlsdyno reuse https://localhost:8443/1k.bin -k --by hits --plain http://localhost:8080/1k.bin",
            ),
            subcommand!("load", command).with_short_help(
                &["url", "connections", "duration", "rate", "reuse", "insecure", "against", "fail_if", "output"],
                "tlsdyno load https://localhost:8443/ -k -d 10s --reuse 80% --fail-if 'p99 > 50ms'",
            ),
            subcommand!("compare", compare).with_short_help(
                &["first", "second", "run", "tolerance", "strict", "fail_if", "method", "json"],
                "tlsdyno compare a1.json a2.json -- b1.json b2.json --fail-if 'p99 > +20%'",
            ),
        ]
    }
}

impl AnyExperiment for LoadExperiment {
    any_experiment!(Loads);

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_libraries(name)?;
        let foreign = changes.server.is_none() && changes.cert.is_none();
        ensure!(foreign, "{} is loaded as it is; leave --server and --cert out", self.url);
        changes.change(&mut self.measure);
        self.workers = changes.far.workers.given().or(self.workers.take());
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        check::check(self, None).or_fault(Fault::Usage)?;
        perform(self, output, &|stop, progress| subject::run(self, None, stop, progress))
    }
}

impl AnySummary for LoadSummary {
    fn document(&self, record: &Record) -> Document {
        page::document(record, self)
    }

    fn json(&self, record: &Record) -> String {
        #[derive(Serialize)]
        struct Results<'a> {
            #[serde(flatten)]
            summary: &'a LoadSummary,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            connections: &'a [u32],
            #[serde(skip_serializing_if = "Option::is_none")]
            verdict: Option<Word>,
            runs: &'a [Summary],
        }
        let load = record.kind_part.of::<LoadRecord>();
        let results = Results {
            summary: self,
            connections: load.map_or(&[][..], |load| &load.connections),
            verdict: (!self.against.is_empty()).then(|| verdict(&self.against)),
            runs: load.map_or(&[][..], |load| &load.runs),
        };
        json::results(record, page::answer(self), self.rounds, results, &self.warnings)
    }
}
