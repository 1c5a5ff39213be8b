//! What another run of an experiment would show: runs differ by more than the intervals of each say.
//!
//! An interval from the rounds of one run knows what changes within that run. A machine whose caches others use all
//! the time is another machine an hour later, and no round of one run shows that. So each run keeps what the earlier
//! ones of the same experiment told on this machine, and the variance between runs is estimated from them as in a
//! random-effects meta-analysis: the variance of their estimates less the mean variance that their own intervals
//! explain (Hedges and Olkin, 1985, chapter 9).

use std::collections::BTreeMap;

use serde::Serialize;
use tlsdyno_base::distribution::student_t_two_sided;
use tlsdyno_record::model::Experiment;
use tlsdyno_record::store::{EarlierRun, EarlierShare, Record, Store, StoreError};
use tlsdyno_stats::robust::mean_and_variance;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::Metric;

use super::shares::Shares;

/// Name of what provider and shim cost with nothing off.
pub const INSTRUMENT: &str = "instrument";

/// Minimum number of runs, this one included, for an interval between runs: with fewer, Student's t makes it too wide.
pub const RUNS_LEAST: usize = 4;

/// More runs than this are not kept; the oldest are dropped.
const RUNS_KEPT: usize = 40;

const NORMAL_95: f64 = 1.96;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BetweenRuns {
    pub stage: String,
    /// Number of runs, this one included.
    pub runs: usize,
    pub percent: f64,
    /// Lower end of the 95 % interval that holds for other runs too, per cent.
    pub low: f64,
    pub high: f64,
    pub mean_percent: f64,
    pub least_percent: f64,
    pub most_percent: f64,
}

pub fn handed_on(record: &Record) -> Vec<EarlierRun> {
    let own = EarlierRun { created_unix_s: record.created_unix_s, shares: of_run(&Shares::of(&Rounds::of(record))) };
    let all = || record.manifest.earlier_runs.iter().cloned().chain([own.clone()]);
    all().filter(|run| !run.shares.is_empty()).rev().take(RUNS_KEPT).collect::<Vec<_>>().into_iter().rev().collect()
}

pub fn essence(of: &Experiment) -> Experiment {
    let mut essence = Experiment { question: String::new(), ..of.clone() };
    (essence.measure.seed, essence.measure.time_s, essence.measure.until_percent) = (None, 0.0, None);
    essence
}

/// The experiment of a record without what changes no number; `None`: a kind that compares no runs.
pub fn asked(record: &Record) -> Option<Experiment> {
    record.kind_part.of().map(essence)
}

/// Whether runs of both may be compared: they measured the same, of the same server, with the same tool, on the same
/// machine. `of` may only be about to measure.
pub fn is_another_run(of: &Record, earlier: &Record) -> bool {
    let circumstances = |record: &Record| {
        let of = record.manifest.clone();
        (of.tool_version, of.kernel, of.machine, of.cpus, of.openssl_version, of.server_version)
    };
    let asked_of = asked(of);
    // A machine that nobody described is not known to be this one.
    let is_known = of.manifest.machine.is_some();
    is_known && asked_of.is_some() && circumstances(of) == circumstances(earlier) && asked_of == asked(earlier)
}

/// Number of the last records of the same experiment that are searched for an earlier run.
const RECORDS_LOOKED_AT: usize = 5;

/// Earlier runs of the same experiment in the store. A store that cannot be read is reported when the journal begins.
pub(crate) fn earlier_runs(record: &Record) -> Vec<EarlierRun> {
    let find = || -> Result<Vec<EarlierRun>, StoreError> {
        let Some(asked) = asked(record) else { return Ok(Vec::new()) };
        let store = Store::open_for_reading()?;
        let asks_the_same = |(_, earlier): &(String, Experiment)| essence(earlier) == asked;
        for (id, _) in store.finished()?.into_iter().filter(asks_the_same).take(RECORDS_LOOKED_AT) {
            let earlier = store.load(&id)?;
            if is_another_run(record, &earlier) {
                return Ok(handed_on(&earlier));
            }
        }
        Ok(Vec::new())
    };
    find().unwrap_or_default()
}

/// In the order of the shares; empty with fewer than [`RUNS_LEAST`] runs.
pub(super) fn between_runs(shares: &Shares, earlier: &[EarlierRun]) -> Vec<BetweenRuns> {
    let own = of_run(shares);
    let names = shares.by(Metric::Cpu).map(|share| share.stage.as_str()).chain([INSTRUMENT]);
    names
        .filter_map(|name| {
            let last = own.get(name)?;
            let told: Vec<EarlierShare> = earlier.iter().filter_map(|run| run.shares.get(name)).copied().collect();
            let all: Vec<EarlierShare> = told.into_iter().chain([*last]).collect();
            (all.len() >= RUNS_LEAST).then(|| of_share(name, *last, &all))
        })
        .collect()
}

