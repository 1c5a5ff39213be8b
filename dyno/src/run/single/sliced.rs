//! Sweeps of slices: how the CPU time of a hit is compared. In a sweep every configuration has slices of the same
//! users, so short that the machine has not changed from one to the next (docs/METHODOLOGY.md, "Slices").

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tlsdyno_tls::Stage;

use super::SingleServer;
use super::sweep::{Position, Stop, order};
use crate::fault::Fault;
use crate::model::job::OutcomeRecord;
use crate::random::SplitMix64;
use crate::run::mode_check::{Counted, ModeCheck};
use crate::run::runner::Subject;
use crate::run::schedule::Work;
use crate::run::verify::{FULL_SHARE_TOLERANCE, death, is_dead, verify_requests};
use crate::servers::cpu::ProcessClocks;
use crate::store::{Block, Slice, Warning};

/// So many sweeps that count are made for each row whatever time they take.
const SWEEPS_LEAST: u32 = 1;
/// So long a server's hits are dearer after another server had the CPU (docs/METHODOLOGY.md, "Slices").
const COLD: Duration = Duration::from_millis(15);
/// Most slices that do not count for that.
const LEAD_IN_MAX: usize = 8;
/// Late work of more than this part of what was measured is told.
const LATE_TOLD: f64 = 0.01;

/// What goes on over all sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    /// The works that sweeps walk through, over and over.
    pub(super) works: Vec<Work>,
    /// Number of the next sweep.
    next: u32,
    /// How long a request of a configuration took in its last slice.
    us_per_request: BTreeMap<usize, f64>,
    /// The servers are new, and the stores of sessions have none of theirs: the next sweep fills them.
    pub(super) stores_are_empty: bool,
    check: ModeCheck,
    /// CPU time within slices, and of the same servers between them, nanoseconds.
    within_ns: u64,
    late_ns: u64,
}

/// What a server had done up to some moment at which it rested.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    cpu_ns: u64,
    counted: Counted,
}

/// The servers of a row of sweeps.
struct Servers {
    clocks: BTreeMap<usize, ProcessClocks>,
    accounts: BTreeMap<usize, Account>,
}

/// A failure, and of which configuration.
type Failed = (usize, anyhow::Error);

