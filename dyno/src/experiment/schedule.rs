//! How a time budget becomes rounds of blocks.
//!
//! A block is a fixed piece of work, so its size has to be chosen before it is timed: from the calibration, which runs
//! every configuration once as its warm-up.

use std::ops::Range;
use std::time::Duration;

/// Rounds below this give intervals that mean little; the report flags them.
pub const ROUNDS_MIN: u32 = 6;
/// More rounds than this buy nothing: blocks would become shorter than the noise of one scheduler tick.
pub const ROUNDS_MAX: u32 = 60;
/// Wanted length of an average block. Long against the 4 ms of a scheduler tick and the filling of the pipeline, short against drift.
const BLOCK_WANTED: Duration = Duration::from_millis(600);
/// Fixed cost of a block besides its work: command, settling, reading counters.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(12);

/// The size of blocks and the expected number of rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Users of the workload in each block.
    pub users_per_block: u32,
    /// Rounds that are expected to fit.
    pub rounds_expected: u32,
    /// Expected length of one round.
    pub round: Duration,
}

/// Chooses the block size. `seconds_per_user` holds the calibrated wall time of one user for each configuration; `users_min` is the
/// least number of users that keeps all connections busy.
pub fn schedule(budget: Duration, seconds_per_user: &[f64], users_min: u32, users_total: u32) -> Schedule {
    let configurations = seconds_per_user.len().max(1) as f64;
    let per_user: f64 = seconds_per_user.iter().sum::<f64>().max(1e-9);
    let overhead = BLOCK_OVERHEAD.as_secs_f64() * configurations;
    let rounds = budget.as_secs_f64() / (BLOCK_WANTED.as_secs_f64() * configurations + overhead);
    let rounds = rounds.clamp(f64::from(ROUNDS_MIN), f64::from(ROUNDS_MAX));
    let users = ((budget.as_secs_f64() / rounds - overhead) / per_user).max(1.0);
    let users = (users as u32).max(users_min).min(users_total).max(1);
    let round = f64::from(users) * per_user + overhead;
    Schedule {
        users_per_block: users,
        rounds_expected: (budget.as_secs_f64() / round).floor().max(1.0) as u32,
        round: Duration::from_secs_f64(round),
    }
}

/// The users of round `round`: consecutive pieces of the workload, starting over when it is used up.
pub fn users_of_round(round: u32, users_per_block: u32, users_total: u32) -> Range<u32> {
    let pieces = (users_total / users_per_block).max(1);
    let first = (round % pieces) * users_per_block;
    first..(first + users_per_block).min(users_total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_budget_buys_rounds_first() {
        let per_user = [0.004; 10];
        let short = schedule(Duration::from_secs(18), &per_user, 16, 20_000);
        let long = schedule(Duration::from_secs(170), &per_user, 16, 20_000);
        assert_eq!(short.rounds_expected, ROUNDS_MIN);
        assert!(long.rounds_expected > 20, "{long:?}");
        assert!(long.users_per_block > short.users_per_block);
        assert!(long.round.as_secs_f64() * f64::from(long.rounds_expected) <= 170.0);
    }

    #[test]
    fn blocks_hold_enough_users_and_never_more_than_there_are() {
        assert_eq!(schedule(Duration::from_secs(1), &[10.0], 16, 1_000).users_per_block, 16);
        assert_eq!(schedule(Duration::from_secs(100), &[1e-6], 16, 1_000).users_per_block, 1_000);
        assert_eq!(schedule(Duration::from_secs(100), &[1e-6], 16, 3).users_per_block, 3);
    }

    #[test]
    fn rounds_walk_through_the_workload_in_whole_pieces() {
        assert_eq!(users_of_round(0, 40, 100), 0..40);
        assert_eq!(users_of_round(1, 40, 100), 40..80);
        assert_eq!(users_of_round(2, 40, 100), 0..40);
        assert_eq!(users_of_round(7, 100, 100), 0..100);
    }
}
