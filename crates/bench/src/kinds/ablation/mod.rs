//! One server under test, whose stages are replaced one by one, and remedies: `tlsdyno ablate`.

pub mod command;
mod json;
pub mod page;
pub mod subject;

use std::path::Path;

use anyhow::{Result, ensure};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::subcommand::{Subcommand, subcommand};
use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{OfKind, Record};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::scoreboard::{self, Claim};
use tlsdyno_stats::{Shares, Summary};

use super::files::Written;
use super::perform::{OutputArgs, perform};
use super::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, flags};
use crate::report::document::Document;
use crate::report::{Style, terminal};
use crate::run::check::{CheckExperiment, check_sessions};
use crate::run::cpus;

pub struct Ablation;

impl Kind for Ablation {
    fn field(&self) -> &'static str {
        Experiment::FIELD
    }

    fn read(&self, file: &Written) -> Result<Box<dyn AnyExperiment>> {
        Ok(Box::new(file.understood::<Experiment>()?))
    }

    fn summary(&self, record: &Record) -> Result<Box<dyn AnySummary>> {
        Ok(Box::new(Summary::of(record)))
    }

    fn so_far(&self, record: &Record, rows: usize) -> String {
        let shares = Shares::of(&Rounds::of(record));
        let table = page::so_far(&shares, rows).map_or_else(String::new, |table| {
            terminal::table_text(&table, Style { rich: false, ..Style::of_stderr() })
        });
        let widest = shares.widest_points();
        let widest = widest.map(|points| format!("the widest interval of a stage is ± {points:.1} points\n"));
        widest.unwrap_or_default() + &table
    }

    fn commands(&self) -> Vec<Subcommand> {
        vec![subcommand!("ablate", command).with_short_help(
            &["server", "server_config", "server_command", "paths", "trace", "cert", "time", "quick"],
            "tlsdyno ablate --server-config /etc/nginx/nginx.conf --quick",
        )]
    }
}

impl AnyExperiment for Experiment {
    any_experiment!();

    fn kind(&self) -> &'static dyn Kind {
        &Ablation
    }

    fn complete(&mut self, directory: &Path) -> Result<()> {
        CheckExperiment::complete(self, directory)
    }

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        if !changes.library.is_empty() {
            self.use_libraries(flags::libraries(&changes.library)?);
        }
        let is_own = self.server.kind.is_users_own();
        if let Some(server) = changes.server {
            ensure!(!is_own, "{name} measures a server command of its own; leave --server out");
            self.server.kind = server;
            leave_out_unable(self);
        }
        changes.change(&mut self.measure);
        self.tls.certificate = changes.cert.or(self.tls.certificate);
        let mut address = None;
        changes.far.give(&mut self.workers, &mut address);
        if !is_own {
            self.server.address = address.map(|ip| ip.to_string()).or(self.server.address.take());
        }
        ensure!(
            !is_own || changes.far.address.is_none(),
            "{name} names the address of its server command; change it there"
        );
        self.server.allow_insecure_listen |= changes.allow_insecure_listen;
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        CheckExperiment::check(self).or_fault(Fault::Usage)?;
        let Experiment { measure, .. } = self;
        let cpus = cpus::choose(&cpus::allowed(), measure.server_cpu, measure.load_cpu);
        cpus.or_fault(Fault::Input)?;
        perform(self, output, &|stop, progress| subject::run(self, stop, progress))
    }
}

impl AnySummary for Summary {
    fn document(&self, record: &Record) -> Document {
        page::document(record, self)
    }

    fn json(&self, record: &Record) -> String {
        json::json(record, self)
    }

    fn beside_paper(&self) -> Option<(&str, Vec<Claim>)> {
        let source = self.published.as_ref().map(|published| published.source.as_str())?;
        Some((source, scoreboard::claims(self)))
    }

    fn is_contradicted(&self, record: &Record) -> bool {
        self.counted.as_ref().is_some_and(|counts| counts.impossible(record).is_some())
    }
}

/// Leaves out, with a remark, the remedies that a server cannot have which replaces the file's. Settings that are
/// requested by name stay, and are refused later.
fn leave_out_unable(experiment: &mut Experiment) {
    let unable = |model: &ConfigurationModel| {
        let workers = model.processors.map_or(1, |processors| processors.count);
        check_sessions(experiment, experiment.server.kind, &model.tls.applied(&experiment.tls), workers).err()
    };
    let is_asked = |name: &str| {
        let compared = experiment.comparisons.iter().any(|of| of.a == name || of.b == name);
        compared || experiment.shares.iter().any(|of| of.on == name || of.off.as_deref() == Some(name))
    };
    let of_remedy = |name: &str| experiment.remedies.iter().any(|of| of.configuration == name);
    let may_go =
        |model: &&ConfigurationModel| !model.is_untouched() && !is_asked(&model.name) && of_remedy(&model.name);
    let models = experiment.configurations.iter().filter(may_go);
    let found: Vec<_> = models.filter_map(|model| Some((model.name.clone(), unable(model)?))).collect();
    for (name, why) in found {
        tell!("tlsdyno: \"{name}\" is left out: {why}");
        experiment.configurations.retain(|model| model.name != name);
        experiment.remedies.retain(|of| of.configuration != name && of.over.as_ref() != Some(&name));
    }
}
