//! How a time budget becomes rounds of blocks.
//!
//! A block is a fixed piece of work, so its size has to be chosen before it is timed: from the calibration, which runs
//! every configuration once as its warm-up. Work is counted in requests: users of an access log differ too much to be a
//! measure.

use std::ops::Range;
use std::time::Duration;

use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::Workload;
use tlsdyno_record::model::job::Timed;

/// Minimum number of rounds for meaningful intervals; reports flag fewer.
pub const ROUNDS_MIN: u32 = 6;
/// Maximum number of rounds: with more, blocks would be shorter than the noise of one scheduler tick.
pub const ROUNDS_MAX: u32 = 60;
/// Maximum number of blocks of a configuration in a round: more would leave too few rounds.
pub const TURNS_MAX: u32 = 20;
/// Wanted mean length of a block. Long against the 4 ms of a scheduler tick and the filling of the pipeline, short
/// against drift.
const BLOCK_WANTED: Duration = Duration::from_millis(600);
/// Minimum length of a block where many rounds are asked for.
const BLOCK_LEAST: Duration = Duration::from_millis(80);
/// Fixed cost of a block besides its work: command, settling, reading counters.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(12);
/// Maximum duration of a piece of the workload, as a part of the time; longer ones are left out.
const PIECE_SHARE_MAX: f64 = 0.5;

#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Wanted number of requests in each block.
    pub requests_per_block: u64,
    /// Number of rounds that are expected to fit.
    pub rounds_expected: u32,
    /// Expected duration of one round.
    pub round: Duration,
    /// Part of a round that does not depend on its requests: overhead of blocks, and restarts of servers that take
    /// turns.
    pub overhead: Duration,
    /// Duration of one request in a round, summed over its blocks.
    pub seconds_per_request: f64,
}

/// Consecutive users of the workload, the work of one round's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub users: Range<u32>,
    /// Number of requests of these users.
    pub requests: u64,
}

/// Work of the blocks of a round, the same for every configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The users; in a timed block the first ones.
    pub piece: Piece,
    /// Repetitions of each user, in a block that is not timed.
    pub laps: u64,
    /// The block ends after a given time instead.
    pub timed: Option<Timed>,
}

impl From<Piece> for Work {
    fn from(piece: Piece) -> Work {
        Work { piece, laps: 1, timed: None }
    }
}

/// Chooses the block size. `seconds_per_request` holds the calibrated wall time of one request for each block of a
/// round; `restart` is what each block costs beyond its work where servers take turns. The number of rounds may be
/// given.
pub fn schedule(
    rounds_wanted: Option<u32>,
    budget: Duration,
    seconds_per_request: &[f64],
    restart: Duration,
    requests_total: u64,
) -> Schedule {
    let blocks = seconds_per_request.len().max(1) as f64;
    let per_request: f64 = seconds_per_request.iter().sum::<f64>().max(1e-9);
    let overhead = (BLOCK_OVERHEAD + restart).as_secs_f64() * blocks;
    let rounds = budget.as_secs_f64() / (BLOCK_WANTED.as_secs_f64() * blocks + overhead);
    // Asked for or not, blocks must be worth their overhead.
    let fit = budget.as_secs_f64() / ((BLOCK_LEAST.as_secs_f64() * blocks).max(overhead) + overhead);
    let rounds = match rounds_wanted {
        Some(wanted) => f64::from(wanted).min(fit).max(f64::from(ROUNDS_MIN)),
        None => rounds.clamp(f64::from(ROUNDS_MIN), f64::from(ROUNDS_MAX)),
    };
    let requests = ((budget.as_secs_f64() / rounds - overhead) / per_request).max(1.0);
    let requests = (requests as u64).min(requests_total).max(1);
    let round = requests as f64 * per_request + overhead;
    Schedule {
        requests_per_block: requests,
        rounds_expected: (budget.as_secs_f64() / round).floor().max(1.0) as u32,
        round: Duration::from_secs_f64(round),
        overhead: Duration::from_secs_f64(overhead),
        seconds_per_request: per_request,
    }
}

impl Schedule {
    /// Rounds of a given duration, whatever the number of requests.
    pub fn of_rounds(round: Duration, budget: Duration) -> Schedule {
        Schedule {
            requests_per_block: 0,
            rounds_expected: (budget.as_secs_f64() / round.as_secs_f64()).floor().max(1.0) as u32,
            round,
            overhead: round,
            seconds_per_request: 0.0,
        }
    }

    /// Expected duration of a round of so many requests, at the slowest rate so far (seconds per request of a round).
    pub fn predicted(&self, requests: u64, slowest: f64) -> Duration {
        self.overhead + Duration::from_secs_f64(requests as f64 * slowest.max(0.0))
    }

