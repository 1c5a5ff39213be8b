//! The minute of a log with the most requests.

use std::collections::BTreeMap;

use super::DISORDER_S;

/// Requests of the minutes that lines may still come of, and the most that any minute had.
#[derive(Debug, Default)]
pub(super) struct Peak {
    by_minute: BTreeMap<u32, u64>,
    /// The most requests of a minute.
    pub most: u64,
}

impl Peak {
    pub fn add(&mut self, at_s: u32) {
        let count = self.by_minute.entry(at_s / 60).or_insert(0);
        *count += 1;
        self.most = self.most.max(*count);
        if *count == 1 {
            let gone = (at_s / 60).saturating_sub(DISORDER_S / 60);
            self.by_minute = self.by_minute.split_off(&gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_minute_counts_lines_out_of_order_and_holds_few_minutes() {
        let mut peak = Peak::default();
        (0..100_000).for_each(|minute| peak.add(minute * 60));
        assert_eq!(peak.most, 1);
        for at_s in [120, 179, 120, 60] {
            peak.add(7_000_000 + at_s);
        }
        assert!(peak.most >= 2 && peak.by_minute.len() < 200, "{peak:?}");
    }
}
