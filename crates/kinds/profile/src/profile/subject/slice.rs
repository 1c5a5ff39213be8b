//! What the slices of a profile have besides: calls that are timed, CPU that is sampled.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tlsdyno_engine::load::Outcome;
use tlsdyno_native::ProfileCounts;
use tlsdyno_record::store::samples::Samples;
use tlsdyno_record::store::{Block, ProfileBlock, Warning};
use tlsdyno_runner::run::load_process::Sessions;
use tlsdyno_runner::run::runner::Subject;
use tlsdyno_runner::run::schedule::Work;
use tlsdyno_runner::run::sliced::{Sweeps, Watch};
use tlsdyno_runner::run::testbed::Testbed;
use tlsdyno_runner::run::verify::{death, is_dead, verify_requests};
use tlsdyno_servers::Instance;
use tlsdyno_servers::cpu::at_rest;
use tlsdyno_tls::Stage;

use super::Profile;
use super::sampled::Sampling;
use super::start::Placed;
use crate::profile::file::{Cell, Handshakes, Treatment};

/// Number of the store of sessions for blocks; those of slices are numbered from 0.
const STORE_OF_BLOCKS: u32 = u32::MAX;
/// A larger part of slices that are left out is reported.
const LEFT_OUT_TOLD: f64 = 0.02;
/// A larger part of timed calls that are interrupted is reported.
const INTERRUPTED_TOLD: f64 = 1e-3;

/// Counts and samples of one slice.
pub(super) struct Seen {
    /// `None`: the cell's calls are not timed.
    counts: Option<ProfileCounts>,
    /// `None`: the cell's CPU is not sampled.
    samples: Option<Samples>,
}

/// Counts of the profiler over all servers so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timing {
    timed_count: u64,
    interrupted_count: u64,
    /// The kernel did not tell which calls of a server were interrupted.
    is_blind: bool,
}

/// What is read in slices besides CPU time.
pub(super) struct Inside {
    pub(super) cells: Vec<Placed>,
    pub(super) sampling: BTreeMap<usize, Sampling>,
    /// Counts at the start of the current slice.
    pub(super) counts_before: Option<ProfileCounts>,
}

impl Watch for Inside {
    type Seen = Seen;

    fn begin_row(&mut self, testbed: &mut Testbed, index: usize) -> Result<()> {
        let server = self.cells[index].server;
        self.sampling.get_mut(&server).map_or(Ok(()), |sampling| sampling.renew(testbed, server))
    }

    fn begin_slice(&mut self, testbed: &Testbed, index: usize) -> Result<()> {
        self.set_timed(testbed, index, self.is_timed(index))?;
        self.counts_before = self.counts(testbed, index)?;
        self.sampling(index).map_or(Ok(()), Sampling::begin)
    }

    fn end_slice(
        &mut self,
        testbed: &Testbed,
        index: usize,
        outcome: &Outcome,
        server_cpu_ns: u64,
    ) -> Result<(Option<String>, Seen)> {
        let samples = self.sampling(index).map(|sampling| sampling.end(server_cpu_ns)).transpose()?;
        let before = self.counts_before.take();
        let counts = self.counts(testbed, index)?.zip(before).map(|(after, before)| after.since(&before));
        self.set_timed(testbed, index, false)?;
        let (connections, handshakes_full) = (outcome.connections, outcome.handshakes.full);
        let Cell { handshakes, treatment } = self.cells[index].cell;
        let wanted = if handshakes == Handshakes::Full && !treatment.is_plain() { connections } else { 0 };
        let otherwise = (handshakes_full != wanted)
            .then(|| format!("{handshakes_full} of {connections} handshakes were full, not {wanted}"));
        Ok((otherwise, Seen { counts, samples }))
    }

    fn keep(&self, block: &mut Block, seen: Seen) {
        if let Some(counts) = seen.counts {
            let profile = block.profile.get_or_insert_with(ProfileBlock::default);
            profile.stages_ns.push(Stage::PROVIDER.map(|stage| counts.ns_of(stage) as u64).to_vec());
            profile.counts.add(&counts);
        }
        if let Some(samples) = seen.samples {
            let profile = block.profile.get_or_insert_with(ProfileBlock::default);
            profile.samples.get_or_insert_with(Samples::default).add(&samples);
        }
    }
}

impl Inside {
    /// `None`: the CPU of this cell's server is not sampled.
    fn sampling(&mut self, index: usize) -> Option<&mut Sampling> {
        let placed = &self.cells[index];
        let is_sampled = matches!(placed.cell.treatment, Treatment::Sampled | Treatment::PlainSampled);
        self.sampling.get_mut(&placed.server).filter(|_| is_sampled)
    }

