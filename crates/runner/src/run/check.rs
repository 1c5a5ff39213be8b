//! Everything that can be known to be wrong before anything is started, each with its remedy.

mod beside;
mod configuration;
mod own_server;
pub mod questions;
mod server;
#[cfg(test)]
mod tests;
pub mod workers;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_engine::load::limits::STREAMS_MAX;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{ConfigurationModel, Experiment, Measure, Method, Question, ServerName, Tls};
use tlsdyno_servers::Wanted;
use tlsdyno_tls::{Stage, StageSet, Version};
use tlsdyno_traffic::machines::carried::NETWORK_IS_HERE;
use tlsdyno_traffic::network;

use super::own_command;
use crate::run::schedule::{ROUNDS_MIN, TURNS_MAX};
pub use configuration::check_accelerator;

/// Parsing and checks of experiments with one server.
pub trait CheckExperiment: Sized {
    /// An experiment file that extends no other; its relative paths start at `directory`.
    fn from_toml(text: &str, directory: &Path) -> Result<Experiment>;

    /// Fills in what follows from the file, whose relative paths start at `directory`, and refuses impossible values.
    fn complete(&mut self, directory: &Path) -> Result<()>;

    /// Checks everything that is known before servers start.
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
        let cookie_bytes = self.load.browser_headers.unwrap_or(0);
        expect("load.browser_headers", cookie_bytes, cookie_bytes <= 8192, "a cookie of up to 8192 bytes")?;
        check_streams(self)?;
        check_measure(&self.measure)?;
        server::check(self)?;
        beside::check(self)?;
        own_server::check(self)?;
        workers::check(self)?;
        check_network(self)?;
        check_methods(self)?;
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

/// Fails where a server with so many workers cannot have these sessions; the error names alternatives.
pub fn check_sessions(experiment: &Experiment, server: ServerName, tls: &Tls, workers: u32) -> Result<()> {
    let server = if server.is_users_own() { own_command::server_of(experiment) } else { server };
    let wanted = Wanted {
        session_cache: tls.session_cache(),
        session_timeout_s: tls.session_timeout_s,
        tickets: tls.tickets,
        ticket_keys: tls.ticket_keys(),
        early_data: tls.early_data,
        http2: tls.http2,
        tls13: tls.version == Version::Tls13,
    };
    wanted.refuse_unable(server, workers)
}

fn check_streams(experiment: &Experiment) -> Result<()> {
    let Some(streams) = experiment.load.streams else { return Ok(()) };
    let is_among = (1..=STREAMS_MAX).contains(&streams);
    expect("load.streams", streams, is_among, &format!("1 to {STREAMS_MAX} requests at once (--streams)"))?;
    let tls = &experiment.tls;
    let has_http2 = tls.http2 || experiment.configurations.iter().any(|model| model.tls.applied(tls).http2);
    ensure!(has_http2, "`load.streams` (--streams) is for HTTP/2: add --http2 (`tls.http2`), or leave it out");
    Ok(())
}

fn check_measure(measure: &Measure) -> Result<()> {
    let Measure { time_s, turns, .. } = *measure;
    expect("measure.time_s", time_s, time_s >= 1.0 && time_s.is_finite(), "at least 1 s (--time)")?;
    let blocks = format!("1 to {TURNS_MAX} blocks of each configuration in a round");
    expect("measure.turns", turns, (1..=TURNS_MAX).contains(&turns), &blocks)?;
    let us = measure.slice_us.unwrap_or(0);
    let is_slice = us == 0 || (1_000..=1_000_000).contains(&us);
    expect("measure.slice_us", us, is_slice, "1 ms to 1 s, or 0 for none (--slice)")?;
    let percent = measure.until_percent.unwrap_or(1.0);
    expect("measure.until_percent", percent, 0.0 < percent && percent < 100.0, "points above 0 and below 100")?;
    let rounds = measure.rounds.unwrap_or(ROUNDS_MIN);
    let least = format!("at least {ROUNDS_MIN}, for an interval that means something");
    expect("measure.rounds", rounds, rounds >= ROUNDS_MIN, &least)
}

/// Refuses a number of `key` unless `is_among`; `expected` describes the allowed numbers.
fn expect(key: &str, number: impl Display, is_among: bool, expected: &str) -> Result<()> {
    ensure!(is_among, "`{key} = {number}`: expected {expected}");
    Ok(())
}

/// Fails where the load cannot go through the experiment's emulated network.
fn check_network(experiment: &Experiment) -> Result<()> {
    let Some(network) = &experiment.network else { return Ok(()) };
    network.check().map_err(anyhow::Error::msg)?;
    ensure!(experiment.workers.is_none(), NETWORK_IS_HERE);
    network::check_address((experiment.server.ip()?, 0).into())
}

fn check_methods(experiment: &Experiment) -> Result<()> {
    ensure!(
        !experiment.methods.is_empty(),
        "no method is named (--method, `method`); known are {}",
        Method::ALL.map(Method::name).join(", ")
    );
    let doubles = |model: &ConfigurationModel| model.doubled.is_some_and(|stages| !stages.is_empty());
    let configurations = &experiment.configurations;
    ensure!(
        configurations.is_empty() || !experiment.uses(Method::Doubling) || configurations.iter().any(doubles),
        "method `doubling`: none of these stages can be computed twice by itself; possible are {}, and {} together \
         (alone only where a CBC suite has encrypt-then-MAC)",
        Stage::PROVIDER.into_iter().filter(|stage| stage.together().only().is_some()).collect::<StageSet>(),
        StageSet::RECORDS
    );
    if let Question::ForeignTraffic(traffic) = experiment.asks() {
        let (added, late) = (traffic.at_most_percent, traffic.latency_within_percent);
        expect("--at-most", added, 0.0 < added && added <= 100.0, "more than 0 and at most 100 % of CPU time")?;
        expect("--latency-within", late, 0.0 < late && late.is_finite(), "more than 0 %")?;
    }
    Ok(())
}

/// At most two libraries, with no contradiction.
fn check_libraries(experiment: &Experiment) -> Result<()> {
    let libraries = &experiment.server.libraries;
    let named: BTreeSet<&PathBuf> = experiment.configurations.iter().filter_map(|of| of.library.as_ref()).collect();
    ensure!(
        libraries.len() <= 2 && named.len() <= 1,
        "{} libraries: two are compared at a time (--library A --library B)",
        libraries.len().max(named.len() + 1)
    );
    match libraries.first().filter(|first| named.contains(first)) {
        Some(first) => bail!(
            "both libraries are {}: one is compared with another (two servers on one library: `repeat_of`)",
            first.display()
        ),
        None => Ok(()),
    }
}
