//! What TLS costs a server, on any TLS library, from outside: `tlsdyno cost`. The client decides what work a server
//! does, and how far a connection goes; the server's CPU time is in `/proc`.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod choice;
pub mod command;
pub mod file;
pub mod locks;
mod maker;
mod memory;
mod page;
pub mod part_id;
pub mod parts;
mod pilot;
mod server;
mod side_by_side;
pub mod steps;
mod subject;
mod sum;
pub mod summary;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::subcommand::{Subcommand, subcommand};
use tlsdyno_record::model::CertificateKind;
use tlsdyno_record::store::{OfKind, Record, UNREAD};
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, any_kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;
use tlsdyno_stats::Metric;
use tlsdyno_tls::{Group, Suite, Version};
use tlsdyno_traffic::network::certificate::Certificate;

use self::file::{CostExperiment, Measure};
use self::locks::summary::LocksSummary;
use self::memory::summary::MemorySummary;
use self::steps::{Step, StepId};
use self::summary::CostSummary;

/// What a server is called beside others: A, B and so on.
const LABELS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

pub struct Costs;

/// A record's contents beside its blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostRecord {
    pub experiment: CostExperiment,
    /// The configurations of the record are the steps of the first, then those of the others.
    pub servers: Vec<Measured>,
}

/// A server, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// What it is called in place of its address; empty: nothing else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its version and that of its library, as the experiment says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    pub address: String,
    pub command: String,
    /// Version, suite and group of a whole connection, separated by spaces.
    pub negotiated: String,
    /// The group that it agrees on where the client offers a share of X25519 and names other curves; another one costs
    /// a second hello.
    pub group: Option<Group>,
    /// Keys of its certificates: first that of a whole connection, then those for clients that take no other key.
    /// Empty: not known.
    #[serde(default)]
    pub keys: Vec<CertificateKind>,
    /// Suite that it takes instead of AES-128-GCM, which it does not take.
    pub suite: Option<Suite>,
    /// How its CPU time is read: `processes` or `cgroup`; `none`: not at all, so that steps are what a client waits, or
    /// locks are counted.
    pub accounting: String,
    /// CPU use without our connections, per cent of a CPU, which is subtracted.
    pub busy_percent: f64,
    /// Length of a turn of a step, microseconds.
    pub slice_us: u64,
    /// Name of the step to which all others are compared in time: a whole connection.
    pub whole: String,
    pub steps: Vec<Step>,
    /// Names of steps that the server does not take, with the reason.
    pub refused: Vec<(String, String)>,
    /// Sizes of its certificate; `None`: no TLS 1.3, or nothing was requested.
    pub certificate: Option<Certificate>,
}

/// What is told of a server, whatever is measured of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Identity {
    /// `A`, `B` and so on, in the order of the servers.
    pub label: &'static str,
    pub address: String,
    /// What it is called in place of its address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its version and that of its library, as it says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    pub command: String,
    pub negotiated: String,
    /// Connections that the server does not take, with the reason.
    pub refused: Vec<(String, String)>,
}

impl Identity {
    /// Its name, or where it listens.
    pub fn called(&self) -> &str {
        if self.name.is_empty() { &self.address } else { &self.name }
    }
}

impl Measured {
    /// The server with this number.
    pub(crate) fn identity(&self, number: usize) -> Identity {
        Identity {
            label: &LABELS[number..=number],
            address: self.address.clone(),
            name: self.name.clone(),
            about: self.about.clone(),
            command: self.command.clone(),
            negotiated: self.negotiated.clone(),
            refused: self.refused.clone(),
        }
    }

    /// Its CPU time is read.
    pub fn is_seen(&self) -> bool {
        self.accounting != UNREAD
    }

    /// Index of a step; `None`: the server does not take it, or it was not tried.
    pub fn number_of(&self, step: &StepId) -> Option<usize> {
        self.steps.iter().position(|of| of.id == *step)
    }

    /// Index of a whole connection: of TLS 1.3 and with a request where the server has these.
    pub fn whole_number(&self) -> Option<usize> {
        let wholes = [Version::Tls13, Version::Tls12].map(|of| [false, true].map(|only| StepId::whole(of, only)));
        wholes.as_flattened().iter().find_map(|whole| self.number_of(whole))
    }

    pub fn version(&self) -> Option<Version> {
        self.steps[self.whole_number()?].id.version
    }

    fn metric(&self) -> Metric {
        if self.is_seen() { Metric::Cpu } else { Metric::Throughput }
    }
}

/// Marks a text for people only. Tests reword all of them to prove that no code finds anything by such a text.
fn label(text: String) -> String {
    #[cfg(test)]
    if tests::IS_REWORDED.get() {
        return format!("reworded: {text}").to_uppercase();
    }
    text
}

impl OfKind for CostRecord {
    const FIELD: &'static str = "cost";
}

impl Kind for Costs {
    any_kind!(CostExperiment, CostRecord, Summary);

    fn commands(&self) -> Vec<Subcommand> {
        vec![subcommand!("cost", command).with_short_help(
            &[
                "url",
                "pid",
                "against",
                "server_command",
                "address",
                "rate",
                "hits_per_handshake",
                "memory",
                "time",
                "quick",
            ],
            "tlsdyno cost https://127.0.0.1:8443/ --rate 300 --hits-per-handshake 4",
        )]
    }
}

impl AnyExperiment for CostExperiment {
    any_experiment!(Costs);

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_workers(name)?;
        changes.refuse_libraries(name)?;
        let foreign = changes.server.is_none() && changes.cert.is_none();
        ensure!(foreign, "{name} measures a server as it is; leave --server and --cert out");
        changes.change(&mut self.measure);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        self.check().or_fault(Fault::Usage)?;
        perform(self, output, &|stop, progress| match self.cost.measure {
            Measure::Time => subject::run(self, stop, progress),
            Measure::Memory => memory::run(self, stop, progress),
            Measure::Locks => locks::run(self, stop, progress),
        })
    }
}

/// Numbers of a record, by what was measured.
enum Summary {
    Time(CostSummary),
    Memory(MemorySummary),
    Locks(LocksSummary),
}

impl Summary {
    fn of(record: &Record) -> Result<Summary> {
        Ok(match record.kind_part.understood::<CostRecord>()?.experiment.cost.measure {
            Measure::Time => Summary::Time(CostSummary::of(record)?),
            Measure::Memory => Summary::Memory(MemorySummary::of(record)?),
            Measure::Locks => Summary::Locks(LocksSummary::of(record)?),
        })
    }
}

impl AnySummary for Summary {
    fn document(&self, record: &Record) -> Document {
        match self {
            Summary::Time(of) => page::document(record, of),
            Summary::Memory(of) => memory::page::document(record, of),
            Summary::Locks(of) => locks::page::document(record, of),
        }
    }

    fn json(&self, record: &Record) -> String {
        let (answer, rounds, value, warnings) = match self {
            Summary::Time(of) => (page::answer(of), of.rounds, json!({ "cost": of }), &of.warnings),
            Summary::Memory(of) => (memory::page::answer(of), of.rounds, json!({ "memory": of }), &of.warnings),
            Summary::Locks(of) => (locks::page::answer(of), of.rounds, json!({ "locks": of }), &of.warnings),
        };
        json::results(record, answer, rounds, value, warnings)
    }
}

#[cfg(test)]
mod tests;
