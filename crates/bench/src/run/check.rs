//! Everything that can be known to be wrong before anything is started, each with its remedy.

mod configuration;
mod own_server;
pub mod questions;
mod server;
#[cfg(test)]
mod tests;
pub mod workers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{ConfigurationModel, Experiment, Measure, Method, ServerName, Tls};
use tlsdyno_servers::Wanted;
use tlsdyno_tls::{Stage, StageSet, Version};
use tlsdyno_traffic::machines::carried::NETWORK_IS_HERE;
use tlsdyno_traffic::network;

use super::own_command;
use crate::run::schedule::{ROUNDS_MIN, TURNS_MAX};
pub use configuration::check_accelerator;

/// What an experiment with one server is made of, checked.
pub trait CheckExperiment: Sized {
    /// Reads an experiment file that extends no other and lies in `directory`: relative paths are relative to the file.
    fn from_toml(text: &str, directory: &Path) -> Result<Experiment>;

    /// Fills in what follows from what a file says. A path of a log or a recording is relative to `directory`.
    ///
    /// # Errors
    /// It asks for what cannot be.
    fn complete(&mut self, directory: &Path) -> Result<()>;

    /// Checks everything that can be known before anything is started.
    fn check(&self) -> Result<()>;
}

impl CheckExperiment for Experiment {
    fn from_toml(text: &str, directory: &Path) -> Result<Experiment> {
        let mut experiment: Experiment = toml::from_str(text)?;
        experiment.complete(directory)?;
        Ok(experiment)
    }

    fn complete(&mut self, directory: &Path) -> Result<()> {
        if let WorkloadSpec::Trace { path, .. } | WorkloadSpec::Har { path, .. } = &mut self.workload {
            *path = directory.join(&*path);
        }
        for library in &mut self.server.libraries {
            *library = directory.join(&*library);
        }
        // Shares and comparisons may name the configurations of an ablation.
        self.fill();
        self.check()
    }

    fn check(&self) -> Result<()> {
        server::check_tls(&self.tls, self.server.kind)?;
        check_sessions(self, self.server.kind, &self.tls, 1)?;
        self.load.reuse()?;
        ensure!(self.load.connections > 0, "at least one connection is needed (--connections)");
        ensure!(self.load.per_user > 0, "at least one connection per user is needed (--per-user)");
        check_measure(&self.measure)?;
        check_fresh_servers(self)?;
        server::check(self)?;
        own_server::check(self)?;
        workers::check(self)?;
        check_network(self)?;
        check_methods(self)?;
        check_foreign_traffic(self)?;
        check_libraries(self)?;
        let untouched = self.configurations.iter().filter(|model| model.is_untouched()).count();
        ensure!(
            self.foreign_traffic.is_some() || self.configurations.is_empty() || untouched == 1,
            "an experiment needs exactly one configuration without any change (name = \"as is\") to compare the \
             others with"
        );
        for (index, model) in self.configurations.iter().enumerate() {
            configuration::check(self, index).with_context(|| format!("configuration `{}`", model.name))?;
        }
        questions::check(self)
    }
}

/// Sessions as a server of an experiment with so many workers can have them.
///
/// # Errors
/// What it has instead, or which server has what is wanted.
pub fn check_sessions(experiment: &Experiment, server: ServerName, tls: &Tls, workers: u32) -> Result<()> {
    let server = if server == ServerName::Command { own_command::server_of(experiment) } else { server };
    let wanted = Wanted {
        session_cache: tls.session_cache(),
        session_timeout_s: tls.session_timeout_s,
        tickets: tls.tickets,
        ticket_keys: tls.ticket_keys(),
        early_data: tls.early_data,
        tls13: tls.version == Version::Tls13,
    };
    wanted.refuse_unable(server, workers)
}

fn check_measure(measure: &Measure) -> Result<()> {
    ensure!(
        measure.time_s >= 1.0 && measure.time_s.is_finite(),
        "measuring for {} s is too short; give at least 1 s (--time)",
        measure.time_s
    );
    ensure!(
        (1..=TURNS_MAX).contains(&measure.turns),
        "`measure.turns`: {}; expected 1 to {TURNS_MAX} blocks of each configuration in a round",
        measure.turns
    );
    ensure!(
        measure.slice_us.is_none_or(|us| us == 0 || (1_000..=1_000_000).contains(&us)),
        "a slice of {} µs: expected 1 ms to 1 s, or 0 for none (--slice, `measure.slice_us`)",
        measure.slice_us.unwrap_or(0)
    );
    ensure!(
        measure.until_percent.is_none_or(|percent| percent > 0.0 && percent < 100.0),
        "`measure.until_percent`: expected percentage points above 0 and below 100"
    );
    ensure!(
        measure.rounds.is_none_or(|rounds| rounds >= ROUNDS_MIN),
        "`measure.rounds`: at least {ROUNDS_MIN} are needed for an interval that means something"
    );
    Ok(())
}

