//! Each claim of a paper that a record can be held against: its numbers, ours with their interval, and what became of
//! it.

use serde::{Deserialize, Serialize};
use tlsdyno_record::model::PublishedNumber;

use super::bootstrap::Estimate;
use super::findings::ComparisonFinding;
use super::published::PublishedShare;
use super::share_ranges::ShareRange;
use super::shares::Share;
use super::statement::{Lies, Metric, Ratio};
use super::summary::Summary;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Our whole interval lies in the paper's range.
    Stands,
    Bigger,
    Smaller,
    /// Our interval reaches across an end of the paper's range, or has no end itself.
    Undecided,
    NotMeasured,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    #[serde(flatten)]
    pub estimate: Estimate,
    pub metric: Metric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Times,
    Percent,
    Milliseconds,
    Bytes,
    MbitPerS,
}

impl Unit {
    pub const fn word(self) -> &'static str {
        match self {
            Unit::Times => "times",
            Unit::Percent => "%",
            Unit::Milliseconds => "ms",
            Unit::Bytes => "B",
            Unit::MbitPerS => "Mb/s",
        }
    }

    pub fn told(self, PublishedNumber { low, high }: PublishedNumber) -> String {
        let [low, high] = [low, high].map(|end| (100.0 * end).round() / 100.0);
        if low == high { format!("{low} {}", self.word()) } else { format!("{low} to {high} {}", self.word()) }
    }
}

