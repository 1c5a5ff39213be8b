//! Throughput over percent reuse: the half serving point, and what full handshakes cost by the curve's form.

use serde::Serialize;
use tlsdyno_record::store::Record;
use tlsdyno_stats::Estimate;
use tlsdyno_stats::reuse::{Costs, Crossing, Fit, HalfServingPoint, Limit, Point, ReuseAxis, Theory};
use tlsdyno_stats::rounds::Rounds;

use crate::LoadRecord;

/// A curve with its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveSummary {
    pub by: ReuseAxis,
    pub levels: Vec<Level>,
    /// `null`: not measured.
    pub plain: Option<Limit>,
    /// Reuse at which half of plain HTTP is reached; `null` without plain HTTP.
    pub half_serving_point: Option<HalfServingPoint>,
    /// Fit of the model of Mraz et al. 2002, by hits only; `null` without plain HTTP.
    pub theory: Option<Theory>,
    /// Fitted costs of handshakes and of requests; `null` from one level.
    pub costs: Option<Costs>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    pub asked_percent: f64,
    /// Reuse of handshakes by requests or by connections, per cent.
    pub achieved_percent: f64,
    pub hits_per_second: Estimate,
    /// Prediction of the model of Mraz et al. 2002.
    pub by_theory_hits_per_second: Option<f64>,
    /// Prediction of the fitted costs.
    pub by_costs_hits_per_second: Option<f64>,
    /// The client's CPU was full: hits per second are a lower bound.
    pub client_bound: bool,
}

impl CurveSummary {
    /// Empty where the record is of another kind.
    pub fn all(record: &Record) -> Vec<CurveSummary> {
        let Some(curve) = record.kind_part.of::<LoadRecord>().and_then(|load| load.experiment.curve.as_ref()) else {
            return Vec::new();
        };
        let (rounds, places) = (Rounds::of(record), curve.places());
        let of_axis = |by: &ReuseAxis| {
            let members = places.iter().enumerate().filter(|(_, place)| place.by == *by);
            let measured: Vec<(Option<f64>, Point)> =
                members.filter_map(|(index, place)| Some((place.percent, Point::of(&rounds, index, *by)?))).collect();
            of_points(*by, &measured)
        };
        curve.by.iter().map(of_axis).collect()
    }
}

