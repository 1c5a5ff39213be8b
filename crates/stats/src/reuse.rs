//! Throughput over percent reuse (Mraz, Witting and Dantzig 2002): what is measured at each level, what full handshakes
//! cost by the form of the line, and the half serving point.

use serde::Serialize;
use tlsdyno_record::store::Block;
use tlsdyno_tls::named;

use crate::bootstrap::{Column, Estimate, RESAMPLES, SEED, estimate_column, estimate_function};
use crate::papers;
use crate::robust::trimmed_mean;
use crate::rounds::Rounds;

named! {
    /// Of what percent reuse is a part.
    #[derive(Default)]
    pub enum ReuseAxis: "axis" {
        /// full handshakes by requests (Mraz et al. 2002, equation 1), on kept connections
        Hits = "hits",
        /// resumed handshakes by connections, one request each
        #[default]
        Connections = "connections",
    }
}

const FIT_LEVELS_MIN: usize = 2;

#[derive(Clone, Debug)]
pub struct Point {
    /// Reuse of handshakes by requests or by connections ([`ReuseAxis`]), per cent.
    pub achieved_percent: f64,
    /// Hits per second in each round.
    pub column: Column,
    /// The load was the limit, not the server.
    pub client_bound: bool,
}

impl Point {
    pub fn of(rounds: &Rounds, index: usize, by: ReuseAxis) -> Option<Point> {
        rounds.of_configuration(index).next()?;
        let sum = |of: fn(&Block) -> u64| rounds.of_configuration(index).map(of).sum::<u64>() as f64;
        let full = sum(|block| block.handshakes_full);
        let fresh = match by {
            ReuseAxis::Hits => full / sum(|block| block.hits),
            ReuseAxis::Connections => full / (full + sum(|block| block.resumed_accepted)).max(1.0),
        };
        Some(Point {
            // A block counts handshakes whose first request completes after its end: at 0 % they may be more than its
            // requests.
            achieved_percent: (100.0 * (1.0 - fresh)).max(0.0),
            column: rounds.values(index, |block| Some(block.hits as f64 * 1e9 / block.elapsed_ns as f64)),
            client_bound: rounds.client_bound(&[index]),
        })
    }

    fn fresh(&self) -> f64 {
        1.0 - self.achieved_percent / 100.0
    }

    pub fn mean(&self) -> f64 {
        trimmed_mean(&self.column.iter().flatten().copied().collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    }

    pub fn hits_per_second(&self) -> Estimate {
        estimate_column(&self.column)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    pub hits_per_second: Estimate,
    /// The client's CPU was full: the throughput is a lower bound.
    pub client_bound: bool,
}

impl Limit {
    pub fn of(plain: &Point) -> Limit {
        Limit { hits_per_second: plain.hits_per_second(), client_bound: plain.client_bound }
    }
}

/// `T = min(P, N / (e + (1 − r) H))` of N machines, fitted to measured levels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// H: additional time of a full handshake, nanoseconds.
    pub full_handshake_ns: Estimate,
    /// e: time of a request without a full handshake, nanoseconds.
    pub hit_ns: Estimate,
    /// Largest deviation of a measured level from the fit, per cent of the level.
    pub residual_percent: f64,
    /// Root mean square of the deviations, per cent.
    pub deviation_percent: f64,
}

impl Costs {
    /// Throughput of so many machines at this percent reuse. `plain`: the limit, throughput without TLS.
    pub fn hits_per_second(&self, plain: f64, machines: f64, percent: f64) -> f64 {
        let (full_s, hit_s) = (self.full_handshake_ns.value / 1e9, self.hit_ns.value / 1e9);
        papers::array_throughput(plain, machines, full_s, hit_s, percent / 100.0)
    }
}

pub struct Fit<'a> {
    points: Vec<(f64, &'a Point)>,
    plain: Option<&'a Point>,
    /// Fit only points below this part of plain HTTP; infinite: all, as plain HTTP is no limit.
    below: f64,
    columns: Vec<Column>,
}

impl<'a> Fit<'a> {
    /// Each point with its number of machines.
    pub fn of(points: Vec<(f64, &'a Point)>, plain: Option<&'a Point>, below: f64) -> Fit<'a> {
        let columns = points.iter().map(|(_, point)| *point).chain(plain).map(|point| point.column.clone()).collect();
        Fit { points, plain, below, columns }
    }

