//! A subject is measured: rounds in random order until the time is up, blocks and slices in them.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use tlsdyno_base::fault::{Fault, fault_of};
use tlsdyno_base::interrupt;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_record::model::job::Timed;
use tlsdyno_record::model::{Experiment, Measure};
use tlsdyno_record::store::warning::code;
use tlsdyno_record::store::{Block, Journal, Reference, Role, Warning};

use super::course::{Course, Parts};
use super::{NextRound, Subject};
use crate::run::bound::{Bound, Clock};
use crate::run::manifest;
use crate::run::observer::Observer;
use crate::run::pace::reference::ReferenceWork;
use crate::run::schedule::{Work, order_of_round};
use crate::run::sliced::TimeOfSlices;

/// Minimum number of rounds where a number is asked for, or with slices, however long they take, if the subject keeps
/// to no bound: fewer have no spread.
const ROUNDS_LEAST: u32 = 3;
/// Interval at which slices are stored.
const SLICES_KEPT_AFTER: Duration = Duration::from_secs(2);
/// Number of rounds before the widths of intervals are first looked at: with few values these are uncertain, and who
/// stops at the first narrow interval stops at those that are narrow by chance.
const ROUNDS_BEFORE_LOOK: u32 = 6;
/// Outcome of the blocks of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlocksOfRound {
    Complete,
    /// A configuration had to be left out.
    Broken,
    /// The time was up.
    OutOfTime,
}

pub(super) struct Run<'a, 'b> {
    pub(super) subject: Box<dyn Subject + 'b>,
    pub(super) measure: &'a Measure,
    pub(super) journal: Journal,
    pub(super) stop: &'a AtomicBool,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) clock: &'a dyn Clock,
    pub(super) bound: Bound,
    /// The subject keeps to the bound.
    pub(super) is_bounded: bool,
    /// Minimum duration of a round, as far as it is known.
    pub(super) round_takes: Duration,
    /// Number of its first round in the record.
    pub(super) first_round: u32,
    /// `None`: the pace is not told.
    pub(super) pace: &'a mut Option<ReferenceWork>,
}

impl Run<'_, '_> {
    pub(super) fn measure(&mut self, seed: u64) -> Result<()> {
        self.observer.step("warming up and calibrating");
        let seconds_per_request = self.warm_up()?;
        let blocks = self.blocks_of_round(seconds_per_request.keys().copied().collect());
        let turns = (0..self.measure.turns).flat_map(|_| blocks.iter().map(|index| seconds_per_request[index]));
        let left = self.left();
        let mut plan = self.subject.plan(&turns.collect::<Vec<_>>(), left);
        self.round_takes = plan.round_least;
        let warnings = std::mem::take(&mut plan.warnings);
        self.journal.change(|record| record.warnings.extend(warnings));
        self.observer.measuring(&plan.schedule, seconds_per_request.len(), left);
        let least = if self.measure.rounds.is_none() && plan.slices.is_none() { 1 } else { ROUNDS_LEAST };
        let random = SplitMix64::new(seed);
        let began = self.clock.now();
        let [beside, starting, in_blocks] = [Duration::ZERO; 3];
        let mut course = Course { plan, blocks, random, least, began, slowest: None, beside, starting, in_blocks };
        for round in 0.. {
            if !self.one_round(round, &mut course)? {
                break;
            }
        }
        Ok(())
    }

    /// Measures a round, if there is time for it. Returns whether others may follow.
    fn one_round(&mut self, round: u32, course: &mut Course) -> Result<bool> {
        let works = &course.plan.works;
        let work = works[round as usize % works.len()].clone();
        // Arrivals at random are the same for all blocks of a round.
        let timed = work.timed.map(|timed| Timed { seed: course.random.next_u64(), ..timed });
        let work = Work { timed, ..work };
        let order = order_of_round(&course.blocks, self.measure.turns, &mut course.random);
        let order: Vec<(u32, usize)> = order.into_iter().filter(|(_, index)| self.is_valid(*index)).collect();
        let blocks: Vec<usize> = course.blocks.iter().copied().filter(|index| self.is_valid(*index)).collect();
        let began = self.clock.now();
        let left = self.left();
        let parts = course.parts(round, work.piece.requests, began, left);
        let takes = parts.slices.unwrap_or_default() + parts.blocks.unwrap_or_default();
        let has_enough = self.has_enough(round, course, &parts);
        let starting = if self.is_bounded { course.starting / round.max(1) } else { Duration::ZERO };
        let is_late = has_enough && (left.is_zero() || starting + takes > left) || self.is_bounded && self.is_over();
        let within = has_enough.then(|| left.saturating_sub(takes));
        let next = NextRound { blocks: &blocks, first: order[0].1, within, end: self.bound.end() };
        if is_late || !self.subject.begin_round(&next)? {
            // Slices fit into any time; their servers are those of the round before.
            if parts.slices.is_some() && !left.is_zero() {
                self.slices(round.saturating_sub(1), left, &mut course.random)?;
            }
            return Ok(false);
        }
        course.starting += self.clock.now() - began;
        // They come first: whoever stops it early has an interval.
        let mut sliced = Duration::ZERO;
        if let Some(length) = parts.slices {
            let began = self.clock.now();
            self.slices(round, length, &mut course.random)?;
            let took = self.clock.now() - began;
            sliced = took.min(length);
            // Servers that were just started get warm first.
            course.starting += took - sliced;
        }
        let is_last = course.plan.rounds_most == Some(round + 1);
        if let Some(blocks) = parts.blocks {
            let began = self.clock.now();
            let each = self.is_bounded.then(|| blocks / order.len().max(1) as u32);
            match self.round(round, &order, &work, each)? {
                BlocksOfRound::Complete => self.bound.has_result = true,
                BlocksOfRound::OutOfTime => return Ok(false),
                // A round with time-outs in it says nothing about the next.
                BlocksOfRound::Broken => return Ok(!is_last),
            }
            course.blocks_took(self.clock.now() - began, work.piece.requests);
        }
        course.beside += (self.clock.now() - began).saturating_sub(sliced);
        self.observer.interim(self.journal.record());
        Ok(!is_last && !self.is_precise(round + 1))
    }

