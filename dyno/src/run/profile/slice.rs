//! Slices of a profile, as those of an ablation (docs/METHODOLOGY.md, "Slices"): the same users for every cell of a
//! sweep, each slice from rest to rest of its server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tlsdyno_tls::Stage;

use super::Profile;
use super::sampled::Sampling;
use crate::fault::Fault;
use crate::model::job::OutcomeRecord;
use crate::model::profile::{Handshakes, Treatment};
use crate::native::{ProfileCounts, Profiling};
use crate::random::SplitMix64;
use crate::run::runner::Subject;
use crate::run::schedule::Work;
use crate::run::single::sweep::{Position, Stop, order};
use crate::run::verify::{death, is_dead, verify_requests};
use crate::sampling::Samples;
use crate::servers::cpu::ProcessClocks;
use crate::store::{Block, ProfileBlock, Slice, Warning};

/// So many sweeps that count are made for each row whatever time they take.
const SWEEPS_LEAST: u32 = 1;
/// So long a server's hits are dearer after another server had the CPU (docs/METHODOLOGY.md, "Slices").
const COLD: Duration = Duration::from_millis(15);
/// Most slices that do not count for that.
const LEAD_IN_MAX: usize = 8;
/// The store of sessions that blocks have; those of slices are numbered from 0.
const STORE_OF_BLOCKS: u32 = u32::MAX;
/// More slices left out than this part of them are told.
const LEFT_OUT_TOLD: f64 = 0.02;

/// More interrupted calls than this part of those that were timed are told.
const INTERRUPTED_TOLD: f64 = 1e-4;

/// What goes on over all sweeps.
#[derive(Default)]
pub(super) struct Sweeps {
    /// The works that sweeps walk through, over and over.
    pub(super) works: Vec<Work>,
    next: u32,
    measured: u64,
    left_out: u64,
    /// Why the last one was left out.
    fault: String,
}

/// What one run of the load was, and what the server did in it.
struct Run {
    outcome: OutcomeRecord,
    began: Duration,
    elapsed: Duration,
    server_cpu_ns: u64,
    /// Of cells whose calls are timed.
    counts: Option<ProfileCounts>,
    /// Of cells whose CPU is sampled.
    samples: Option<Samples>,
}

impl Run {
    /// Why it does not count.
    fn fault(&self, handshakes: Handshakes, requests: u64) -> Option<String> {
        let asked = verify_requests(&self.outcome, requests);
        let OutcomeRecord { connections, handshakes_full, .. } = self.outcome;
        let wanted = if handshakes == Handshakes::Full { connections } else { 0 };
        let otherwise = (handshakes_full != wanted)
            .then(|| format!("{handshakes_full} of {connections} handshakes were full, not {wanted}"));
        asked.warnings.first().map(Warning::to_string).or(otherwise)
    }
}