/// Each point with its requested reuse; `None`: plain HTTP.
fn of_points(by: ReuseAxis, measured: &[(Option<f64>, Point)]) -> CurveSummary {
    let plain = measured.iter().find(|(asked, _)| asked.is_none()).map(|(_, point)| point);
    let asked: Vec<(f64, &Point)> = measured.iter().filter_map(|(asked, point)| Some(((*asked)?, point))).collect();
    let points: Vec<&Point> = asked.iter().map(|(_, point)| *point).collect();
    let fit = Fit::of(points.iter().map(|point| (1.0, *point)).collect(), plain, f64::INFINITY);
    let costs = fit.costs();
    let fastest = points.iter().map(|point| point.mean()).fold(0.0, f64::max);
    let half_serving_point = plain
        .filter(|plain| !points.is_empty() && plain.mean() > 0.0)
        .map(|plain| HalfServingPoint::of(&points, 1.0, plain, &fit, fastest <= plain.mean()));
    // What something else limits has no pages of plain HTTP to tell a handshake by.
    let has_limit = half_serving_point.as_ref().is_none_or(|half| half.crossing != Crossing::NoLimit);
    let plain_by_hits = plain.filter(|_| by == ReuseAxis::Hits && has_limit);
    let theory = plain_by_hits.and_then(|plain| Theory::of(&points, plain));
    let level = |(asked_percent, point): &(f64, &Point)| Level {
        asked_percent: *asked_percent,
        achieved_percent: point.achieved_percent,
        hits_per_second: point.hits_per_second(),
        by_theory_hits_per_second: theory
            .as_ref()
            .zip(plain)
            .map(|(theory, plain)| theory.hits_per_second(plain.mean(), point.achieved_percent)),
        by_costs_hits_per_second: costs
            .as_ref()
            .map(|costs| costs.hits_per_second(f64::INFINITY, 1.0, point.achieved_percent)),
        client_bound: point.client_bound,
    };
    let levels = asked.iter().map(level).collect();
    CurveSummary { by, levels, plain: plain.map(Limit::of), half_serving_point, theory, costs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_stats::papers;

    /// The hypothetical server of Mraz et al. 2002, section 3: 500 objects a second in plain text, a handshake costs 50
    /// of them.
    fn of_paper(levels: &[f64], scatter: f64) -> CurveSummary {
        let mut random = SplitMix64::new(7);
        let mut around = |mean: f64| Point {
            achieved_percent: 0.0,
            column: (0..8).map(|_| Some(mean * (1.0 + scatter * (random.uniform() - 0.5)))).collect(),
            client_bound: false,
        };
        let mut measured: Vec<(Option<f64>, Point)> = Vec::new();
        for percent in levels {
            let hits = papers::throughput_at_reuse(500.0, 50.0, percent / 100.0);
            measured.push((Some(*percent), Point { achieved_percent: *percent, ..around(hits) }));
        }
        measured.push((None, around(500.0)));
        of_points(ReuseAxis::Hits, &measured)
    }

    #[test]
    fn the_half_serving_point_is_that_of_the_paper_by_every_way() {
        let found = of_paper(&[0.0, 75.0, 88.0, 90.0, 94.0, 98.0, 99.0], 0.0);
        let half = found.half_serving_point.unwrap();
        assert_eq!(half.crossing, Crossing::Between);
        assert!((half.percent_by_lines.unwrap().value - 98.0).abs() < 1e-6, "{half:?}");
        assert!((half.percent_by_costs.unwrap().value - 98.0).abs() < 1e-6, "{half:?}");
        assert!(!half.is_extrapolated && !half.is_lower_bound);
        let theory = found.theory.unwrap();
        assert!((theory.requests_per_handshake.value - 50.0).abs() < 1e-6 && theory.residual_percent < 1e-6);
        assert!((theory.half_percent.value - 98.0).abs() < 1e-6, "{theory:?}");
        let costs = found.costs.unwrap();
        assert!((costs.hit_ns.value - 2e6).abs() < 1.0 && (costs.full_handshake_ns.value - 1e8).abs() < 10.0);
    }

    #[test]
    fn intervals_hold_the_truth_and_both_ways_agree() {
        let half = of_paper(&[0.0, 50.0, 90.0, 96.0, 97.5, 98.5, 99.0], 0.1).half_serving_point.unwrap();
        let Estimate { low, high, .. } = half.percent_by_lines.unwrap();
        let fit = half.percent_by_costs.unwrap();
        assert!(low < 98.05 && high > 97.9 && high - low < 0.6, "{half:?}");
        assert!(fit.low <= 98.02 && fit.high >= 97.98 && fit.high - fit.low < 0.6, "{half:?}");
    }

    #[test]
    fn a_point_beyond_the_levels_is_none_and_extrapolated() {
        let half = of_paper(&[0.0, 50.0, 90.0, 96.0], 0.02).half_serving_point.unwrap();
        assert_eq!((half.crossing, half.percent_by_lines), (Crossing::Never, None));
        assert!(half.is_extrapolated && (half.percent_by_costs.unwrap().value - 98.0).abs() < 0.3, "{half:?}");
        let first = of_paper(&[98.5, 99.0], 0.0).half_serving_point.unwrap();
        assert_eq!((first.crossing, first.percent_by_lines), (Crossing::AtFirst, None));
    }

    #[test]
    fn plain_http_that_is_slower_is_no_limit() {
        let level = |percent: f64, hits: f64| Point {
            achieved_percent: percent,
            column: vec![Some(hits); 6],
            client_bound: false,
        };
        let at = |percent, hits| (Some(percent), level(percent, hits));
        let plain = Point { client_bound: true, ..level(0.0, 90.0) };
        let found = of_points(ReuseAxis::Hits, &[at(0.0, 40.0), at(90.0, 100.0), (None, plain)]);
        let half = found.half_serving_point.unwrap();
        assert_eq!((half.crossing, half.percent_by_lines, half.is_lower_bound), (Crossing::NoLimit, None, true));
        assert_eq!((half.percent_by_costs, found.theory), (None, None));
        let alone = of_points(ReuseAxis::Hits, &[at(0.0, 40.0), (None, level(0.0, 100.0))]);
        assert_eq!((alone.costs, alone.theory), (None, None));
    }
}
