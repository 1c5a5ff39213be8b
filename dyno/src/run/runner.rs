//! The one runner of all experiments: measures the blocks of a [`Subject`] round after round in random order until the
//! time is up, and adds each to the record at once, so that nothing is lost when something breaks later.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};

use super::manifest;
use super::observer::Observer;
use super::schedule::{Schedule, Work, order_of_round};
use crate::fault::{Fault, OrFault, fault_of};
use crate::interrupt;
use crate::model::{Experiment, Measure};
use crate::random::SplitMix64;
use crate::stats::statement::FEW_ROUNDS;
use crate::stats::{Shares, between_runs};
use crate::store::{Block, Calibration, EarlierRun, Journal, Kind, Listing, Record, Store, StoreError, Warning};

/// Where a number of rounds is asked for, and where there are slices, so many are measured whatever time they take:
/// fewer have no spread. Where slices are to fit a number of rounds it is [`FEW_ROUNDS`]: fewer resolve nothing.
const ROUNDS_LEAST: u32 = 3;
/// What was measured in slices is kept in the store after so long.
const SLICES_KEPT_AFTER: Duration = Duration::from_secs(2);
/// The first look at how wide intervals are comes after so many rounds: an interval from few values is itself
/// uncertain, and who stops at the first narrow one stops at those that are too narrow by chance.
const ROUNDS_BEFORE_LOOK: u32 = 6;
/// A warm-up shorter than this is repeated with more work.
const WARM_UP_MIN: Duration = Duration::from_millis(120);
/// Part of the time budget that the warm-ups may take.
const WARM_UP_BUDGET: f64 = 0.2;
/// So often a warm-up is tried in which some requests fail.
const WARM_UPS_MAX: u32 = 3;

/// What is measured: configurations that are up, each of which can carry out a block of work.
///
/// How a block is carried out is the subject's business alone: one process may hold several configurations and switch
/// between them within milliseconds, and several processes may make the load.
pub trait Subject {
    /// The work of a configuration's warm-up: `factor` times the least, but no more than there is.
    fn warm_up(&self, index: usize, factor: u32) -> Work;

    /// A warm-up of which this came shows that the configuration can be measured.
    fn is_warm(&self, block: &Block) -> bool {
        block.errors.is_empty()
    }

    /// Chooses the size of blocks for the time left, from the seconds that a request took in each block of a round.
    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan;

    /// Draws what is random in the work of a round.
    fn draw(&self, work: Work, _random: &mut SplitMix64) -> Work {
        work
    }

    /// Time that [`Subject::begin_round`] will take before a round of these blocks.
    fn time_to_begin_round(&self, _blocks: &[usize]) -> Duration {
        Duration::ZERO
    }

    /// Gets ready for a round of these blocks, of which `first` comes first.
    fn begin_round(&mut self, _blocks: &[usize], _first: usize) -> Result<()> {
        Ok(())
    }

    /// Gets a configuration ready for a block. `turn`: it was measured so often in this round; `None`: it warms up.
    fn ready(&mut self, _index: usize, _turn: Option<u32>) -> Result<()> {
        Ok(())
    }

    /// Carries out a block. The runner adds to it when it ran, and which one it is.
    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block>;

    /// Carries out slices of these configurations for about so long, where [`Plan::slices`] has time for them: a block
    /// of them for each configuration. An error is that of one configuration. `since`: the start of the experiment.
    fn slices(
        &mut self,
        _configurations: &[usize],
        _length: Duration,
        _since: Instant,
        _random: &mut SplitMix64,
    ) -> Result<Vec<Block>, (usize, anyhow::Error)> {
        Ok(Vec::new())
    }

    /// Ends a configuration whose server has failed. Whether the others can be measured without it.
    fn leave_out(&mut self, _index: usize) -> bool {
        false
    }

    /// What the logs of a configuration's servers end with, as the end of an error message.
    fn log_tail(&mut self, index: usize) -> String;

