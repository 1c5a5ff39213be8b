//! Sweeps: the same load at one rate after the other, or with more and more connections, until the server is saturated
//! by a stated rule.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::Result;
use tlsdyno_engine::load::{Outcome, Pacing, Plan, Rate};

use crate::load::options::Options;
use crate::load::plan;
use crate::load::url::Url;

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
/// first at which the server is saturated. `load` runs a plan; `each` is told every rate, what came of it, and whether
/// the server is saturated by it.
///
/// # Errors
/// The options make no plan, or the run cannot begin.
pub fn by_rate(
    options: &Options,
    url: &Url,
    address: SocketAddr,
    rates: impl Iterator<Item = f64>,
    load: impl Fn(&Plan) -> Result<Outcome>,
    mut each: impl FnMut(f64, Outcome, bool) -> Result<()>,
) -> Result<()> {
    let base = plan::plan(options, url, address)?;
    for per_second in rates {
        let rate = Rate { per_second, arrivals: options.arrivals, seed: options.seed };
        let outcome = load(&Plan { pacing: Pacing::Open(rate), ..base.clone() })?;
        let is_saturated = is_saturated(per_second, &outcome);
        let is_last = is_saturated || outcome.stopped || outcome.gave_up;
        each(per_second, outcome, is_saturated)?;
        if is_last {
            break;
        }
    }
    Ok(())
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
        let plan = plan::plan(&options, url, address)?;
        let outcome = load(&plan)?;
        let hits_per_second = outcome.hits_per_second();
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
