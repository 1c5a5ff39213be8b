//! When which site has its next round. Knows no clock: it is told the time, on a clock that never goes back and goes on
//! while the machine sleeps.

use std::collections::BTreeSet;

/// Rounds of every site at fixed times, spread over the interval, without drift.
#[derive(Clone, Debug)]
pub struct Schedule {
    sites: Vec<Site>,
    /// When which site that has no round under way is due, the earliest first.
    free: BTreeSet<(u64, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Site {
    every_ns: u64,
    first_ns: u64,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub site: usize,
    pub number: u64,
    /// Rounds that nobody made before it: their time is over.
    pub missed_count: u64,
}

impl Schedule {
    /// Rounds from `now_ns` on, each site at intervals of its own; site `order[i]` is the i-th of each interval.
    pub fn new(every_ns: &[u64], order: &[usize], now_ns: u64) -> Schedule {
        assert!(every_ns.iter().all(|every_ns| *every_ns > 0), "rounds need a time between them");
        let mut sites: Vec<Site> =
            every_ns.iter().map(|every_ns| Site { every_ns: *every_ns, first_ns: now_ns, next: 0 }).collect();
        for (position, site) in order.iter().enumerate() {
            sites[*site].first_ns += sites[*site].every_ns / order.len() as u64 * position as u64;
        }
        let free = sites.iter().enumerate().map(|(index, site)| (site.due_ns(), index)).collect();
        Schedule { sites, free }
    }

    /// The round that is to be made now, if there is one; its site gets no other until [`Schedule::done`].
    pub fn take(&mut self, now_ns: u64) -> Option<Due> {
        let (due_ns, index) = *self.free.first().filter(|(due_ns, _)| *due_ns <= now_ns)?;
        self.free.pop_first();
        let site = &mut self.sites[index];
        // A round may begin until the next one is due; then it is missed.
        let missed_count = (now_ns - due_ns) / site.every_ns;
        let number = site.next + missed_count;
        site.next = number + 1;
        Some(Due { site: index, number, missed_count })
    }

    pub fn done(&mut self, site: usize) {
        self.free.insert((self.sites[site].due_ns(), site));
    }

    /// When the next round is due of a site that has none under way.
    pub fn next_ns(&self) -> Option<u64> {
        self.free.first().map(|(due_ns, _)| *due_ns)
    }
}

impl Site {
    fn due_ns(self) -> u64 {
        self.first_ns + self.next * self.every_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;

    const SECOND: u64 = 1_000_000_000;
    const MINUTE: u64 = 60 * SECOND;

    /// A week of ten sites, each round of which takes up to a second: 10 · 7 · 1440 rounds, all in time.
    #[test]
    fn a_week_has_no_drift_and_no_lost_round() {
        let order: Vec<usize> = SplitMix64::new(3).shuffled(&(0..10).collect::<Vec<_>>());
        let start_ns = 12_345;
        let mut schedule = Schedule::new(&[MINUTE; 10], &order, start_ns);
        let mut random = SplitMix64::new(7);
        let mut made = [0u64; 10];
        let mut now_ns = start_ns;
        let end_ns = start_ns + 7 * 24 * 60 * MINUTE;
        while let Some(due_ns) = schedule.next_ns().filter(|due_ns| *due_ns < end_ns) {
            now_ns = now_ns.max(due_ns);
            let due = schedule.take(now_ns).unwrap();
            assert_eq!((due.number, due.missed_count), (made[due.site], 0));
            assert!(now_ns - due_ns < SECOND, "late by {} ns", now_ns - due_ns);
            made[due.site] += 1;
            now_ns += random.below(SECOND as usize) as u64;
            schedule.done(due.site);
        }
        assert_eq!(made, [7 * 1440; 10]);
    }

    #[test]
    fn an_hour_of_sleep_is_an_hour_of_missed_rounds() {
        let mut schedule = Schedule::new(&[MINUTE], &[0], 0);
        assert_eq!(schedule.take(0), Some(Due { site: 0, number: 0, missed_count: 0 }));
        schedule.done(0);
        assert_eq!(schedule.take(MINUTE - 1), None);
        // It wakes half a minute after round 61 was due: that one is made, late but in its own minute.
        let woken_ns = 61 * MINUTE + MINUTE / 2;
        assert_eq!(schedule.take(woken_ns), Some(Due { site: 0, number: 61, missed_count: 60 }));
        schedule.done(0);
        assert_eq!(schedule.next_ns(), Some(62 * MINUTE), "the grid is where it was");
    }

    #[test]
    fn a_site_that_hangs_holds_no_other_and_misses_its_own() {
        let mut schedule = Schedule::new(&[10 * SECOND; 2], &[0, 1], 0);
        assert_eq!(schedule.take(0).unwrap().site, 0);
        assert_eq!(schedule.take(6 * SECOND).unwrap().site, 1);
        schedule.done(1);
        assert_eq!(schedule.take(16 * SECOND).unwrap().site, 1);
        schedule.done(1);
        assert_eq!(schedule.take(17 * SECOND), None, "site 0 hangs");
        schedule.done(0);
        assert_eq!(schedule.take(23 * SECOND), Some(Due { site: 0, number: 2, missed_count: 1 }));
    }
}