    /// Seconds per request of a round that took `elapsed`, without its overhead.
    pub fn seconds_per_request_of(&self, elapsed: Duration, requests: u64) -> f64 {
        elapsed.saturating_sub(self.overhead).as_secs_f64() / requests.max(1) as f64
    }
}

/// The blocks of one round, each with the number of its turn: in every turn all blocks, in random order.
pub fn order_of_round(blocks: &[usize], turns: u32, random: &mut SplitMix64) -> Vec<(u32, usize)> {
    (0..turns).flat_map(|turn| random.shuffled(blocks).into_iter().map(move |block| (turn, block))).collect()
}

pub fn requests_of_users(workload: &Workload) -> Vec<u32> {
    workload.users.iter().map(|user| user.requests.end - user.requests.start).collect()
}

/// Cuts the workload into pieces of consecutive users that hold at least `wanted` requests and `users_min` users each.
/// What remains at the end is too small to be compared with the others and is left out, unless it is all there is.
pub fn pieces(requests_of_users: &[u32], wanted: u64, users_min: u32) -> Vec<Piece> {
    pieces_of(requests_of_users, users_min, || wanted)
}

/// As [`pieces`], of random size from `wanted` to half as many more, for sweeps. Servers do some work periodically
/// (OpenSSL makes new blinding values at every 32nd RSA signature), which with equal slices would fall on the same
/// configuration in every sweep.
pub fn varied_pieces(requests_of_users: &[u32], wanted: u64, users_min: u32, random: &mut SplitMix64) -> Vec<Piece> {
    pieces_of(requests_of_users, users_min, || wanted + random.below(wanted as usize / 2 + 1) as u64)
}

