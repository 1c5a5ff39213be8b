//! Several servers behind a dispatcher (Apostolopoulos et al. 2000): `tlsdyno cluster`.

pub mod cell;
mod check;
pub mod command;
pub mod file;
pub mod front;
pub mod load_checks;
pub mod locality;
pub mod page;
pub mod subject;
pub mod summary;

use std::path::Path;

use anyhow::Result;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::subcommand::{Subcommand, subcommand};
use tlsdyno_record::store::{OfKind, Record};
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, any_kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;
use tlsdyno_stats::scoreboard::Claim;

use self::file::ClusterExperiment;
use self::summary::ClusterSummary;

pub struct Clusters;

impl OfKind for ClusterExperiment {
    const FIELD: &'static str = "cluster";
}

impl Kind for Clusters {
    any_kind!(ClusterExperiment, ClusterExperiment, ClusterSummary);

    fn commands(&self) -> Vec<Subcommand> {
        vec![subcommand!("cluster", command).with_short_help(
            &[
                "config",
                "server",
                "backends",
                "backend_cpus",
                "front_ends",
                "policies",
                "reuse",
                "clients",
                "time",
                "quick",
            ],
            "tlsdyno cluster --server nginx --backends 3 --quick",
        )]
    }
}

impl AnyExperiment for ClusterExperiment {
    any_experiment!(Clusters);

    fn complete(&mut self, directory: &Path) -> Result<()> {
        ClusterExperiment::complete(self, directory)
    }

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_libraries(name)?;
        self.cluster.server = changes.server.unwrap_or(self.cluster.server);
        changes.change(&mut self.measure);
        self.tls.certificate = changes.cert.or(self.tls.certificate);
        changes.far.give(&mut self.workers, &mut self.cluster.address);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        ClusterExperiment::check(self).or_fault(Fault::Usage)?;
        perform(self, output, &|stop, progress| subject::run(self, stop, progress))
    }
}

impl AnySummary for ClusterSummary {
    fn document(&self, record: &Record) -> Document {
        page::document(record, self)
    }

    fn json(&self, record: &Record) -> String {
        json::results(record, page::answer(self), self.rounds, self, &self.warnings)
    }

    fn beside_paper(&self) -> Option<(&str, Vec<Claim>)> {
        self.paper.as_ref().map(|paper| (paper.source.as_str(), self.claims.clone()))
    }
}
