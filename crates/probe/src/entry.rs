//! What the store gets: a round that was made, or rounds that were not.

use serde::{Deserialize, Serialize};

use super::round::Round;

/// A line of the spool and a row of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The robot that made it, from its start to its end.
    pub run: String,
    /// Number of the round at its site in this run; with the site and the run it is unique.
    pub number: u64,
    /// So many rounds were not made, the first of them with this number (the machine slept, or a round before took too
    /// long). Of `round` only site and time mean anything then.
    pub missed_count: Option<u64>,
    /// It was made by a command of its own, not by a robot that counts: its number says nothing about others.
    #[serde(default)]
    pub is_alone: bool,
    pub round: Round,
}

impl Entry {
    pub fn made(run: &str, number: u64, round: Round) -> Entry {
        Entry { run: run.to_owned(), number, missed_count: None, is_alone: false, round }
    }

    /// A round of a command that makes no other.
    pub fn alone(run: &str, number: u64, round: Round) -> Entry {
        Entry { is_alone: true, ..Entry::made(run, number, round) }
    }

    /// Rounds that were not made, noticed at that time.
    pub fn missed(run: &str, number: u64, count: u64, series: &str, noticed_unix_us: i64) -> Entry {
        let (site, vantage) = Round::of_series(series);
        let (site, vantage) = (site.to_owned(), vantage.to_owned());
        let round = Round { site, vantage, started_unix_us: noticed_unix_us, ..Round::default() };
        Entry { run: run.to_owned(), number, missed_count: Some(count), is_alone: false, round }
    }

    /// The last number that it tells of.
    pub fn last_number(&self) -> u64 {
        self.number + self.missed_count.map_or(0, |missed| missed.max(1) - 1)
    }
}