    /// A round that would not fit does not begin, for --time is a bound. Before the first result one begins in any
    /// case, within [`Bound::end`].
    fn has_enough(&self, round: u32, course: &Course, parts: &Parts) -> bool {
        let is_known = course.slowest.is_some() || parts.blocks.is_none();
        if self.is_bounded { self.bound.has_result } else { round >= course.least && is_known }
    }

    /// Warns that the time was too short for a single round.
    pub(super) fn nothing_to_tell(&self) -> Option<Warning> {
        let (had_s, takes_s) = (self.bound.time.as_secs_f64(), self.round_takes.as_secs_f64());
        let longer = match takes_s * 2.0 > had_s {
            true => format!("one takes {takes_s:.0} s or more, so give --time {:.0}", (takes_s * 8.0).ceil()),
            false => "measure longer (--time)".to_owned(),
        };
        let what = format!(
            "not one round of all configurations was complete within {had_s:.0} s, so that nothing can be compared: \
             {longer}, or measure fewer stages, with fewer hits per handshake, or on a machine with less else to do"
        );
        (self.is_bounded && !self.bound.has_result).then(|| Warning::new(code::MISSED, what))
    }

    /// Rest of the requested time.
    pub(super) fn left(&self) -> Duration {
        self.bound.left(self.clock.now())
    }

    /// Measuring ends now, even within a round.
    pub(super) fn is_over(&self) -> bool {
        self.clock.now() >= self.bound.end()
    }

    /// Every share is known as precisely as requested, after so many rounds.
    fn is_precise(&self, rounds: u32) -> bool {
        let reached = || self.subject.widest_points(self.journal.record());
        // It takes long to find out, and nobody needs it when the time is up.
        let is_looked_at = rounds >= ROUNDS_BEFORE_LOOK && !self.left().is_zero();
        let wanted = self.measure.until_percent.filter(|_| is_looked_at);
        wanted.is_some_and(|wanted| reached().is_some_and(|reached| reached <= wanted))
    }

    /// Measures slices of all configurations for `length`, and stores them every now and then.
    fn slices(&mut self, round: u32, length: Duration, random: &mut SplitMix64) -> Result<()> {
        let (began, mut until) = (self.clock.now(), None);
        let mut left = length;
        loop {
            interrupt::check(self.stop)?;
            if self.is_bounded && self.is_over() {
                return Ok(());
            }
            let valid: Vec<usize> =
                (0..self.journal.record().configurations.len()).filter(|index| self.is_valid(*index)).collect();
            let mut reference = self.reference();
            let steal_before = manifest::steal_ns();
            let (since, end) = (self.bound.started, self.bound.end());
            let time = TimeOfSlices { since, length: left.min(SLICES_KEPT_AFTER), end };
            match self.subject.slices(&valid, time, random) {
                Ok(blocks) => {
                    let mut steal_ns = manifest::steal_ns().saturating_sub(steal_before);
                    self.bound.has_result |= blocks.iter().any(|block| !block.slices.is_empty());
                    for (position_in_round, block) in (0..).zip(blocks) {
                        // It is the machine's; one of them has it.
                        let (steal_ns, reference) = (std::mem::take(&mut steal_ns), reference.take());
                        self.add(Block { round, position_in_round, steal_ns, reference, ..block });
                    }
                }
                Err((index, error)) => self.leave_out(index, error)?,
            }
            self.progress(&format!("round {}: slices", round + 1));
            self.observer.interim(self.journal.record());
            // What the first ones took beyond their time made servers warm.
            let now = self.clock.now();
            let until = *until.get_or_insert(now + length.saturating_sub((now - began).min(SLICES_KEPT_AFTER)));
            left = until.saturating_duration_since(now);
            // Slices end a little before or after their time.
            if left <= length.min(SLICES_KEPT_AFTER) / 2 || self.is_bounded && self.left().is_zero() {
                return Ok(());
            }
        }
    }

