//! An array of proxies in numbers: throughput over percent reuse for each number of proxies, their half serving points,
//! and the model `T = min(P, N / ((1 − r) H + e))` (Mraz, Witting and Dantzig 2002).

use anyhow::Result;
use serde::Serialize;
use tlsdyno_base::units::format_tenths;
use tlsdyno_record::model::{Paper, PublishedNumber, Quantity};
use tlsdyno_record::store::{Block, Record, Warning};
use tlsdyno_stats::bootstrap::estimate_column;
use tlsdyno_stats::reuse::{Costs, Fit, HalfServingPoint, Limit, Point, Theory};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::scoreboard::{Claim, Ours, Unit};
use tlsdyno_stats::summary::few_rounds;
use tlsdyno_stats::{Estimate, Metric, Ratio};

use crate::array::file::{ArrayExperiment, ArrayPlace, PLAIN_HTTP, PageCost, Spread};
use crate::array::{ArrayRecord, PageScale};

/// What a resource is used from this part on is the bottleneck.
const BUSY_MIN: f64 = 0.85;
/// Where more than this part of the plain throughput is reached, the transaction server is part of the bottleneck, and
/// the point says nothing of what handshakes cost.
const FIT_BELOW: f64 = 0.8;

#[derive(Clone, Debug, Serialize)]
pub struct ArraySummary {
    #[serde(skip)]
    pub experiment: ArrayExperiment,
    pub scale: PageScale,
    /// Plain HTTP without proxies.
    pub plain: Option<Limit>,
    #[serde(skip)]
    pub plain_bound_by: Option<Bound>,
    /// Lines, in the order of the experiment.
    pub lines: Vec<ArrayLine>,
    /// What proxies cost, for each way of spreading clients.
    pub models: Vec<ArrayModel>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    #[serde(skip)]
    pub rounds: u32,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// Throughput over reuse with one number of proxies and one way of spreading clients.
#[derive(Clone, Debug, Serialize)]
pub struct ArrayLine {
    pub name: String,
    /// Proxies; 0: the server ends TLS itself.
    pub proxies: u32,
    pub spread: Spread,
    /// What was measured, by ascending reuse.
    pub levels: Vec<ArrayLevel>,
    /// Where half of plain HTTP is reached; `null` without plain HTTP.
    pub half_serving_point: Option<HalfServingPoint>,
    /// Reuse from which the model lets them serve all that plain HTTP does, per cent; `null`: none.
    pub all_from_percent: Option<Estimate>,
    /// The closed form of Mraz et al. 2002, section 3, which is of a server without proxies; `null` with them.
    pub theory: Option<Theory>,
}

/// One level of reuse of a line.
#[derive(Clone, Debug, Serialize)]
pub struct ArrayLevel {
    pub asked_percent: f64,
    /// Reuse by the counts of handshakes, of requests or of connections.
    pub achieved_percent: f64,
    /// Sessions that were accepted, of those offered again; `null`: none were.
    pub accepted_percent_of_offered: Option<Estimate>,
    pub hits_per_second: Estimate,
    /// Pages a second by the fitted costs.
    pub by_costs_hits_per_second: Option<f64>,
    pub full_per_second: f64,
    /// CPU time of the machines that end TLS, of what they may use, per cent.
    pub busy_percent: f64,
    /// CPU time of the fullest machine that ends TLS, of what it may use, per cent.
    pub fullest_percent: f64,
    /// CPU time of the machines that end TLS for a page with its part of handshakes, nanoseconds.
    pub cpu_ns_per_hit: Estimate,
    /// CPU time of the dispatcher for a page, nanoseconds.
    pub dispatcher_cpu_ns_per_hit: Estimate,
    /// CPU time of the transaction server behind proxies for a page, nanoseconds.
    pub server_cpu_ns_per_hit: f64,
    /// CPU time of proxies and dispatcher by that with the experiment's first spread at the same place; `null` for that
    /// one.
    pub cpu_times: Option<Ratio>,
    pub bound_by: Bound,
}

impl ArrayLevel {
    /// CPU time of proxies and dispatcher for a page, nanoseconds.
    pub fn whole_cpu_ns_per_hit(&self) -> f64 {
        self.cpu_ns_per_hit.value + self.dispatcher_cpu_ns_per_hit.value
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The CPU time of the machines that end TLS.
    Machines,
    /// The pages that the transaction server makes one after the other.
    Pages,
    /// The load, or the dispatcher beside it.
    Client,
    /// Nobody was busy all the time: too few clients.
    Nobody,
}

/// What machines cost, fitted to all lines of a spread with proxies, or to the server alone.
#[derive(Clone, Debug, Serialize)]
pub struct ArrayModel {
    pub spread: Spread,
    /// The server alone, not the proxies.
    pub is_of_server: bool,
    /// Costs of a full handshake (H) and of a request with everything else (e), in the form of Mraz et al. 2002.
    #[serde(flatten)]
    pub costs: Costs,
}

impl ArrayModel {
    fn is_of(&self, proxies: u32, spread: Spread) -> bool {
        self.is_of_server == (proxies == 0) && self.spread == spread
    }
}

struct MeasuredPlace {
    index: usize,
    place: ArrayPlace,
    point: Point,
}

impl ArraySummary {
    pub fn of(record: &Record) -> Result<ArraySummary> {
        let ArrayRecord { experiment, scale } = record.kind_part.understood::<ArrayRecord>()?.clone();
        let rounds = Rounds::of(record);
        let (places, by) = (experiment.places(), experiment.array.by);
        let measured = |(index, place): (usize, &ArrayPlace)| {
            Some(MeasuredPlace { index, place: *place, point: Point::of(&rounds, index, by)? })
        };
        let all: Vec<MeasuredPlace> = places.iter().enumerate().filter_map(measured).collect();
        let plain = all.iter().find(|one| one.place.percent.is_none());
        let levels = Levels { rounds: &rounds, experiment: &experiment, places: &places, scale };
        let mut summary = ArraySummary {
            plain: plain.map(|plain| Limit::of(&plain.point)),
            plain_bound_by: plain.map(|plain| levels.of(plain).bound_by),
            lines: Vec::new(),
            models: Vec::new(),
            claims: Vec::new(),
            rounds: rounds.measured(),
            warnings: record.warnings.iter().cloned().chain(few_rounds(record, rounds.measured())).collect(),
            scale,
            experiment: experiment.clone(),
        };
        for place in places.iter().filter(|place| place.percent.is_some()) {
            let (proxies, spread) = (place.proxies, place.spread);
            if summary.lines.iter().all(|line| (line.proxies, line.spread) != (proxies, spread)) {
                summary.add_line(&levels, &all, plain.map(|plain| &plain.point), proxies, spread);
            }
        }
        summary.claims = experiment.paper.iter().flat_map(|paper| summary.beside(paper)).collect();
        Ok(summary)
    }