impl SingleServer<'_> {
    /// Measures whole sweeps of these configurations for about so long. A block for each: its slices and their sums.
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
        let began = Instant::now();
        let mut blocks: BTreeMap<usize, Block> = configurations
            .iter()
            .map(|&configuration| (configuration, Block { configuration, ..Block::default() }))
            .collect();
        let stops = self.stops(configurations);
        let mut servers = self.servers(&stops)?;
        let (mut counted, mut last) = (0, Duration::ZERO);
        // A sweep of which less than half would fit is not begun.
        while counted < SWEEPS_LEAST || began.elapsed() + last / 2 < length {
            let sweep_began = Instant::now();
            let number = self.sweeps.next;
            let work = self.sweeps.works[number as usize % self.sweeps.works.len()].clone();
            // Sessions that one sweep leaves to the next are those of a running count; users bring none.
            let fills = std::mem::take(&mut self.sweeps.stores_are_empty) && self.keeps_sessions();
            for stop in order(&stops, random) {
                let arrived = Instant::now();
                let warm = |position: &Position| position.counts || arrived.elapsed() < COLD;
                for position in stop.positions(LEAD_IN_MAX).into_iter().filter(warm) {
                    let failed = |error| (position.configuration, error);
                    let slice = self.slice(position, &work, number, since, &mut servers).map_err(failed)?;
                    let block = blocks.entry(position.configuration).or_default();
                    add(block, slice, position.counts && !fills);
                }
            }
            self.sweeps.next += 1;
            counted += u32::from(!fills);
            last = sweep_began.elapsed();
        }
        self.drop_if_workers_changed(&servers, &mut blocks);
        self.drop_unequal_work(&mut blocks);
        let says_something =
            |block: &Block| !(block.slices.is_empty() && block.errors.is_empty() && block.warnings.is_empty());
        Ok(blocks.into_values().filter(says_something).collect())
    }

    /// Whether a sweep resumes sessions of the one before.
    fn keeps_sessions(&self) -> bool {
        self.experiment.load.reuse_percent.is_some_and(|percent| percent > 0.0)
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

    /// The servers with their configurations.
    fn stops(&self, configurations: &[usize]) -> Vec<Stop> {
        let mut by_host: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &index in configurations {
            let modes = by_host.entry(self.testbed.host(index)).or_default();
            if self.testbed.host(index) != index {
                modes.push(index);
            }
        }
        by_host.into_iter().map(|(host, modes)| Stop { host, modes }).collect()
    }

    fn servers(&mut self, stops: &[Stop]) -> Result<Servers, Failed> {
        let mut servers = Servers { clocks: BTreeMap::new(), accounts: BTreeMap::new() };
        for host in stops.iter().map(|stop| stop.host) {
            if self.cold.remove(&host) {
                let warmed = self.testbed.enter_mode(host).and_then(|()| self.warm_restarted(host));
                warmed.map_err(|error| (host, error))?;
            }
            let clocks = self.clocks(host).map_err(|error| (host, error))?;
            let account = self.account(host, &clocks).map_err(|error| (host, error))?;
            servers.accounts.insert(host, account);
            servers.clocks.insert(host, clocks);
        }
        Ok(servers)
    }

    /// The clocks of all processes of a server.
    fn clocks(&mut self, host: usize) -> Result<ProcessClocks> {
        let name = self.testbed.servers[host].model.name.clone();
        let instance = self.testbed.instance(host).with_context(|| format!("the server of \"{name}\" does not run"));
        Ok(ProcessClocks::of(instance.map_err(|error| Fault::Server.of(error))?.pids()))
    }

    /// What a server has done, once it rests.
    fn account(&mut self, host: usize, clocks: &ProcessClocks) -> Result<Account> {
        let Some(cpu_ns) = clocks.at_rest_ns() else {
            // If all of it has died, that is the news.
            self.server_cpu_ns(host)?;
            let (log, name) = (self.log_tail(host), &self.testbed.servers[host].model.name);
            return Err(Fault::Server.of(anyhow!("a process of the server of \"{name}\" has ended{log}")));
        };
        let counted = Counted::of(&self.testbed.servers[host])?;
        Ok(Account { cpu_ns, counted })
    }

    /// One slice: from rest to rest.
    fn slice(
        &mut self,
        position: Position,
        work: &Work,
        sweep: u32,
        since: Instant,
        servers: &mut Servers,
    ) -> Result<(Slice, OutcomeRecord, Option<String>)> {
        let index = position.configuration;
        let host = self.testbed.host(index);
        self.testbed.enter_mode(index)?;
        let clocks = &servers.clocks[&host];
        let work = Work { laps: self.laps(index, work), ..work.clone() };
        let requests = work.laps * work.piece.requests;
        let before = self.account_now(host, clocks, &servers.accounts[&host])?;
        let began = since.elapsed();
        let outcome = self.load.run_slice(index, self.testbed.address(index), &work, position.store)?;
        let elapsed = since.elapsed() - began;
        self.sweeps.us_per_request.insert(index, elapsed.as_secs_f64() * 1e6 / requests.max(1) as f64);
        if is_dead(&outcome) {
            // If its process has died, that is the news.
            self.server_cpu_ns(host)?;
            let name = self.testbed.servers[index].model.name.clone();
            return Err(death(&name, &outcome, &self.log_tail(host)));
        }
        let after = self.account(host, clocks)?;
        let server_cpu_ns = after.cpu_ns.saturating_sub(before.cpu_ns);
        self.sweeps.within_ns += server_cpu_ns;
        let of_mode = (index, &self.testbed.servers[index]);
        let fault = self.sweeps.check.fault(of_mode, &outcome, &before.counted, &after.counted);
        servers.accounts.insert(host, after);
        let slice = Slice {
            sweep_number: sweep,
            started_us: began.as_micros() as u64,
            elapsed_us: elapsed.as_micros() as u32,
            server_cpu_ns,
            hits: outcome.hits as u32,
            handshakes_full: outcome.handshakes_full as u32,
        };
        let asked = verify_requests(&outcome, requests);
        let fault = fault.or_else(|| asked.warnings.first().map(Warning::to_string));
        Ok((slice, outcome, fault))
    }

    /// How often the users of a slice take their turns. Without handshakes the same requests take a tenth of the time,
    /// most of which a server spends on waking up and on reading its first events one by one; so these are repeated
    /// until the slice is as long as it is to be. With handshakes a second turn would find the sessions of the first.
    fn laps(&self, index: usize, work: &Work) -> u64 {
        let model = &self.testbed.servers[index].model;
        if !model.plain_http && !model.noop.contains(Stage::Setup) {
            return 1;
        }
        let Some(us_per_request) = self.sweeps.us_per_request.get(&index) else { return 1 };
        let wanted_us = self.experiment.measure.slice_us.unwrap_or(super::SLICE_US);
        (wanted_us as f64 / (us_per_request * work.piece.requests.max(1) as f64)).round().max(1.0) as u64
    }

    /// The account of a server that has rested since the last slice; what its clocks have gone on is late work.
    fn account_now(&mut self, host: usize, clocks: &ProcessClocks, last: &Account) -> Result<Account> {
        let Some(cpu_ns) = clocks.read_ns() else { return self.account(host, clocks) };
        self.sweeps.late_ns += cpu_ns.saturating_sub(last.cpu_ns);
        Ok(Account { cpu_ns, ..*last })
    }

    /// Slices of a server whose processes came or went do not count: what these did is not in its clocks.
    fn drop_if_workers_changed(&mut self, servers: &Servers, blocks: &mut BTreeMap<usize, Block>) {
        for (host, clocks) in &servers.clocks {
            if self.clocks(*host).is_ok_and(|now| now == *clocks) {
                continue;
            }
            let of_host: Vec<usize> =
                blocks.keys().copied().filter(|index| self.testbed.host(*index) == *host).collect();
            for index in of_host {
                let block = blocks.entry(index).or_default();
                block.valid = false;
                let what = "processes of the server began or ended within a row of slices".to_owned();
                block.warnings.push(Warning::Other { what, remedy: LEFT_OUT_SLICES.to_owned() });
            }
        }
    }

    /// Modes whose sessions were refused, or taken, otherwise than those of their host did other work. A minimal set-up
    /// has no handshakes to compare.
    fn drop_unequal_work(&self, blocks: &mut BTreeMap<usize, Block>) {
        let full = |block: &Block| block.handshakes_full as f64 / block.connections.max(1) as f64;
        let fulls: BTreeMap<usize, f64> = blocks.iter().map(|(index, block)| (*index, full(block))).collect();
        for (index, block) in blocks.iter_mut().filter(|(_, block)| !block.slices.is_empty()) {
            let has_handshakes = !self.testbed.servers[*index].model.noop.contains(Stage::Setup);
            let of_host = fulls.get(&self.testbed.host(*index)).filter(|_| has_handshakes);
            if of_host.is_some_and(|of_host| (fulls[index] - of_host).abs() > FULL_SHARE_TOLERANCE) {
                block.valid = false;
                let Block { resumed_intended: intended, resumed_offered: offered, resumed_accepted: accepted, .. } =
                    *block;
                block.warnings.push(Warning::Reuse { intended, offered, accepted });
            }
        }
    }

    /// What the reader must know of slices after the last one.
    pub(super) fn late_work(&self) -> Option<Warning> {
        let part = self.sweeps.late_ns as f64 / self.sweeps.within_ns.max(1) as f64;
        (part > LATE_TOLD).then(|| Warning::Other {
            what: format!("{:.1} % of the servers' CPU time fell between slices", part * 100.0),
            remedy: "It is in no configuration's cost; longer slices have less of it (--slice 50ms)".to_owned(),
        })
    }
}

