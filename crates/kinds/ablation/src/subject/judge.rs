//! Judges a block of one server: whether it may be used, and what must be said of it.

use anyhow::Result;
use tlsdyno_engine::load::Outcome;
use tlsdyno_record::store::{Journal, Role};
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::schedule::Work;
use tlsdyno_runner::run::verify::{
    Achieved, Capacity, Expected, ExpectedFull, Verdict, differs, reuse_warning, verify,
};
use tlsdyno_tls::Stage;

use super::SingleServer;

impl SingleServer<'_> {
    /// Verifies a block, and gives each repeated warning only once.
    pub(super) fn judge(
        &mut self,
        index: usize,
        outcome: &Outcome,
        work: &Work,
        (server_cpu_ns, companion_cpu_ns): (u64, u64),
        journal: &mut Journal,
    ) -> Result<Verdict> {
        let users = work.piece.users.clone();
        // Few users are no measure of the share that resumes.
        let enough = users.len() >= self.users_min() as usize;
        let mut expected = Expected::of(&self.testbed.site.workload, users, &self.experiment.load)?;
        if !self.testbed.can_resume(index) {
            // No cache and no tickets, whatever the workload's users would resume.
            expected.full = ExpectedFull::Share(1.0);
        }
        let configuration = &journal.record().configurations[index];
        let (kind, tls) = (configuration.role.clone(), configuration.tls);
        if kind == Role::AsIs && outcome.errors.is_empty() && enough {
            self.as_is = expected.achieved(outcome);
            if journal.record().manifest.negotiated.is_empty() {
                let negotiated = manifest::negotiated_text(outcome);
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
        let handshakes = tls && !model.noop.contains(Stage::Setup);
        // Neither a perfect cache nor a skeleton refuses anybody, whatever the untouched server does.
        let refuses_none = model.noop.contains(Stage::SessionCache) || model.noop.contains(Stage::Handshake);
        let as_is = match (self.testbed.can_resume(index), refuses_none) {
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
        Ok(verdict)
    }
}
