//! What Amdahl's law predicts for an accelerator of finite speed, beside what was measured with it (Coarfa et al. 2006
//! section 3.4).
//!
//! The share of the time per hit that private-key operations take comes from the configuration that differs from the
//! accelerator's by having `authentication` replaced instead. All numbers come from the rounds that the three
//! configurations have in common.

use serde::Serialize;
use tlsdyno_record::model::{Card, ConfigurationModel, Experiment};
use tlsdyno_stats::bootstrap::{Column, Estimate, estimate_column, estimate_sum};
use tlsdyno_stats::papers::{gain_at_finite_speed, share_saved};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::{Difference, Metric, Ratio};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// With the accelerator; `over` names the same configuration without it.
    pub configuration: String,
    pub over: String,
    /// With private-key operations replaced by a no-op instead: an accelerator without limits.
    pub ideal: String,
    /// How many times as fast as the processors of the server the accelerator does private-key operations.
    pub speed: f64,
    /// First from the share by server CPU, then from the share by time per hit.
    pub by: Vec<PredictedGain>,
    /// Hits per second with the accelerator by those without.
    pub measured: Ratio,
    /// What is left of the CPU time of a private-key operation with the accelerator, per cent: its driver and bus, and
    /// whatever else waiting for it costs.
    pub left_percent: Estimate,
}

/// Gain in hits per second that Amdahl's law predicts from the share of private-key operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedGain {
    /// Private-key operations in per cent of the cost of a hit without accelerator, and in which cost.
    pub share: Difference,
    /// Hits per second with an accelerator of this speed, by hits per second without one.
    pub predicted: Ratio,
    /// The predicted ratio of an accelerator of unlimited speed.
    pub unlimited: Ratio,
    pub measured_by_predicted: Ratio,
}

pub(super) fn predictions(experiment: &Experiment, rounds: &Rounds) -> Vec<Prediction> {
    experiment.configurations.iter().filter_map(|model| prediction(model, experiment, rounds)).collect()
}

fn prediction(model: &ConfigurationModel, experiment: &Experiment, rounds: &Rounds) -> Option<Prediction> {
    let accelerator = model.accelerator.as_ref()?;
    let card = accelerator.card.map(Card::effective_speed);
    let (over, ideal) = model.beside_accelerator(&experiment.configurations)?;
    let indices = [rounds.named(&over.name)?, rounds.named(&ideal.name)?, rounds.named(&model.name)?];
    // `cpu_rates` is a multiple of one processor's rate; the work of several is what an accelerator takes over. A
    // card's effective speed is told for all of it.
    let rates = accelerator.cpu_rates.map(|rates| rates / f64::from(model.processors.unwrap_or_default().count));
    let speed = rates.or(card)?;
    let by = Metric::ALL.map(|metric| Columns::of(rounds, indices, speed, metric));
    let [bound_over, bound_ideal, bound_with] = indices.map(|index| rounds.client_bound(&[index]));
    let pairs = by[0].pairs()?;
    let left_percent = by[0].left().scaled(100.0);
    let by = by.iter().map(|columns| {
        let [share, predicted, unlimited, beyond] = columns.estimates();
        let by_time = columns.metric == Metric::Throughput;
        // With the limit of the client on both sides of a quotient nothing is known; a share by CPU has no such limit.
        let (more, less) = (by_time && bound_ideal, by_time && bound_over);
        PredictedGain {
            share: Difference::of(share, columns.metric, pairs),
            predicted: Ratio::of_logarithm(predicted, pairs, less, more),
            unlimited: Ratio::of_logarithm(unlimited, pairs, less, more),
            measured_by_predicted: Ratio::of_logarithm(beyond, pairs, bound_over || more, bound_with),
        }
    });
    Some(Prediction {
        configuration: model.name.clone(),
        over: over.name.clone(),
        ideal: ideal.name.clone(),
        speed,
        by: by.collect(),
        measured: rounds.times(indices[0], indices[2], Metric::Throughput)?,
        left_percent,
    })
}

/// Values for each round in which the server without accelerator, with private-key operations replaced, and with the
/// accelerator was measured.
struct Columns {
    metric: Metric,
    /// Share of private-key operations, then the logarithms of the predicted gain, the unlimited gain and the measured
    /// gain.
    columns: [Column; 4],
    /// What a hit costs with the accelerator beyond what it costs without operations, as a part of a hit without
    /// accelerator.
    left: Column,
}

impl Columns {
    fn of(rounds: &Rounds, indices: [usize; 3], speed: f64, metric: Metric) -> Columns {
        let costs = rounds.costs_by_round(&indices, metric);
        let times = rounds.costs_by_round(&indices, Metric::Throughput);
        let mut columns: [Column; 4] = Default::default();
        let mut left = Column::new();
        for (cost, time) in costs.iter().zip(&times) {
            let values = cost.as_ref().zip(time.as_ref()).map(|(cost, time)| {
                let share = share_saved(1.0 / cost[0], 1.0 / cost[1]);
                let predicted = |speed| gain_at_finite_speed(share, speed).ln_1p();
                [share, predicted(speed), predicted(f64::INFINITY), (time[0] / time[2]).ln()]
            });
            left.push(cost.as_ref().map(|cost| (cost[2] - cost[1]) / cost[0]));
            for (number, column) in columns.iter_mut().enumerate() {
                column.push(values.map(|values| values[number]));
            }
        }
        Columns { metric, columns, left }
    }

    /// Rounds that have all three configurations; `None` without any.
    fn pairs(&self) -> Option<u32> {
        let pairs = self.columns[0].iter().flatten().count() as u32;
        (pairs > 0).then_some(pairs)
    }

    /// CPU time of an operation that stays with the accelerator. The interval is as wide as both terms together allow.
    fn left(&self) -> Estimate {
        estimate_column(&self.left).divided_by(estimate_column(&self.columns[0]))
    }

    fn estimates(&self) -> [Estimate; 4] {
        let [share, predicted, unlimited, measured] = &self.columns;
        let beyond = estimate_sum(&[(measured, 1.0), (predicted, -1.0)]);
        [estimate_column(share), estimate_column(predicted), estimate_column(unlimited), beyond]
    }
}
