//! From the record of a calibration experiment to what the instrument can resolve.

use std::collections::BTreeSet;

use serde::Serialize;
use tlsdyno_record::model::{Experiment, Measure};
use tlsdyno_record::store::calibration::{Calibration, Recovered, this_machine};
use tlsdyno_record::store::{Block, Record, Role, Warning};
use tlsdyno_stats::bootstrap::{Column, Estimate};
use tlsdyno_stats::robust::{mean_and_variance, trimmed_mean};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::rows::Rows;

use super::shares::{Share, Shares};

pub use tlsdyno_stats::scatter::Scatter;
use tlsdyno_stats::statement::{Metric, Verdict};
use tlsdyno_stats::sweeps::Sweeps;

#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// Second configuration of the untouched server (A/A comparison).
    pub again: String,
    /// Microseconds burnt by each handshake, and the name of the configuration.
    pub burning: Vec<(f64, String)>,
}

/// Evaluates a calibration: differences of server CPU per hit, paired within rounds. `None` where a configuration has
/// no usable block, or fewer than three rounds are complete.
pub fn evaluate(rounds: &Rounds, names: &Names) -> Option<Calibration> {
    let record = rounds.record();
    let as_is = rounds.find(&Role::AsIs)?;
    // The cost of a mode is that of the untouched server, changed by what it differs from its host by.
    let before = if rounds.sweeps() > 0 { as_is } else { rounds.find(&Role::Loaded)? };
    let index = |name: &str| record.configurations.iter().position(|one| one.name == name && one.valid);
    let mut pairs = vec![(0.0, as_is, index(&names.again)?)];
    for (us, name) in &names.burning {
        pairs.push((*us, before, index(name)?));
    }
    let rows = rounds.rows(Metric::Cpu);
    let columns: Vec<Column> = pairs.iter().map(|(_, before, after)| difference_us(rounds, *before, *after)).collect();
    let recovered = pairs.iter().zip(&columns).map(|((injected_us, ..), column)| {
        let Estimate { value, low, high } = rows.estimate(column);
        Recovered { injected_us: *injected_us, measured_us: value, low_us: low, high_us: high }
    });
    let elapsed_s: f64 = compared(record).map(|block| block.elapsed_ns as f64 / 1e9).sum();
    // The blocks of a configuration in one round count as one.
    let blocks: BTreeSet<(usize, u32)> = compared(record).map(|block| (block.configuration, block.round)).collect();
    let hits: Vec<f64> = rows.of_rounds(&cost_us(rounds, as_is)).iter().flatten().copied().collect();
    Some(Calibration {
        created_unix_s: record.created_unix_s,
        machine: this_machine(),
        server: record.manifest.server_name.clone(),
        certificate: record.manifest.certificate.clone(),
        rounds: rounds.pairs(as_is, pairs[0].2, Metric::Cpu),
        block_s: elapsed_s / blocks.len().max(1) as f64,
        hit_us: trimmed_mean(&hits)?,
        spread_us: common_spread(rows, &columns)?,
        slice_us: None,
        recovered: recovered.collect(),
    })
}

/// The blocks by which CPU per hit is compared: those of slices, where there are any.
fn compared(record: &Record) -> impl Iterator<Item = &Block> {
    let sliced = record.blocks.iter().any(|block| !block.slices.is_empty());
    record.blocks.iter().filter(move |block| block.slices.is_empty() != sliced)
}

/// What a calibration says of the length of its slices, and of this start of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SliceTrial {
    pub asked_us: u64,
    pub slice_us: f64,
    pub sweeps_number: u32,
    /// Server CPU per hit of the untouched server, microseconds.
    pub hit_us: f64,
    /// Spread of the paired differences from round to round, microseconds.
    pub spread_us: f64,
    /// Half width that the 95 % interval of a difference would have after one minute, microseconds.
    pub half_width_us: f64,
    /// Estimate of the largest of the injected costs, microseconds.
    pub largest_us: f64,
    /// What provider and shim cost in this start of the servers, microseconds per hit.
    pub instrument_us: Estimate,
    /// Scatter of the difference of two equal modes (A/A). `None`: too few slices.
    pub scatter: Option<Scatter>,
}

impl SliceTrial {
    /// From the record of a calibration with slices. `None`: it has none, or there is nothing to evaluate.
    pub fn of(rounds: &Rounds, names: &Names) -> Option<SliceTrial> {
        let calibration = evaluate(rounds, names)?;
        let record = rounds.record();
        let slices = || record.blocks.iter().flat_map(|block| &block.slices);
        let began_us = slices().map(|slice| slice.started_us).min()?;
        let ended_us = slices().map(|slice| slice.started_us + u64::from(slice.elapsed_us)).max()?;
        let [as_is, loaded] = [Role::AsIs, Role::Loaded].map(|kind| rounds.find(&kind));
        let instrument_us = rounds.rows(Metric::Cpu).estimate(&difference_us(rounds, as_is?, loaded?));
        let scatter = Sweeps::of_record(record).scatter(loaded?, rounds.named(&names.again)?, calibration.hit_us);
        let rounds_in_a_minute = f64::from(calibration.rounds) * 60e6 / (ended_us - began_us) as f64;
        let measure = &record.kind_part.of::<Experiment>()?.measure;
        Some(SliceTrial {
            asked_us: measure.slice_us.unwrap_or(Measure::SLICE_US),
            slice_us: slices().map(|slice| f64::from(slice.elapsed_us)).sum::<f64>() / slices().count() as f64,
            sweeps_number: rounds.sweeps(),
            hit_us: calibration.hit_us,
            spread_us: calibration.spread_us,
            half_width_us: NORMAL_975 * calibration.spread_us / rounds_in_a_minute.sqrt(),
            largest_us: calibration.recovered.last()?.measured_us,
            instrument_us,
            scatter,
        })
    }
}