    /// The configurations of one round. Where there are several, the server as is comes twice, as it takes part in
    /// every comparison: one more block narrows all intervals. Not where an experiment repeats it by name, which
    /// compares two single ones.
    fn blocks_of_round(&self, mut blocks: Vec<usize>) -> Vec<usize> {
        const COMPARISONS_WORTH_IT: usize = 3;
        let experiment = self.journal.record().kind_part.of::<Experiment>();
        let repeats = |experiment: &Experiment| experiment.configurations.iter().any(|one| one.repeat_of.is_some());
        if blocks.len() > COMPARISONS_WORTH_IT && !experiment.is_some_and(repeats) {
            blocks.extend(blocks.iter().copied().find(|index| self.is_as_is(*index)));
        }
        blocks
    }

    /// `each`: expected duration of a block, where the time is a bound.
    fn round(
        &mut self,
        round: u32,
        order: &[(u32, usize)],
        work: &Work,
        each: Option<Duration>,
    ) -> Result<BlocksOfRound> {
        let (began, mut done) = (self.clock.now(), 0);
        let mut outcome = BlocksOfRound::Complete;
        for (position, &(turn, index)) in (0..).zip(order) {
            interrupt::check(self.stop)?;
            if !self.is_valid(index) {
                continue;
            }
            let now = self.clock.now();
            // As slow as those before it.
            let takes = each.map(|each| if done > 0 { each.max((now - began) / done) } else { each });
            if takes.is_some_and(|takes| now + takes > self.bound.end()) {
                return Ok(BlocksOfRound::OutOfTime);
            }
            let reference = self.reference();
            match self.block(index, Some(turn), work) {
                Ok(block) => self.add(Block { round, position_in_round: position, reference, ..block }),
                Err(error) => {
                    self.leave_out(index, error)?;
                    outcome = BlocksOfRound::Broken;
                    continue;
                }
            }
            done += 1;
            self.progress(&format!("round {}: {}", round + 1, self.name(index)));
        }
        Ok(outcome)
    }

    pub(super) fn block(&mut self, index: usize, turn: Option<u32>, work: &Work) -> Result<Block> {
        self.subject.ready(index, turn)?;
        let started_ns = (self.clock.now() - self.bound.started).as_nanos() as u64;
        let steal_before = manifest::steal_ns();
        let block = self.subject.block(index, work, &mut self.journal)?;
        let steal_ns = manifest::steal_ns().saturating_sub(steal_before);
        Ok(Block { configuration: index, started_ns, steal_ns, ..block })
    }

    fn reference(&mut self) -> Option<Reference> {
        self.pace.as_mut().and_then(ReferenceWork::if_due)
    }

    /// Reports only the first failure of the store.
    fn add(&mut self, block: Block) {
        let block = Block { round: self.first_round + block.round, ..block };
        let worked = self.journal.failure().is_none();
        self.journal.add_block(block);
        if worked && let Some(failure) = self.journal.failure() {
            self.observer.warn(&failure.to_string());
        }
    }

    /// Leaves out a configuration whose server has died or hangs, and keeps its results so far. Fails without the
    /// untouched server, with which all are compared, and on errors that are not the server's fault.
    pub(super) fn leave_out(&mut self, index: usize, error: anyhow::Error) -> Result<()> {
        interrupt::check(self.stop)?;
        let is_of_server = fault_of(&error).is_some_and(Fault::is_of_server);
        if !is_of_server || self.is_as_is(index) || !self.subject.leave_out(index) {
            return Err(error);
        }
        let what = format!("\"{}\" was left out: {error:#}", self.name(index));
        self.observer.warn(&what);
        let remedy = "The other results stand; read its server's error log";
        self.journal.change(|record| {
            record.configurations[index].valid = false;
            record.configurations[index].warnings.push(Warning::new("left_out", what).with_remedy(remedy));
        });
        Ok(())
    }

    pub(super) fn progress(&mut self, text: &str) {
        self.observer.progress(self.clock.now() - self.bound.started, self.bound.time, text);
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.journal.record().configurations[index].name
    }

    fn is_valid(&self, index: usize) -> bool {
        self.journal.record().configurations[index].valid
    }

    pub(super) fn is_as_is(&self, index: usize) -> bool {
        self.journal.record().configurations[index].role == Role::AsIs
    }
}