    /// What the reader must know after the last block.
    fn warnings(&self) -> Vec<Warning> {
        Vec::new()
    }
}

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
    fn fitting(&self, round: u32, left: Duration, beside: Duration, starting: Duration) -> Duration {
        let wanted = self.rounds_wanted.map_or(0, |wanted| wanted.saturating_sub(round));
        // So many have slices for as long as was planned, or as they take to begin.
        let most = self.length.max(starting);
        let worth = (left.as_secs_f64() / (beside + most).as_secs_f64()) as u32;
        let rounds = wanted.min(worth.max(self.rounds_least.saturating_sub(round)).max(1));
        left.checked_div(rounds).map_or(self.length, |each| each.saturating_sub(beside).min(most))
    }

    /// Whether a round has blocks, when they have taken so much of the time.
    fn has_blocks(&self, round: u32, taken: Duration, of: Duration) -> bool {
        self.blocks_share.is_some_and(|share| round == 0 || taken <= of.mul_f64(share))
    }
}

/// A finished run. What was measured comes back even when measuring was cut short.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub record: Record,
    /// Why measuring ended before its time: Ctrl-C, a server that died.
    pub cut_short: Option<anyhow::Error>,
    /// The record is in the store.
    pub stored: bool,
}

/// Starts and checks a subject. The first of an experiment also fills in configurations and circumstances.
pub type Start<'a> = Box<dyn FnOnce(&mut Record, &mut dyn Observer) -> Result<Box<dyn Subject + 'a>> + 'a>;

/// Measures the subject that `start` starts and checks; it also fills in configurations and circumstances. An error
/// means that measuring did not begin.
pub fn run<'a, S: Subject + 'a>(
    question: &str,
    measure: &Measure,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
    start: impl FnOnce(&mut Record, &mut dyn Observer) -> Result<S> + 'a,
) -> Result<Finished> {
    run_in_turn(question, measure, stop, observer, [boxed(start)])
}

/// A start as [`run_in_turn`] takes it.
pub fn boxed<'a, S: Subject + 'a>(start: impl FnOnce(&mut Record, &mut dyn Observer) -> Result<S> + 'a) -> Start<'a> {
    Box::new(move |record, observer| Ok(Box::new(start(record, observer)?)))
}

/// Measures several subjects of the same configurations, one after the other, for one record: each begins when the one
/// before has ended, and has the whole time of `measure`. An error means that measuring did not begin.
pub fn run_in_turn<'a>(
    question: &str,
    measure: &Measure,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
    starts: impl IntoIterator<Item = Start<'a>>,
) -> Result<Finished> {
    let mut starts = starts.into_iter();
    let now_ns = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
    let seed = measure.seed.unwrap_or_else(now_ns);
    let mut record = Record::begun_now(question, seed);
    manifest::describe_machine(&mut record.manifest);
    let first = starts.next().context("an experiment measures something")?;
    let mut subject = first(&mut record, observer)?;
    record.manifest.calibration = Calibration::last(&record.manifest.server_name);
    record.manifest.earlier_runs = earlier_runs(&record);
    record.warnings.extend(manifest::governor_warning(&record.manifest));
    let mut journal = Journal::begin(record);
    if let Some(failure) = journal.failure() {
        observer.warn(&failure.to_string());
    }
    let budget = Duration::from_secs_f64(measure.time_s);
    let mut first_round = 0;
    let outcome = loop {
        let started = Instant::now();
        let mut run = Run { subject, measure, journal, stop, observer, started, budget, first_round };
        let outcome = run.measure(seed);
        journal = run.journal;
        let warnings = run.subject.warnings();
        // Its servers end before those of the next one start.
        drop(run.subject);
        journal.change(|record| record.warnings.extend(warnings));
        let Some(start) = starts.next().filter(|_| outcome.is_ok()) else { break outcome };
        let mut next = None;
        journal.change(|record| next = Some(start(record, observer)));
        subject = match next.context("a start was not called")? {
            Ok(next) => next,
            // What was measured stays.
            Err(error) => break Err(error),
        };
        first_round = journal.record().blocks.iter().map(|block| block.round + 1).max().unwrap_or(0);
    };
    observer.finished();
    drop(starts);
    Ok(end(journal, outcome))
}

