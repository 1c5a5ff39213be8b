//! How many rounds there were, and what became of them.

use std::array;

use serde::Serialize;

use super::database::{Column, Value, count};
use crate::entry::Entry;
use crate::round::Resumption;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub made_count: u64,
    pub missed_count: u64,
    /// Rounds that were made in which something went wrong.
    pub fault_count: u64,
    /// Sessions that were offered within their round.
    pub offered_count: u64,
    /// Sessions that were offered within their round and that the site took.
    pub accepted_count: u64,
}

impl Tally {
    pub(super) const COLUMNS: [&str; 5] =
        ["made_count", "missed_count", "fault_count", "offered_count", "accepted_count"];

    pub fn of(entry: &Entry) -> Tally {
        let round = &entry.round;
        Tally {
            made_count: u64::from(entry.missed_count.is_none()),
            missed_count: entry.missed_count.unwrap_or(0),
            fault_count: u64::from(round.fault.is_some()),
            offered_count: u64::from(round.resumption.is_offered()),
            accepted_count: u64::from(round.resumption == Resumption::Accepted),
        }
    }

    pub fn add(&mut self, other: Tally) {
        let (mine, others) = (self.counts(), other.counts());
        *self = Tally::of_counts(array::from_fn(|column| mine[column] + others[column]));
    }

    /// In the order of the columns.
    fn counts(self) -> [u64; 5] {
        [self.made_count, self.missed_count, self.fault_count, self.offered_count, self.accepted_count]
    }

    fn of_counts([made_count, missed_count, fault_count, offered_count, accepted_count]: [u64; 5]) -> Tally {
        Tally { made_count, missed_count, fault_count, offered_count, accepted_count }
    }

    pub(super) fn values(self) -> [Value; 5] {
        self.counts().map(count)
    }

    pub(super) fn of_row(columns: &[Value]) -> Tally {
        Tally::of_counts(array::from_fn(|column| columns[column].unsigned().unwrap_or(0)))
    }
}
