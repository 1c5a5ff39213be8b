//! Throughput over percent reuse: the half serving point, and what full handshakes cost by the curve's form.

use serde::Serialize;

use crate::kinds::load::LoadRecord;
use crate::kinds::load::curve::file::{CurvePlace, ReuseAxis};
use crate::stats::bootstrap::{Column, Combination, RESAMPLES, SEED, estimate, estimate_function};
use crate::stats::{Estimate, papers};
use crate::store::{Block, Record};

/// Levels that a form is fitted to.
const FIT_LEVELS_MIN: usize = 2;

/// A curve with its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveSummary {
    /// Of what percent reuse is a part.
    pub by: ReuseAxis,
    /// What was measured, by ascending reuse.
    pub levels: Vec<Level>,
    /// Plain HTTP; `null` where none was measured.
    pub plain: Option<Limit>,
    /// Where half of plain HTTP is reached; `null` without plain HTTP.
    pub half_serving_point: Option<HalfServingPoint>,
    /// The form of Mraz et al. 2002, by hits only; `null` without plain HTTP.
    pub theory: Option<Theory>,
    /// Cost of handshakes and of requests; `null` from one level.
    pub costs: Option<Costs>,
}

/// A percentage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Reuse asked for.
    pub asked_percent: f64,
    /// Reuse by the counts of handshakes, of requests or of connections.
    pub achieved_percent: f64,
    /// Hits per second of elapsed time.
    pub hits_per_second: Estimate,
    /// By the form of Mraz et al. 2002.
    pub by_theory_hits_per_second: Option<f64>,
    /// By the fitted costs.
    pub by_costs_hits_per_second: Option<f64>,
    /// The client's CPU was full: hits per second are a lower bound.
    pub client_bound: bool,
}

/// Throughput without TLS.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Hits per second of elapsed time.
    pub hits_per_second: Estimate,
    /// The client's CPU was full: it is a lower bound.
    pub client_bound: bool,
}

/// Whether half of plain HTTP is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Crossing {
    /// Between two levels.
    Between,
    /// At the lowest level already.
    AtFirst,
    /// At no level.
    Never,
    /// TLS was faster than plain HTTP: that cannot have been its limit.
    NoLimit,
}

/// The smallest percent reuse with half of the throughput of plain HTTP.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HalfServingPoint {
    /// Whether there is one.
    pub crossing: Crossing,
    /// Half of plain HTTP, hits per second.
    pub hits_per_second: f64,
    /// Linear between the levels, per cent; `null`: none.
    pub percent: Option<f64>,
    /// Lower end of its 95 % interval; `null`: below all levels, or too few rounds.
    pub low_percent: Option<f64>,
    /// Upper end; `null`: above all levels, or too few rounds.
    pub high_percent: Option<f64>,
    /// By the fitted costs, per cent; `null`: never, by these.
    pub percent_by_costs: Option<Estimate>,
    /// The same by the form of Mraz et al. 2002: 1 − 1/h.
    pub percent_by_theory: Option<Estimate>,
    /// The fitted one lies beyond the levels.
    pub is_extrapolated: bool,
    /// Plain HTTP was bound by the client, so that the true point is not below this one.
    pub is_lower_bound: bool,
}

/// `P / (1 + (1 − r) h)` fitted to the curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Theory {
    /// h: what a full handshake costs, in requests of plain HTTP.
    pub requests_per_handshake: Estimate,
    /// Largest deviation of a level from it, per cent of the level.
    pub residual_percent: f64,
}

/// `1 / (e + (1 − r) H)` fitted to the curve: the server's time at saturation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// H: time that a full handshake takes besides, nanoseconds.
    pub full_handshake_ns: Estimate,
    /// e: time of a request with everything else, nanoseconds.
    pub hit_ns: Estimate,
    /// Largest deviation of a level from it, per cent of the level.
    pub residual_percent: f64,
}

impl Costs {
    /// Hits per second that these costs give at this percent reuse.
    pub fn hits_per_second(&self, percent: f64) -> f64 {
        by_costs(self.full_handshake_ns.value / 1e9, self.hit_ns.value / 1e9, 1.0 - percent / 100.0)
    }
}

impl CurveSummary {
    /// The curves of a record; none where it is of something else.
    pub fn all(record: &Record) -> Vec<CurveSummary> {
        let Some(curve) = record.measured.of::<LoadRecord>().and_then(|load| load.experiment.curve.as_ref()) else {
            return Vec::new();
        };
        let places = curve.places();
        let of_axis = |by: &ReuseAxis| {
            let members: Vec<(usize, CurvePlace)> =
                places.iter().copied().enumerate().filter(|(_, place)| place.by == *by).collect();
            summary(record, *by, &members)
        };
        curve.by.iter().map(of_axis).collect()
    }
}

