//! The one runner of all experiments: measures the blocks of a [`Subject`] round after round in random order until the
//! time is up, and adds each to the record at once, so that nothing is lost when something breaks later.

mod course;
mod measuring;
mod plan;
mod warming;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, fault_of};
use tlsdyno_base::interrupt;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_record::model::Measure;
use tlsdyno_record::store::{Block, Calibration, Journal, Manifest, Record, Warning};

use self::measuring::Run;
use super::bound::{Bound, MachineClock};
use super::cpus;
use super::manifest;
use super::observer::Observer;
use super::pace::reference::ReferenceWork;
use super::schedule::Work;
use super::sliced::{Failed, TimeOfSlices};
pub use plan::{NextRound, Plan, SlicesOfRound};

/// What is measured: configurations that are up, each of which can carry out a block of work.
///
/// How a block is carried out is the subject's business alone: one process may hold several configurations and switch
/// between them within milliseconds, and several processes may make the load.
pub trait Subject {
    /// Work of a configuration's warm-up: `factor` times the minimum, but no more than there is.
    fn warm_up(&self, index: usize, factor: u32) -> Work;

    /// The warm-up's outcome shows that the configuration can be measured.
    fn is_warm(&self, block: &Block) -> bool {
        block.errors.is_empty()
    }

    /// Stops at the end of measuring even within a sweep or round, so that `--time` is a bound.
    fn is_bounded(&self) -> bool {
        false
    }

    /// Chooses the size of blocks for the time left, from the seconds per request in each block of a round.
    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan;

    /// Prepares for a round. `false`: that would take longer than there is time, and the round does not begin.
    fn begin_round(&mut self, _round: &NextRound) -> Result<bool> {
        Ok(true)
    }

    /// Prepares a configuration for a block. `turn`: number of its earlier blocks in this round; `None`: it warms up.
    fn ready(&mut self, _index: usize, _turn: Option<u32>) -> Result<()> {
        Ok(())
    }

    /// Runs a block. The runner adds its time and number.
    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block>;

    /// Runs slices of these configurations for the time in [`Plan::slices`], and returns a block of them for each
    /// configuration. An error names its configuration.
    fn slices(
        &mut self,
        _configurations: &[usize],
        _time: TimeOfSlices,
        _random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        Ok(Vec::new())
    }

    /// Ends a configuration whose server has failed. Returns whether the others can be measured without it.
    fn leave_out(&mut self, _index: usize) -> bool {
        false
    }

    /// Last lines of the logs of a configuration's servers, for the end of an error message.
    fn log_tail(&mut self, _index: usize) -> String {
        String::new()
    }

    fn warnings(&self) -> Vec<Warning> {
        Vec::new()
    }

    /// Half width of the widest interval of what is asked for, percentage points, which `--until` bounds.
    fn widest_points(&self, _record: &Record) -> Option<f64> {
        None
    }
}

#[derive(Debug)]
pub struct Finished {
    pub record: Record,
    /// Reason why measuring ended before its time: Ctrl-C, a server that died.
    pub cut_short: Option<anyhow::Error>,
    pub stored: bool,
}

/// Starts and checks a subject. The first one of an experiment also fills in configurations and circumstances.
pub type Start<'a> = Box<dyn FnOnce(&mut Record, &mut dyn Observer) -> Result<Box<dyn Subject + 'a>> + 'a>;

/// Measures the subject that `start` starts and checks; `start` also fills in configurations and circumstances. Fails
/// only if measuring did not begin.
pub fn run<'a, S: Subject + 'a>(
    question: &str,
    measure: &Measure,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
    start: impl FnOnce(&mut Record, &mut dyn Observer) -> Result<S> + 'a,
) -> Result<Finished> {
    run_in_turn(question, measure, stop, observer, [boxed(start)])
}

/// Converts to the type that [`run_in_turn`] takes.
pub fn boxed<'a, S: Subject + 'a>(start: impl FnOnce(&mut Record, &mut dyn Observer) -> Result<S> + 'a) -> Start<'a> {
    Box::new(move |record, observer| Ok(Box::new(start(record, observer)?)))
}

/// Measures several subjects of the same configurations in sequence, for one record: each has the whole time of
/// `measure`. Fails only if measuring did not begin.
pub fn run_in_turn<'a>(
    question: &str,
    measure: &Measure,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
    starts: impl IntoIterator<Item = Start<'a>>,
) -> Result<Finished> {
    let (mut starts, mut preparing) = (starts.into_iter(), Instant::now());
    let now_ns = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
    let seed = measure.seed.unwrap_or_else(now_ns);
    let mut record = Record::begun_now(question, seed);
    manifest::describe_machine(&mut record.manifest);
    let first = starts.next().context("an experiment measures something")?;
    let mut subject = first(&mut record, observer)?;
    let mut journal = begun(record, observer);
    let budget = Duration::from_secs_f64(measure.time_s);
    let mut first_round = 0;
    // Without it a run has no pace, and its results stand.
    let mut pace = ReferenceWork::on(cpu_of_reference(&journal.record().manifest)).ok();
    let outcome = loop {
        let bound = Bound::new(Instant::now(), budget);
        let prepared = preparing.elapsed();
        let (is_bounded, round_takes, clock) = (subject.is_bounded(), Duration::ZERO, &MachineClock);
        let pace = &mut pace;
        let mut run =
            Run { subject, measure, journal, stop, observer, clock, bound, is_bounded, round_takes, first_round, pace };
        let outcome = run.measure(seed);
        let nothing = outcome.is_ok().then(|| run.nothing_to_tell()).flatten();
        journal = run.journal;
        let warnings = run.subject.warnings().into_iter().chain(nothing);
        preparing = Instant::now();
        journal.change(|record| {
            record.manifest.preparing_ns += prepared.as_nanos() as u64;
            record.manifest.measuring_ns += (preparing - bound.started).as_nanos() as u64;
        });
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

/// Begins to keep a record, with what this machine knows from before.
fn begun(mut record: Record, observer: &mut dyn Observer) -> Journal {
    record.manifest.calibration = Calibration::last(&record.manifest.server_name);
    record.warnings.extend(manifest::governor_warning(&record.manifest));
    let journal = Journal::begin(record);
    if let Some(failure) = journal.failure() {
        observer.warn(&failure.to_string());
    }
    journal
}

/// The server's first CPU; of a server that was not placed, the load's, else any.
fn cpu_of_reference(of: &Manifest) -> usize {
    let placed = of.server_cpus.first().or(of.client_cpus.first());
    placed.map_or_else(|| cpus::allowed().first().copied().unwrap_or(0), |cpu| *cpu as usize)
}

/// Ends the record with the outcome of measuring.
fn end(mut journal: Journal, outcome: Result<()>) -> Finished {
    let cut_short = outcome.err();
    if let Some(error) = &cut_short {
        let cause = match fault_of(error) {
            // Whatever was waited for then is no news.
            Some(Fault::Interrupted) => interrupt::CAUSE.to_owned(),
            _ => format!("{error:#}"),
        };
        journal.stop(&cause);
    }
    let (record, stored) = journal.finish(cut_short.is_none(), Path::new("."));
    Finished { record, cut_short, stored }
}

#[cfg(test)]
mod tests;
