//! Slices of one server at a time: what its modes do besides, and how it is seen that they did it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tlsdyno_base::fault::Fault;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::Outcome;
use tlsdyno_record::store::Block;
use tlsdyno_record::store::warning::reuse;
use tlsdyno_runner::run::instruments::Counted;
use tlsdyno_runner::run::mode_check::ModeCheck;
use tlsdyno_runner::run::schedule::Work;
use tlsdyno_runner::run::sliced::{Bench, Failed, TimeOfSlices, Watch};
use tlsdyno_runner::run::testbed::Testbed;
use tlsdyno_runner::run::verify::FULL_SHARE_TOLERANCE;
use tlsdyno_tls::Stage;

use super::SingleServer;

/// Checks by the counters of the libraries that servers in slices did what their modes say.
#[derive(Debug, Default)]
pub(super) struct WatchModes {
    check: ModeCheck,
    /// Counters of each server's libraries when it last rested.
    counted: BTreeMap<usize, Counted>,
}

impl Watch for WatchModes {
    type Seen = ();

    fn begin_row(&mut self, testbed: &mut Testbed, index: usize) -> Result<()> {
        self.counted.insert(index, testbed.servers[index].instruments.counted()?);
        Ok(())
    }

    fn end_slice(
        &mut self,
        testbed: &Testbed,
        index: usize,
        outcome: &Outcome,
        _server_cpu_ns: u64,
    ) -> Result<(Option<String>, ())> {
        let host = testbed.host(index);
        let after = testbed.servers[host].instruments.counted()?;
        let before = self.counted.insert(host, after).unwrap_or_default();
        Ok((self.check.fault((index, &testbed.servers[index]), outcome, &before, &after), ()))
    }
}

impl SingleServer<'_> {
    /// Measures slices of these configurations.
    pub(super) fn sweeps(
        &mut self,
        configurations: &[usize],
        time: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        // On a machine the CPU time of a hit is what it is without.
        let is_sliced = |index: &usize| self.testbed.servers[*index].model.base.is_none();
        let configurations: Vec<usize> = configurations.iter().copied().filter(is_sliced).collect();
        for &index in &configurations {
            self.require_host(index).map_err(|error| (index, error))?;
        }
        let (warm_up, workload) = (self.warm_up_users(), Arc::clone(&self.testbed.site.workload));
        let bench = Bench {
            testbed: &mut self.testbed,
            load: &mut self.load,
            sweeps: &mut self.sweeps,
            watch: &mut self.modes,
            warm_up: &|workers: u32| -> Work { warm_up.work(&workload, workers) },
        };
        let mut blocks = bench.measure(&configurations, time, random)?;
        self.drop_unequal_work(&mut blocks);
        Ok(blocks)
    }

    /// A mode ends with its server.
    pub(super) fn require_host(&self, index: usize) -> Result<()> {
        let host = self.testbed.host(index);
        if host == index || !self.failed.contains(&host) {
            return Ok(());
        }
        let name = &self.testbed.servers[host].model.name;
        Err(Fault::Server.wrap(anyhow!("its server, which it shares with \"{name}\", has failed")))
    }

    /// Drops modes with other numbers of refused or taken sessions than their host: their work differed. A minimal
    /// set-up has no handshakes to compare.
    fn drop_unequal_work(&self, blocks: &mut [Block]) {
        let full = |block: &Block| block.handshakes_full as f64 / block.connections.max(1) as f64;
        let fulls: BTreeMap<usize, f64> = blocks.iter().map(|block| (block.configuration, full(block))).collect();
        for block in blocks.iter_mut().filter(|block| !block.slices.is_empty()) {
            let index = &block.configuration;
            let has_handshakes = !self.testbed.servers[*index].model.noop.contains(Stage::Setup);
            let of_host = fulls.get(&self.testbed.host(*index)).filter(|_| has_handshakes);
            if of_host.is_some_and(|of_host| (fulls[index] - of_host).abs() > FULL_SHARE_TOLERANCE) {
                block.valid = false;
                let told = reuse(block.resumed_intended, block.resumed_offered, block.resumed_accepted);
                block.warnings.push(told);
            }
        }
    }
}
