//! The load on the servers of a testbed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tlsdyno_base::listening;
use tlsdyno_engine::load::{BROWSER_STREAMS, Connections, LoadTarget, Outcome, Plan, Workload};
use tlsdyno_record::model::{Experiment, Load};
use tlsdyno_tls::{Config, Settings};
use tlsdyno_workloads as workloads;

use super::Testbed;
use crate::run::load_process::{LoadProcess, Sessions};
use crate::run::schedule::Work;

impl Testbed {
    /// Starts the load process for these servers, all of which must have been started once, so that their addresses are
    /// known. Configurations that are not `valid` keep their index without a plan.
    pub fn start_load(&self, valid: impl Fn(usize) -> bool) -> Result<LoadProcess> {
        self.start_load_on(&self.plans(valid)?)
    }

    /// Load of each server. A server that was not started may lack the recording for its client.
    pub fn plans(&self, valid: impl Fn(usize) -> bool) -> Result<Vec<Plan>> {
        let settings = |index: usize| self.servers[index].settings.as_ref().filter(|_| valid(index));
        (0..self.servers.len()).map(|index| self.plan_of(index, settings(index))).collect()
    }

    /// Starts the load process for these plans.
    pub fn start_load_on(&self, plans: &[Plan]) -> Result<LoadProcess> {
        let Experiment { server, workers, network, .. } = &self.experiment;
        let between = (workers.as_ref(), network.as_ref());
        let process = LoadProcess::start(plans, &server.client, between, self.directory.path(), self.cpus.load)?;
        self.permit(&process.sources)?;
        Ok(process)
    }

    /// Admits only this machine and workers at these addresses to servers without parts of their cryptography.
    pub fn permit(&self, sources: &[IpAddr]) -> Result<()> {
        if listening::is_loopback(self.ip) {
            return Ok(());
        }
        let peers: BTreeSet<IpAddr> = sources.iter().copied().chain([self.ip]).collect();
        self.servers
            .iter()
            .filter_map(|server| server.instruments.shim.as_ref())
            .try_for_each(|shim| shim.permit(&peers))
    }

    /// Runs work on the server of a configuration, whose index is the load's target. Lost workers are no longer
    /// admitted to the servers.
    pub fn carry_out(
        &self,
        load: &mut LoadProcess,
        (target, index): (usize, usize),
        work: &Work,
        sessions: Sessions,
    ) -> Result<Outcome> {
        let outcome = load.run(target, self.address(index), work, sessions)?;
        if !outcome.losses.is_empty() {
            self.permit(&load.sources)?;
        }
        Ok(outcome)
    }

    /// Load of the server of a configuration, which must have been started once.
    pub fn plan(&self, index: usize) -> Result<Plan> {
        self.plan_of(index, self.servers[index].settings.as_ref())
    }

    fn plan_of(&self, index: usize, settings: Option<&Settings>) -> Result<Plan> {
        let compile = |settings: &Settings| Config::new(settings.clone()).map(Arc::new);
        let tls = settings.map(compile).transpose();
        let tls = tls.with_context(|| format!("target {}", self.servers[index].model.name))?;
        let (address, prior_knowledge) = (self.address(index), self.has_prior_knowledge(index));
        let target = LoadTarget { address, host: self.host_name.clone(), tls, prior_knowledge };
        let load = &self.experiment.load;
        let http2 = target.offers_http2();
        Ok(Plan {
            resumption: load.reuse()?,
            window: self.site.spec.window(),
            streams: if http2 { load.streams.unwrap_or(BROWSER_STREAMS) } else { 1 },
            ..Plan::new(target, self.workload(index), connections(load, http2))
        })
    }

    /// Clients know that this configuration speaks HTTP/2 without TLS.
    pub fn has_prior_knowledge(&self, index: usize) -> bool {
        let server = &self.servers[index];
        server.settings.is_none() && server.spec.http2
    }

    /// Workload of a configuration: the common one, unless its server has another keep-alive time.
    fn workload(&self, index: usize) -> Arc<Workload> {
        match self.servers[index].model.tls.keep_alive_s {
            Some(seconds) => Arc::new(workloads::with_keep_alive(&self.site.workload, seconds)),
            None => Arc::clone(&self.site.workload),
        }
    }
}

fn connections(load: &Load, http2: bool) -> Connections {
    Connections {
        total: load.connections,
        per_user: load.width(http2),
        first_alone: !load.all_at_once,
        requests_each: load.requests_per_connection,
        timeout_ns: load.timeout_ms * 1_000_000,
        batch_ns: 0,
    }
}