    /// The paper's half serving points beside ours by straight lines, as a figure is read, and its hits per second, as
    /// parts of plain HTTP's.
    fn beside(&self, paper: &Paper) -> Vec<Claim> {
        let line = |name: &str| self.lines.iter().find(|line| line.name == name);
        let ours = |estimate| Ours { estimate, metric: Metric::Throughput };
        let half = paper.all(Quantity::HalfServingPercent).map(|(name, _, number)| {
            let half = line(name).and_then(|line| line.half_serving_point.as_ref());
            let found = half.and_then(|half| half.percent_by_lines.or(half.percent_by_costs)).map(ours);
            Claim::published(format!("half serving point, {name}"), number, Unit::Percent, found)
        });
        let plain = paper.first(Quantity::HitsPerS, PLAIN_HTTP).map_or(f64::NAN, |plain| plain.mean());
        let of_plain = |number: PublishedNumber| {
            let [low, high] = number.rounded().map(|end| 100.0 * end / plain);
            (format!("{} %", format_tenths(100.0 * number.mean() / plain)), ([low, high], Unit::Percent))
        };
        let points = paper.all(Quantity::HitsPerS).filter(|(name, ..)| *name != PLAIN_HTTP);
        let points = points.map(|(name, at, number)| {
            let near = |level: &&ArrayLevel| reuse_of(at).is_some_and(|at| (level.asked_percent - at).abs() < 0.5);
            let level = line(name).and_then(|line| line.levels.iter().rfind(near));
            let limit = self.plain.as_ref().map(|plain| plain.hits_per_second.value);
            let found = level.zip(limit).map(|(level, limit)| ours(level.hits_per_second.scaled(100.0 / limit)));
            let (words, range) = of_plain(number);
            Claim::new(format!("{name} at {at}, of plain HTTP"), words, range, found)
        });
        half.chain(points).collect()
    }