/// What to do about slices that are not counted.
const LEFT_OUT_SLICES: &str = "These slices are left out";

/// Adds a slice to the block of its configuration.
fn add(block: &mut Block, (slice, outcome, fault): (Slice, OutcomeRecord, Option<String>), counts: bool) {
    for (kind, count) in &outcome.errors {
        *block.errors.entry(kind.clone()).or_default() += count;
    }
    if !counts {
        return;
    }
    if let Some(what) = fault {
        block.warnings.push(Warning::Other { what, remedy: LEFT_OUT_SLICES.to_owned() });
        return;
    }
    if block.slices.is_empty() {
        block.started_ns = slice.started_us * 1_000;
    }
    block.valid = true;
    block.elapsed_ns += u64::from(slice.elapsed_us) * 1_000;
    block.server_cpu_ns += slice.server_cpu_ns;
    block.client_cpu_ns += outcome.client_cpu_ns;
    block.hits += outcome.hits;
    block.body_bytes += outcome.body_bytes;
    block.connections += outcome.connections;
    block.handshakes_full += outcome.handshakes_full;
    block.resumed_intended += outcome.resumed_intended;
    block.resumed_offered += outcome.resumed_offered;
    block.resumed_accepted += outcome.resumed_accepted;
    block.slices.push(slice);
}