impl Profile {
    /// Measures whole sweeps of these cells for about so long: a block for each.
    pub(super) fn sweeps(
        &mut self,
        cells: &[usize],
        length: Duration,
        since: Instant,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, (usize, anyhow::Error)> {
        let began = Instant::now();
        let mut blocks: BTreeMap<usize, Block> = BTreeMap::new();
        let stops = self.stops(cells);
        let sampled = cells.iter().copied().find(|cell| self.cells[*cell].cell.treatment == Treatment::Sampled);
        if let (Some(sampling), Some(cell)) = (&mut self.sampling, sampled) {
            sampling.renew(&mut self.testbed, self.cells[cell].server).map_err(|error| (cell, error))?;
        }
        let mut clocks: BTreeMap<usize, ProcessClocks> = BTreeMap::new();
        for &Stop { host, .. } in &stops {
            let server = self.testbed.host(self.cells[host].server);
            clocks.insert(server, self.clocks(server).map_err(|error| (host, error))?);
        }
        let (mut counted, mut last) = (0, Duration::ZERO);
        // A sweep of which less than half would fit is not begun.
        while counted < SWEEPS_LEAST || began.elapsed() + last / 2 < length {
            let sweep_began = Instant::now();
            let number = self.sweeps.next;
            let work = self.sweeps.works[number as usize % self.sweeps.works.len()].clone();
            // The first one fills the stores of sessions.
            let fills = number == 0;
            for stop in order(&stops, random) {
                let arrived = Instant::now();
                let warm = |position: &Position| position.counts || arrived.elapsed() < COLD;
                for Position { configuration, counts, store } in stop.positions(LEAD_IN_MAX).into_iter().filter(warm) {
                    let clocks = &clocks[&self.testbed.host(self.cells[configuration].server)];
                    let run = self.measure(configuration, &work, store, since, clocks);
                    let run = run.map_err(|error| (configuration, error))?;
                    if counts && !fills {
                        self.add(&mut blocks, configuration, run, &work, number);
                    }
                }
            }
            self.sweeps.next += 1;
            counted += u32::from(!fills);
            last = sweep_began.elapsed();
        }
        self.drop_if_workers_changed(&clocks, &mut blocks);
        Ok(blocks.into_values().collect())
    }

    /// Slices of a server whose processes came or went do not count: what these did is not in its clocks.
    fn drop_if_workers_changed(
        &mut self,
        clocks: &BTreeMap<usize, ProcessClocks>,
        blocks: &mut BTreeMap<usize, Block>,
    ) {
        for (server, clocks) in clocks {
            if self.clocks(*server).is_ok_and(|now| now == *clocks) {
                continue;
            }
            let is_of_it = |index: &usize| self.testbed.host(self.cells[*index].server) == *server;
            for (_, block) in blocks.iter_mut().filter(|(index, _)| is_of_it(index)) {
                block.valid = false;
                let what = "processes of the server began or ended within a row of slices".to_owned();
                block.warnings.push(Warning::Other { what, remedy: "These slices are left out".to_owned() });
            }
        }
    }

    /// The servers with their cells: the first of each is the one with nothing done to it.
    fn stops(&self, cells: &[usize]) -> Vec<Stop> {
        let mut by_server: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &cell in cells {
            by_server.entry(self.testbed.host(self.cells[cell].server)).or_default().push(cell);
        }
        by_server.into_values().map(|cells| Stop { host: cells[0], modes: cells[1..].to_vec() }).collect()
    }

    fn add(&mut self, blocks: &mut BTreeMap<usize, Block>, configuration: usize, run: Run, work: &Work, number: u32) {
        self.sweeps.measured += 1;
        if let Some(fault) = run.fault(self.cells[configuration].cell.handshakes, work.piece.requests) {
            self.sweeps.left_out += 1;
            self.sweeps.fault = fault;
            return;
        }
        let block = blocks.entry(configuration).or_insert_with(|| Block {
            configuration,
            valid: true,
            started_ns: run.began.as_nanos() as u64,
            ..Block::default()
        });
        let OutcomeRecord { hits, connections, handshakes_full, .. } = run.outcome;
        block.elapsed_ns += run.elapsed.as_nanos() as u64;
        block.server_cpu_ns += run.server_cpu_ns;
        block.client_cpu_ns += run.outcome.client_cpu_ns;
        block.hits += hits;
        block.body_bytes += run.outcome.body_bytes;
        block.connections += connections;
        block.handshakes_full += handshakes_full;
        block.resumed_intended += run.outcome.resumed_intended;
        block.resumed_offered += run.outcome.resumed_offered;
        block.resumed_accepted += run.outcome.resumed_accepted;
        block.slices.push(Slice {
            sweep_number: number,
            started_us: run.began.as_micros() as u64,
            elapsed_us: run.elapsed.as_micros() as u32,
            server_cpu_ns: run.server_cpu_ns,
            hits: hits as u32,
            handshakes_full: handshakes_full as u32,
        });
        if let Some(counts) = run.counts {
            let profile = block.profile.get_or_insert_with(ProfileBlock::default);
            profile.stages_ns.push(Stage::PROVIDER.map(|stage| counts.ns_of(stage) as u64));
            profile.counts += &counts;
        }
        if let Some(samples) = run.samples {
            let profile = block.profile.get_or_insert_with(ProfileBlock::default);
            profile.samples.get_or_insert_with(Samples::default).add(&samples);
        }
    }

    /// A block at saturation: what hits per second are told by.
    pub(super) fn whole_block(&mut self, index: usize, work: &Work) -> Result<Block> {
        let clocks = self.clocks(self.cells[index].server)?;
        let run = self.measure(index, work, STORE_OF_BLOCKS, Instant::now(), &clocks)?;
        let verdict = verify_requests(&run.outcome, work.piece.requests);
        Ok(Block {
            server_cpu_ns: run.server_cpu_ns,
            valid: verdict.valid,
            warnings: verdict.warnings,
            ..Block::from(run.outcome)
        })
    }

    /// Lets the load do this work in a cell: from rest to rest of its server.
    fn measure(
        &mut self,
        index: usize,
        work: &Work,
        store: u32,
        since: Instant,
        clocks: &ProcessClocks,
    ) -> Result<Run> {
        let server = self.cells[index].server;
        let timed = self.cells[index].cell.treatment == Treatment::Timed;
        self.testbed.enter_mode(server)?;
        let cpu_before = self.at_rest_ns(index, clocks)?;
        self.set_timed(server, timed)?;
        let counts_before = self.counts(server, timed)?;
        let is_sampled = self.cells[index].cell.treatment == Treatment::Sampled && store != STORE_OF_BLOCKS;
        self.sampling.as_mut().filter(|_| is_sampled).map_or(Ok(()), Sampling::begin)?;
        let began = since.elapsed();
        let outcome = self.load.run_slice(index, self.testbed.address(server), work, store)?;
        let elapsed = since.elapsed() - began;
        if is_dead(&outcome) {
            return Err(death(&self.cells[index].cell.to_string(), &outcome, &self.log_tail(index)));
        }
        let server_cpu_ns = self.at_rest_ns(index, clocks)?.saturating_sub(cpu_before);
        let sampling = self.sampling.as_mut().filter(|_| is_sampled);
        let samples = sampling.map(|sampling| sampling.end(server_cpu_ns)).transpose()?;
        let counts = self.counts(server, timed)?.zip(counts_before).map(|(after, before)| after - &before);
        self.set_timed(server, false)?;
        Ok(Run { outcome, began, elapsed, server_cpu_ns, counts, samples })
    }

    fn set_timed(&self, server: usize, timed: bool) -> Result<()> {
        self.testbed.servers[server].profiling.as_ref().map_or(Ok(()), |profiling| profiling.set_timed(timed))
    }

    fn counts(&self, server: usize, timed: bool) -> Result<Option<ProfileCounts>> {
        let profiling = self.testbed.servers[server].profiling.as_ref().filter(|_| timed);
        profiling.map(|profiling| profiling.counts()).transpose()
    }

    /// The clocks of all processes of a server, those that began since the last slice too.
    fn clocks(&mut self, server: usize) -> Result<ProcessClocks> {
        let name = self.testbed.servers[server].model.name.clone();
        let instance = self.testbed.instance(server).with_context(|| format!("the server \"{name}\" does not run"));
        Ok(ProcessClocks::of(instance.map_err(|error| Fault::Server.of(error))?.pids()))
    }

    fn at_rest_ns(&mut self, index: usize, clocks: &ProcessClocks) -> Result<u64> {
        clocks.at_rest_ns().ok_or_else(|| {
            let (log, name) = (self.log_tail(index), self.cells[index].cell);
            Fault::Server.of(anyhow!("a process of the server of \"{name}\" has ended{log}"))
        })
    }

    /// What the reader must know after the last slice.
    pub(super) fn last_words(&self) -> Vec<Warning> {
        let Sweeps { measured, left_out, fault, .. } = &self.sweeps;
        let mut warnings = Vec::new();
        if *left_out as f64 > LEFT_OUT_TOLD * *measured as f64 {
            let what = format!("{left_out} of {measured} slices were left out, the last one because: {fault}");
            let remedy = "The others stand; where sessions run out, fewer --connections need fewer".to_owned();
            warnings.push(Warning::Other { what, remedy });
        }
        warnings.extend(self.sampling.as_ref().and_then(Sampling::told));
        warnings.extend(self.testbed.servers.iter().filter_map(|server| server.profiling.as_ref()).flat_map(told));
        warnings
    }
}

/// What the area of the profiler says that the reader must know.
fn told(profiling: &Profiling) -> Vec<Warning> {
    let (Ok(lost), Ok(interrupted), Ok(counts)) =
        (profiling.threads_lost(), profiling.interrupted(), profiling.counts())
    else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    if lost > 0 {
        let what = format!("the calls of {lost} threads of the server were not counted: there are too many threads");
        warnings.push(Warning::Other { what, remedy: "Give the server fewer threads".to_owned() });
    }
    let (_, timed) = counts.calls();
    if interrupted as f64 > INTERRUPTED_TOLD * timed as f64 {
        let what = format!("{interrupted} of {timed} timed calls were interrupted by other work, and are in no time");
        let remedy = "Shorter interruptions are in the times: profile on a machine without other work".to_owned();
        warnings.push(Warning::Other { what, remedy });
    }
    warnings
}