    /// Adds the line of so many proxies, and its model, where there is none yet.
    fn add_line(&mut self, of: &Levels, all: &[MeasuredPlace], plain: Option<&Point>, proxies: u32, spread: Spread) {
        let with_tls = || all.iter().filter(|one| one.place.percent.is_some() && one.place.spread == spread);
        let members: Vec<&MeasuredPlace> = with_tls().filter(|one| one.place.proxies == proxies).collect();
        let points: Vec<&Point> = members.iter().map(|one| &one.point).collect();
        // Where nobody was busy all the time, waiting would pass for a cost.
        let is_bound = |one: &&MeasuredPlace| of.of(one).bound_by != Bound::Nobody;
        let of_model = with_tls().filter(|one| (one.place.proxies == 0) == (proxies == 0)).filter(is_bound);
        let of_model = of_model.map(|one| (machines(one.place.proxies), &one.point)).collect();
        let fit = Fit::of(of_model, plain, FIT_BELOW);
        if plain.is_some() && !self.models.iter().any(|model| model.is_of(proxies, spread)) {
            let is_of_server = proxies == 0;
            self.models.extend(fit.costs().map(|costs| ArrayModel { spread, is_of_server, costs }));
        }
        let model = self.models.iter().find(|model| model.is_of(proxies, spread));
        let mut levels: Vec<ArrayLevel> = members.iter().map(|one| of.of(one)).collect();
        let machines = machines(proxies);
        if let (Some(model), Some(plain)) = (model, plain) {
            for level in &mut levels {
                let hits = model.costs.hits_per_second(plain.mean(), machines, level.achieved_percent);
                level.by_costs_hits_per_second = Some(hits);
            }
        }
        let plain = plain.filter(|_| !members.is_empty());
        let is_faster = |level: &ArrayLevel| {
            let limit = plain.map_or(f64::INFINITY, Point::mean);
            level.bound_by == Bound::Client && level.hits_per_second.value > limit
        };
        let has_limit = !levels.iter().any(is_faster);
        self.lines.push(ArrayLine {
            name: self.experiment.line_name(proxies, spread),
            proxies,
            spread,
            half_serving_point: plain.map(|plain| HalfServingPoint::of(&points, machines, plain, &fit, has_limit)),
            all_from_percent: plain.and_then(|_| fit.reuse_for(1.0, machines)),
            theory: plain.filter(|_| proxies == 0).and_then(|plain| Theory::of(&points, plain)),
            levels,
        });
    }