/// So many of the last records that ask the same are looked at for an earlier run.
const RECORDS_LOOKED_AT: usize = 5;

/// What the store knows of earlier runs of the experiment that begins. A store that cannot be read says so when the
/// journal begins.
fn earlier_runs(record: &Record) -> Vec<EarlierRun> {
    let find = || -> Result<Vec<EarlierRun>, StoreError> {
        let store = Store::open_for_reading()?;
        let asks_the_same = |listed: &Listing| listed.finished && listed.question == record.question;
        for listed in store.list()?.into_iter().filter(asks_the_same).take(RECORDS_LOOKED_AT) {
            let earlier = store.load(&listed.id)?;
            if between_runs::is_another_run(record, &earlier) {
                return Ok(between_runs::handed_on(&earlier));
            }
        }
        Ok(Vec::new())
    };
    find().unwrap_or_default()
}

/// Ends the record with how measuring ended.
fn end(mut journal: Journal, outcome: Result<()>) -> Finished {
    let cut_short = outcome.err();
    if let Some(error) = &cut_short {
        let cause = match fault_of(error) {
            // Whatever was waited for then is no news.
            Some(Fault::Interrupted) => interrupt::CAUSE.to_owned(),
            _ => format!("{error:#}"),
        };
        let warning = Warning::Stopped { rounds: journal.complete_rounds(), cause };
        journal.change(|record| record.warnings.push(warning));
    }
    let (record, stored) = journal.finish(cut_short.is_none(), Path::new("."));
    Finished { record, cut_short, stored }
}

/// A subject that is being measured.
struct Run<'a, 'b> {
    subject: Box<dyn Subject + 'b>,
    measure: &'a Measure,
    journal: Journal,
    stop: &'a AtomicBool,
    observer: &'a mut dyn Observer,
    started: Instant,
    budget: Duration,
    /// Number of its first round in the record.
    first_round: u32,
}

