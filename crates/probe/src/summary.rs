//! What the rounds of a site come to: Goldberg's numbers, each with an interval.

use std::collections::BTreeMap;
use std::thread::ScopedJoinHandle;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};
use tlsdyno_base::bootstrap::{Estimate, SEED, resample};

use super::buckets::Bucket;
use super::fault::FaultKind;
use super::measures::{Measure, Measures};
use super::round::Facts;
use super::store::{By, Hour, Store, Tally};

/// Resamples for an interval.
const RESAMPLES: usize = 200;
/// Blocks of rounds that follow each other, which are resampled whole: what is near in time is alike, and single rounds
/// would make intervals too narrow.
const BLOCKS_MAX: usize = 30;
/// With fewer blocks there is no interval.
const BLOCKS_MIN: usize = 5;
/// With fewer hours, blocks are made of rounds.
const HOURS_MIN: usize = 10;

#[derive(Clone, Debug, Serialize)]
pub struct SiteSummary {
    pub site: String,
    /// First and last hour, in seconds since 1970.
    pub hours_unix_s: Option<(i64, i64)>,
    #[serde(flatten)]
    pub tally: Tally,
    pub faults: BTreeMap<FaultKind, u64>,
    /// Share of offered sessions that the site took, in percent, with its interval (Wilson).
    pub accepted_percent: Option<Estimate>,
    /// What became of sessions of earlier rounds, by how old they were.
    pub kept: Vec<KeptShare>,
    /// The facts at the end.
    pub facts: Facts,
    /// Hours in which facts differ from the time before: when, and what.
    pub changes: Vec<Change>,
    pub numbers: BTreeMap<&'static str, Estimate>,
    /// What `hours` are: hours, or days where those would be too many.
    pub by: By,
    /// The hours, for charts: of their times [`SHOWN_BY_HOUR`] only.
    #[serde(skip)]
    pub hours: Vec<Hour>,
    /// The times of all hours together.
    #[serde(skip)]
    pub measures: Measures,
}

/// Sessions that were kept and offered when they were at least that old.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KeptShare {
    pub age_s: u32,
    pub offered_count: u64,
    /// How many the site took.
    pub accepted_count: u64,
    /// Their share in percent, with its interval (Wilson).
    pub percent: Option<Estimate>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The hour, in seconds since 1970.
    pub hour_unix_s: i64,
    pub what: String,
    pub from: String,
    pub to: String,
}

/// Measures that tables and charts show by the hour or day.
pub const SHOWN_BY_HOUR: [Measure; 4] = [Measure::Tcp, Measure::Full, Measure::Resumed, Measure::FullWhole];

/// Number of measures whose medians the numbers are made of.
const MEDIANS: [Measure; 6] =
    [Measure::Tcp, Measure::Full, Measure::Resumed, Measure::FullWhole, Measure::Without, Measure::With];