    fn is_timed(&self, index: usize) -> bool {
        self.cells[index].cell.treatment == Treatment::Timed
    }

    fn set_timed(&self, testbed: &Testbed, index: usize, timed: bool) -> Result<()> {
        let profiling = testbed.servers[self.cells[index].server].profiling.as_ref();
        profiling.map_or(Ok(()), |profiling| profiling.set_timed(timed))
    }

    fn counts(&self, testbed: &Testbed, index: usize) -> Result<Option<ProfileCounts>> {
        let profiling = testbed.servers[self.cells[index].server].profiling.as_ref();
        profiling.filter(|_| self.is_timed(index)).map(|profiling| profiling.counts()).transpose()
    }
}

impl Profile {
    /// A block at saturation, for hits per second.
    pub(super) fn whole_block(&mut self, index: usize, work: &Work) -> Result<Block> {
        let server = self.inside.cells[index].server;
        self.testbed.enter_mode(server)?;
        let cpu_before = self.cpu_ns(index)?;
        self.inside.set_timed(&self.testbed, index, self.inside.is_timed(index))?;
        let sessions = Sessions::OfSlices(STORE_OF_BLOCKS);
        let outcome = self.testbed.carry_out(&mut self.load, (index, server), work, sessions)?;
        if is_dead(&outcome) {
            return Err(death(&self.inside.cells[index].cell.to_string(), &outcome, &self.log_tail(index)));
        }
        let server_cpu_ns = self.cpu_ns(index)?.saturating_sub(cpu_before);
        self.inside.set_timed(&self.testbed, index, false)?;
        let verdict = verify_requests(&outcome, work.piece.requests);
        Ok(Block { server_cpu_ns, valid: verdict.valid, warnings: verdict.warnings, ..Block::from(&outcome) })
    }

    /// CPU time of a cell's server once it rests, nanoseconds.
    fn cpu_ns(&mut self, index: usize) -> Result<u64> {
        let Placed { cell, server, .. } = &self.inside.cells[index];
        let instance = self.testbed.instance(*server);
        let instance = instance.with_context(|| format!("the server of \"{cell}\" does not run"))?;
        at_rest(|| instance.living_cpu_ns(|_: &Instance, obituary| format!("\"{cell}\": {obituary}")))
    }

    /// Adds up the profiler's counts of servers that will be replaced: their threads call it no more.
    pub(super) fn forget_threads(&mut self) -> Result<()> {
        self.timing = self.timing_so_far()?;
        let mut profiled = self.testbed.servers.iter().filter_map(|server| server.profiling.as_ref());
        profiled.try_for_each(|profiling| profiling.forget_threads())
    }

    fn timing_so_far(&self) -> Result<Timing> {
        let mut timing = self.timing;
        for profiling in self.testbed.servers.iter().filter_map(|server| server.profiling.as_ref()) {
            timing.timed_count += profiling.counts()?.calls().1;
            timing.interrupted_count += profiling.interrupted()?;
            timing.is_blind |= profiling.sees_interruptions()? == Some(false);
        }
        Ok(timing)
    }

    /// Warnings after the last slice.
    pub(super) fn last_words(&self) -> Vec<Warning> {
        let Sweeps { measured, left_out, fault, .. } = &self.sweeps;
        let mut warnings = Vec::new();
        if *left_out as f64 > LEFT_OUT_TOLD * *measured as f64 {
            let what = format!("{left_out} of {measured} slices were left out, the last one because: {fault}");
            let remedy = "The others stand; where sessions run out, fewer --connections need fewer";
            warnings.push(Warning::new("slices_left_out", what).with_remedy(remedy));
        }
        warnings.extend(self.inside.sampling.values().filter_map(Sampling::told));
        warnings.extend(self.sweeps.late_work());
        warnings.extend(self.timing_so_far().into_iter().flat_map(Timing::told));
        warnings
    }
}

impl Timing {
    /// Warnings about interrupted calls.
    fn told(self) -> Vec<Warning> {
        let Timing { timed_count: timed, interrupted_count: interrupted, is_blind } = self;
        let mut warnings = Vec::new();
        if interrupted as f64 > INTERRUPTED_TOLD * timed as f64 {
            let what = format!(
                "{interrupted} of {timed} timed calls were interrupted by other work; in their place the mean of the \
                 others is taken"
            );
            let remedy = if is_blind {
                "Only the longest interruptions are recognised here, the others are in the times: profile on a machine \
                 without other work, or with a C library and a kernel that know rseq(2)"
            } else {
                "The times stand; the machine has other work"
            };
            warnings.push(Warning::new("calls_interrupted", what).with_remedy(remedy));
        }
        warnings
    }
}
