//! How the rounds of one server go: blocks, slices, and servers that take the place of others.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::units::format_count;
use tlsdyno_record::store::warning::{Places, code};
use tlsdyno_record::store::{Block, Calibration, Journal, Record, Warning};
use tlsdyno_runner::run::load_process::Sessions;
use tlsdyno_runner::run::neighbours::Neighbours;
use tlsdyno_runner::run::runner::{NextRound, Plan, SlicesOfRound, Subject};
use tlsdyno_runner::run::schedule::{Work, drop_too_long, pieces, requests_of_users, schedule, typical_users};
use tlsdyno_runner::run::sliced::{Failed, SLICED_ROUNDS_MIN, TimeOfSlices};
use tlsdyno_runner::run::verify::{death, is_dead};
use tlsdyno_servers::Instance;
use tlsdyno_servers::cpu::at_rest;
use tlsdyno_stats::rounds::Rounds;

use super::{BLOCKS_SHARE_OF_MACHINES, SingleServer, rounds_with_slices};
use crate::summary::Shares;

/// Part of the time for blocks, which measure hits per second at saturation, where slices measure CPU per hit.
const BLOCKS_SHARE: f64 = 0.2;
/// Minimum ratio of the remaining time to the start of new servers for that to be worth it.
const STARTS_WORTH_IT: u32 = 4;
/// Minimum work of a warm-up, as a multiple of the users that keep all connections busy.
const WARM_UP_FACTOR: u32 = 2;

impl SingleServer<'_> {
    /// Time to start replacement servers. 0 while the pools have a server for each block, or where there is no time for
    /// more.
    fn time_to_start(&self, round: &NextRound, replaced: &BTreeSet<usize>) -> Duration {
        let blocks_of = |index: usize| round.blocks.iter().filter(|other| **other == index).count();
        let wanted = |index: usize| if self.is_sliced { 1 } else { blocks_of(index) };
        let takes = self.fresh.time(&self.testbed, replaced, wanted);
        // Where none is worth its start any more, the last ones are measured on.
        let may_stay = self.is_sliced && !self.experiment.measure.fresh_servers;
        let is_worth_it = !may_stay || Instant::now() + takes * STARTS_WORTH_IT < round.end;
        if is_worth_it { takes } else { Duration::ZERO }
    }

    /// Read when the server has come to rest: the last closes are still its work.
    fn server_cpu_ns(&mut self, index: usize) -> Result<u64> {
        let name = self.testbed.servers[index].model.name.clone();
        let instance =
            self.testbed.instance(index).with_context(|| format!("the server of \"{name}\" does not run"))?;
        let died = |_: &Instance, obituary: &str| format!("configuration \"{name}\": {obituary}");
        at_rest(|| instance.living_cpu_ns(died))
    }

    /// CPU time of the servers that this one needs beside it, nanoseconds.
    fn companion_cpu_ns(&mut self, index: usize) -> Result<u64> {
        let costs = self.testbed.instance(index).map_or(Ok(Vec::new()), |instance| instance.companions_cpu_ns())?;
        Ok(costs.iter().map(|(_, ns)| ns).sum())
    }
}