    fn fitted(&self, means: &[f64]) -> Option<(f64, f64)> {
        let limit = self.limit(means).map_or(f64::INFINITY, |plain| self.below * plain);
        let used = self.points.iter().zip(means).filter(|(_, hits)| **hits < limit);
        let (fresh, of_each): (Vec<f64>, Vec<f64>) =
            used.map(|((machines, point), hits)| (point.fresh(), hits / machines)).unzip();
        fitted_costs(&fresh, &of_each)
    }

    fn limit(&self, means: &[f64]) -> Option<f64> {
        self.plain.and_then(|_| means.last().copied())
    }

    fn estimate(&self, of: impl Fn((f64, f64), f64) -> f64) -> Estimate {
        let of_means = |means: &[f64]| {
            let plain = self.limit(means).unwrap_or(f64::INFINITY);
            self.fitted(means).map_or(f64::NAN, |costs| of(costs, plain))
        };
        estimate_function(&self.columns, of_means, RESAMPLES, SEED)
    }

    /// `None` where the levels do not differ enough.
    pub fn costs(&self) -> Option<Costs> {
        let full_handshake_ns = self.estimate(|(full, _), _| full * 1e9);
        let hit_ns = self.estimate(|(_, hit), _| hit * 1e9);
        let mut costs = Costs { full_handshake_ns, hit_ns, residual_percent: 0.0, deviation_percent: 0.0 };
        let limit = self.plain.filter(|_| self.below.is_finite()).map_or(f64::INFINITY, Point::mean);
        let deviations: Vec<f64> = (self.points.iter())
            .map(|(machines, point)| (costs.hits_per_second(limit, *machines, point.achieved_percent), point.mean()))
            .map(|(fitted, measured)| 100.0 * (fitted / measured - 1.0))
            .collect();
        costs.residual_percent = deviations.iter().fold(0.0, |most, one| one.abs().max(most));
        let squares: f64 = deviations.iter().map(|one| one * one).sum();
        costs.deviation_percent = (squares / deviations.len().max(1) as f64).sqrt();
        full_handshake_ns.is_known().then_some(costs)
    }

    /// Percent reuse from which so many machines reach a part of plain HTTP; `None`: the fit never reaches it.
    pub fn reuse_for(&self, part: f64, machines: f64) -> Option<Estimate> {
        self.estimate(|costs, plain| reuse_for(plain, part, machines, costs)).known()
    }
}

/// `P / (1 + (1 − r) h)` fitted to a line without proxies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Theory {
    /// h: cost of a full handshake, in requests of plain HTTP.
    pub requests_per_handshake: Estimate,
    /// Largest deviation of a level from the fit, per cent of the level.
    pub residual_percent: f64,
    /// Half serving point by the fit: 1 − 1/h, per cent.
    pub half_percent: Estimate,
}

impl Theory {
    pub fn of(levels: &[&Point], plain: &Point) -> Option<Theory> {
        let fresh: Vec<f64> = levels.iter().map(|level| level.fresh()).collect();
        let handshake = |means: &[f64]| fitted_handshake(&fresh, &means[..levels.len()], means[levels.len()]);
        let columns = columns(levels, plain);
        let requests_per_handshake = estimate_function(&columns, handshake, RESAMPLES, SEED);
        let half = |means: &[f64]| 100.0 * papers::mraz_half(handshake(means));
        let mut theory = Theory {
            requests_per_handshake,
            residual_percent: 0.0,
            half_percent: estimate_function(&columns, half, RESAMPLES, SEED),
        };
        let deviations = levels
            .iter()
            .map(|level| (theory.hits_per_second(plain.mean(), level.achieved_percent) / level.mean() - 1.0).abs());
        theory.residual_percent = 100.0 * deviations.fold(0.0, f64::max);
        (levels.len() >= FIT_LEVELS_MIN && requests_per_handshake.is_known()).then_some(theory)
    }