fn pieces_of(requests_of_users: &[u32], users_min: u32, mut next_size: impl FnMut() -> u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut wanted = next_size();
    let mut piece = Piece { users: 0..0, requests: 0 };
    for (user, requests) in (0u32..).zip(requests_of_users) {
        piece.users.end = user + 1;
        piece.requests += u64::from(*requests);
        if piece.requests >= wanted && piece.users.len() >= users_min as usize {
            let next = piece.users.end;
            wanted = next_size();
            pieces.push(std::mem::replace(&mut piece, Piece { users: next..next, requests: 0 }));
        }
    }
    if pieces.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Drops the pieces that would take too large a part of the budget (at least the shortest stays). Returns the number of
/// dropped requests.
pub fn drop_too_long(pieces: &mut Vec<Piece>, schedule: &Schedule, budget: Duration) -> u64 {
    let all: u64 = pieces.iter().map(|piece| piece.requests).sum();
    let limit = budget.mul_f64(PIECE_SHARE_MAX);
    let shortest = pieces.iter().min_by_key(|piece| piece.requests).cloned();
    pieces.retain(|piece| schedule.predicted(piece.requests, schedule.seconds_per_request) <= limit);
    if pieces.is_empty() {
        pieces.extend(shortest);
    }
    all - pieces.iter().map(|piece| piece.requests).sum::<u64>()
}

/// Users for calibration: of all sequences of `users` users the one with the median number of requests, so that one
/// user with much of the log does not make calibration longer than measuring.
pub fn typical_users(requests_of_users: &[u32], users: u32) -> Piece {
    let users = (users as usize).clamp(1, requests_of_users.len().max(1));
    let mut windows: Vec<Piece> = (0u32..)
        .step_by(users)
        .zip(requests_of_users.chunks_exact(users))
        .map(|(first, window)| Piece {
            users: first..first + users as u32,
            requests: window.iter().map(|requests| u64::from(*requests)).sum(),
        })
        .collect();
    windows.sort_by_key(|window| window.requests);
    let median = windows.len() / 2;
    windows.into_iter().nth(median).unwrap_or(Piece { users: 0..0, requests: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_budget_buys_rounds_first() {
        let per_request = [0.0004; 10];
        let short = schedule(None, Duration::from_secs(18), &per_request, Duration::ZERO, 200_000);
        let long = schedule(None, Duration::from_secs(170), &per_request, Duration::ZERO, 200_000);
        assert_eq!(short.rounds_expected, ROUNDS_MIN);
        assert!(long.rounds_expected > 20, "{long:?}");
        assert!(long.requests_per_block > short.requests_per_block);
        assert!(long.round.as_secs_f64() * f64::from(long.rounds_expected) <= 170.0);
    }

    #[test]
    fn every_turn_has_all_blocks_in_an_order_of_its_own() {
        let order = order_of_round(&[2, 3, 5, 7, 11, 13], 3, &mut SplitMix64::new(1));
        let turns: Vec<&[(u32, usize)]> = order.chunks(6).collect();
        for (number, turn) in (0..).zip(&turns) {
            let mut blocks: Vec<usize> = turn.iter().map(|(_, block)| *block).collect();
            blocks.sort_unstable();
            assert_eq!(blocks, [2, 3, 5, 7, 11, 13]);
            assert!(turn.iter().all(|(turn, _)| *turn == number));
        }
        let blocks = |turn: usize| turns[turn].iter().map(|(_, block)| *block).collect::<Vec<usize>>();
        assert!(turns.len() == 3 && blocks(0) != blocks(1));
    }

    #[test]
    fn restarts_are_paid_for() {
        let turns =
            |restart| schedule(None, Duration::from_secs(60), &[0.001; 4], Duration::from_millis(restart), 200_000);
        assert!(turns(500).rounds_expected < turns(0).rounds_expected);
        let turns = turns(500);
        assert!(turns.overhead >= Duration::from_secs(2), "{turns:?}");
        assert!(turns.round.as_secs_f64() * f64::from(turns.rounds_expected) <= 60.0);
    }

    #[test]
    fn however_many_rounds_are_wanted_blocks_are_worth_their_overhead() {
        let schedule = schedule(
            Some(200),
            Duration::from_secs(30),
            &[0.0004; 2],
            Duration::from_millis(388), // with the fixed cost of a block: 0.4 s
            200_000,
        );
        assert!(schedule.requests_per_block >= 999, "{schedule:?}");
        assert!(schedule.rounds_expected >= 18, "{schedule:?}");
    }

    #[test]
    fn blocks_never_hold_more_than_there_is() {
        let per_block = |seconds: u64, cost: f64, total| {
            schedule(None, Duration::from_secs(seconds), &[cost], Duration::ZERO, total)
        };
        assert_eq!(per_block(100, 1e-6, 1_000).requests_per_block, 1_000);
        assert_eq!(per_block(1, 10.0, 1_000).requests_per_block, 1);
    }

    #[test]
    fn pieces_hold_about_equal_numbers_of_requests() {
        let piece = |users, requests| Piece { users, requests };
        assert_eq!(pieces(&[10; 10], 40, 1), [piece(0..4, 40), piece(4..8, 40)]);
        assert_eq!(pieces(&[10; 10], 40, 5), [piece(0..5, 50), piece(5..10, 50)]);
        assert_eq!(pieces(&[10; 3], 40, 1), [piece(0..3, 30)]);
        assert_eq!(pieces(&[1, 1, 900, 1, 39, 40], 40, 1), [piece(0..3, 902), piece(3..5, 40), piece(5..6, 40)]);
    }

    #[test]
    fn pieces_of_sweeps_vary_in_size() {
        let pieces = varied_pieces(&[1; 1_000], 6, 1, &mut SplitMix64::new(1));
        let sizes: std::collections::BTreeSet<u64> = pieces.iter().map(|piece| piece.requests).collect();
        assert!(sizes.into_iter().eq(6..=9));
        assert!(pieces.windows(2).all(|pair| pair[0].users.end == pair[1].users.start), "no user is left out");
        let by_three = varied_pieces(&[20; 100], 5, 3, &mut SplitMix64::new(1));
        assert!(by_three.iter().all(|piece| piece.users.len() == 3), "each of three loops has one");
    }

    #[test]
    fn one_heavy_user_does_not_break_the_bound() {
        let mut users = vec![10; 1_000];
        users[3] = 1_000_000;
        let typical = typical_users(&users, 32);
        assert_eq!(typical.requests, 320, "{typical:?}");
        let budget = Duration::from_secs(20);
        let schedule = schedule(None, budget, &[0.001], Duration::ZERO, 1_010_000);
        let mut pieces = pieces(&users, schedule.requests_per_block, 16);
        let dropped = drop_too_long(&mut pieces, &schedule, budget);
        assert!(dropped >= 1_000_000, "{dropped}");
        let longest = pieces.iter().map(|piece| schedule.predicted(piece.requests, 0.001)).max().unwrap();
        assert!(longest <= budget / 2, "{longest:?}");
    }

    #[test]
    fn the_shortest_piece_stays_whatever_it_takes() {
        let schedule = schedule(None, Duration::from_secs(1), &[1.0], Duration::ZERO, 500);
        let mut pieces = vec![Piece { users: 0..1, requests: 300 }, Piece { users: 1..2, requests: 200 }];
        assert_eq!(drop_too_long(&mut pieces, &schedule, Duration::from_secs(1)), 300);
        assert_eq!(pieces, [Piece { users: 1..2, requests: 200 }]);
    }

    #[test]
    fn predictions_follow_the_slowest_rate_seen() {
        let schedule = schedule(None, Duration::from_secs(100), &[0.001; 2], Duration::ZERO, 100_000);
        let round = schedule.predicted(1_000, 0.005);
        assert_eq!(round, schedule.overhead + Duration::from_secs(5));
        assert!((schedule.seconds_per_request_of(round, 1_000) - 0.005).abs() < 1e-9);
    }
}