impl Run<'_, '_> {
    fn measure(&mut self, seed: u64) -> Result<()> {
        self.observer.step("warming up and calibrating");
        let seconds_per_request = self.warm_up()?;
        let blocks = self.blocks_of_round(seconds_per_request.keys().copied().collect());
        let turns = (0..self.measure.turns).flat_map(|_| blocks.iter().map(|index| seconds_per_request[index]));
        let left = self.budget.saturating_sub(self.started.elapsed());
        let Plan { schedule, works, rounds_most, slices, warnings } =
            self.subject.plan(&turns.collect::<Vec<_>>(), left);
        self.journal.change(|record| record.warnings.extend(warnings));
        self.observer.measuring(&schedule, seconds_per_request.len());
        let mut random = SplitMix64::new(seed);
        let mut slowest: Option<f64> = None;
        let wanted = slices.and_then(|slices| slices.rounds_wanted);
        let least = match (self.measure.rounds, wanted) {
            (None, None) if slices.is_none() => 1,
            (_, wanted) => wanted.map_or(ROUNDS_LEAST, |wanted| wanted.clamp(ROUNDS_LEAST, FEW_ROUNDS)),
        };
        let measuring = Instant::now();
        // What rounds took besides their slices; of that, beginning them, and their blocks.
        let [mut beside, mut starting, mut in_blocks] = [Duration::ZERO; 3];
        for (round, work) in (0_u32..).zip(works.iter().cycle()) {
            let work = self.subject.draw(work.clone(), &mut random);
            let order = order_of_round(&blocks, self.measure.turns, &mut random);
            let order: Vec<(u32, usize)> = order.into_iter().filter(|(_, index)| self.is_valid(*index)).collect();
            let blocks: Vec<usize> = blocks.iter().copied().filter(|index| self.is_valid(*index)).collect();
            let has_blocks = slices.is_none_or(|slices| slices.has_blocks(round, in_blocks, measuring.elapsed()));
            let of_blocks = slowest.map(|slowest| schedule.predicted(work.piece.requests, slowest));
            let left = self.budget.saturating_sub(self.started.elapsed());
            let [a_beside, a_starting] = [beside, starting].map(|all| all / round.max(1));
            let length = slices.map(|slices| slices.fitting(round, left, a_beside, a_starting));
            let began = Instant::now();
            // A round that would not fit is not begun: --time is a bound.
            if let Some(of_blocks) = if has_blocks { of_blocks } else { Some(Duration::ZERO) }
                && round >= least
                && (left.is_zero()
                    || self.subject.time_to_begin_round(&blocks) + length.unwrap_or_default() + of_blocks > left)
            {
                // Slices fit into any time; their servers are those of the round before.
                let fits = slices.is_some() && !left.is_zero();
                return if fits { self.slices(round.saturating_sub(1), left, &mut random) } else { Ok(()) };
            }
            self.subject.begin_round(&blocks, order[0].1)?;
            starting += began.elapsed();
            // They come first: whoever stops it early has an interval.
            let mut sliced = Duration::ZERO;
            if let Some(length) = length {
                let began = Instant::now();
                self.slices(round, length, &mut random)?;
                sliced = began.elapsed().min(length);
                // Servers that were just started get warm first.
                starting += began.elapsed() - sliced;
            }
            if has_blocks {
                let blocks_began = Instant::now();
                if !self.round(round, &order, &work)? {
                    if rounds_most == Some(round + 1) {
                        break;
                    }
                    // A round with time-outs in it says nothing about the next.
                    continue;
                }
                in_blocks += blocks_began.elapsed();
                let seconds = schedule.seconds_per_request_of(blocks_began.elapsed(), work.piece.requests);
                slowest = Some(slowest.map_or(seconds, |slowest| slowest.max(seconds)));
            }
            beside += began.elapsed().saturating_sub(sliced);
            self.observer.interim(self.journal.record());
            if self.is_precise(round + 1) || rounds_most == Some(round + 1) {
                break;
            }
        }
        Ok(())
    }

    /// Whether every share is known as well as was asked for, after so many rounds.
    fn is_precise(&self, rounds: u32) -> bool {
        let reached = || Shares::of(self.journal.record()).widest_points();
        let wanted = self.measure.until_percent.filter(|_| rounds >= ROUNDS_BEFORE_LOOK);
        wanted.is_some_and(|wanted| reached().is_some_and(|reached| reached <= wanted))
    }

    /// Measures slices of all configurations for so long. What was measured is kept every now and then.
    fn slices(&mut self, round: u32, length: Duration, random: &mut SplitMix64) -> Result<()> {
        let (began, mut until) = (Instant::now(), None);
        let mut left = length;
        loop {
            interrupt::check(self.stop)?;
            let valid: Vec<usize> =
                (0..self.journal.record().configurations.len()).filter(|index| self.is_valid(*index)).collect();
            let steal_before = manifest::steal_ns();
            match self.subject.slices(&valid, left.min(SLICES_KEPT_AFTER), self.started, random) {
                Ok(blocks) => {
                    let mut steal_ns = manifest::steal_ns().saturating_sub(steal_before);
                    for (position_in_round, block) in (0..).zip(blocks) {
                        // It is the machine's; one of them has it.
                        self.add(Block { round, position_in_round, steal_ns: std::mem::take(&mut steal_ns), ..block });
                    }
                }
                Err((index, error)) => self.leave_out(index, error)?,
            }
            self.progress(&format!("round {}: slices", round + 1));
            self.observer.interim(self.journal.record());
            // What the first ones took beyond their time made servers warm.
            let now = Instant::now();
            let until = *until.get_or_insert(now + length.saturating_sub((now - began).min(SLICES_KEPT_AFTER)));
            left = until.saturating_duration_since(now);
            // Slices end a little before or after their time.
            if left <= length.min(SLICES_KEPT_AFTER) / 2 {
                return Ok(());
            }
        }
    }

