//! One server under test, whose stages are replaced one by one, and remedies: `tlsdyno ablate`.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod command;
pub mod counting;
#[cfg(test)]
mod file_tests;
pub mod foreign;
mod json;
pub mod page;
pub mod subject;
pub mod summary;

use std::path::Path;

use anyhow::{Result, ensure};
use serde::Serialize;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::subcommand::{Subcommand, subcommand};
use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{OfKind, Record};
use tlsdyno_runner::kinds::files::Written;
use tlsdyno_runner::kinds::perform::{OutputArgs, perform};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment, flags};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::{Style, terminal};
use tlsdyno_runner::run::check::{CheckExperiment, check_sessions};
use tlsdyno_runner::run::cpus;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::scoreboard::Claim;

use crate::summary::{Shares, Summary, scoreboard};

pub struct Ablation;

impl Kind for Ablation {
    fn field(&self) -> &'static str {
        Experiment::FIELD
    }

    fn read(&self, file: &Written) -> Result<Box<dyn AnyExperiment>> {
        Ok(Box::new(AblationExperiment(file.understood()?)))
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

/// What an ablation asks, as an experiment of any kind.
#[derive(Serialize)]
pub struct AblationExperiment(pub Experiment);

impl AnyExperiment for AblationExperiment {
    any_experiment!(Ablation, 0);

    fn complete(&mut self, directory: &Path) -> Result<()> {
        CheckExperiment::complete(&mut self.0, directory)
    }

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        let AblationExperiment(experiment) = self;
        if !changes.library.is_empty() {
            experiment.use_libraries(flags::libraries(&changes.library)?);
        }
        let is_own = experiment.server.kind.is_users_own();
        if let Some(server) = changes.server {
            ensure!(!is_own, "{name} measures a server command of its own; leave --server out");
            experiment.server.kind = server;
            leave_out_unable(experiment);
        }
        changes.change(&mut experiment.measure);
        experiment.tls.certificate = changes.cert.or(experiment.tls.certificate);
        let mut address = None;
        changes.far.give(&mut experiment.workers, &mut address);
        if !is_own {
            experiment.server.address = address.map(|ip| ip.to_string()).or(experiment.server.address.take());
        }
        ensure!(
            !is_own || changes.far.address.is_none(),
            "{name} names the address of its server command; change it there"
        );
        experiment.server.allow_insecure_listen |= changes.allow_insecure_listen;
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        CheckExperiment::check(&self.0).or_fault(Fault::Usage)?;
        let Experiment { measure, .. } = &self.0;
        let cpus = cpus::choose(&cpus::allowed(), measure.server_cpu, measure.load_cpu);
        cpus.or_fault(Fault::Input)?;
        perform(self, output, &|stop, progress| subject::run(&self.0, stop, progress))
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