/// Whether a network can be between the load and the servers, where there is one.
fn check_network(experiment: &Experiment) -> Result<()> {
    let Some(network) = &experiment.network else { return Ok(()) };
    network.check().map_err(anyhow::Error::msg)?;
    ensure!(experiment.workers.is_none(), NETWORK_IS_HERE);
    ensure!(
        experiment.foreign_traffic.is_none() && !experiment.methods.contains(&Method::Counting),
        "a network is for load that this command makes: leave it out under foreign traffic, and of the method \
         `counting`"
    );
    network::check_address((experiment.server.ip()?, 0).into())
}

fn check_fresh_servers(experiment: &Experiment) -> Result<()> {
    if !experiment.measure.fresh_servers {
        return Ok(());
    }
    ensure!(
        experiment.configurations.iter().all(|model| model.noop.shim().is_empty()),
        "`measure.fresh_servers` does not go with stages of the shim: what the client knows of a server would end \
         with it (the shim with nothing off, `idle_shim`, may be there)"
    );
    ensure!(
        experiment.server.kind != ServerName::Command,
        "`measure.fresh_servers` needs servers that tlsdyno configures, not a command of your own"
    );
    ensure!(
        experiment.machines.is_empty(),
        "`machines` are quotas of servers that stay up: leave `measure.fresh_servers` out"
    );
    Ok(())
}

fn check_methods(experiment: &Experiment) -> Result<()> {
    let uses = |method| experiment.methods.contains(&method);
    let is_command = experiment.server.kind == ServerName::Command;
    ensure!(
        !uses(Method::Counting) || experiment.server.kind != ServerName::Builtin,
        "method `counting`: the built-in server does not run under valgrind, which hides the kernel's clock (vDSO) \
         from it; choose another with --server, for example nginx"
    );
    ensure!(
        !(uses(Method::Counting) && is_command && own_command::command_spec(experiment, None).has_fixed_port()),
        "method `counting` runs several servers side by side: write {{port}} in --server-command and --address"
    );
    ensure!(
        !experiment.methods.is_empty(),
        "no method is named (--method, `method`); known are {}",
        Method::ALL.map(Method::name).join(", ")
    );
    let doubles = |model: &ConfigurationModel| model.doubled.is_some_and(|stages| !stages.is_empty());
    let configurations = &experiment.configurations;
    ensure!(
        configurations.is_empty() || !uses(Method::Doubling) || configurations.iter().any(doubles),
        "method `doubling`: none of these stages can be computed twice by itself; possible are {}, and {} together \
         (alone only where a CBC suite has encrypt-then-MAC)",
        Stage::PROVIDER.into_iter().filter(|stage| stage.together().only().is_some()).collect::<StageSet>(),
        StageSet::RECORDS
    );
    Ok(())
}

/// Under somebody else's traffic nothing can be done but double.
fn check_foreign_traffic(experiment: &Experiment) -> Result<()> {
    let Some(traffic) = &experiment.foreign_traffic else { return Ok(()) };
    ensure!(
        experiment.methods == [Method::Doubling] && experiment.server.kind == ServerName::Command,
        "foreign traffic goes with --method doubling and a --server-command: clients that are not ours know no \
         no-ops, and load no server of ours"
    );
    ensure!(
        experiment.configurations.iter().all(ConfigurationModel::needs_doubler),
        "under foreign traffic there is one server, and all configurations are its modes: stages computed twice"
    );
    ensure!(
        traffic.at_most_percent > 0.0 && traffic.at_most_percent <= 100.0,
        "--at-most {}%: expected more than 0 and no more than 100 % of added CPU time",
        traffic.at_most_percent
    );
    ensure!(
        traffic.latency_within_percent > 0.0 && traffic.latency_within_percent.is_finite(),
        "--latency-within {}%: expected more than 0",
        traffic.latency_within_percent
    );
    Ok(())
}

/// One library, or two that are compared by removing stages.
fn check_libraries(experiment: &Experiment) -> Result<()> {
    let libraries = &experiment.server.libraries;
    let named = experiment.configurations.iter().filter_map(|model| model.library.as_ref());
    let named: BTreeSet<&PathBuf> = named.collect();
    ensure!(
        libraries.len() <= 2 && named.len() <= 1,
        "{} libraries: two are compared at a time (--library A --library B)",
        libraries.len().max(named.len() + 1)
    );
    let first = libraries.first().filter(|first| named.contains(first));
    ensure!(
        first.is_none(),
        "both libraries are {}: one is compared with another (two servers on one library: `repeat_of`)",
        first.map_or_else(String::new, |library| library.display().to_string())
    );
    ensure!(
        libraries.is_empty() && named.is_empty() || experiment.foreign_traffic.is_none(),
        "under foreign traffic there is one server, and it has the library that its command finds; leave the other \
         out"
    );
    ensure!(
        named.is_empty() || experiment.methods == [Method::Removing] && experiment.machines.is_empty(),
        "two libraries are compared by removing stages (--method removing), on this machine: leave other methods \
         and `machines` out"
    );
    Ok(())
}
