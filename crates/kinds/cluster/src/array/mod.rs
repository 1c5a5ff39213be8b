//! Proxies that end TLS before one server, over levels of reuse (Mraz et al. 2002): `tlsdyno array`.

mod check;
pub mod command;
pub mod file;
pub mod page;
pub mod subject;
pub mod summary;

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::subcommand::{Subcommand, subcommand};
use tlsdyno_record::model::ServerName;
use tlsdyno_record::store::{OfKind, Record};
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, any_kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;
use tlsdyno_servers::Proxy;
use tlsdyno_stats::scoreboard::Claim;

use self::file::ArrayExperiment;

pub use self::file::{ArrayRecord, PageScale};
use self::summary::ArraySummary;

pub struct Arrays;

impl OfKind for ArrayRecord {
    const FIELD: &'static str = "array";
}

impl Kind for Arrays {
    any_kind!(ArrayExperiment, ArrayRecord, ArraySummary);

    fn commands(&self) -> Vec<Subcommand> {
        vec![subcommand!("array", command).with_short_help(
            &["config", "proxy", "proxies", "machine_cpus", "transaction", "reuse", "cert", "time", "quick"],
            "tlsdyno array --proxy haproxy --proxies 0,1,2 --quick",
        )]
    }
}

impl AnyExperiment for ArrayExperiment {
    any_experiment!(Arrays);

    fn complete(&mut self, _directory: &Path) -> Result<()> {
        ArrayExperiment::check(self)
    }

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_libraries(name)?;
        if let Some(server) = changes.server {
            let name = if server == ServerName::Builtin { Proxy::Own.name() } else { server.name() };
            let proxy = name.parse::<Proxy>().context("an array has proxies; --server is one of them");
            self.array.proxy = proxy.or_fault(Fault::Usage)?;
        }
        changes.change(&mut self.measure);
        self.tls.certificate = changes.cert.or(self.tls.certificate);
        changes.far.give(&mut self.workers, &mut self.array.address);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        ArrayExperiment::check(self).or_fault(Fault::Usage)?;
        perform(self, output, &|stop, progress| subject::run(self, stop, progress))
    }
}

impl AnySummary for ArraySummary {
    fn document(&self, record: &Record) -> Document {
        page::document(record, self)
    }

    fn json(&self, record: &Record) -> String {
        #[derive(Serialize)]
        struct Results<'a> {
            pages_per_second: f64,
            #[serde(flatten)]
            summary: &'a ArraySummary,
        }
        let results = Results { pages_per_second: self.pages_per_second(), summary: self };
        json::results(record, page::answer(self), self.rounds, results, &self.warnings)
    }

    fn beside_paper(&self) -> Option<(&str, Vec<Claim>)> {
        self.experiment.paper.as_ref().map(|paper| (paper.source.as_str(), self.claims.clone()))
    }
}