    /// Pages a second that the transaction server makes by its own cost, and the machine has the time for.
    pub fn pages_per_second(&self) -> f64 {
        let page_s = self.scale.transaction_ns as f64 / 1e9;
        match self.experiment.array.transaction_cost {
            PageCost::Wait => 1.0 / page_s,
            PageCost::Cpu => self.experiment.array.machine_cpus / page_s,
        }
    }
}

fn machines(proxies: u32) -> f64 {
    f64::from(proxies.max(1))
}

struct Levels<'a> {
    rounds: &'a Rounds<'a>,
    experiment: &'a ArrayExperiment,
    places: &'a [ArrayPlace],
    scale: PageScale,
}

impl Levels<'_> {
    fn of(&self, one: &MeasuredPlace) -> ArrayLevel {
        let (array, place) = (&self.experiment.array, one.place);
        let sum = |of: &dyn Fn(&Block) -> u64| self.rounds.of_configuration(one.index).map(of).sum::<u64>() as f64;
        let (hits, elapsed_ns) = (sum(&|block| block.hits), sum(&|block| block.elapsed_ns));
        let may_use_ns = elapsed_ns * array.machine_cpus;
        let busy = sum(&|block| block.server_cpu_ns) / may_use_ns / machines(place.proxies);
        let pages = hits * self.scale.transaction_ns as f64 / elapsed_ns;
        let bound_by = if busy >= BUSY_MIN {
            Bound::Machines
        } else if array.transaction_cost == PageCost::Wait && pages >= BUSY_MIN {
            Bound::Pages
        } else if one.point.client_bound {
            Bound::Client
        } else {
            Bound::Nobody
        };
        let fullest_ns = |block: &Block| {
            let machines = block.cluster.iter().flat_map(|parts| &parts.backends);
            machines.map(|machine| machine.cpu_ns).max().unwrap_or(0)
        };
        let each = |value: fn(&Block) -> f64| {
            estimate_column(
                &self.rounds.values(one.index, |block| Some(value(block)).filter(|value| value.is_finite())),
            )
        };
        let accepted = |block: &Block| 100.0 * block.resumed_accepted as f64 / block.resumed_offered as f64;
        ArrayLevel {
            asked_percent: place.percent.unwrap_or(0.0),
            achieved_percent: one.point.achieved_percent,
            accepted_percent_of_offered: (sum(&|block| block.resumed_offered) > 0.0).then(|| each(accepted)),
            hits_per_second: one.point.hits_per_second(),
            by_costs_hits_per_second: None,
            full_per_second: sum(&|block| block.handshakes_full) * 1e9 / elapsed_ns,
            busy_percent: 100.0 * busy,
            fullest_percent: 100.0 * sum(&fullest_ns) / may_use_ns,
            cpu_ns_per_hit: each(|block| block.server_cpu_ns as f64 / block.hits as f64),
            dispatcher_cpu_ns_per_hit: each(|block| dispatcher_cpu_ns(block) as f64 / block.hits as f64),
            server_cpu_ns_per_hit: sum(&|block| block.companion_cpu_ns) / hits,
            cpu_times: self.cpu_times(one),
            bound_by,
        }
    }

    fn cpu_times(&self, one: &MeasuredPlace) -> Option<Ratio> {
        let first = ArrayPlace { spread: *self.experiment.array.spread.first()?, ..one.place };
        let by = self.places.iter().position(|place| *place == first).filter(|by| *by != one.index)?;
        let whole = |block: &Block| Some((block.server_cpu_ns + dispatcher_cpu_ns(block)) as f64 / block.hits as f64);
        let [by, of] = [by, one.index].map(|index| self.rounds.values(index, whole));
        Ratio::of_columns(&by, &of)
    }
}

/// The percent reuse that a column of a paper's numbers is of: `75 % reuse`.
pub fn reuse_of(column: &str) -> Option<f64> {
    column.strip_suffix(" % reuse")?.parse().ok()
}

