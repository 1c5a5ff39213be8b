//! Handshakes step by step, as OpenSSL's state machine takes them (Apostolopoulos et al. 2000):
//! `tlsdyno profile --keys`.

pub mod command;
pub mod file;
pub mod page;
pub mod subject;
pub mod summary;

use std::path::Path;

use anyhow::Result;
use serde_json::json;
use tlsdyno_base::exit::Exit;
use tlsdyno_record::store::{OfKind, Record};
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, any_kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;
use tlsdyno_stats::scoreboard::Claim;

use self::file::StepsExperiment;

pub use self::file::StepsRecord;
use self::summary::StepsSummary;

pub struct StepByStep;

impl OfKind for StepsRecord {
    const FIELD: &'static str = "steps";
}

impl Kind for StepByStep {
    any_kind!(StepsExperiment, StepsRecord, StepsSummary);
}

impl AnyExperiment for StepsExperiment {
    any_experiment!(StepByStep);

    fn complete(&mut self, _directory: &Path) -> Result<()> {
        StepsExperiment::check(self)
    }

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_workers(name)?;
        changes.refuse_libraries(name)?;
        self.server.kind = changes.server.unwrap_or(self.server.kind);
        if let Some(key) = changes.cert {
            self.steps.keys = vec![key];
        }
        changes.change(&mut self.measure);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        subject::check(self)?;
        perform(self, output, &|stop, progress| subject::run(self, stop, progress))
    }
}

impl AnySummary for StepsSummary {
    fn document(&self, record: &Record) -> Document {
        page::document(record, self)
    }

    fn json(&self, record: &Record) -> String {
        json::results(record, page::answer(self), self.rounds, json!({ "steps": self }), &self.warnings)
    }

    fn beside_paper(&self) -> Option<(&str, Vec<Claim>)> {
        self.paper.as_ref().map(|paper| (paper.source.as_str(), self.claims.clone()))
    }
}