fn of_share(name: &str, last: EarlierShare, all: &[EarlierShare]) -> BetweenRuns {
    let percents: Vec<f64> = all.iter().map(|run| run.percent).collect();
    let (mean_percent, scatter) = mean_and_variance(&percents);
    let explained = all.iter().map(|run| variance(*run)).sum::<f64>() / all.len() as f64;
    let between = (scatter - explained).max(0.0);
    // Never narrower than what the run says of itself.
    let half = match between > 0.0 {
        true => student_t_two_sided(0.95, all.len() as f64 - 1.0) * (between + variance(last)).sqrt(),
        false => last.half_width_percent,
    };
    let half = half.max(last.half_width_percent);
    BetweenRuns {
        stage: name.to_owned(),
        runs: all.len(),
        percent: last.percent,
        low: last.percent - half,
        high: last.percent + half,
        mean_percent,
        least_percent: percents.iter().copied().fold(f64::INFINITY, f64::min),
        most_percent: percents.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

fn variance(of: EarlierShare) -> f64 {
    (of.half_width_percent / NORMAL_95).powi(2)
}

fn of_run(shares: &Shares) -> BTreeMap<String, EarlierShare> {
    let named = shares.by(Metric::Cpu).map(|of| (of.stage.as_str(), of.estimate()));
    let instrument = shares.instrument.iter().filter(|of| of.metric == Metric::Cpu);
    let all = named.chain(instrument.map(|of| (INSTRUMENT, of.estimate())));
    all.filter(|(_, of)| of.is_known() && of.has_interval())
        .map(|(name, of)| (name.to_owned(), EarlierShare { percent: of.value, half_width_percent: of.half_width() }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_record::model::Experiment;
    use tlsdyno_record::store::{KindPart, Machine, Manifest};

    fn runs(of: &[(f64, f64)]) -> Vec<EarlierShare> {
        of.iter().map(|&(percent, half_width_percent)| EarlierShare { percent, half_width_percent }).collect()
    }

    /// What is known only while a run measures is not yet in the one that begins.
    #[test]
    fn a_run_that_begins_finds_the_finished_ones() {
        let run = |seed, version: &str| {
            let mut experiment = Experiment::default();
            experiment.measure.seed = Some(seed);
            experiment.question = format!("What does it cost, in the words of run {seed}?");
            let mut record = Record::begun_now(&experiment.question, seed);
            record.kind_part = KindPart::from(experiment);
            record.manifest.openssl_version = version.to_owned();
            record.manifest.machine = Some(Machine::default());
            record
        };
        let mut finished = run(1, "3.0");
        finished.finished = true;
        finished.manifest.negotiated = "TLSv1.3".to_owned();
        assert!(is_another_run(&run(2, "3.0"), &finished));
        assert!(!is_another_run(&run(2, "3.5"), &finished));
        assert!(!is_another_run(&Record::begun_now("?", 1), &finished));
        let with = |machine| Record { manifest: Manifest { machine, ..finished.manifest.clone() }, ..finished.clone() };
        let masked =
            Machine { environment: Some([("GODEBUG".into(), "cpu.adx=off".into())].into()), ..Machine::default() };
        assert!(!is_another_run(&run(2, "3.0"), &with(Some(masked))), "with other features");
        let old = with(None);
        assert!(!is_another_run(&run(2, "3.0"), &old) && !is_another_run(&old, &old), "of old records nobody knows");
    }

    #[test]
    fn runs_that_agree_leave_the_interval_as_it_is() {
        let all = runs(&[(40.0, 1.0), (40.2, 1.0), (39.9, 1.0), (40.1, 0.8)]);
        let said = of_share("authentication", all[3], &all);
        assert!((said.low - 39.3).abs() < 1e-9 && (said.high - 40.9).abs() < 1e-9, "{said:?}");
        assert_eq!((said.runs, said.least_percent, said.most_percent), (4, 39.9, 40.2));
    }

    #[test]
    fn runs_that_differ_by_more_than_they_say_widen_it() {
        let all = runs(&[(6.0, 0.2), (8.0, 0.2), (6.0, 0.2), (8.0, 0.2)]);
        let said = of_share("plain_http", all[3], &all);
        // Variance 4/3 between runs, t of 3 degrees 3.182: 3.67 to either side.
        assert!((said.high - 8.0 - 3.68).abs() < 0.03 && said.low < said.mean_percent, "{said:?}");
    }

    #[test]
    fn intervals_hold_the_mean_of_many_runs() {
        let mut random = SplitMix64::new(7);
        let normal = |random: &mut SplitMix64| {
            let uniform = |random: &mut SplitMix64| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
        };
        let (mut held, mut held_alone) = (0, 0);
        for _ in 0..500 {
            // Runs differ by 0.8 and know their own error of 0.4.
            let percent = |random: &mut SplitMix64| 10.0 + 0.8 * normal(random) + 0.4 * normal(random);
            let all: Vec<(f64, f64)> = (0..8).map(|_| (percent(&mut random), 0.4 * NORMAL_95)).collect();
            let all = runs(&all);
            let said = of_share("kdf", all[7], &all);
            held += usize::from(said.low <= 10.0 && said.high >= 10.0);
            held_alone += usize::from((all[7].percent - 10.0).abs() <= all[7].half_width_percent);
        }
        // Student's t of the whole variance, a part of which is known, holds somewhat more than 95 %.
        assert!((475..=496).contains(&held) && held_alone < 350, "{held} and {held_alone} of 500");
    }
}