/// The numbers of a site from the medians of [`MEDIANS`], in nanoseconds or percent. Goldberg's arithmetic on T, S,
/// resumed S and H: W = T + S + H, C = T + resumed S + H, and (W − C)/W.
fn numbers([tcp, full, resumed, whole, without, with]: [f64; 6]) -> [(&'static str, f64); 12] {
    let (sum_without, sum_with) = (tcp + full + whole, tcp + resumed + whole);
    let saved_percent = |without: f64, with: f64| 100.0 * (without - with) / without;
    [
        ("tcp_ns", tcp),
        ("full_ns", full),
        ("resumed_ns", resumed),
        ("handshake_saved_ns", full - resumed),
        ("handshake_saved_percent", saved_percent(full, resumed)),
        ("whole_ns", whole),
        ("sum_of_medians_without_ns", sum_without),
        ("sum_of_medians_with_ns", sum_with),
        ("sum_of_medians_saved_percent", saved_percent(sum_without, sum_with)),
        ("median_of_sums_without_ns", without),
        ("median_of_sums_with_ns", with),
        ("median_of_sums_saved_percent", saved_percent(without, with)),
    ]
}

impl SiteSummary {
    /// Of the rounds of these sites (numbers and names) in this time (microseconds since 1970). One is summed up while
    /// the next is read.
    pub fn read(store: &mut Store, sites: &[(i64, String)], range_us: (i64, i64), by: By) -> Result<Vec<SiteSummary>> {
        std::thread::scope(|scope| {
            let (mut summaries, mut under_way) = (Vec::with_capacity(sites.len()), None);
            let joined = |handle: ScopedJoinHandle<'_, SiteSummary>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            for (site, name) in sites {
                let hours = match by {
                    By::Hour => store.hours(*site, range_us)?,
                    By::Day => store.days(*site, range_us)?,
                };
                let single = match by == By::Hour && hours.len() < HOURS_MIN {
                    true => store.each_round(*site, range_us)?,
                    false => Vec::new(),
                };
                let next = scope.spawn(move || SiteSummary { by, ..SiteSummary::of(name, hours, single) });
                summaries.extend(under_way.replace(next).map(joined));
            }
            summaries.extend(under_way.map(joined));
            Ok(summaries)
        })
    }

    /// Of hours; `single` are the rounds alone, where they are at hand.
    pub fn of(name: &str, mut hours: Vec<Hour>, single: Vec<Hour>) -> SiteSummary {
        let mut all = Hour::default();
        hours.iter().for_each(|hour| all.merge_counts(hour));
        let units = if single.is_empty() { &hours } else { &single };
        let blocks = blocks(units);
        // The others are needed as sums only: a year of ten sites would take 300 MB.
        hours.iter_mut().for_each(|hour| hour.measures.keep(&SHOWN_BY_HOUR));
        SiteSummary {
            site: name.to_owned(),
            hours_unix_s: hours.first().zip(hours.last()).map(|(first, last)| (first.hour_unix_s, last.hour_unix_s)),
            tally: all.tally,
            faults: all.faults,
            accepted_percent: wilson(all.tally.accepted_count, all.tally.offered_count),
            kept: all.kept.iter().map(|(age_s, counts)| KeptShare::of(*age_s, *counts)).collect(),
            changes: changes(&all.facts),
            facts: all.facts.pop().map(|(_, facts)| facts).unwrap_or_default(),
            numbers: estimates(&blocks),
            measures: Measures::sum(blocks.iter()),
            by: By::Hour,
            hours,
        }
    }

    pub fn number(&self, name: &str) -> Option<Estimate> {
        self.numbers.get(name).copied().filter(|estimate| estimate.value.is_finite())
    }
}

impl KeptShare {
    fn of(age_s: u32, (offered_count, accepted_count): (u64, u64)) -> KeptShare {
        KeptShare { age_s, offered_count, accepted_count, percent: wilson(accepted_count, offered_count) }
    }
}