    /// The configurations of one round. The server as is takes part in every comparison, so where there are several it
    /// is measured twice: that narrows all intervals for the price of one block. An experiment that repeats it by
    /// name compares two single ones.
    fn blocks_of_round(&self, mut blocks: Vec<usize>) -> Vec<usize> {
        const COMPARISONS_WORTH_IT: usize = 3;
        let experiment = self.journal.record().measured.experiment();
        let repeats = |experiment: &Experiment| experiment.configurations.iter().any(|one| one.repeat_of.is_some());
        if blocks.len() > COMPARISONS_WORTH_IT && !experiment.is_some_and(repeats) {
            blocks.extend(blocks.iter().copied().find(|index| self.is_as_is(*index)));
        }
        blocks
    }

    /// Runs every configuration once: warm-up and timing. Returns seconds per request for each that passes.
    fn warm_up(&mut self) -> Result<BTreeMap<usize, f64>> {
        let configurations = &self.journal.record().configurations;
        let valid: Vec<usize> = (0..configurations.len()).filter(|index| configurations[*index].valid).collect();
        let share = self.budget.mul_f64(WARM_UP_BUDGET / valid.len().max(1) as f64);
        let wanted = WARM_UP_MIN.min(share);
        let mut seconds = BTreeMap::new();
        // The untouched server first: what it achieves of the declared reuse is the measure of the others.
        let (as_is, others): (Vec<usize>, Vec<usize>) = valid.iter().partition(|index| self.is_as_is(**index));
        for (number, index) in (1..).zip(as_is.into_iter().chain(others)) {
            self.progress(&format!("warm-up {number} of {}", valid.len()));
            let mut factor: u32 = 1;
            loop {
                interrupt::check(self.stop)?;
                let work = self.subject.warm_up(index, factor);
                let block = match self.warm_up_block(index, &work) {
                    Ok(block) => block,
                    Err(error) => {
                        self.leave_out(index, error)?;
                        break;
                    }
                };
                let elapsed = Duration::from_nanos(block.elapsed_ns);
                let more = factor.saturating_mul(2);
                if elapsed >= wanted || self.subject.warm_up(index, more) == work {
                    seconds.insert(index, elapsed.as_secs_f64() / block.hits.max(1) as f64);
                    break;
                }
                factor = more;
            }
        }
        Ok(seconds)
    }

    fn warm_up_block(&mut self, index: usize, work: &Work) -> Result<Block> {
        let (block, repeated) = warmed(|| self.block(index, None, work))?;
        if self.subject.is_warm(&block) {
            if let Some(warning) = repeated {
                self.journal.change(|record| record.configurations[index].warnings.push(warning));
            }
            return Ok(block);
        }
        let failed = block.errors.iter().next();
        let failed = failed.map(|(kind, count)| format!("{count} requests failed ({kind}): ")).unwrap_or_default();
        let said = block.warnings.iter().map(Warning::to_string).collect::<Vec<_>>().join(" ");
        let tail = self.subject.log_tail(index);
        let error = anyhow!("warm-up of \"{}\": {failed}{}{tail}", self.name(index), said.trim_end_matches('.'));
        Err(error).or_fault(Fault::Server)
    }

    /// Measures the configurations in this order. Whether none had to be left out.
    fn round(&mut self, round: u32, order: &[(u32, usize)], work: &Work) -> Result<bool> {
        let mut complete = true;
        for (position, &(turn, index)) in (0..).zip(order) {
            interrupt::check(self.stop)?;
            if !self.is_valid(index) {
                continue;
            }
            match self.block(index, Some(turn), work) {
                Ok(block) => self.add(Block { round, position_in_round: position, ..block }),
                Err(error) => {
                    self.leave_out(index, error)?;
                    complete = false;
                    continue;
                }
            }
            self.progress(&format!("round {}: {}", round + 1, self.name(index)));
        }
        Ok(complete)
    }