/// A configuration of a curve.
struct Measured {
    asked_percent: Option<f64>,
    achieved_percent: f64,
    column: Column,
    client_bound: bool,
}

fn measured(record: &Record, index: usize, place: CurvePlace) -> Option<Measured> {
    let rounds = record.blocks.iter().map(|block| block.round as usize + 1).max()?;
    let blocks: Vec<&Block> =
        record.blocks.iter().filter(|block| block.configuration == index && block.valid && block.hits > 0).collect();
    if blocks.is_empty() {
        return None;
    }
    let sum = |of: fn(&Block) -> u64| blocks.iter().map(|block| of(block)).sum::<u64>() as f64;
    let (hits, full, resumed) =
        (sum(|block| block.hits), sum(|block| block.handshakes_full), sum(|block| block.resumed_accepted));
    let fresh = match place.by {
        ReuseAxis::Hits => full / hits,
        ReuseAxis::Connections => full / (full + resumed).max(1.0),
    };
    let mut column: Column = vec![None; rounds];
    for block in &blocks {
        column[block.round as usize] = Some(block.hits as f64 * 1e9 / block.elapsed_ns.max(1) as f64);
    }
    Some(Measured {
        asked_percent: place.percent,
        achieved_percent: 100.0 * (1.0 - fresh),
        column,
        client_bound: 2 * blocks.iter().filter(|block| block.client_bound).count() > blocks.len(),
    })
}

fn summary(record: &Record, by: ReuseAxis, members: &[(usize, CurvePlace)]) -> CurveSummary {
    let all: Vec<Measured> = members.iter().filter_map(|(index, place)| measured(record, *index, *place)).collect();
    let (levels, plain): (Vec<Measured>, Vec<Measured>) =
        all.into_iter().partition(|measured| measured.asked_percent.is_some());
    of_columns(by, &levels, plain.first())
}

fn of_columns(by: ReuseAxis, levels: &[Measured], plain: Option<&Measured>) -> CurveSummary {
    let fresh: Vec<f64> = levels.iter().map(|level| 1.0 - level.achieved_percent / 100.0).collect();
    let columns: Vec<Column> = levels.iter().chain(plain).map(|measured| measured.column.clone()).collect();
    let each: Vec<Combination> = (0..columns.len()).map(Combination::column).collect();
    let throughputs = estimate(&columns, &each, RESAMPLES, SEED);
    let values: Vec<f64> = throughputs.iter().map(|found| found.value).collect();
    let count = levels.len();
    let of = |function: &dyn Fn(&[f64]) -> f64| estimate_function(&columns, function, RESAMPLES, SEED);
    let costs = fitted_costs(&fresh, &values[..count]).map(|(full, hit)| Costs {
        full_handshake_ns: of(&|means| fitted_costs(&fresh, &means[..count]).map_or(f64::NAN, |(full, _)| full * 1e9)),
        hit_ns: of(&|means| fitted_costs(&fresh, &means[..count]).map_or(f64::NAN, |(_, hit)| hit * 1e9)),
        residual_percent: residual_percent(&values[..count], |at| by_costs(full, hit, fresh[at])),
    });
    let handshake = |means: &[f64]| fitted_handshake(&fresh, &means[..count], means[count]);
    let with_theory = by == ReuseAxis::Hits && plain.is_some() && count >= FIT_LEVELS_MIN;
    let theory = with_theory.then(|| handshake(&values)).filter(|found| found.is_finite()).map(|found| Theory {
        requests_per_handshake: of(&handshake),
        residual_percent: residual_percent(&values[..count], |at| {
            papers::throughput_at_reuse(values[count], found, 1.0 - fresh[at])
        }),
    });
    let limit = plain.map(|plain| Limit { hits_per_second: throughputs[count], client_bound: plain.client_bound });
    let half_serving_point =
        limit.as_ref().filter(|limit| count > 0 && limit.hits_per_second.value > 0.0).map(|limit| {
            let mut half = half(levels, &of, &fresh, &values);
            half.is_lower_bound = limit.client_bound;
            let has_theory = theory.is_some() && half.crossing != Crossing::NoLimit;
            half.percent_by_theory = has_theory.then(|| of(&|means| 100.0 * papers::mraz_half(handshake(means))));
            half
        });
    // What something else limits has no pages of plain HTTP to tell a handshake by.
    let has_limit = half_serving_point.as_ref().is_none_or(|half| half.crossing != Crossing::NoLimit);
    let theory = theory.filter(|_| has_limit);
    let levels = levels.iter().enumerate().map(|(at, level)| Level {
        asked_percent: level.asked_percent.unwrap_or(0.0),
        achieved_percent: level.achieved_percent,
        hits_per_second: throughputs[at],
        by_theory_hits_per_second: theory.as_ref().map(|theory| {
            papers::throughput_at_reuse(values[count], theory.requests_per_handshake.value, 1.0 - fresh[at])
        }),
        by_costs_hits_per_second: costs
            .as_ref()
            .map(|costs| by_costs(costs.full_handshake_ns.value / 1e9, costs.hit_ns.value / 1e9, fresh[at])),
        client_bound: level.client_bound,
    });
    CurveSummary { by, levels: levels.collect(), plain: limit, half_serving_point, theory, costs }
}