impl Fate {
    pub const fn word(self) -> &'static str {
        match self {
            Fate::Stands => "stands",
            Fate::Bigger => "bigger",
            Fate::Smaller => "smaller",
            Fate::Undecided => "undecided",
            Fate::NotMeasured => "not measured",
        }
    }

    pub const fn is_open(self) -> bool {
        matches!(self, Fate::Undecided | Fate::NotMeasured)
    }

    fn of(ours: Option<Ours>, range: [f64; 2]) -> Fate {
        match ours.map(|ours| Lies::new(ours.estimate.interval(), range)) {
            None => Fate::NotMeasured,
            Some(Lies::Within) => Fate::Stands,
            Some(Lies::Above) => Fate::Bigger,
            Some(Lies::Below) => Fate::Smaller,
            Some(Lies::Across) => Fate::Undecided,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub about: String,
    /// The paper's claim, in words.
    pub paper: String,
    /// The paper's claim as a range, in `unit`.
    pub range_of_unit: [f64; 2],
    pub unit: Unit,
    pub ours: Option<Ours>,
    pub fate: Fate,
}

impl Claim {
    pub fn new(about: impl Into<String>, paper: String, (range, unit): ([f64; 2], Unit), ours: Option<Ours>) -> Claim {
        let fate = Fate::of(ours, range);
        Claim { about: about.into(), paper, range_of_unit: range, unit, ours, fate }
    }

    /// As `self`, against another range that the paper gives. What was a bound stays undecided.
    #[must_use]
    pub fn beside(&self, range: [f64; 2], paper: String) -> Claim {
        let anew = Claim::new(self.about.clone(), paper, (range, self.unit), self.ours);
        let fate = if self.is_bound() { Fate::Undecided } else { anew.fate };
        Claim { fate, ..anew }
    }

    /// Our number is a bound, so that its interval decides nothing.
    fn is_bound(&self) -> bool {
        self.fate == Fate::Undecided && Fate::of(self.ours, self.range_of_unit) != Fate::Undecided
    }

    /// The fate says more than the interval allows: checks claims that were written down and read again.
    pub fn contradicts_itself(&self) -> bool {
        !self.fate.is_open() && self.fate != Fate::of(self.ours, self.range_of_unit)
    }

    pub fn published(about: impl Into<String>, number: PublishedNumber, unit: Unit, ours: Option<Ours>) -> Claim {
        Claim::new(about, unit.told(number), (number.rounded(), unit), ours)
    }

    /// The ratio of two published numbers, beside that of ours. Our interval is as wide as both together allow.
    pub fn of_two(
        about: impl Into<String>,
        published: [PublishedNumber; 2],
        ours: [Estimate; 2],
        metric: Metric,
    ) -> Claim {
        let [of, by] = published;
        let paper = Unit::Times.told(PublishedNumber { low: of.low / by.high, high: of.high / by.low });
        let ([of, by], [our, our_by]) = ([of, by].map(|number| number.rounded()), ours);
        let range = [of[0] / by[1], of[1] / by[0]];
        Claim::new(about, paper, (range, Unit::Times), Some(Ours { estimate: our.divided_by(our_by), metric }))
    }

    /// As [`Claim::of_two`] for a ratio, in the paper's words where they are known. A bound has one end only.
    pub fn of_ratio(
        about: impl Into<String>,
        paper: Option<&str>,
        range: [f64; 2],
        ours: Option<(Ratio, Metric)>,
    ) -> Claim {
        let [low, high] = range;
        let paper = paper.map_or_else(|| Unit::Times.told(PublishedNumber { low, high }), str::to_owned);
        let known = ours.map(|(of, metric)| Ours { estimate: of.estimate(), metric });
        let claim = Claim::new(about, paper, (range, Unit::Times), known);
        let fate = match (ours, claim.fate) {
            (Some((of, _)), Fate::Bigger) if of.at_most => Fate::Undecided,
            (Some((of, _)), Fate::Smaller) if of.at_least => Fate::Undecided,
            (Some((of, _)), Fate::Stands) if of.is_bound() => Fate::Undecided,
            (_, fate) => fate,
        };
        Claim { fate, ..claim }
    }
}

/// The claims that a record's experiment has numbers of, in its order: comparisons, ranges over all machines of the
/// paper, then what it prints for some of them.
pub fn claims(summary: &Summary) -> Vec<Claim> {
    let comparisons = summary.findings.comparisons.iter().filter_map(comparison);
    let ranges = &summary.findings.share_ranges;
    let has_range = |share: &str| ranges.iter().any(|of| of.above.is_none() && of.shares == [share]);
    let published = summary.published.iter();
    let shares = published.flat_map(|paper| paper.shares.iter().map(move |row| (row, paper.machines.as_slice())));
    let shares = shares.filter(|(row, _)| !has_range(&row.share));
    let shares = shares.map(|(row, machines)| of_share(row, machines, summary));
    comparisons.chain(ranges.iter().map(of_range)).chain(shares).collect()
}

fn of_range(of: &ShareRange) -> Claim {
    let [low, high] = of.published_percent;
    let ours = of.percent.map(|estimate| Ours { estimate, metric: of.metric });
    // A difference has no digits of the paper: its range is as it is written.
    let range = if of.above.is_some() { of.published_percent } else { PublishedNumber { low, high }.rounded() };
    Claim::new(&of.question, of.paper.clone(), (range, Unit::Percent), ours)
}

fn comparison(of: &ComparisonFinding) -> Option<Claim> {
    let range = of.published_times?;
    // Where something else than the server limited hits per second, CPU per hit is what is known.
    let ours = match (of.ratio, of.by_cpu) {
        (Some(ratio), Some(by_cpu)) if ratio.is_bound() => Some((by_cpu, Metric::Cpu)),
        (ratio, _) => ratio.map(|ratio| (ratio, Metric::Throughput)),
    };
    Some(Claim::of_ratio(&of.question, of.paper.as_deref(), range, ours))
}

fn of_share(row: &PublishedShare, machines: &[String], summary: &Summary) -> Claim {
    let of = |metric| summary.shares.by(metric).find(|share| share.stage == row.share);
    let known = |share: &&Share| share.estimate().has_interval() && !share.bound;
    let share = Metric::ALL.into_iter().find_map(|metric| of(metric).filter(known));
    let ours = share.map(|of| Ours { estimate: of.estimate(), metric: of.metric });
    let number = row.number();
    let whole = PublishedNumber { low: number.low.round(), high: number.high.round() };
    let known = row.percent.iter().zip(machines).filter(|(percent, _)| percent.is_known());
    let known: Vec<&str> = known.map(|(_, machine)| machine.as_str()).collect();
    let claim = Claim::published(format!("share of {}", row.share), number, Unit::Percent, ours);
    Claim { paper: format!("{} ({})", Unit::Percent.told(whole), known.join(", ")), ..claim }
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
        // Another range of the same number: a bound stays one.
        assert_eq!(bound.beside([1.0, 1.4], String::new()).fate, Fate::Undecided);
        let whole = comparison(&found(1.2, 1.1, 1.3, false)).unwrap();
        assert_eq!(whole.beside([1.0, 1.4], String::new()).fate, Fate::Stands);
        assert!(!whole.contradicts_itself() && Claim { fate: Fate::Stands, ..whole.clone() }.contradicts_itself());
        let unknown = Claim { ours: None, fate: Fate::Stands, ..whole };
        assert!(unknown.contradicts_itself(), "no verdict without a number");
    }
}
