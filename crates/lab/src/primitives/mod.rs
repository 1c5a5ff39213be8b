//! Single operations of a server's OpenSSL: `tlsdyno profile primitives`.

pub mod command;
pub mod file;
pub mod page;
pub mod subject;
pub mod summary;

use std::path::Path;

use anyhow::Result;
use serde_json::json;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::store::{OfKind, Record};
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, any_kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;
use tlsdyno_stats::scoreboard::Claim;

use self::file::PrimitivesExperiment;

pub use self::file::PrimitivesRecord;
use self::summary::PrimitivesSummary;

pub struct PrimitivesOfLibraries;

impl OfKind for PrimitivesRecord {
    const FIELD: &'static str = "primitives";
}

impl Kind for PrimitivesOfLibraries {
    any_kind!(PrimitivesExperiment, PrimitivesRecord, PrimitivesSummary);
}

impl AnyExperiment for PrimitivesExperiment {
    any_experiment!(PrimitivesOfLibraries);

    fn complete(&mut self, _directory: &Path) -> Result<()> {
        PrimitivesExperiment::check(self)
    }

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_workers(name)?;
        changes.refuse_libraries(name)?;
        ensure_fault!(Usage, changes.cert.is_none(), "primitives have no certificate; leave --cert out");
        self.server.kind = changes.server.unwrap_or(self.server.kind);
        changes.change(&mut self.measure);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        PrimitivesExperiment::check(self).or_fault(Fault::Usage)?;
        perform(self, output, &|stop, progress| subject::run(self, stop, progress))
    }
}

impl AnySummary for PrimitivesSummary {
    fn document(&self, record: &Record) -> Document {
        page::document(record, self)
    }

    fn json(&self, record: &Record) -> String {
        json::results(record, page::answer(self), self.rounds, json!({ "primitives": self }), &self.warnings)
    }

    fn beside_paper(&self) -> Option<(&str, Vec<Claim>)> {
        self.paper.as_ref().map(|paper| (paper.source.as_str(), self.claims.clone()))
    }
}