    fn block(&mut self, index: usize, turn: Option<u32>, work: &Work) -> Result<Block> {
        self.subject.ready(index, turn)?;
        let started_ns = self.started.elapsed().as_nanos() as u64;
        let steal_before = manifest::steal_ns();
        let block = self.subject.block(index, work, &mut self.journal)?;
        let steal_ns = manifest::steal_ns().saturating_sub(steal_before);
        Ok(Block { configuration: index, started_ns, steal_ns, ..block })
    }

    /// Adds a block. The first failure of the store is told.
    fn add(&mut self, block: Block) {
        let block = Block { round: self.first_round + block.round, ..block };
        let worked = self.journal.failure().is_none();
        self.journal.add_block(block);
        if worked && let Some(failure) = self.journal.failure() {
            self.observer.warn(&failure.to_string());
        }
    }

    /// A configuration whose server has died or hangs is left out from now on, with what was measured of it: the
    /// others' results stay. Without the untouched server there is nothing to compare with, and what is not the
    /// server's fault ends everything.
    fn leave_out(&mut self, index: usize, error: anyhow::Error) -> Result<()> {
        interrupt::check(self.stop)?;
        let is_of_server = fault_of(&error).is_some_and(Fault::is_of_server);
        if !is_of_server || self.is_as_is(index) || !self.subject.leave_out(index) {
            return Err(error);
        }
        let what = format!("\"{}\" was left out: {error:#}", self.name(index));
        self.observer.warn(&what);
        let remedy = "The other results stand; read its server's error log".to_owned();
        self.journal.change(|record| {
            record.configurations[index].valid = false;
            record.configurations[index].warnings.push(Warning::Other { what, remedy });
        });
        Ok(())
    }

    fn progress(&mut self, text: &str) {
        let elapsed = self.started.elapsed();
        let done = elapsed.as_secs_f64() / self.budget.as_secs_f64();
        self.observer.progress(done.min(1.0), self.budget.saturating_sub(elapsed), text);
    }

    fn name(&self, index: usize) -> &str {
        &self.journal.record().configurations[index].name
    }

    fn is_valid(&self, index: usize) -> bool {
        self.journal.record().configurations[index].valid
    }

    fn is_as_is(&self, index: usize) -> bool {
        self.journal.record().configurations[index].kind == Kind::AsIs
    }
}

