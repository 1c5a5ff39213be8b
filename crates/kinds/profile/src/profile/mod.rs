//! Where the time of a handshake goes inside the server: `tlsdyno profile`.

pub mod caches;
pub mod command;
pub mod file;
pub mod page;
mod record;
pub mod subject;
pub mod summary;

use anyhow::Result;
use serde_json::json;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::subcommand::{Subcommand, subcommand};
use tlsdyno_record::store::{OfKind, Record};
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, any_kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;

use self::file::ProfileExperiment;

pub use self::record::{CountedAreas, ProfileRecord};
use self::summary::ProfileSummary;

pub struct Profiles;

impl OfKind for ProfileRecord {
    const FIELD: &'static str = "profile";
}

impl Kind for Profiles {
    any_kind!(ProfileExperiment, ProfileRecord, ProfileSummary);

    fn commands(&self) -> Vec<Subcommand> {
        vec![subcommand!("profile", command).with_short_help(
            &["server", "tls", "cert", "keys", "time", "quick", "json"],
            "tlsdyno profile --server nginx --tls 1.3 --cert p-256 --quick",
        )]
    }
}

impl AnyExperiment for ProfileExperiment {
    any_experiment!(Profiles);

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_workers(name)?;
        changes.refuse_libraries(name)?;
        self.server.kind = changes.server.unwrap_or(self.server.kind);
        changes.change(&mut self.measure);
        self.tls.certificate = changes.cert.or(self.tls.certificate);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        subject::check(self)?;
        perform(self, output, &|stop, progress| subject::run(self, stop, progress))
    }
}

impl AnySummary for ProfileSummary {
    fn document(&self, record: &Record) -> Document {
        page::document(record, self)
    }

    fn json(&self, record: &Record) -> String {
        json::results(record, page::answer(self), self.rounds, json!({ "profile": self }), &self.warnings)
    }

    fn is_contradicted(&self, _record: &Record) -> bool {
        ProfileSummary::is_contradicted(self)
    }
}
