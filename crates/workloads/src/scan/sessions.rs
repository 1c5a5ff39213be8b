//! The percent reuse that a log would give, for many session lifetimes and limits at once.
//!
//! A session begins with a full handshake and carries a user's requests until it is older than the lifetime or has
//! carried as many as the limit allows; the next request needs a full handshake (Mraz, Witting, Dantzig 2002, section
//! 3: "percent ID reuse", formula 1). That is how servers let cached sessions and TLS 1.2 tickets expire. In TLS 1.3 a
//! resumed connection brings new tickets, so that a session ends only by a pause: the lifetime then counts from the
//! user's last request.

use tlsdyno_record::store::{Reuse, Row};

/// Session lifetimes, ascending, seconds. 300 is the default of nginx and Apache; Mraz et al. name 100 to 300 as
/// typical.
pub const LIFETIMES_S: [u32; 8] = [10, 30, 60, 100, 300, 600, 1800, 3600];
/// Most requests of a session; `u32::MAX` stands for no limit. 500 is typical (Mraz et al.).
pub const LIMITS: [u32; 5] = [10, 50, 100, 500, u32::MAX];

/// A value for each limit, and within it for each lifetime.
type Lanes<Value> = [[Value; LIFETIMES_S.len()]; LIMITS.len()];

/// One user's sessions, one for each lifetime and limit.
#[derive(Clone, Debug)]
pub struct Sessions {
    began_s: Lanes<u32>,
    used: Lanes<u32>,
}

impl Sessions {
    /// No session yet: every limit is exhausted.
    pub const NONE: Sessions = Sessions {
        began_s: [[0; LIFETIMES_S.len()]; LIMITS.len()],
        used: [[u32::MAX; LIFETIMES_S.len()]; LIMITS.len()],
    };
}

#[derive(Debug, Default)]
pub struct Tally {
    pub hits: u64,
    full: Lanes<u64>,
    /// Where sessions are renewed by each request, by lifetime.
    renewed_full: [u64; LIFETIMES_S.len()],
}

impl Tally {
    /// Counts a request at `at_s` of a user, `gap_s` after the one before (`None`: the first). The inner loop has no
    /// branches, so that it is done for all lifetimes at once.
    #[inline]
    pub fn hit(&mut self, sessions: &mut Sessions, at_s: u32, gap_s: Option<u32>) {
        self.hits += 1;
        for (row, limit) in LIMITS.into_iter().enumerate() {
            let (began_s, used) = (&mut sessions.began_s[row], &mut sessions.used[row]);
            for (lane, lifetime_s) in LIFETIMES_S.into_iter().enumerate() {
                let ended = (at_s.saturating_sub(began_s[lane]) > lifetime_s) | (used[lane] >= limit);
                self.full[row][lane] += u64::from(ended);
                began_s[lane] = if ended { at_s } else { began_s[lane] };
                used[lane] = if ended { 1 } else { used[lane].wrapping_add(1) };
            }
        }
        let gap_s = gap_s.unwrap_or(u32::MAX);
        for (full, lifetime_s) in self.renewed_full.iter_mut().zip(LIFETIMES_S) {
            *full += u64::from(gap_s > lifetime_s);
        }
    }

    pub fn finish(&self) -> Reuse {
        let percent = |full: u64| 100.0 - 100.0 * full as f64 / self.hits.max(1) as f64;
        let row = |row: usize| Row {
            lifetime_s: LIFETIMES_S[row],
            percent_by_limit: self.full.iter().map(|of_limit| percent(of_limit[row])).collect(),
            percent_renewed: percent(self.renewed_full[row]),
        };
        let limit = |limit: u32| (limit != u32::MAX).then_some(limit);
        Reuse { limits: LIMITS.map(limit).to_vec(), rows: (0..LIFETIMES_S.len()).map(row).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tally(times: &[u32]) -> Reuse {
        let (mut tally, mut sessions, mut last_s) = (Tally::default(), Sessions::NONE, None::<u32>);
        for at_s in times {
            tally.hit(&mut sessions, *at_s, last_s.map(|last_s| at_s.saturating_sub(last_s)));
            last_s = Some(last_s.unwrap_or(0).max(*at_s));
        }
        tally.finish()
    }

    #[test]
    fn sessions_end_by_age_by_count_and_renewed_ones_by_a_pause() {
        // A request every 8 s for 80 s: 11 hits.
        let times: Vec<u32> = (0..=10).map(|number| 1_000 + number * 8).collect();
        let reuse = tally(&times);
        let percent = |full: u32| 100.0 - 100.0 * f64::from(full) / 11.0;
        // Lifetime 10 s: full at 0, 16, 32, …, 80. Limit 10: the eleventh begins anew.
        assert_eq!(reuse.rows[0].percent_by_limit[4], percent(6));
        assert_eq!(reuse.rows[3].percent_by_limit, [percent(2), percent(1), percent(1), percent(1), percent(1)]);
        assert!(reuse.rows.iter().all(|row| row.percent_renewed == percent(1)));
        assert_eq!(reuse.limits, [Some(10), Some(50), Some(100), Some(500), None]);
    }

    proptest! {
        /// Against the plain definition, one lifetime and limit at a time.
        #[test]
        fn all_lanes_follow_the_definition(
            gaps in proptest::collection::vec(prop_oneof![0u32..20, 0u32..5_000], 1..200),
        ) {
            let mut at_s = 7;
            let times: Vec<u32> = gaps.iter().map(|gap| { at_s += gap; at_s }).collect();
            let reuse = tally(&times);
            for row in &reuse.rows {
                for (limit, percent) in reuse.limits.iter().zip(&row.percent_by_limit) {
                    let (mut full, mut began_s, mut used) = (0, 0, None);
                    for at_s in &times {
                        let is_used_up = |used| limit.is_some_and(|limit| used >= limit);
                        if used.is_none_or(|used| is_used_up(used) || at_s - began_s > row.lifetime_s) {
                            (full, began_s, used) = (full + 1, *at_s, Some(0));
                        }
                        used = used.map(|used| used + 1);
                    }
                    prop_assert!((percent - (100.0 - 100.0 * f64::from(full) / times.len() as f64)).abs() < 1e-9);
                }
                let pauses = times.windows(2).filter(|pair| pair[1] - pair[0] > row.lifetime_s).count();
                let percent_renewed = 100.0 - 100.0 * (pauses + 1) as f64 / times.len() as f64;
                prop_assert!((row.percent_renewed - percent_renewed).abs() < 1e-9);
            }
        }
    }
}
