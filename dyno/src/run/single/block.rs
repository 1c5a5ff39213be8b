//! One block: the server is there, the load runs, CPU time is read before and after, and the result is judged.

use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use tlsdyno_tls::Stage;

use super::SingleServer;
use crate::fault::{Fault, OrFault};
use crate::model::job::OutcomeRecord;
use crate::run::manifest;
use crate::run::preflight::can_resume;
use crate::run::runner::Subject;
use crate::run::schedule::{Work, requests_of_users, typical_users};
use crate::run::verify::{
    Achieved, Capacity, Expected, ExpectedFull, Verdict, differs, reuse_warning, tls_faults, verify,
};
use crate::servers::cpu::at_rest;
use crate::servers::{self, Instance};
use crate::store::{Block, Journal, Kind};

/// Users for each worker process of a server that was just started: the first connections of each cost more.
const WARM_UP_USERS: u32 = 4;
/// So many connections for each are enough, where users make more than the above need.
const WARM_UP_CONNECTIONS: u32 = 16;

impl SingleServer<'_> {
    /// One block of one configuration, whose server is ready.
    pub(super) fn measure(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        let users = work.piece.users.clone();
        let mut expected = Expected::of(&self.testbed.site.workload, users.clone(), &self.experiment.load)?;
        if !can_resume(self.experiment, &self.testbed.servers[index].model) {
            // No cache and no tickets, whatever the workload's users would resume.
            expected.full = ExpectedFull::Share(1.0);
        }
        let cpu_before = self.server_cpu_ns(index)?;
        let beside_before = self.companion_cpu_ns(index)?;
        let pace_before = self.pace.read(&self.testbed.servers[index].placement.server);
        let outcome = self.load.run(index, self.testbed.servers[index].address(), users);
        let pace_after = self.pace.read(&self.testbed.servers[index].placement.server);
        let cpu_after = self.server_cpu_ns(index);
        let (outcome, cpu_after) = match (outcome, cpu_after) {
            (Ok(outcome), Ok(cpu)) => (outcome, cpu),
            (Err(error), _) | (_, Err(error)) => {
                let name = self.testbed.servers[index].model.name.clone();
                return Err(error.context(format!("measure \"{name}\"{}", self.log_tail(index))));
            }
        };
        let nothing_answered = outcome.hits == 0 && !outcome.errors.is_empty() && !outcome.stopped;
        if outcome.gave_up || nothing_answered {
            let name = self.testbed.servers[index].model.name.clone();
            let faults = tls_faults(&outcome).map(|faults| format!("; {faults}")).unwrap_or_default();
            let hangs = anyhow!("the server of \"{name}\" answers no more{faults}{}", self.log_tail(index));
            return Err(hangs).or_fault(Fault::Server);
        }
        let server_cpu_ns = cpu_after.saturating_sub(cpu_before);
        let companion_cpu_ns = self.companion_cpu_ns(index)?.saturating_sub(beside_before);
        let verdict = self.judge(index, &outcome, expected, (server_cpu_ns, companion_cpu_ns), journal);
        Ok(Block {
            server_cpu_ns,
            companion_cpu_ns,
            pace_ps: pace_after.since(&pace_before),
            client_bound: verdict.client_bound,
            valid: verdict.valid,
            warnings: verdict.warnings,
            ..Block::from(outcome)
        })
    }

    /// Verifies a block, and says what deserves to be said only once.
    fn judge(
        &mut self,
        index: usize,
        outcome: &OutcomeRecord,
        expected: Expected,
        (server_cpu_ns, companion_cpu_ns): (u64, u64),
        journal: &mut Journal,
    ) -> Verdict {
        let configuration = &journal.record().configurations[index];
        let (kind, tls) = (configuration.kind.clone(), configuration.tls);
        if kind == Kind::AsIs && outcome.errors.is_empty() {
            self.as_is = expected.achieved(outcome);
            if journal.record().manifest.negotiated.is_empty() {
                let negotiated = manifest::negotiated_text(&outcome.negotiated);
                journal.change(|record| record.manifest.negotiated = negotiated);
            }
            // Connections that open at once by order are no surprise.
            let ordered = self.experiment.load.all_at_once;
            let declared = if ordered { self.as_is.without_refusals() } else { Achieved::default() };
            if differs(outcome, expected, declared) && !self.reuse_told {
                self.reuse_told = true;
                journal.change(|record| record.configurations[index].warnings.push(reuse_warning(outcome)));
            }
        }
        let model = &self.testbed.servers[index].model;
        // A minimal set-up has no handshakes to count.
        let handshakes = tls && model.stages().is_ok_and(|stages| !stages.contains(Stage::Setup));
        // Neither a perfect cache nor a skeleton refuses anybody, whatever the untouched server does.
        let refuses_none = model
            .stages()
            .is_ok_and(|stages| stages.contains(Stage::SessionCache) || stages.contains(Stage::Handshake));
        let as_is = match (can_resume(self.experiment, model), refuses_none) {
            (false, _) => Achieved::default(),
            (true, true) => self.as_is.without_refusals(),
            (true, false) => self.as_is,
        };
        let as_is = handshakes.then_some(as_is);
        let placement = &self.testbed.servers[index].placement;
        let capacity = Capacity {
            server_cpus: placement.server_cpus,
            load_cpus: placement.load_cpus,
            beside_load_ns: if self.testbed.servers[index].companion_shares_load { companion_cpu_ns } else { 0 },
            waits: model.accelerator.is_some(),
        };
        let verdict = verify(outcome, expected, server_cpu_ns, as_is, capacity);
        if verdict.unsaturated {
            self.unsaturated.insert(index);
        }
        verdict
    }

    /// Starts the server of this configuration where it does not run, or takes another for the first of a round's
    /// blocks where the experiment wants that. One that was restarted is not measured cold: it is checked again and
    /// does one piece of work untimed.
    pub(super) fn activate(&mut self, index: usize, turn: Option<u32>) -> Result<()> {
        let began = Instant::now();
        let fresh = self.experiment.measure.fresh_servers && turn.is_none_or(|turn| turn == 0);
        let swapped = fresh && self.testbed.swap_in(index);
        if turn.is_some() {
            self.testbed.is_measured(index);
        }
        if !self.testbed.activate(index)? && !swapped {
            return Ok(());
        }
        let server = &mut self.testbed.servers[index];
        let workers = server.instance().map_or(Vec::new(), |instance| instance.worker_pids());
        for (_, library) in server.libraries() {
            servers::require_mapped(&workers, &library).or_fault(Fault::Server)?;
        }
        let users = self.users_min().max(self.warm_up_users(workers.len() as u32)).min(self.load.users);
        let piece = typical_users(&requests_of_users(&self.testbed.site.workload), users);
        self.load.run(index, self.testbed.servers[index].address(), piece.users)?;
        self.restarts = (self.restarts.0 + began.elapsed(), self.restarts.1 + 1);
        Ok(())
    }

    /// Users that warm so many worker processes up. Prefork has one for each connection, which users with a connection
    /// for each of their requests would warm for longer than a block takes.
    fn warm_up_users(&self, workers: u32) -> u32 {
        let workload = &self.testbed.site.workload;
        let requests = (workload.requests.len() / workload.users.len().max(1)) as u32;
        // Where nothing says that a connection ends, a user may have one only.
        let connections = self.experiment.load.requests_per_connection.map_or(1, |each| requests / each.max(1)).max(1);
        (WARM_UP_USERS * workers).min((WARM_UP_CONNECTIONS * workers).div_ceil(connections))
    }

    /// CPU time of the server, read when it has come to rest: the last closes are still its work.
    fn server_cpu_ns(&mut self, index: usize) -> Result<u64> {
        let server = &mut self.testbed.servers[index];
        let name = server.model.name.clone();
        let instance = server.instance().with_context(|| format!("the server of \"{name}\" does not run"))?;
        let died = |_: &Instance, obituary: &str| format!("configuration \"{name}\": {obituary}");
        at_rest(|| instance.living_cpu_ns(died))
    }

    /// CPU time of the servers that this one needs beside it.
    fn companion_cpu_ns(&mut self, index: usize) -> Result<u64> {
        let costs =
            self.testbed.servers[index].instance().map_or(Ok(Vec::new()), |instance| instance.companions_cpu_ns())?;
        Ok(costs.iter().map(|(_, ns)| ns).sum())
    }
}