impl Subject for SingleServer<'_> {
    fn widest_points(&self, record: &Record) -> Option<f64> {
        Shares::of(&Rounds::of(record)).widest_points()
    }

    /// An application behind a user's own server may be slow: its warm-up begins with one user.
    fn warm_up(&self, _index: usize, factor: u32) -> Work {
        let least = if self.experiment.server.kind.is_users_own() {
            self.load.loops
        } else {
            self.users_min() * WARM_UP_FACTOR
        };
        let users = least.saturating_mul(factor).min(self.load.users);
        typical_users(&requests_of_users(&self.testbed.site.workload), users).into()
    }

    fn is_bounded(&self) -> bool {
        true
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        // The short blocks of the warm-up saturate nothing.
        self.unsaturated.clear();
        self.neighbours = Neighbours::default();
        let sliced_rounds = rounds_with_slices(self.experiment, left);
        let rounds = if self.is_sliced { Some(sliced_rounds) } else { self.experiment.measure.rounds };
        // Nothing is started for a block where the servers that are there already last for all rounds.
        let starts = self.fresh.pool_size < rounds.unwrap_or(u32::MAX);
        let start = if starts { self.fresh.time_to_start } else { Duration::ZERO };
        let restart = (self.restarts.0 / self.restarts.1.max(1) + start) / self.experiment.measure.turns;
        let requests = self.load.requests;
        let machines = !self.experiment.machines.is_empty();
        let has_blocks = self.experiment.measure.blocks || machines;
        let share = match (has_blocks, machines) {
            (false, _) => 0.0,
            (true, false) => BLOCKS_SHARE,
            (true, true) => BLOCKS_SHARE_OF_MACHINES,
        };
        let for_blocks = if self.is_sliced { left.mul_f64(share) } else { left };
        let mut schedule = schedule(rounds, for_blocks, seconds_per_request, restart, u64::from(requests));
        let requests_of_users = requests_of_users(&self.testbed.site.workload);
        if self.is_sliced {
            let calibrated = || Calibration::last(&self.experiment.server.kind.to_string())?.slice_us;
            let slice_us = self.experiment.measure.slice_us.or_else(calibrated);
            let least_us = self.load.slice_us_min();
            let users = (&requests_of_users[..], self.load.loops);
            let for_slices = left.saturating_sub(for_blocks);
            self.sweeps.plan(for_slices, slice_us, least_us, users, seconds_per_request);
        }
        let mut pieces = pieces(&requests_of_users, schedule.requests_per_block, self.users_min());
        // Without blocks nothing is taken of them.
        let dropped = if has_blocks || !self.is_sliced { drop_too_long(&mut pieces, &schedule, left) } else { 0 };
        let what = format!(
            "The run takes a sample of the workload: {} of its {} requests. The others' pieces would each take more \
             than half of the measuring time",
            format_count(u64::from(requests).saturating_sub(dropped)),
            format_count(u64::from(requests))
        );
        let warning = Warning::new("sample", what).with_remedy("A longer run takes more of them (--time)");
        let warnings = (dropped > 0).then_some(warning).into_iter().collect();
        let slices = self.is_sliced.then(|| SlicesOfRound {
            length: left.saturating_sub(for_blocks) / sliced_rounds,
            rounds_wanted: Some(sliced_rounds),
            rounds_least: self.experiment.measure.rounds.unwrap_or(SLICED_ROUNDS_MIN),
            blocks_share: has_blocks.then_some(share),
        });
        let mut round_least = schedule.round;
        if self.is_sliced {
            let is_sliced =
                |index: &usize| self.testbed.servers[*index].model.base.is_none() && !self.failed.contains(index);
            let configurations: Vec<usize> = (0..self.testbed.servers.len()).filter(is_sliced).collect();
            round_least = self.sweeps.expect(&self.testbed, &configurations);
            (schedule.rounds_expected, schedule.round) = (sliced_rounds, (left / sliced_rounds).max(round_least));
            schedule.requests_per_block *= u64::from(has_blocks);
        }
        let works = pieces.into_iter().map(Work::from).collect();
        Plan { slices, round_least, warnings, ..Plan::of(schedule, works) }
    }

    /// Finds listeners that a server opened after its start. Checks one random server a round, as the kernel's tables
    /// are slow to read with many closed connections in them.
    fn begin_round(&mut self, round: &NextRound) -> Result<bool> {
        let replaced = self.replaced(round.blocks);
        let takes = self.time_to_start(round, &replaced);
        if round.within.is_some_and(|within| takes > within) {
            return Ok(false);
        }
        if !takes.is_zero() {
            self.fresh.start(&mut self.testbed, &replaced, Some(round.end))?;
        }
        if self.is_sliced {
            self.sweeps.swap_servers(&mut self.testbed, &replaced);
        }
        let instance = self.testbed.instance(round.first);
        instance.map_or(Ok(()), |instance| instance.refuse_open_listeners()).or_fault(Fault::Server)?;
        Ok(true)
    }

    /// Starts the server of this configuration where it does not run, or replaces it before its first block of a round
    /// where the experiment wants that. A restarted server is checked again and does one untimed piece of work.
    fn ready(&mut self, index: usize, turn: Option<u32>) -> Result<()> {
        self.require_host(index)?;
        let began = Instant::now();
        let fresh = self.experiment.measure.fresh_servers && turn.is_none_or(|turn| turn == 0);
        let swapped = fresh && self.testbed.swap_in(index);
        if turn.is_some() {
            self.testbed.is_measured(index);
        }
        let cold = self.sweeps.was_cold(self.testbed.host(index));
        if !self.testbed.activate(index)? && !swapped && !cold {
            return Ok(());
        }
        self.warm_restarted(index)?;
        self.restarts = (self.restarts.0 + began.elapsed(), self.restarts.1 + 1);
        Ok(())
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        self.neighbours.block_begins();
        let cpu_before = self.server_cpu_ns(index)?;
        let beside_before = self.companion_cpu_ns(index)?;
        let cpus = self.testbed.servers[index].placement.server.clone();
        let pace_before = self.pace.read(&cpus);
        let outcome = self.testbed.carry_out(&mut self.load, (index, index), work, Sessions::New);
        let pace_ps = self.pace.read(&cpus).since(&pace_before);
        let cpu_after = self.server_cpu_ns(index);
        self.neighbours.block_ends(&cpus);
        let (outcome, cpu_after) = match (outcome, cpu_after) {
            (Ok(outcome), Ok(cpu)) => (outcome, cpu),
            (Err(error), _) | (_, Err(error)) => {
                let name = self.testbed.servers[index].model.name.clone();
                // Of a worker that was lost the server's log says nothing.
                let is_far = fault_of(&error) == Some(Fault::Unreachable);
                let log_tail = if is_far { String::new() } else { self.log_tail(index) };
                return Err(error.context(format!("measure \"{name}\"{log_tail}")));
            }
        };
        if is_dead(&outcome) {
            return Err(death(&self.testbed.servers[index].model.name.clone(), &outcome, &self.log_tail(index)));
        }
        let server_cpu_ns = cpu_after.saturating_sub(cpu_before);
        let companion_cpu_ns = self.companion_cpu_ns(index)?.saturating_sub(beside_before);
        let verdict = self.judge(index, &outcome, work, (server_cpu_ns, companion_cpu_ns), journal)?;
        Ok(Block {
            elapsed_ns: self.testbed.servers[index].placement.elapsed_ns(outcome.elapsed_ns, server_cpu_ns),
            server_cpu_ns,
            companion_cpu_ns,
            pace_ps,
            client_bound: verdict.client_bound,
            unsaturated: verdict.unsaturated,
            valid: verdict.valid,
            warnings: verdict.warnings,
            ..Block::from(&outcome)
        })
    }

    fn slices(
        &mut self,
        configurations: &[usize],
        time: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        self.sweeps(configurations, time, random)
    }

    fn leave_out(&mut self, index: usize) -> bool {
        self.failed.insert(index);
        // Where it is a mode its server goes on with the others.
        self.testbed.stop(index);
        true
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(index)
    }

    fn warnings(&self) -> Vec<Warning> {
        let name = |index: &usize| self.testbed.servers[*index].model.name.clone();
        let configurations: Vec<String> = self.unsaturated.iter().map(name).collect();
        let all = self.testbed.servers.len() as u32;
        let is_told = !configurations.is_empty();
        let warning = is_told.then(|| unsaturated(&configurations, all, self.neighbours.busiest()));
        warning.into_iter().chain(self.sweeps.late_work()).collect()
    }
}

/// Warns that neither side was busy all the time. `other`: name and process of the program with most CPU time on the
/// server's CPUs, in per cent of one CPU.
fn unsaturated(configurations: &[String], all: u32, other: Option<(String, f64)>) -> Warning {
    let (why, remedy) = match other {
        Some((who, percent)) => (
            format!("{who} used {percent:.0} % of the server's CPU meanwhile"),
            "If it is the application behind the server, it limits hits per second; else end it, or measure on a quiet \
             machine",
        ),
        None => (
            "requests waited for each other (few users at once, or each user's in strict order)".to_owned(),
            "Raise --connections, or use a workload with more users",
        ),
    };
    let what = format!(
        "the server was not saturated in {}: {why}. Hits per second are lower bounds there, CPU per hit is valid",
        Places(configurations, all)
    );
    Warning::new(code::UNSATURATED, what).with_remedy(remedy)
}