const NORMAL_975: f64 = 1.96;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Starts {
    pub starts_number: u32,
    /// Standard deviation between starts, microseconds.
    pub seen_us: f64,
    /// Standard deviation that the intervals explain: the root of their mean variance, microseconds.
    pub explained_us: f64,
}

impl Starts {
    pub fn of(trials: &[SliceTrial]) -> Option<Starts> {
        let seen: Vec<f64> = trials.iter().map(|trial| trial.instrument_us.value).collect();
        let squared_error = |trial: &SliceTrial| (trial.instrument_us.half_width() / NORMAL_975).powi(2);
        let explained = trials.iter().map(squared_error).sum::<f64>() / trials.len() as f64;
        (trials.len() >= 3).then(|| Starts {
            starts_number: trials.len() as u32,
            seen_us: mean_and_variance(&seen).1.sqrt(),
            explained_us: explained.sqrt(),
        })
    }
}

fn cost_us(rounds: &Rounds, index: usize) -> Column {
    rounds.cost(index, Metric::Cpu).into_iter().map(|ns| ns.map(|ns| ns / 1e3)).collect()
}

fn difference_us(rounds: &Rounds, before: usize, after: usize) -> Column {
    let (before, after) = (cost_us(rounds, before), cost_us(rounds, after));
    before.iter().zip(&after).map(|(before, after)| Some((*after)? - (*before)?)).collect()
}

/// The variances of all pairs have the same cause, so that their mean is the best estimate.
fn common_spread(rows: &Rows, columns: &[Column]) -> Option<f64> {
    let spreads: Vec<f64> = columns.iter().map(|column| rows.spread(column)).collect::<Option<_>>()?;
    Some((spreads.iter().map(|spread| spread * spread).sum::<f64>() / spreads.len() as f64).sqrt())
}

/// The detection limit of a record: what its machine's last calibration says of the time that each configuration was
/// measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Detection {
    /// The smallest difference that is found 19 times in 20, per cent of a hit; `None`: the machine was never
    /// calibrated.
    #[serde(rename = "detection_limit_percent")]
    pub limit_percent: Option<f64>,
    #[serde(skip)]
    pub sentence: String,
}

impl Detection {
    pub fn of(record: &Record) -> Detection {
        let Some(calibration) = &record.manifest.calibration else {
            let sentence = "The detection limit is not known: this machine was never calibrated; run `tlsdyno doctor \
                            --calibrate`."
                .to_owned();
            return Detection { limit_percent: None, sentence };
        };
        let seconds = seconds_each(record);
        let limit = calibration.limit_percent(seconds);
        let sentence = if limit.is_finite() {
            format!(
                "Detection limit: a difference of {limit:.1} % of a hit's CPU is found 19 times in 20 after \
                 {seconds:.1} s of each configuration (calibrated on {} {}).",
                calibration.server,
                ago(record.created_unix_s, calibration.created_unix_s),
            )
        } else {
            "Nothing was measured that a detection limit could be told for.".to_owned()
        };
        Detection { limit_percent: limit.is_finite().then_some(limit), sentence }
    }

    /// The shares that lie below the limit although their interval excludes zero: they may be what two starts of one
    /// server differ by.
    pub fn below(&self, shares: &Shares) -> Option<Warning> {
        let limit = self.limit_percent?;
        let small = |share: &&Share| share.verdict == Verdict::Resolved && share.percent.abs() < limit;
        let names: Vec<String> =
            shares.by(Metric::Cpu).filter(small).map(|share| share.stage.replace('_', " ")).collect();
        let what = format!(
            "below the detection limit of {limit:.1} % of a hit: {}. Such a share may be chance, or what two starts \
             of one server differ by",
            names.join(", ")
        );
        let remedy = "Measure longer (--time), and calibrate again if the machine is quieter now (tlsdyno doctor \
                      --calibrate).";
        (!names.is_empty()).then(|| Warning::new("below_detection_limit", what).with_remedy(remedy))
    }
}

fn seconds_each(record: &Record) -> f64 {
    let mut seconds: Vec<f64> = (0..record.configurations.len())
        .map(|index| compared(record).filter(move |block| block.configuration == index && block.valid))
        .map(|blocks| blocks.map(|block| block.elapsed_ns as f64 / 1e9).sum())
        .filter(|seconds| *seconds > 0.0)
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(0.0)
}

fn ago(now_s: u64, then_s: u64) -> String {
    match now_s.saturating_sub(then_s) / 86_400 {
        0 => "within a day before".to_owned(),
        1 => "a day before".to_owned(),
        days => format!("{days} days before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;

    #[test]
    fn the_spread_is_that_of_the_trimmed_mean() {
        // 2,000 samples of 20 normal values: the standard deviation of their trimmed means is the spread by √20.
        let mut random = SplitMix64::new(3);
        let (mut means, mut spreads) = (Vec::new(), Vec::new());
        for _ in 0..2_000 {
            let values: Vec<f64> = (0..20).map(|_| 7.0 * random.normal()).collect();
            means.push(trimmed_mean(&values).unwrap());
            spreads.push(Rows::Rounds.spread(&values.into_iter().map(Some).collect()).unwrap());
        }
        let truth = (means.iter().map(|mean| mean * mean).sum::<f64>() / 2_000.0).sqrt() * 20f64.sqrt();
        let said = spreads.iter().sum::<f64>() / 2_000.0;
        assert!((said / truth - 1.0).abs() < 0.07, "{said} {truth}");
        assert_eq!(Rows::Rounds.spread(&vec![Some(1.0), None, Some(2.0)]), None);
    }
}
