//! Sweeps: the same load at one rate after the other, or with more and more connections, until the server is saturated
//! by a stated rule.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::Result;
use serde::Serialize;
use tlsdyno_engine::load::{Outcome, Pacing, Phase, Plan, Rate};

use crate::load::options::{self, Options};
use crate::load::url::Url;
use crate::load::warning::{achieved_reuse_percent, busy_fraction};
use tlsdyno_base::histogram::{Percentiles, percentiles};

/// A point is saturated when less than this share of the rate is achieved …
const ACHIEVED_MIN: f64 = 0.95;

/// … or more than this share of what was due failed or was not sent.
const LOST_MAX: f64 = 0.01;

/// More connections saturate a server further only if they bring this much more throughput.
const GAIN_MIN: f64 = 0.05;

/// The rule of [`by_rate`], as it is printed.
pub const RATE_RULE: &str =
    "saturated: less than 95 % of the rate achieved, or more than 1 % of the requests failed or not sent";

/// The range of --sweep: `100..5000`, each rate so many times the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateRange {
    /// First rate, requests a second.
    pub from: f64,
    /// Last one.
    pub to: f64,
}

impl FromStr for RateRange {
    type Err = String;

    fn from_str(text: &str) -> Result<RateRange, String> {
        let wrong = || format!("`{text}` is no range of rates; write 100..5000 (requests a second)");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.trim_end_matches("/s").trim().parse::<f64>().map_err(|_| wrong());
        let range = RateRange { from: number(from)?, to: number(to)? };
        let sensible = range.from > 0.0 && range.from <= range.to && range.to <= 1e7;
        if sensible { Ok(range) } else { Err(wrong()) }
    }
}

impl RateRange {
    /// Its rates, each `factor` times the one before, the last one exactly the end.
    pub fn rates(self, factor: f64) -> impl Iterator<Item = f64> {
        let next = move |rate: &f64| (*rate < self.to).then(|| (rate * factor).min(self.to));
        std::iter::successors(Some(self.from), next)
    }
}

/// What was measured at one rate, or one percent reuse.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Rate asked for, requests a second; `null` in a closed loop.
    pub rate_per_second_asked: Option<f64>,
    /// Percent reuse asked for (resumed share of connections); `null` where the flags do not fix it.
    pub reuse_percent_asked: Option<f64>,
    /// The same as achieved; `null` without handshakes.
    pub reuse_percent_achieved: Option<f64>,
    /// Hits by elapsed time.
    pub hits_per_second: f64,
    /// Connections open at once.
    pub connections: u32,
    /// Latency: of an open loop from the intended send time; `null` without a hit.
    pub latency_ns: Option<Percentiles>,
    /// Failed requests and connections.
    pub errors: u64,
    /// Requests due that no user was free for.
    pub unserved: u64,
    /// CPU time of the client by elapsed time: near 1 it was the bottleneck.
    pub client_busy_fraction: f64,
    /// By the rule of the sweep.
    pub saturated: bool,
}

impl Point {
    fn new(plan: &Plan, outcome: &Outcome) -> Point {
        let open = match plan.pacing {
            Pacing::Open(rate) => Some(rate.per_second),
            Pacing::Closed | Pacing::Pauses(_) | Pacing::Recorded(_) => None,
        };
        let phase = if open.is_some() { Phase::ScheduledResponse } else { Phase::WholeResponse };
        Point {
            rate_per_second_asked: open,
            reuse_percent_asked: plan.resumption.percent(),
            reuse_percent_achieved: achieved_reuse_percent(outcome),
            hits_per_second: outcome.hits as f64 * 1e9 / outcome.elapsed_ns.max(1) as f64,
            connections: plan.connections.total,
            latency_ns: outcome.phases.get(&phase).map(percentiles),
            errors: outcome.errors.values().sum(),
            unserved: outcome.unserved,
            client_busy_fraction: busy_fraction(outcome),
            saturated: open.is_some_and(|rate| is_saturated(rate, outcome)),
        }
    }
}

fn is_saturated(rate: f64, outcome: &Outcome) -> bool {
    let lost = outcome.unserved + outcome.errors.values().sum::<u64>();
    let due = (outcome.hits + lost).max(1);
    // What arrived by chance, not the rate itself, is what could be achieved: Poisson arrivals scatter.
    let achieved = outcome.hits as f64 / due as f64;
    let slowed =
        (outcome.hits as f64) < ACHIEVED_MIN * rate * outcome.elapsed_ns as f64 / 1e9 - 3.0 * (due as f64).sqrt();
    achieved < 1.0 - LOST_MAX || slowed
}

/// Latency against throughput (Apostolopoulos et al. 2000, Figures 4 and 5): the rates one after the other, up to the
/// first at which the server is saturated. `load` runs a plan; `each` is told every point as it is measured.
///
/// # Errors
/// The options make no plan, or the run cannot begin.
pub fn by_rate(
    options: &Options,
    url: &Url,
    address: SocketAddr,
    rates: impl Iterator<Item = f64>,
    load: impl Fn(&Plan) -> Result<Outcome>,
    mut each: impl FnMut(&Point, &Outcome) -> Result<()>,
) -> Result<Vec<Point>> {
    let base = options::plan(options, url, address)?;
    let mut points: Vec<Point> = Vec::new();
    for per_second in rates {
        let rate = Rate { per_second, arrivals: options.arrivals, seed: options.seed };
        let plan = Plan { pacing: Pacing::Open(rate), ..base.clone() };
        let outcome = load(&plan)?;
        let point = Point::new(&plan, &outcome);
        each(&point, &outcome)?;
        let end = point.saturated || outcome.stopped || outcome.gave_up;
        points.push(point);
        if end {
            break;
        }
    }
    Ok(points)
}

/// As many connections as saturate the server: doubled from `options.connections` until that brings less than
/// [`GAIN_MIN`], or there are `connections_max`. Whether they do, and what came of the last step.
///
/// # Errors
/// As [`by_rate`].
pub fn saturated_at(
    options: &Options,
    url: &Url,
    address: SocketAddr,
    connections_max: u32,
    load: impl Fn(&Plan) -> Result<Outcome>,
) -> Result<(Plan, Outcome, bool)> {
    let mut options = options.clone();
    let mut best: Option<(Plan, Outcome, f64)> = None;
    loop {
        let plan = options::plan(&options, url, address)?;
        let outcome = load(&plan)?;
        let hits_per_second = outcome.hits as f64 * 1e9 / outcome.elapsed_ns.max(1) as f64;
        if let Some((plan, outcome, before)) = best.take()
            && hits_per_second <= before * (1.0 + GAIN_MIN)
        {
            return Ok((plan, outcome, true));
        }
        let is_last = options.connections.saturating_mul(2) > connections_max;
        if outcome.stopped || outcome.gave_up || outcome.hits == 0 || is_last {
            return Ok((plan, outcome, false));
        }
        best = Some((plan, outcome, hits_per_second));
        options.connections *= 2;
        options.users = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_grow_to_the_end_of_the_range() {
        let rates: Vec<f64> = "100..500/s".parse::<RateRange>().unwrap().rates(2.0).collect();
        assert_eq!(rates, [100.0, 200.0, 400.0, 500.0]);
        assert_eq!("5..5".parse::<RateRange>().unwrap().rates(2.0).count(), 1);
        assert!(["5", "0..5", "6..5", "a..b", "1..1e9"].iter().all(|text| text.parse::<RateRange>().is_err()));
    }
}
