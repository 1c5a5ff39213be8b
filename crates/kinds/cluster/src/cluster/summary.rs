//! What each cell of a cluster experiment did, and what its policy makes of the cluster beside the first policy under
//! the same traffic.

use anyhow::Result;
use serde::Serialize;
use tlsdyno_record::model::{ComparisonModel, Paper, Policy};
use tlsdyno_record::store::{BackendUse, Block, ClusterBlock, Record, Warning};
use tlsdyno_stats::bootstrap::estimate_column;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::scoreboard::Claim;
use tlsdyno_stats::statement::{Metric, Ratio};
use tlsdyno_stats::summary::{failures, few_rounds, stolen};
use tlsdyno_stats::{ConfigurationSummary, Estimate};
use tlsdyno_traffic::load::warning::is_rate_missed;

use super::load_checks::{self, LoadCheck};
use super::locality::{LocalitySummary, more_missed_points};
use crate::cluster::cell::{Cell, Role};
use crate::cluster::file::ClusterExperiment;

/// A policy beside the first one under the same traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// The first policy, and its front ends.
    pub baseline: String,
    /// Hits per second by the baseline's.
    pub hits_per_second: Ratio,
    /// CPU time of the backends, and front ends, per hit of the baseline by its own: above 1 it is cheaper.
    pub by_cpu: Ratio,
    /// More of the requests that caches would miss, percentage points, from rounds in pairs; `None` without logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_missed_points: Option<Estimate>,
}

/// One cell, over its usable blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellSummary {
    /// What is told of every configuration. The server is all backends and front ends together; what limits them is the
    /// load or the dispatcher.
    #[serde(flatten)]
    pub measured: ConfigurationSummary,
    /// The name of its traffic: what all policies had to cope with.
    pub traffic: String,
    /// What distinguishes this traffic besides reuse; empty where nothing else differs.
    #[serde(skip)]
    pub besides_reuse: String,
    #[serde(flatten)]
    pub cell: Cell,
    /// CPU time of the front ends per hit, nanoseconds; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front_end_cpu_ns_per_hit: Option<Estimate>,
    /// CPU time of the backends behind front ends per hit, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_cpu_ns_per_hit: Option<Estimate>,
    /// CPU time of the dispatcher per connection, nanoseconds.
    pub dispatcher_cpu_ns_per_connection: Estimate,
    /// Part of the connections that offered a session, per cent.
    pub offered_percent: Estimate,
    /// Part of the offers that a backend accepted, per cent.
    pub accepted_percent_of_offered: Estimate,
    /// Part of the connections, or of the requests behind front ends, that the backend with the most of them got, per
    /// cent: even is 100 by the number of backends.
    pub busiest_percent: Estimate,
    /// What plain backends were asked for; `None` where they do not log it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<LocalitySummary>,
    /// Against the first policy; `None` for that one, and where they have no round in common.
    pub against: Option<Against>,
    /// CPU time and connections of each backend, summed over the blocks.
    pub backends: Vec<Backend>,
    /// Requests of an open loop that were due and that no client was free for.
    pub unserved: u64,
    /// Mean length of its blocks, nanoseconds.
    #[serde(skip)]
    pub mean_block_ns: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Backend {
    pub cpu_ns: u64,
    pub connections: u64,
}

impl CellSummary {
    /// Whether it is a point of its line, and not there to check one.
    pub fn is_point(&self) -> bool {
        self.cell.role == Role::Point
    }

    /// An open loop of which more remained unserved than may: the unserved are in no latency, so that all percentiles
    /// are lower bounds.
    pub fn fell_behind(&self) -> bool {
        is_rate_missed(self.unserved, self.due())
    }

    /// Requests that were due in its usable blocks. A block with failed requests is not usable.
    fn due(&self) -> u64 {
        self.measured.hits + self.unserved
    }