/// Warms up. Where some requests fail it does so again, and tells: only who fails each time cannot serve.
fn warmed(mut once: impl FnMut() -> Result<Block>) -> Result<(Block, Option<Warning>)> {
    let (mut block, mut failed) = (once()?, BTreeMap::<String, u64>::new());
    for _ in 1..WARM_UPS_MAX {
        // Of a server that answers nothing no repetition tells more.
        if block.errors.is_empty() || block.hits == 0 {
            break;
        }
        block.errors.iter().for_each(|(kind, count)| *failed.entry(kind.clone()).or_default() += count);
        block = once()?;
    }
    let kinds: Vec<String> = failed.iter().map(|(kind, count)| format!("{count} ({kind})")).collect();
    let warning = (!kinds.is_empty()).then(|| Warning::Other {
        what: format!("requests failed in a warm-up, which was repeated: {}", kinds.join(", ")),
        remedy: "What was measured has its own count of failures; the server's error log may say why".to_owned(),
    });
    Ok((block, warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of warm-ups with so many failed requests each, and so many hits.
    fn warm_ups(failures: &[u64], hits: u64) -> (usize, Block, Option<String>) {
        let mut count = 0;
        let (block, warning) = warmed(|| {
            let failed = failures[count.min(failures.len() - 1)];
            count += 1;
            let errors = (failed > 0).then(|| ("reset".to_owned(), failed)).into_iter().collect();
            Ok(Block { errors, hits, ..Block::default() })
        })
        .unwrap();
        (count, block, warning.map(|warning| warning.to_string()))
    }

    #[test]
    fn a_warm_up_with_failed_requests_is_repeated_and_counted() {
        let (count, block, said) = warm_ups(&[0], 9);
        assert!(count == 1 && block.errors.is_empty() && said.is_none());
        let (count, block, said) = warm_ups(&[1, 2, 0], 9);
        assert!(count == 3 && block.errors.is_empty(), "{count}");
        assert!(said.unwrap().contains("repeated: 3 (reset)"));
        let (count, block, _) = warm_ups(&[1], 9);
        assert!(count == WARM_UPS_MAX as usize && !block.errors.is_empty(), "who fails each time is left out");
        assert_eq!(warm_ups(&[1], 0).0, 1, "who answers nothing is not asked again");
    }

    #[test]
    fn slices_leave_time_for_the_rounds_that_are_wanted() {
        let seconds = Duration::from_secs;
        let slices = SlicesOfRound { length: seconds(2), rounds_wanted: Some(8), rounds_least: 8, blocks_share: None };
        let none = Duration::ZERO;
        assert_eq!(slices.fitting(0, seconds(16), none, none), seconds(2));
        // What a round takes besides is half of what is left for it, or all of it.
        assert_eq!(slices.fitting(4, seconds(8), seconds(1), seconds(1)), seconds(1));
        assert_eq!(slices.fitting(4, seconds(8), seconds(3), seconds(3)), none);
        // More time than was planned makes no longer slices, and more rounds are as long as planned.
        assert_eq!(slices.fitting(7, seconds(9), none, none), seconds(2));
        assert_eq!(slices.fitting(8, seconds(1), seconds(1), seconds(1)), seconds(2));
        let unbounded = SlicesOfRound { rounds_wanted: None, ..slices };
        assert_eq!(unbounded.fitting(4, seconds(8), seconds(3), seconds(3)), seconds(2));
    }

    #[test]
    fn rounds_that_take_long_to_begin_are_fewer_and_longer() {
        let seconds = Duration::from_secs;
        let slices =
            SlicesOfRound { length: seconds(4), rounds_wanted: Some(90), rounds_least: 8, blocks_share: Some(0.6) };
        // As long as beginning them takes, whatever blocks take besides.
        assert_eq!(slices.fitting(1, seconds(400), seconds(10), seconds(10)), seconds(10));
        assert_eq!(slices.fitting(1, seconds(400), seconds(30), seconds(10)), seconds(10));
        // Eight rounds come all the same.
        assert_eq!(slices.fitting(2, seconds(120), seconds(16), seconds(16)), seconds(4));
        // Blocks that take longer than planned, with servers that start at once, leave slices as they are planned.
        assert_eq!(slices.fitting(1, seconds(280), seconds(10), seconds(0)), seconds(4));
        // Those that begin at once are as planned.
        assert_eq!(slices.fitting(1, seconds(445), seconds(1), seconds(0)), seconds(4));
    }

    #[test]
    fn blocks_have_their_share_of_the_time() {
        let seconds = Duration::from_secs;
        let of =
            |blocks_share| SlicesOfRound { length: seconds(4), rounds_wanted: None, rounds_least: 8, blocks_share };
        assert!(of(Some(0.2)).has_blocks(0, seconds(0), seconds(0)) && !of(None).has_blocks(0, seconds(0), seconds(0)));
        assert!(
            !of(Some(0.2)).has_blocks(1, seconds(3), seconds(8))
                && of(Some(0.2)).has_blocks(2, seconds(3), seconds(16))
        );
        // Some in the first round alone, or in each.
        assert!(!of(Some(0.0)).has_blocks(9, seconds(1), seconds(900)));
        assert!(of(Some(1.0)).has_blocks(9, seconds(900), seconds(900)));
    }
}
