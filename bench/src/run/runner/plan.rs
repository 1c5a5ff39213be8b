//! What the rounds of a subject will do.

use std::time::Duration;

use tlsdyno_record::store::Warning;

use crate::run::schedule::{Schedule, Work};

/// What the rounds will do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The size of blocks and rounds.
    pub schedule: Schedule,
    /// The works that rounds walk through, over and over.
    pub works: Vec<Work>,
    /// So many rounds are enough; `None`: as many as there is time for.
    pub rounds_most: Option<u32>,
    /// Slices in each round; `None`: there are none.
    pub slices: Option<SlicesOfRound>,
    /// What the reader must know about it.
    pub warnings: Vec<Warning>,
}

/// What rounds have of slices.
#[derive(Clone, Copy, Debug)]
pub struct SlicesOfRound {
    /// How long, in each round, at most.
    pub length: Duration,
    /// So many rounds are to fit into the time: where one takes longer than was planned, the slices of the next ones
    /// are fewer. `None`: as many as fit.
    pub rounds_wanted: Option<u32>,
    /// So many of them at least, where starting servers takes longer than the slices: then rounds are fewer and longer.
    pub rounds_least: u32,
    /// The part of the time that blocks may take: the first round has some, and each round for which they took less
    /// until then. `None`: there are none.
    pub blocks_share: Option<f64>,
}

impl SlicesOfRound {
    /// How long in a round for which so much time is left, and for those after it that are wanted. `starting`: what a
    /// round takes to begin; `beside`: what it takes besides slices, with that.
    pub(super) fn fitting(&self, round: u32, left: Duration, beside: Duration, starting: Duration) -> Duration {
        let wanted = self.rounds_wanted.map_or(0, |wanted| wanted.saturating_sub(round));
        // So many have slices for as long as was planned, or as they take to begin.
        let most = self.length.max(starting);
        let worth = (left.as_secs_f64() / (beside + most).as_secs_f64()) as u32;
        let rounds = wanted.min(worth.max(self.rounds_least.saturating_sub(round)).max(1));
        left.checked_div(rounds).map_or(self.length, |each| each.saturating_sub(beside).min(most))
    }

    /// Whether a round has blocks, when they have taken so much of the time.
    pub(super) fn has_blocks(&self, round: u32, taken: Duration, of: Duration) -> bool {
        self.blocks_share.is_some_and(|share| round == 0 || taken <= of.mul_f64(share))
    }
}