    /// At this percent reuse; `plain`: throughput without TLS.
    pub fn hits_per_second(&self, plain: f64, percent: f64) -> f64 {
        papers::throughput_at_reuse(plain, self.requests_per_handshake.value, percent / 100.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Crossing {
    /// Half is reached between two levels.
    Between,
    /// Half is reached at the lowest level already.
    AtFirst,
    /// No level reaches half.
    Never,
    /// TLS was faster than plain HTTP, which cannot have been its limit.
    NoLimit,
}

/// The smallest percent reuse with half of the throughput of plain HTTP.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HalfServingPoint {
    pub crossing: Crossing,
    pub hits_per_second: f64,
    /// On straight lines between the levels, as one reads it off a figure; `null`: none. An end is `null` where it lies
    /// beyond the levels.
    pub percent_by_lines: Option<Estimate>,
    /// With the time per request changing linearly between the levels, as the costs do.
    pub percent_by_time: Option<Estimate>,
    /// By the fitted costs; `null`: never reached.
    pub percent_by_costs: Option<Estimate>,
    /// Full handshakes a second at `percent_by_time`.
    pub full_per_second: Option<f64>,
    /// `percent_by_costs` lies beyond the levels.
    pub is_extrapolated: bool,
    /// Plain HTTP was bound by the client, so that the true point is not below this one.
    pub is_lower_bound: bool,
}

impl HalfServingPoint {
    /// `levels`: of a line of so many machines, ascending. `fit`: input of the fitted costs; `has_limit`: plain HTTP
    /// can have been its limit.
    pub fn of(levels: &[&Point], machines: f64, plain: &Point, fit: &Fit, has_limit: bool) -> HalfServingPoint {
        let columns = columns(levels, plain);
        let reached = |of: fn(f64) -> f64| {
            let of_means = |means: &[f64]| {
                let points = levels.iter().zip(means).map(|(level, hits)| (level.achieved_percent, of(*hits)));
                crossing(&points.collect::<Vec<_>>(), of(means[levels.len()] / 2.0))
            };
            estimate_function(&columns, of_means, RESAMPLES, SEED)
        };
        let by_lines = reached(|hits| hits);
        let crossing = match by_lines.value {
            _ if !has_limit => Crossing::NoLimit,
            f64::INFINITY => Crossing::Never,
            f64::NEG_INFINITY => Crossing::AtFirst,
            _ => Crossing::Between,
        };
        let is_between = crossing == Crossing::Between;
        let by_time = is_between.then(|| reached(|hits| -1.0 / hits));
        let by_costs = fit.reuse_for(0.5, machines).filter(|_| has_limit);
        let last = levels.last().map_or(0.0, |level| level.achieved_percent);
        HalfServingPoint {
            crossing,
            hits_per_second: plain.mean() / 2.0,
            percent_by_lines: is_between.then_some(by_lines),
            percent_by_time: by_time,
            percent_by_costs: by_costs,
            full_per_second: by_time.map(|found| papers::handshakes_at_half(plain.mean(), found.value / 100.0)),
            is_extrapolated: by_costs.is_some_and(|found| found.value > last),
            is_lower_bound: plain.client_bound,
        }
    }
}

fn columns(levels: &[&Point], plain: &Point) -> Vec<Column> {
    levels.iter().chain([&plain]).map(|point| point.column.clone()).collect()
}

/// Where points of ascending percent reuse and hits per second first reach `half`, linear between them (Mraz et al.
/// 2002, section 2). Infinite: at none of them; negative infinity: at the first.
fn crossing(points: &[(f64, f64)], half: f64) -> f64 {
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
fn fitted_costs(fresh: &[f64], hits_per_second: &[f64]) -> Option<(f64, f64)> {
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
fn fitted_handshake(fresh: &[f64], hits_per_second: &[f64], plain: f64) -> f64 {
    let (mut above, mut below) = (0.0, 0.0);
    for (fresh, hits) in fresh.iter().zip(hits_per_second) {
        let part = hits / plain;
        above += part * fresh * (1.0 - part);
        below += (part * fresh).powi(2);
    }
    above / below
}

/// Percent reuse at which so many machines reach `part` of `plain` by these costs, in seconds.
fn reuse_for(plain: f64, part: f64, machines: f64, (full_s, hit_s): (f64, f64)) -> f64 {
    let fresh = (machines / (part * plain) - hit_s) / full_s;
    match fresh {
        fresh if full_s <= 0.0 || fresh < 0.0 => f64::INFINITY,
        fresh => (100.0 * (1.0 - fresh)).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::throughput_at_reuse;

    fn point(percent: f64, hits: f64) -> Point {
        Point { achieved_percent: percent, column: vec![Some(hits); 6], client_bound: false }
    }

    /// Levels of Mraz et al. 2002, Figure 8.
    const LEVELS: [f64; 6] = [0.0, 50.0, 75.0, 90.0, 96.0, 98.0];

    fn line(machines: f64, plain: f64, (full_s, hit_s): (f64, f64)) -> Vec<Point> {
        let hits = |level: f64| papers::array_throughput(plain, machines, full_s, hit_s, level / 100.0);
        LEVELS.iter().map(|level| point(*level, hits(*level))).collect()
    }

    #[test]
    fn costs_are_found_again_below_the_limit_of_the_server() {
        let (plain, costs) = (point(0.0, 136.0), (0.26, 0.002));
        let lines: Vec<(f64, Vec<Point>)> =
            [1.0, 2.0, 3.0, 4.0].map(|machines| (machines, line(machines, 136.0, costs))).into();
        let points = lines.iter().flat_map(|(machines, line)| line.iter().map(|point| (*machines, point)));
        let found = Fit::of(points.collect(), Some(&plain), 0.8).costs().unwrap();
        assert!((found.full_handshake_ns.value / 1e9 - costs.0).abs() < 1e-9, "{found:?}");
        assert!((found.hit_ns.value / 1e9 - costs.1).abs() < 1e-9 && found.residual_percent < 1e-6, "{found:?}");
    }

    /// Lines between levels curve the other way than throughput does, so that a half serving point that is read off a
    /// figure is too low: with costs that fit the paper's first point, its 80 and 77 % come out for 84 and 78.
    #[test]
    fn by_time_the_half_serving_point_is_that_of_the_costs_and_by_lines_it_is_too_low() {
        let (plain, costs) = (point(0.0, 136.0), (0.26, 0.0017));
        for (machines, published) in [(3.0, 80.0), (4.0, 77.0)] {
            let line = line(machines, 136.0, costs);
            let fit = Fit::of(line.iter().map(|point| (machines, point)).collect(), Some(&plain), 0.8);
            let half = HalfServingPoint::of(&line.iter().collect::<Vec<_>>(), machines, &plain, &fit, true);
            let exact = half.percent_by_costs.unwrap().value;
            let found = half.percent_by_time.unwrap().value;
            assert!((found - exact).abs() < 0.2, "{machines}: {found}; the next level may be at the limit");
            let read = half.percent_by_lines.unwrap().value;
            assert!(read < exact - 1.0 && (read - published).abs() < 1.0, "{machines}: {read} for {exact}");
        }
    }

    #[test]
    fn enough_machines_have_no_half_serving_point_above_zero() {
        assert_eq!(reuse_for(10.0, 0.5, 4.0, (0.5, 0.01)), 0.0);
        assert_eq!(reuse_for(1000.0, 0.5, 1.0, (0.5, 0.01)), f64::INFINITY);
    }

    #[test]
    fn the_theory_is_found_again() {
        let levels: Vec<Point> =
            LEVELS.iter().map(|level| point(*level, throughput_at_reuse(500.0, 50.0, level / 100.0))).collect();
        let levels: Vec<&Point> = levels.iter().collect();
        let theory = Theory::of(&levels, &point(0.0, 500.0)).unwrap();
        assert!((theory.requests_per_handshake.value - 50.0).abs() < 1e-6 && theory.residual_percent < 1e-6);
        assert!((theory.half_percent.value - 98.0).abs() < 1e-6, "{theory:?}");
        assert_eq!(Theory::of(&levels[..1], &point(0.0, 500.0)), None);
    }
}
