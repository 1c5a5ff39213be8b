//! What the rounds of a subject will do.

use std::time::{Duration, Instant};

use tlsdyno_record::model::job::Timed;
use tlsdyno_record::store::Warning;

use crate::run::schedule::{Piece, ROUNDS_MIN, Schedule, Work};

#[derive(Clone, Debug)]
pub struct Plan {
    /// The size of blocks and rounds.
    pub schedule: Schedule,
    /// Work of consecutive rounds, repeated.
    pub works: Vec<Work>,
    /// Maximum number of rounds; `None`: as many as there is time for.
    pub rounds_most: Option<u32>,
    /// `None`: no slices.
    pub slices: Option<SlicesOfRound>,
    /// Minimum duration of a round, as far as it is known.
    pub round_least: Duration,
    /// What the reader must know about it.
    pub warnings: Vec<Warning>,
}

impl Plan {
    /// Rounds of blocks, as many as there is time for.
    pub fn of(schedule: Schedule, works: Vec<Work>) -> Plan {
        let round_least = schedule.round;
        Plan { schedule, works, rounds_most: None, slices: None, round_least, warnings: Vec::new() }
    }

    /// Blocks of equal duration, so that as many rounds as an interval needs fit into `budget`. `piece`: their first
    /// users; `seconds_per_request`: of each block of a round; `overhead`: fixed cost of a block.
    pub fn of_timed_blocks(
        piece: Piece,
        budget: Duration,
        seconds_per_request: &[f64],
        [shortest, longest]: [Duration; 2],
        overhead: Duration,
    ) -> Plan {
        let blocks = seconds_per_request.len() as u32;
        let fits = budget / (ROUNDS_MIN * blocks).max(1);
        let time = fits.saturating_sub(overhead).clamp(shortest, longest);
        let fastest = seconds_per_request.iter().copied().fold(f64::INFINITY, f64::min).max(1e-9);
        let requests_per_block = (time.as_secs_f64() / fastest) as u64;
        let schedule =
            Schedule { requests_per_block, ..Schedule::of_rounds((time + overhead) * blocks.max(1), budget) };
        let timed = Some(Timed { for_ns: time.as_nanos() as u64, seed: 0 });
        Plan::of(schedule, vec![Work { timed, ..piece.into() }])
    }
}

/// A round that is about to begin.
#[derive(Clone, Copy, Debug)]
pub struct NextRound<'a> {
    /// The configurations that have blocks.
    pub blocks: &'a [usize],
    /// The configuration whose block comes first.
    pub first: usize,
    /// Maximum time to begin; `None`: no limit, as there is no result yet.
    pub within: Option<Duration>,
    pub end: Instant,
}

#[derive(Clone, Copy, Debug)]
pub struct SlicesOfRound {
    /// Maximum duration in each round.
    pub length: Duration,
    /// Number of rounds that should fit into the time: if one takes longer than planned, the next ones have fewer
    /// slices. `None`: as many as fit.
    pub rounds_wanted: Option<u32>,
    /// Minimum number of them, where starting servers takes longer than the slices: then rounds are fewer and longer.
    pub rounds_least: u32,
    /// Maximum part of the time for blocks: the first round has blocks, and each later one before which they took less.
    /// `None`: no blocks.
    pub blocks_share: Option<f64>,
}

impl SlicesOfRound {
    /// Duration of slices in a round with so much time left for it and the wanted later ones. `starting`: time to begin
    /// a round; `beside`: time outside of slices, with that.
    pub(super) fn fitting(&self, round: u32, left: Duration, beside: Duration, starting: Duration) -> Duration {
        let wanted = self.rounds_wanted.map_or(0, |wanted| wanted.saturating_sub(round));
        // So many have slices for as long as was planned, or as they take to begin.
        let most = self.length.max(starting);
        let worth = (left.as_secs_f64() / (beside + most).as_secs_f64()) as u32;
        let rounds = wanted.min(worth.max(self.rounds_least.saturating_sub(round)).max(1));
        left.checked_div(rounds).map_or(self.length, |each| each.saturating_sub(beside).min(most))
    }

    /// A round has blocks, after they have taken so much of the time.
    pub(super) fn has_blocks(&self, round: u32, taken: Duration, of: Duration) -> bool {
        self.blocks_share.is_some_and(|share| round == 0 || taken <= of.mul_f64(share))
    }
}
