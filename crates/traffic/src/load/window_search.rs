//! The smallest window over a trace's order that lets no connection stall, found by replaying the trace: what Coarfa et
//! al. 2006 section 2.2.2 did by trial and error. It depends on the server's speed and on the number of connections.

use anyhow::{Result, ensure};
use tlsdyno_engine::load::{Outcome, Plan, Until, WindowUse};

use crate::load::bisect::{Edge, Found, bisect};

/// Replays the trace of `plan` with ever closer windows by `load`, and answers the outcome with the smallest that did
/// not stall.
pub fn smallest(mut plan: Plan, load: impl Fn(&Plan) -> Result<Outcome>) -> Result<Outcome> {
    ensure!(
        plan.until == Until::Laps(1),
        "--window search replays the log as often as it needs; leave out --duration and --total-connections"
    );
    search(|window| {
        plan.window = Some(window);
        let outcome = load(&plan)?;
        let used = outcome.window.filter(|_| !outcome.stopped && !outcome.gave_up);
        Ok((outcome, used))
    })
}

/// Bisects between windows that stall and windows that do not. `replay` answers how the window was used, or nothing if
/// the run was cut short, which ends the search.
fn search<T>(mut replay: impl FnMut(u32) -> Result<(T, Option<WindowUse>)>) -> Result<T> {
    // With a window just wider than the largest distance, the same would have happened.
    let enough = |used: WindowUse| u32::try_from(used.largest_distance + 1).unwrap_or(u32::MAX);
    let (mut best, used) = replay(u32::MAX)?;
    let Some(used) = used else { return Ok(best) };
    bisect(Edge { below: 0, from: enough(used) }, 1, |window| {
        let (outcome, used) = replay(window)?;
        if used.is_some_and(|used| used.stalls > 0) {
            return Ok(Found::Below);
        }
        best = outcome;
        Ok(used.map_or(Found::Cut, |used| Found::FromHereOn(enough(used))))
    })?;
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the search ends with where windows from `needed` on do not stall and nothing gets further apart than
    /// `farthest`.
    fn found(needed: u32, farthest: u64) -> (u32, u32) {
        let mut replays = 0;
        let limit = search(|window| {
            replays += 1;
            let largest_distance = farthest.min(u64::from(window) - 1);
            let stalls = u64::from(window < needed);
            Ok((window, Some(WindowUse { limit: Some(u64::from(window)), largest_distance, stalls })))
        });
        (limit.unwrap(), replays)
    }

    #[test]
    fn it_finds_the_smallest_window_in_few_replays() {
        for (needed, farthest) in [(1, 9_999), (100, 9_999), (7_777, 9_999), (5_000, 5_000)] {
            let (window, replays) = found(needed, farthest);
            assert_eq!(window, needed, "of at most {farthest}");
            assert!(replays <= 16, "{replays} replays");
        }
    }

    #[test]
    fn where_every_closer_window_stalls_the_first_replay_tells_what_is_needed() {
        assert_eq!(found(10_000, 9_999).0, u32::MAX, "its largest distance is 9,999");
    }

    #[test]
    fn a_replay_that_was_cut_short_ends_the_search() {
        let mut replays = 0;
        let result = search(|_| {
            replays += 1;
            Ok((replays, None))
        });
        assert_eq!(result.unwrap(), 1);
    }
}