fn dispatcher_cpu_ns(block: &Block) -> u64 {
    block.cluster.as_ref().map_or(0, |parts| parts.dispatcher_cpu_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::file::Array;
    use crate::array::page;
    use tlsdyno_record::store::{ClusterBlock, Configuration, KindPart};
    use tlsdyno_runner::kinds::AnySummary;
    use tlsdyno_runner::report::render::terminal::{self, Style};
    use tlsdyno_stats::reuse::ReuseAxis;

    /// Plain HTTP, own keys, shared keys, dispatcher, in so many rounds of 4 s.
    fn record(rounds: u32) -> Record {
        let experiment = ArrayExperiment {
            array: Array {
                proxies: vec![3],
                by: ReuseAxis::Connections,
                levels_percent: vec![80.0],
                spread: vec![Spread::RoundRobin, Spread::SharedKeys, Spread::Dispatcher],
                ..Array::default()
            },
            ..ArrayExperiment::default()
        };
        let mut record = Record::begun_now("q?", 1);
        let places = experiment.places();
        record.configurations = places
            .iter()
            .map(|place| Configuration::setting(experiment.name(place), place.percent.is_some(), Vec::new()))
            .collect();
        let scale = PageScale { transaction_ns: 300_000, full_handshake_cpu_ns: 0 };
        record.kind_part = KindPart::from(ArrayRecord { experiment, scale });
        // Plain HTTP, own keys, shared keys, dispatcher: CPU time of the proxies and the dispatcher, sessions accepted.
        let each = [(100, 0, 0, 0), (900, 0, 800, 270), (500, 0, 800, 800), (500, 50, 800, 796)];
        for (configuration, (proxy_us, dispatcher_us, offered, accepted)) in each.into_iter().enumerate() {
            record.blocks.extend((0..rounds).map(|round| Block {
                round,
                configuration,
                started_ns: (u64::from(round) * 4 + configuration as u64) * 1_000_000_000,
                hits: 1_000,
                elapsed_ns: 1_000_000_000,
                server_cpu_ns: proxy_us * 1_000_000,
                handshakes_full: 1_000 - accepted,
                resumed_offered: offered,
                resumed_accepted: accepted,
                valid: true,
                cluster: Some(ClusterBlock { dispatcher_cpu_ns: dispatcher_us * 1_000_000, ..ClusterBlock::default() }),
                ..Block::default()
            }));
        }
        record
    }

    #[test]
    fn what_no_interval_is_known_of_is_undecided_with_the_time_that_it_takes() {
        let few = record(1);
        let summary = ArraySummary::of(&few).unwrap();
        let printed = terminal::text(&page::document(&few, &summary), Style::PLAIN);
        assert!(
            page::answer(&summary).contains("accept an undecided part with") && !printed.contains("[–]"),
            "{printed}"
        );
        assert!(printed.contains("--time 30 or more"), "{printed}");
        assert!(summary.json(&few).contains("--time 30 or more"));
        let enough = record(6);
        let summary = ArraySummary::of(&enough).unwrap();
        let answer = page::answer(&summary);
        assert!(summary.warnings.is_empty() && answer.contains(" with shared-keys ("), "{answer}");
        assert!(answer.contains("of it the dispatcher's"), "{answer}");
    }

    /// Levels may begin above 0 %, or be left out up to there.
    #[test]
    fn below_the_lowest_level_nothing_is_known_of_half() {
        let line = |rounds| ArraySummary::of(&record(rounds)).unwrap().lines.remove(1);
        assert_eq!(page::at_first(500.0, &line(6)), "at 80.0 % already, the lowest level");
        assert_eq!([page::at_first(500.0, &line(1)), page::at_first(5000.0, &line(6))], ["at an undecided reuse"; 2]);
        let mut from_none = line(6);
        from_none.levels[0].asked_percent = 0.0;
        assert_eq!(page::at_first(500.0, &from_none), "at any reuse");
    }

    #[test]
    fn what_is_accepted_and_what_it_costs_stand_beside_each_other() {
        let found = ArraySummary::of(&record(6)).unwrap();
        let levels: Vec<&ArrayLevel> = found.lines.iter().flat_map(|line| &line.levels).collect();
        let accepted: Vec<f64> = levels.iter().map(|at| at.accepted_percent_of_offered.unwrap().value).collect();
        assert_eq!(accepted, [33.75, 100.0, 99.5]);
        let times: Vec<Option<f64>> = levels.iter().map(|at| at.cpu_times.map(|ratio| ratio.times)).collect();
        assert!(times[0].is_none() && (times[1].unwrap() - 5.0 / 9.0).abs() < 1e-9, "{times:?}");
        assert!((times[2].unwrap() - 5.5 / 9.0).abs() < 1e-9 && levels[2].whole_cpu_ns_per_hit() == 550_000.0);
    }
}
