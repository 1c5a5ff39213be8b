//! Each claim of a paper that a record can be held against: its numbers, ours with their interval, and what became of
//! it.

use serde::{Deserialize, Serialize};
use tlsdyno_record::model::PublishedNumber;

use super::bootstrap::Estimate;
use super::statement::{Lies, Metric, Ratio};

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