    pub fn unserved_warning(&self) -> Option<Warning> {
        let rate = self.cell.rate_per_s.filter(|_| self.fell_behind())?;
        let what = format!(
            "{} of {} requests that were due at {rate}/s found no client free in time, and are in no latency: the \
             cluster does not keep up, or these are too few clients for its latency",
            self.unserved,
            self.due()
        );
        Some(Warning::new("unserved", what).with_remedy("Give lower --rates or more --clients"))
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct ClusterSummary {
    /// In the order of the record.
    pub cells: Vec<CellSummary>,
    /// The paper's comparisons beside ours, in the order of the experiment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    #[serde(skip)]
    pub paper: Option<Paper>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<LoadCheck>,
    #[serde(skip)]
    pub rounds: u32,
    /// The record's own warnings and those that follow from its numbers.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

impl ClusterSummary {
    /// Summarises the record of a cluster; `None` if it is none. Always gives the same result for the same record.
    pub fn of(record: &Record) -> Result<ClusterSummary> {
        let experiment = record.kind_part.understood::<ClusterExperiment>()?;
        let rounds = Rounds::of(record);
        let all = experiment.cells();
        let summaries = all.iter().enumerate().take(record.configurations.len());
        let cells: Vec<CellSummary> = summaries.map(|(index, cell)| summarise(&rounds, index, cell, &all)).collect();
        let mut warnings = record.warnings.clone();
        warnings.extend(few_rounds(record, rounds.measured()));
        let measured = || cells.iter().map(|cell| &cell.measured);
        let bound: Vec<&str> = measured().filter(|of| of.client_bound).map(|of| of.name.as_str()).collect();
        if !bound.is_empty() {
            let has_dispatcher = experiment.cluster.has_dispatcher();
            warnings.push(load_bound(&bound, cells.len(), has_dispatcher));
        }
        warnings.extend(stolen(record));
        warnings.extend(failures(&record.blocks));
        let claims = experiment.comparisons.iter().filter_map(|comparison| claim(comparison, &rounds, &all)).collect();
        let paper = experiment.paper.clone();
        let checks = load_checks::all(&rounds, &all);
        let rounds = rounds.measured();
        Ok(ClusterSummary { cells, claims, paper, checks, rounds, warnings })
    }

    /// Whether clients connect to one server, without a dispatcher.
    pub fn has_one_server(&self) -> bool {
        self.cells.iter().all(|cell| cell.cell.policy == Policy::Direct)
    }

    /// The most that plain HTTP does beside TLS, hits per second; `None` where it was not measured beside it.
    pub fn plain_limit(&self) -> Option<f64> {
        let plain = self.cells.iter().filter(|cell| cell.cell.plain && cell.measured.blocks > 0);
        plain.map(|cell| cell.measured.hits_per_second.value).max_by(f64::total_cmp)
    }

    /// The first cell under the traffic of `cell`: that of the first policy.
    pub fn baseline_of(&self, cell: &Cell) -> Option<&CellSummary> {
        self.cells.iter().find(|other| other.cell.has_traffic_of(cell))
    }

    /// Whether front ends end TLS before the backends of any cell.
    pub fn has_front_ends(&self) -> bool {
        self.cells.iter().any(|cell| cell.cell.front.is_some())
    }
}

/// A comparison at the largest load.
fn claim(comparison: &ComparisonModel, rounds: &Rounds, all: &[Cell]) -> Option<Claim> {
    let [a, b] = [&comparison.a, &comparison.b].map(|name| at_largest_load(all, name));
    let by = |metric| a.zip(b).and_then(|(a, b)| Some((rounds.times(a, b, metric)?, metric)));
    // Where something else than the servers limited hits per second, what a hit costs them is what is known.
    let ours = match by(Metric::Throughput) {
        Some((ratio, _)) if ratio.is_bound() => by(Metric::Cpu).or(by(Metric::Throughput)),
        ratio => ratio,
    };
    let paper = comparison.paper.as_deref();
    Some(Claim::of_ratio(&comparison.question, paper, comparison.published_times?, ours))
}

/// The cell of a policy and reuse at the largest load, which saturates the cluster, under the first cell's sessions and
/// addresses, as in the answer: both sides of a ratio have the same.
fn at_largest_load(all: &[Cell], name: &str) -> Option<usize> {
    let first = all.first()?;
    let load = |cell: &Cell| cell.rate_per_s.unwrap_or_else(|| f64::from(cell.clients));
    let fits = |cell: &Cell| {
        cell.short_name() == name
            && cell.role == Role::Point
            && cell.sharing == first.sharing
            && cell.behind_one_address_percent == first.behind_one_address_percent
    };
    let cells = all.iter().enumerate().filter(|(_, cell)| fits(cell));
    cells.max_by(|(_, a), (_, b)| load(a).total_cmp(&load(b))).map(|(index, _)| index)
}

fn load_bound(cells: &[&str], all: usize, has_dispatcher: bool) -> Warning {
    let place = if cells.len() == all { "every cell".to_owned() } else { format!("\"{}\"", cells.join("\", \"")) };
    let what = format!(
        "the CPU of the load{} was full in {place}: hits per second are a lower bound of what the backends can serve \
         there; CPU per hit and accepted resumptions stay valid",
        if has_dispatcher { " or of the dispatcher" } else { "" }
    );
    Warning::new("client_bound", what)
        .with_remedy("Lower --backend-cpus, choose --effort lean or a machine with more CPUs")
}

fn summarise(rounds: &Rounds, index: usize, cell: &Cell, all: &[Cell]) -> CellSummary {
    let part = |of: u64, whole: u64| of as f64 / whole as f64;
    let most = |parts: &ClusterBlock| parts.backends.iter().map(|backend| backend.connections).max().unwrap_or(0);
    let passed = |parts: &ClusterBlock| parts.backends.iter().map(|backend| backend.connections).sum();
    // Each by itself: a cell that offers nothing has no share of accepted offers, and must not empty the other columns.
    let each = |value: &dyn Fn(&Block, &ClusterBlock) -> f64| {
        let of_block = |block: &Block| Some(value(block, block.cluster.as_ref()?)).filter(|value| value.is_finite());
        estimate_column(&rounds.values(index, of_block))
    };
    let percent = |value: &dyn Fn(&Block, &ClusterBlock) -> f64| each(value).scaled(100.0);
    let costs = rounds.cost(index, Metric::Cpu);
    let per_hit = |machines: fn(&ClusterBlock) -> &[BackendUse]| {
        let used = |parts: &ClusterBlock| machines(parts).iter().map(|machine| machine.cpu_ns).sum();
        let share = |block: &Block| Some(part(used(block.cluster.as_ref()?), block.server_cpu_ns));
        // Of the cost at the machine's mean pace, as the whole is told.
        let of_round = |(cost, share): (&Option<f64>, Option<f64>)| Some((*cost)? * share?);
        let column: Vec<Option<f64>> = costs.iter().zip(rounds.values(index, share)).map(of_round).collect();
        cell.front.map(|_| estimate_column(&column))
    };
    let blocks = || rounds.of_configuration(index);
    let clustered = || blocks().filter_map(|block| block.cluster.as_ref());
    let elapsed_ns: u64 = blocks().map(|block| block.elapsed_ns).sum();
    let mut summary = CellSummary {
        measured: ConfigurationSummary::of(rounds, index),
        traffic: cell.traffic(all),
        besides_reuse: cell.besides_reuse(all).join(", "),
        cell: cell.clone(),
        front_end_cpu_ns_per_hit: per_hit(|parts| &parts.front_ends),
        backend_cpu_ns_per_hit: per_hit(|parts| &parts.backends),
        dispatcher_cpu_ns_per_connection: each(&|block, parts| part(parts.dispatcher_cpu_ns, block.connections)),
        offered_percent: percent(&|block, _| part(block.resumed_offered, block.connections)),
        accepted_percent_of_offered: percent(&|block, _| part(block.resumed_accepted, block.resumed_offered)),
        busiest_percent: percent(&|_, parts| part(most(parts), passed(parts))),
        locality: LocalitySummary::of(rounds, index),
        against: against(rounds, index, cell, all),
        backends: totals(clustered()),
        unserved: clustered().map(|parts| parts.unserved).sum(),
        mean_block_ns: elapsed_ns as f64 / blocks().count().max(1) as f64,
    };
    let unserved = summary.unserved_warning();
    summary.measured.warnings.extend(unserved.map(|warning| warning.to_string()));
    summary
}

fn totals<'a>(blocks: impl Iterator<Item = &'a ClusterBlock>) -> Vec<Backend> {
    let mut totals: Vec<Backend> = Vec::new();
    for block in blocks {
        totals.resize(totals.len().max(block.backends.len()), Backend::default());
        for (total, BackendUse { cpu_ns, connections, .. }) in totals.iter_mut().zip(&block.backends) {
            total.cpu_ns += cpu_ns;
            total.connections += connections;
        }
    }
    totals
}

fn against(rounds: &Rounds, index: usize, cell: &Cell, all: &[Cell]) -> Option<Against> {
    let baseline = all.iter().position(|other| other.has_traffic_of(cell))?;
    if baseline == index {
        return None;
    }
    Some(Against {
        baseline: all[baseline].way_name(),
        hits_per_second: rounds.times(baseline, index, Metric::Throughput)?,
        by_cpu: rounds.times(baseline, index, Metric::Cpu)?,
        more_missed_points: more_missed_points(rounds, baseline, index),
    })
}

#[cfg(test)]
pub(crate) mod samples {

    use super::*;
    use crate::cluster::file::ClusterExperiment;
    use tlsdyno_record::store::Configuration;

    /// Two policies under one traffic, in an open loop if there is a rate.
    pub(crate) fn experiment(rate: Option<f64>) -> ClusterExperiment {
        let mut experiment = ClusterExperiment::default();
        experiment.traffic.reuse_percent = vec![80.0];
        experiment.traffic.rates_per_s = rate.into_iter().collect();
        experiment
    }

    /// A record of such an experiment, finished, without blocks.
    pub(crate) fn record(experiment: ClusterExperiment) -> Record {
        let cells = experiment.cells();
        let configuration = |cell: &Cell| Configuration::setting(cell.name(&cells), true, Vec::new());
        Record {
            finished: true,
            configurations: cells.iter().map(configuration).collect(),
            kind_part: experiment.clone().into(),
            ..Record::begun_now(&experiment.question, 1)
        }
    }

    /// A block of 1000 connections that went well, of 800 offered sessions so many accepted.
    pub(crate) fn block(configuration: usize, round: u32, accepted: u64) -> Block {
        let backend = BackendUse { cpu_ns: 100_000_000, connections: 500, locality: None };
        Block {
            configuration,
            round,
            elapsed_ns: 1_000_000_000,
            hits: 1000,
            connections: 1000,
            server_cpu_ns: 200_000_000,
            handshakes_full: 1000 - accepted,
            resumed_intended: 800,
            resumed_offered: 800,
            resumed_accepted: accepted,
            valid: true,
            cluster: Some(ClusterBlock {
                dispatcher_cpu_ns: 10_000_000,
                backends: vec![backend; 2],
                ..ClusterBlock::default()
            }),
            ..Block::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{block, experiment, record};
    use super::*;
    use crate::cluster::file::{ClusterExperiment, Sharing};

    #[test]
    fn what_was_not_served_is_said() {
        let summary = |unserved| {
            let mut record = record(experiment(Some(100.0)));
            let mut behind = block(1, 0, 800);
            behind.cluster.as_mut().unwrap().unserved = unserved;
            record.blocks = vec![block(0, 0, 300), behind];
            ClusterSummary::of(&record).unwrap()
        };
        let behind = summary(2);
        assert!(behind.cells[1].fell_behind() && !behind.cells[0].fell_behind());
        let said = &behind.cells[1].measured.warnings[..];
        assert!(matches!(said, [one] if one.contains("2 of 1002 requests that were due at 100/s")), "{said:?}");
        assert_eq!(behind.cells[0].measured.warnings, [""; 0]);
        assert_eq!(summary(1).cells[1].measured.warnings, [""; 0], "one in a thousand may");
    }

    #[test]
    fn both_sides_of_a_published_ratio_have_the_first_sessions_and_addresses() {
        let mut experiment = ClusterExperiment::default();
        experiment.cluster.sessions = vec![Sharing::Own, Sharing::TicketKeys];
        experiment.traffic.behind_one_address_percent = vec![0.0, 100.0];
        experiment.traffic.clients = vec![24, 8];
        let all = experiment.cells();
        for policy in ["round-robin", "session"] {
            let cell = &all[at_largest_load(&all, &format!("{policy}, 80 % reuse")).unwrap()];
            assert_eq!((cell.policy.name(), cell.reuse_percent, cell.clients), (policy, 80.0, 24));
            assert_eq!((cell.sharing, cell.behind_one_address_percent), (Sharing::Own, 0.0));
        }
        assert_eq!(at_largest_load(&all, "nginx-hash, 80 % reuse"), None);
    }
}