/// Estimates what a function makes of the means of the columns.
type Estimator<'a> = dyn Fn(&dyn Fn(&[f64]) -> f64) -> Estimate + 'a;

/// The half serving point of means whose last is plain HTTP.
fn half(levels: &[Measured], of: &Estimator<'_>, fresh: &[f64], values: &[f64]) -> HalfServingPoint {
    let count = levels.len();
    let reached = |means: &[f64]| {
        let points = levels.iter().zip(means).map(|(level, hits)| (level.achieved_percent, *hits));
        crossing(&points.collect::<Vec<_>>(), means[count] / 2.0)
    };
    let by_costs = |means: &[f64]| match fitted_costs(fresh, &means[..count]) {
        Some((full, hit)) => half_by_costs(full, hit, means[count]),
        None => f64::INFINITY,
    };
    let (found, fitted) = (of(&reached), of(&by_costs));
    let fastest = values[..count].iter().copied().fold(0.0, f64::max);
    let crossing = match found.value {
        _ if fastest > values[count] => Crossing::NoLimit,
        value if value == f64::INFINITY => Crossing::Never,
        value if value == f64::NEG_INFINITY => Crossing::AtFirst,
        _ => Crossing::Between,
    };
    let end = |value: f64| (value.is_finite() && crossing != Crossing::NoLimit).then_some(value);
    let last = levels.last().map_or(0.0, |level| level.achieved_percent);
    let has_fit = fitted.value.is_finite() && crossing != Crossing::NoLimit;
    HalfServingPoint {
        crossing,
        hits_per_second: values[count] / 2.0,
        percent: end(found.value),
        low_percent: end(found.low),
        high_percent: end(found.high),
        percent_by_costs: has_fit.then_some(fitted),
        percent_by_theory: None,
        is_extrapolated: has_fit && fitted.value > last,
        is_lower_bound: false,
    }
}

/// Where points of ascending percent reuse and hits per second first reach `half`, linear between them (Mraz et al.
/// 2002, section 2). Infinite: at none of them; negative infinity: at the first.
pub fn crossing(points: &[(f64, f64)], half: f64) -> f64 {
    if points.first().is_none_or(|first| first.1 >= half) {
        return f64::NEG_INFINITY;
    }
    let pair = points.windows(2).find(|pair| pair[0].1 < half && pair[1].1 >= half);
    pair.map_or(f64::INFINITY, |pair| {
        let part = (half - pair[0].1) / (pair[1].1 - pair[0].1);
        pair[0].0 + part * (pair[1].0 - pair[0].0)
    })
}

/// H and e, in seconds, of `1 / (e + f H)`, f being the part that is not reused: the least squares of `T (e + f H) −
/// 1`, so that every level counts by its relative error. `None` unless levels differ.
pub fn fitted_costs(fresh: &[f64], hits_per_second: &[f64]) -> Option<(f64, f64)> {
    let [mut ee, mut eh, mut hh, mut e, mut h] = [0.0; 5];
    for (fresh, hits) in fresh.iter().zip(hits_per_second) {
        let of_full = hits * fresh;
        ee += hits * hits;
        eh += hits * of_full;
        hh += of_full * of_full;
        e += hits;
        h += of_full;
    }
    let determinant = ee * hh - eh * eh;
    (fresh.len() >= FIT_LEVELS_MIN && determinant > 1e-9 * ee * hh)
        .then(|| ((ee * h - eh * e) / determinant, (hh * e - eh * h) / determinant))
}

/// h of `P / (1 + f h)`: the least squares of `T (1 + f h) / P − 1`.
pub fn fitted_handshake(fresh: &[f64], hits_per_second: &[f64], plain: f64) -> f64 {
    let (mut above, mut below) = (0.0, 0.0);
    for (fresh, hits) in fresh.iter().zip(hits_per_second) {
        let part = hits / plain;
        above += part * fresh * (1.0 - part);
        below += (part * fresh).powi(2);
    }
    above / below
}

fn by_costs(full: f64, hit: f64, fresh: f64) -> f64 {
    1.0 / (hit + fresh * full)
}

