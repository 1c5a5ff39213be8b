//! Each claim of a paper that a record can be held against: its numbers, ours with their interval, and what became of
//! it.

use serde::Serialize;

use super::findings::ComparisonFinding;
use super::statement::{Lies, Metric, Ratio};
use super::summary::Summary;
use super::{Published, Share};

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Our whole interval lies in the paper's range.
    Stands,
    /// Our whole interval lies above the paper's range.
    Bigger,
    /// Our whole interval lies below it.
    Smaller,
    /// Our interval reaches across an end of the paper's range, or has no end itself.
    Undecided,
    /// Nothing usable was measured.
    NotMeasured,
}

/// Our number with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ours {
    /// Point estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// In which cost of a hit.
    pub metric: Metric,
}

/// What a claim's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// How many times as many hits per second.
    Times,
    /// Per cent of the cost of a hit.
    Percent,
}

/// A claim of the paper, beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What it is about.
    pub about: String,
    /// What the paper says, in words.
    pub paper: String,
    /// The same as a range.
    pub range_of_unit: [f64; 2],
    /// What the numbers are.
    pub unit: Unit,
    /// `None`: not measured.
    pub ours: Option<Ours>,
    /// What became of it.
    pub fate: Fate,
}

/// The claims that a record's experiment has numbers of, in its order: comparisons, then shares.
pub fn claims(summary: &Summary) -> Vec<Claim> {
    let comparisons = summary.findings.comparisons.iter().filter_map(comparison);
    let shares = summary.published.iter().flat_map(|published| of_shares(published, summary));
    comparisons.chain(shares).collect()
}

fn comparison(of: &ComparisonFinding) -> Option<Claim> {
    let range = of.published_times?;
    let limited = |ratio: &Ratio| ratio.at_most || ratio.at_least;
    // Where something else than the server limited hits per second, CPU per hit is what is known.
    let ours = match (of.ratio, of.by_cpu) {
        (Some(ratio), Some(by_cpu)) if limited(&ratio) => Some((by_cpu, Metric::Cpu)),
        (ratio, _) => ratio.map(|ratio| (ratio, Metric::Throughput)),
    };
    let known = ours.map(|(of, metric)| Ours { value: of.times, low: of.low, high: of.high, metric });
    let fate = match ours {
        // Of a bound only one end is known.
        Some((of, _)) if limited(&of) => match fate(known, range) {
            Fate::Bigger if !of.at_most => Fate::Bigger,
            Fate::Smaller if !of.at_least => Fate::Smaller,
            _ => Fate::Undecided,
        },
        _ => fate(known, range),
    };
    let paper = of.paper.clone().unwrap_or_else(|| format!("{} to {} times", range[0], range[1]));
    Some(Claim { about: of.question.clone(), paper, range_of_unit: range, unit: Unit::Times, ours: known, fate })
}

fn of_shares(published: &Published, summary: &Summary) -> Vec<Claim> {
    let claim = |row: &super::published::PublishedShare| {
        let numbers = || row.percent.iter().copied().filter(|number| number.is_finite());
        let (low, high) =
            numbers().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        // Printed to a whole per cent.
        let range = [low - 0.5, high + 0.5];
        let of = |metric| summary.shares.by(metric).find(|share| share.stage == row.share);
        let known = |share: &Share| share.low.is_finite() && share.high.is_finite() && !share.bound;
        let share = Metric::ALL.into_iter().find_map(|metric| of(metric).filter(|share| known(share)));
        let ours = share.map(|of| Ours { value: of.percent, low: of.low, high: of.high, metric: of.metric });
        let paper = if low == high { format!("{low:.0} %") } else { format!("{low:.0} to {high:.0} %") };
        let about = format!("share of {}", row.share);
        Claim { about, paper, range_of_unit: range, unit: Unit::Percent, ours, fate: fate(ours, range) }
    };
    published.shares.iter().map(claim).collect()
}

fn fate(ours: Option<Ours>, range: [f64; 2]) -> Fate {
    let Some(ours) = ours else { return Fate::NotMeasured };
    match Lies::of([ours.low, ours.high], range) {
        Lies::Within => Fate::Stands,
        Lies::Above => Fate::Bigger,
        Lies::Below => Fate::Smaller,
        Lies::Across => Fate::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(times: f64, low: f64, high: f64, at_least: bool) -> ComparisonFinding {
        let direction = super::super::Direction::Undecided;
        let ratio = Ratio { times, low, high, direction, at_most: false, at_least };
        ComparisonFinding {
            question: "?".to_owned(),
            a: "a".to_owned(),
            b: "b".to_owned(),
            ratio: Some(ratio),
            by_cpu: None,
            decided_by: None,
            of_builds: false,
            paper: None,
            published_times: Some([1.46, 2.11]),
        }
    }

    #[test]
    fn a_claim_stands_where_our_interval_lies_in_its_range() {
        let fate = |times, low, high| comparison(&found(times, low, high, false)).unwrap().fate;
        assert_eq!(fate(1.7, 1.5, 1.9), Fate::Stands);
        assert_eq!(fate(1.5, 1.3, 1.7), Fate::Undecided);
        assert_eq!(fate(1.7, f64::NEG_INFINITY, f64::INFINITY), Fate::Undecided);
        // Yes or no: more than once as many.
        let yes = ComparisonFinding { published_times: Some([1.0, 10.0]), ..found(1.01, 0.99, 1.03, false) };
        assert_eq!(comparison(&yes).unwrap().fate, Fate::Undecided);
        let yes = ComparisonFinding { published_times: Some([1.0, 10.0]), ..found(1.02, 1.01, 1.03, false) };
        assert_eq!(comparison(&yes).unwrap().fate, Fate::Stands);
        assert_eq!(fate(2.5, 2.2, 2.8), Fate::Bigger);
        assert_eq!(fate(2.5, 2.0, 3.0), Fate::Undecided);
        assert_eq!(fate(1.2, 1.1, 1.3), Fate::Smaller);
        let bound = comparison(&found(1.2, 1.1, 1.3, true)).unwrap();
        assert_eq!((bound.fate, bound.paper.as_str()), (Fate::Undecided, "1.46 to 2.11 times"));
        let without = ComparisonFinding { ratio: None, ..found(1.0, 1.0, 1.0, false) };
        assert_eq!(comparison(&without).unwrap().fate, Fate::NotMeasured);
        assert!(comparison(&ComparisonFinding { published_times: None, ..without }).is_none());
    }
}