/// A share with its 95 % interval (Wilson 1927), in percent.
fn wilson(part: u64, whole: u64) -> Option<Estimate> {
    if whole == 0 {
        return None;
    }
    const Z: f64 = 1.959_963_984_540_054;
    let (n, p) = (whole as f64, part as f64 / whole as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let percent = |share: f64| 100.0 * share.clamp(0.0, 1.0);
    Some(Estimate { value: percent(p), low: percent(middle - half), high: percent(middle + half) })
}

/// What became another, of facts each of which differs from the one before.
fn changes(facts: &[(i64, Facts)]) -> Vec<Change> {
    let fields = |facts: &Facts| match serde_json::to_value(facts) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut changes = Vec::new();
    for pair in facts.windows(2) {
        let (before, hour_unix_s) = (fields(&pair[0].1), pair[1].0);
        let changed = fields(&pair[1].1).into_iter().filter(|(what, to)| before[what] != *to);
        changes.extend(changed.map(|(what, to)| Change {
            hour_unix_s,
            from: text(&before[&what]),
            to: text(&to),
            what,
        }));
    }
    changes
}

/// A measure's values in order, and how many of each block are not above each of them.
struct Column {
    values: Vec<Bucket>,
    blocks: Vec<Vec<u64>>,
}

impl Column {
    /// `blocks` are sums, so that their values ascend.
    fn of(measure: Measure, blocks: &[&Measures]) -> Column {
        let all = Measures::added(measure, blocks.iter().copied());
        let values: Vec<Bucket> = all.into_iter().map(|(value, _)| value).collect();
        let up_to = |block: &&Measures| {
            let (mut rest, mut sum) = (block.counts(measure).iter().peekable(), 0);
            let mut up_to = |value: &Bucket| {
                sum += rest.next_if(|(next, _)| next == value).map_or(0, |(_, count)| u64::from(*count));
                sum
            };
            values.iter().map(&mut up_to).collect()
        };
        let blocks = blocks.iter().map(up_to).collect();
        Column { values, blocks }
    }

    /// The median where each block counts so many times. Found by halving: a report has thousands of resamples.
    fn median(&self, weights: &[usize]) -> f64 {
        let up_to = |index: usize| -> u64 {
            self.blocks.iter().zip(weights).map(|(block, weight)| *weight as u64 * block[index]).sum()
        };
        let (mut low, mut high) = (0, self.values.len().saturating_sub(1));
        let total = if self.values.is_empty() { 0 } else { up_to(high) };
        while low < high {
            let half = (low + high) / 2;
            (low, high) = if 2 * up_to(half) >= total { (low, half) } else { (half + 1, high) };
        }
        if total == 0 { f64::NAN } else { self.values[low].middle() as f64 }
    }
}

/// Blocks of rounds that follow each other.
fn blocks(units: &[Hour]) -> Vec<Measures> {
    let pieces = units.chunks(units.len().div_ceil(BLOCKS_MAX).max(1));
    pieces.map(|units| Measures::sum(units.iter().map(|unit| &unit.measures))).collect()
}

/// The numbers with their intervals, by a bootstrap over blocks.
fn estimates(blocks: &[Measures]) -> BTreeMap<&'static str, Estimate> {
    // Those in which nothing was reached say nothing.
    let blocks: Vec<&Measures> = blocks.iter().filter(|block| block.count(Measure::Tcp) > 0).collect();
    let columns = MEDIANS.map(|measure| Column::of(measure, &blocks));
    let at = |weights: &[usize]| numbers(std::array::from_fn(|column| columns[column].median(weights)));
    let samples = match blocks.len() {
        BLOCKS_MIN.. => resample(blocks.len(), RESAMPLES, SEED, |weights| Some(at(weights))),
        _ => Vec::new(),
    };
    let estimate = |(index, (name, value)): (usize, (&'static str, f64))| {
        let sample = samples.iter().map(|numbers| numbers[index].1).filter(|value| value.is_finite()).collect();
        (name, Estimate::of_resamples(value, sample, blocks.len()))
    };
    at(&vec![1; blocks.len()]).into_iter().enumerate().map(estimate).collect()
}

#[cfg(test)]
mod tests {
    use tlsdyno_base::random::SplitMix64;

    use super::*;
    use crate::entry::Entry;
    use crate::round::{Resumption, Round, Visit as Times};

    /// With the least times that Goldberg et al. name (10, 40, 10 and 20 ms) 43 % is saved, with a page of four images
    /// 14 %: near the ends of their "15 to 50 %".
    #[test]
    fn the_papers_own_arithmetic() {
        let sums = |tcp, full, resumed, whole| {
            let numbers = BTreeMap::from(numbers([tcp, full, resumed, whole, 0.0, 0.0]));
            ["without_ns", "with_ns", "saved_percent"].map(|name| numbers[&*format!("sum_of_medians_{name}")].round())
        };
        assert_eq!(sums(10.0, 40.0, 10.0, 20.0), [70.0, 40.0, 43.0]);
        assert_eq!(sums(10.0, 40.0, 10.0, 4.0 * 40.0), [210.0, 180.0, 14.0]);
    }

    /// The paper's counts: 659 of 6634 handshakes were full, 5975 resumed; 40 of 6674 TCP connections had no TLS.
    #[test]
    fn the_papers_own_counts() {
        let round = |resumption| Round { resumption, tcp_ns: Some(1), ..Round::default() };
        let mut hour = Hour::default();
        let counts = [(5975, Resumption::Accepted), (659, Resumption::Rejected), (40, Resumption::Untried)];
        for (count, resumption) in counts {
            let one = Hour::of(&Entry::made("run", 0, round(resumption)));
            (0..count).for_each(|_| hour.merge(&one));
        }
        let summary = SiteSummary::of("paper", vec![hour], Vec::new());
        let tally = summary.tally;
        assert_eq!((tally.made_count, tally.offered_count, tally.accepted_count), (6674, 6634, 5975));
        let accepted = summary.accepted_percent.unwrap();
        assert_eq!(((100.0 - accepted.value) * 10.0).round(), 99.0, "9.9 % were full");
        // Wilson's formula in Python.
        assert!((accepted.low - 89.323_198).abs() < 1e-4 && (accepted.high - 90.763_078).abs() < 1e-4, "{accepted:?}");
    }

    fn hours(count: usize, seed: u64) -> Vec<Hour> {
        let mut random = SplitMix64::new(seed);
        (0..count)
            .map(|hour| {
                let mut made = Hour { hour_unix_s: 3600 * hour as i64, ..Hour::default() };
                for _ in 0..60 {
                    // A tail: one round in twenty takes ten times as long.
                    let slow = if random.below(20) == 0 { 10.0 } else { 1.0 };
                    let mut time = |ms: f64| (ms * slow * 1e6 * (0.1 * random.normal()).exp()) as u64;
                    let mut times = |handshake_ms| {
                        let (handshake_ns, whole_ns) = (time(handshake_ms), time(20.0));
                        Some(Times { handshake_ns, whole_ns, ..Times::default() })
                    };
                    let (full, resumed) = (times(40.0), times(10.0));
                    let round = Round { full, resumed, tcp_ns: Some(time(10.0)), ..Round::default() };
                    made.measures.record_round(&round);
                    made.tally.made_count += 1;
                }
                made
            })
            .collect()
    }

    #[test]
    fn known_medians_come_back_and_intervals_hold_them() {
        let truth = [("tcp_ns", 10e6), ("full_ns", 40e6), ("resumed_ns", 10e6), ("handshake_saved_percent", 75.0)];
        let mut held = 0;
        for seed in 0..20 {
            let summary = SiteSummary::of("https://a/", hours(48, seed), Vec::new());
            for (name, true_value) in truth {
                let estimate = summary.number(name).unwrap();
                assert!((estimate.value / true_value - 1.0).abs() < 0.02, "{name} {estimate:?}");
                // The tail of one in twenty moves a median by 0.065 of its spread.
                let slack = 0.01 * true_value;
                held += usize::from(estimate.low - slack <= true_value && true_value <= estimate.high + slack);
            }
            let of = |name| summary.number(name).unwrap().value;
            assert!((of("sum_of_medians_without_ns") / 70e6 - 1.0).abs() < 0.02);
            assert!((of("median_of_sums_saved_percent") - 43.0).abs() < 2.0);
        }
        assert!(held >= 76, "{held} of 80 intervals hold the truth");
    }

    #[test]
    fn few_rounds_have_no_interval_and_changes_are_told() {
        let mut two = hours(2, 1);
        let facts = |key: &str| Facts { key: key.to_owned(), ..Facts::default() };
        (two[0].facts, two[1].facts) = (vec![(0, facts("RSA 2048"))], vec![(3600, facts("P-256"))]);
        let summary = SiteSummary::of("https://a/", two, Vec::new());
        assert!(summary.number("full_ns").unwrap().low.is_infinite());
        let change = Change { hour_unix_s: 3600, what: "key".into(), from: "RSA 2048".into(), to: "P-256".into() };
        assert_eq!(summary.changes, [change]);
        assert!(SiteSummary::of("https://a/", Vec::new(), Vec::new()).number("full_ns").is_none());
    }
}
