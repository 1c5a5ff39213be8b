//! Slices of one server at a time: what its modes do besides, and how it is seen that they did it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tlsdyno_base::fault::Fault;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::Outcome;
use tlsdyno_record::store::Block;
use tlsdyno_record::store::warning::reuse;
use tlsdyno_tls::Stage;

use super::SingleServer;
use crate::run::instruments::Counted;
use crate::run::load_process::LoadProcess;
use crate::run::mode_check::ModeCheck;
use crate::run::sliced::{self, Failed, Sliced, Sweeps};
use crate::run::testbed::Testbed;
use crate::run::verify::FULL_SHARE_TOLERANCE;

/// What goes on over all rows of sweeps.
#[derive(Debug, Default)]
pub(super) struct Slices {
    pub(super) sweeps: Sweeps,
    check: ModeCheck,
    /// What the libraries of each server had counted when it last rested.
    counted: BTreeMap<usize, Counted>,
}

impl Sliced for SingleServer<'_> {
    type Seen = ();

    fn state(&mut self) -> &mut Sweeps {
        &mut self.slices.sweeps
    }

    fn testbed(&mut self) -> &mut Testbed {
        &mut self.testbed
    }

    fn load(&mut self) -> &mut LoadProcess {
        &mut self.load
    }

    fn server(&self, index: usize) -> usize {
        index
    }

    fn host(&self, index: usize) -> usize {
        self.testbed.host(index)
    }

    fn name(&self, index: usize) -> String {
        self.testbed.servers[index].model.name.clone()
    }

    fn keeps_sessions(&self) -> bool {
        self.experiment.load.reuse_percent.is_some_and(|percent| percent > 0.0)
    }

    fn warm(&mut self, index: usize) -> Result<()> {
        self.warm_restarted(index)
    }

    fn begin_row(&mut self, index: usize) -> Result<()> {
        self.slices.counted.insert(index, self.testbed.servers[index].instruments.counted()?);
        Ok(())
    }

    fn end_slice(&mut self, index: usize, outcome: &Outcome, _cpu_ns: u64) -> Result<(Option<String>, ())> {
        let host = self.testbed.host(index);
        let after = self.testbed.servers[host].instruments.counted()?;
        let before = self.slices.counted.insert(host, after).unwrap_or_default();
        let of_mode = (index, &self.testbed.servers[index]);
        Ok((self.slices.check.fault(of_mode, outcome, &before, &after), ()))
    }
}

impl SingleServer<'_> {
    /// Measures whole sweeps of these configurations for about so long.
    pub(super) fn sweeps(
        &mut self,
        configurations: &[usize],
        length: Duration,
        since: Instant,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        for &index in configurations {
            self.require_host(index).map_err(|error| (index, error))?;
        }
        let mut blocks = sliced::sweeps(self, configurations, length, since, random)?;
        self.drop_unequal_work(&mut blocks);
        Ok(blocks)
    }

    /// How long a sweep takes at least, as far as the warm-up tells.
    pub(super) fn expected_sweep(&mut self) -> Duration {
        let is_sliced =
            |index: &usize| self.testbed.servers[*index].model.base.is_none() && !self.failed.contains(index);
        let configurations: Vec<usize> = (0..self.testbed.servers.len()).filter(is_sliced).collect();
        let stops = sliced::stops(self, &configurations);
        self.slices.sweeps.expect(&stops)
    }

    /// A mode ends with the server that it is one of.
    pub(super) fn require_host(&self, index: usize) -> Result<()> {
        let host = self.testbed.host(index);
        if host == index || !self.failed.contains(&host) {
            return Ok(());
        }
        let name = &self.testbed.servers[host].model.name;
        Err(Fault::Server.of(anyhow!("its server, which it shares with \"{name}\", has failed")))
    }

    /// Modes whose sessions were refused, or taken, otherwise than those of their host did other work. A minimal set-up
    /// has no handshakes to compare.
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
