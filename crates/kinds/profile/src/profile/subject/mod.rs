//! The profile of a server (docs/PROFILE.md): what the calls into OpenSSL's provider take, timed inside the server in
//! slices that alternate with slices in which nothing is timed, full and resumed handshakes apart; beside it, where
//! there can be servers beside it, the untouched one and one whose stages are removed.

mod counted;
mod sampled;
mod slice;
mod start;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{Block, Journal, Warning};
use tlsdyno_runner::run::check::CheckExperiment;
use tlsdyno_runner::run::cpus;
use tlsdyno_runner::run::fresh_servers::FreshServers;
use tlsdyno_runner::run::load_process::LoadProcess;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, NextRound, Plan, SlicesOfRound, Subject};
use tlsdyno_runner::run::schedule::{Piece, Work, pieces, requests_of_users, schedule};
use tlsdyno_runner::run::sliced::{Bench, Failed, Sweeps, TimeOfSlices, sliced_rounds};
use tlsdyno_runner::run::testbed::Testbed;

use self::slice::{Inside, Timing};
use crate::profile::file::ProfileExperiment;

/// Part of the time for blocks, which measure hits per second at saturation.
const BLOCKS_SHARE: f64 = 0.1;
/// Minimum number of connections of a warm-up, in multiples of the concurrent connections.
const WARM_UP_FACTOR: u32 = 2;

/// Runs the profile. An error means that measuring did not begin.
pub fn run(experiment: &ProfileExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    check(experiment)?;
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        Profile::start(experiment, cpus, record, stop, observer)
    })
}

/// Refuses what contradicts itself or cannot be profiled, with the remedy.
pub fn check(experiment: &ProfileExperiment) -> Result<()> {
    // The servers are of our own making.
    let untouched = vec![ConfigurationModel::as_is()];
    Experiment { configurations: untouched, ..experiment.of_servers() }.check().or_fault(Fault::Usage)?;
    ensure_fault!(
        Usage,
        experiment.has_neighbours() || !(experiment.profile.counted || experiment.profile.doubled),
        "--counted and --doubled need another server beside, and this one has a fixed port: write {{port}} in --address"
    );
    Ok(())
}

struct Profile {
    inside: Inside,
    connections: u32,
    slice_us: Option<u64>,
    testbed: Testbed,
    load: LoadProcess,
    sweeps: Sweeps,
    timing: Timing,
    /// Servers that replace those that were measured; `None`: the user's own command keeps its server.
    fresh: Option<FreshServers>,
}

impl Profile {
    /// `factor` times the work that warms a server up, from the beginning of the workload.
    fn least_work(&self, factor: u32) -> Work {
        let requests = (self.connections * WARM_UP_FACTOR).saturating_mul(factor).min(self.load.requests);
        Piece { users: 0..requests, requests: u64::from(requests) }.into()
    }

    /// Configurations of the testbed with a server of their own, which modes lack.
    fn hosts(&self) -> BTreeSet<usize> {
        (0..self.testbed.servers.len()).filter(|index| self.testbed.host(*index) == *index).collect()
    }
}

impl Subject for Profile {
    fn warm_up(&self, _index: usize, factor: u32) -> Work {
        self.least_work(factor)
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let requests = requests_of_users(&self.testbed.site.workload);
        let rounds = sliced_rounds(left);
        let for_blocks = left.mul_f64(BLOCKS_SHARE);
        let for_slices = left.saturating_sub(for_blocks);
        self.sweeps.plan(for_slices, self.slice_us, 0, (&requests, 1), seconds_per_request);
        let total = requests.len() as u64;
        let mut schedule = schedule(Some(rounds), for_blocks, seconds_per_request, Duration::ZERO, total);
        let least = u64::from(self.connections * WARM_UP_FACTOR).min(total);
        schedule.requests_per_block = schedule.requests_per_block.max(least);
        let pieces = pieces(&requests, schedule.requests_per_block, self.connections);
        let slices = for_slices / schedule.rounds_expected;
        schedule.round += slices;
        let works = pieces.into_iter().map(Work::from).collect();
        let slices = SlicesOfRound { length: slices, rounds_wanted: None, rounds_least: 0, blocks_share: Some(1.0) };
        Plan { slices: Some(slices), round_least: Duration::ZERO, ..Plan::of(schedule, works) }
    }

    fn is_bounded(&self) -> bool {
        true
    }

    fn begin_round(&mut self, round: &NextRound) -> Result<bool> {
        let hosts = self.hosts();
        let Some(fresh) = &mut self.fresh else { return Ok(true) };
        let takes = fresh.time(&self.testbed, &hosts, |_| 1);
        if round.within.is_some_and(|within| takes > within) {
            return Ok(false);
        }
        if !takes.is_zero() {
            fresh.start(&mut self.testbed, &hosts, Some(round.end))?;
        }
        self.sweeps.swap_servers(&mut self.testbed, &hosts);
        self.forget_threads()?;
        Ok(true)
    }

    fn block(&mut self, index: usize, work: &Work, _journal: &mut Journal) -> Result<Block> {
        self.whole_block(index, work)
    }

    fn slices(
        &mut self,
        configurations: &[usize],
        time: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        let work = self.least_work(1);
        let bench = Bench {
            testbed: &mut self.testbed,
            load: &mut self.load,
            sweeps: &mut self.sweeps,
            watch: &mut self.inside,
            warm_up: &|_| work.clone(),
        };
        bench.measure(configurations, time, random)
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(self.inside.cells[index].server)
    }

    fn warnings(&self) -> Vec<Warning> {
        self.last_words()
    }
}