/// Percent reuse at which `1 / (e + f H)` is half of `plain`; infinite where it never is.
fn half_by_costs(full: f64, hit: f64, plain: f64) -> f64 {
    let fresh = (2.0 / plain - hit) / full;
    match fresh {
        fresh if full <= 0.0 || fresh < 0.0 => f64::INFINITY,
        fresh => (100.0 * (1.0 - fresh)).max(0.0),
    }
}

fn residual_percent(values: &[f64], of: impl Fn(usize) -> f64) -> f64 {
    values.iter().enumerate().map(|(at, value)| 100.0 * (of(at) / value - 1.0).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// The hypothetical server of Mraz et al. 2002, section 3: 500 objects a second in plain text, a handshake costs 50
    /// of them.
    fn of_paper(levels: &[f64], scatter: f64) -> CurveSummary {
        let mut random = SplitMix64::new(7);
        let mut around = |mean: f64| Measured {
            asked_percent: None,
            achieved_percent: 0.0,
            column: (0..8).map(|_| Some(mean * (1.0 + scatter * (random.uniform() - 0.5)))).collect(),
            client_bound: false,
        };
        let level = |around: &mut dyn FnMut(f64) -> Measured, percent: f64| Measured {
            asked_percent: Some(percent),
            achieved_percent: percent,
            ..around(papers::throughput_at_reuse(500.0, 50.0, percent / 100.0))
        };
        let measured: Vec<Measured> = levels.iter().map(|percent| level(&mut around, *percent)).collect();
        of_columns(ReuseAxis::Hits, &measured, Some(&around(500.0)))
    }

    #[test]
    fn the_half_serving_point_is_that_of_the_paper_by_every_way() {
        let found = of_paper(&[0.0, 75.0, 88.0, 90.0, 94.0, 98.0, 99.0], 0.0);
        let half = found.half_serving_point.unwrap();
        assert_eq!(half.crossing, Crossing::Between);
        assert!((half.percent.unwrap() - 98.0).abs() < 1e-6, "{half:?}");
        assert!((half.percent_by_costs.unwrap().value - 98.0).abs() < 1e-6, "{half:?}");
        assert!((half.percent_by_theory.unwrap().value - 98.0).abs() < 1e-6, "{half:?}");
        assert!(!half.is_extrapolated && !half.is_lower_bound);
        let theory = found.theory.unwrap();
        assert!((theory.requests_per_handshake.value - 50.0).abs() < 1e-6 && theory.residual_percent < 1e-6);
        let costs = found.costs.unwrap();
        assert!((costs.hit_ns.value - 2e6).abs() < 1.0 && (costs.full_handshake_ns.value - 1e8).abs() < 10.0);
    }

    #[test]
    fn intervals_hold_the_truth_and_both_ways_agree() {
        let half = of_paper(&[0.0, 50.0, 90.0, 96.0, 97.5, 98.5, 99.0], 0.1).half_serving_point.unwrap();
        let (low, high) = (half.low_percent.unwrap(), half.high_percent.unwrap());
        let fit = half.percent_by_costs.unwrap();
        assert!(low < 98.05 && high > 97.9 && high - low < 0.6, "{half:?}");
        assert!(fit.low <= 98.02 && fit.high >= 97.98 && fit.high - fit.low < 0.6, "{half:?}");
    }

    #[test]
    fn a_point_beyond_the_levels_is_none_and_extrapolated() {
        let half = of_paper(&[0.0, 50.0, 90.0, 96.0], 0.02).half_serving_point.unwrap();
        assert_eq!((half.crossing, half.percent), (Crossing::Never, None));
        assert!(half.is_extrapolated && (half.percent_by_costs.unwrap().value - 98.0).abs() < 0.3, "{half:?}");
        let first = of_paper(&[98.5, 99.0], 0.0).half_serving_point.unwrap();
        assert_eq!((first.crossing, first.percent), (Crossing::AtFirst, None));
    }

    #[test]
    fn plain_http_that_is_slower_is_no_limit() {
        let level = |percent: f64, hits: f64| Measured {
            asked_percent: Some(percent),
            achieved_percent: percent,
            column: vec![Some(hits); 6],
            client_bound: false,
        };
        let plain = Measured { client_bound: true, ..level(0.0, 90.0) };
        let found = of_columns(ReuseAxis::Hits, &[level(0.0, 40.0), level(90.0, 100.0)], Some(&plain));
        let half = found.half_serving_point.unwrap();
        assert_eq!((half.crossing, half.percent, half.is_lower_bound), (Crossing::NoLimit, None, true));
        assert_eq!((half.percent_by_costs, half.percent_by_theory, found.theory), (None, None, None));
        let alone = of_columns(ReuseAxis::Hits, &[level(0.0, 40.0)], Some(&level(0.0, 100.0)));
        assert_eq!((alone.costs, alone.theory), (None, None));
    }
}
