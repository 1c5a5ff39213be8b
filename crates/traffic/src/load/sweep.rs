//! Sweeps: the same load at one rate after the other, or with more and more connections, until the server is saturated
//! by a stated rule.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Result, bail};
use tlsdyno_base::bootstrap::{Estimate, estimate_column};
use tlsdyno_engine::load::{ErrorKind, Outcome, Pacing, Plan, Rate};

use crate::load::bisect::{Edge, Found, bisect};
use crate::load::options::Options;
use crate::load::url::Url;
use crate::load::{diagnosis, plan};

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
    /// Offered first, requests a second.
    pub from: f64,
    /// Offered last, requests a second.
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

/// The least share of the connections that keep the rate where a load conforms.
const KEPT_MIN: f64 = 0.95;

/// The share of the requests below which those that fail are where a load conforms.
const FAILED_MAX: f64 = 0.01;

/// The rule of [`most_conforming`], as it is printed.
pub const CONFORMING_RULE: &str =
    "conforms: at least 95 % of the connections keep the rate, and less than 1 % of the requests fail";

/// How many times the connections of one step the next one has on the way to the edge.
const STEP: f64 = 1.5;

/// The part of its connections within which the first search finds the edge.
const NEAR: f64 = 0.1;

/// A round looks for the edge from where it was found by this number to so many times that.
const AROUND: f64 = 1.15;

/// Parts of that range: a round finds the edge within one of them.
const PARTS: u32 = 8;

/// The range of --conforming: `50..2000` connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRange {
    pub from: u32,
    pub to: u32,
}

impl FromStr for ConnectionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<ConnectionRange, String> {
        let parsed = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match parsed {
            Some((from, to)) if 1 <= from && from <= to && to <= 1_000_000 => Ok(ConnectionRange { from, to }),
            _ => Err(format!("`{text}` is no range of connections; write 50..2000 (1 to 1,000,000)")),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum MostConforming {
    /// So many, by rounds that each found the edge anew.
    Found(Estimate),
    /// Even the most that were tried conform.
    All(u32),
    None,
    Cut,
}

pub fn conforms(outcome: &Outcome) -> bool {
    let failed: u64 = outcome.errors.values().sum();
    let is_kept = outcome.kept.is_some_and(|kept| kept.share() >= KEPT_MIN);
    is_kept && !outcome.gave_up && (failed as f64) < FAILED_MAX * (outcome.hits + failed).max(1) as f64
}

/// What failed for another reason than that the connections were too many.
fn misconceived(outcome: &Outcome) -> Option<ErrorKind> {
    let failed = |kind: &ErrorKind| kind.is_local() || [ErrorKind::Status, ErrorKind::Length].contains(kind);
    diagnosis::main_kind(outcome).filter(failed)
}

/// The most connections of a load whose clients receive at a rate that still conform, as SPECweb99 looks for them: more
/// and more connections until they do not conform, then halving, then `rounds` of halving around the edge. `load`
/// runs a plan; `each` is told the connections, what came of them, and whether they conform.
pub fn most_conforming(
    options: &Options,
    url: &Url,
    address: SocketAddr,
    (range, rounds): (ConnectionRange, u32),
    load: impl Fn(&Plan) -> Result<Outcome>,
    mut each: impl FnMut(u32, Outcome, bool) -> Result<()>,
) -> Result<MostConforming> {
    let mut options = Options { connections: range.from, ..options.clone() };
    // A server that has just started reads its files for the first time.
    load(&plan::plan(&options, url, address)?)?;
    most(range, rounds, |connections, round| {
        options.connections = connections;
        // Another round has other requests.
        options.workload.seed = u64::from(round) + 1;
        let outcome = load(&plan::plan(&options, url, address)?)?;
        if let Some(kind) = misconceived(&outcome) {
            let of_kind = diagnosis::of_kind(kind);
            let hint = "a workload's server needs its files for the most connections that are tried (tlsdyno trace \
                        import)";
            bail!("with {connections} connections most of what fails is of the kind {kind}: {of_kind}; {hint}");
        }
        let (conforms, is_cut) = (conforms(&outcome), outcome.stopped);
        each(connections, outcome, conforms)?;
        Ok(match (is_cut, conforms) {
            (true, _) => Found::Cut,
            (false, true) => Found::Below,
            (false, false) => Found::FromHereOn(connections),
        })
    })
}

/// The search, by trials of a number of connections in a round, 0 being that before the first.
fn most(
    range: ConnectionRange,
    rounds: u32,
    mut attempt: impl FnMut(u32, u32) -> Result<Found>,
) -> Result<MostConforming> {
    let mut edge = Edge { below: 0, from: range.from };
    while edge.from > edge.below {
        match attempt(edge.from, 0)? {
            Found::Cut => return Ok(MostConforming::Cut),
            Found::FromHereOn(_) => break,
            Found::Below if edge.from == range.to => return Ok(MostConforming::All(range.to)),
            Found::Below => {
                edge = Edge { below: edge.from, from: ((f64::from(edge.from) * STEP).ceil() as u32).min(range.to) };
            }
        }
    }
    let mut is_cut = false;
    let mut note = |found: Result<Found>| found.inspect(|found| is_cut |= *found == Found::Cut);
    let near = |edge: &Edge| (f64::from(edge.from) * NEAR) as u32;
    let mut edge = bisect(edge, near(&edge), |connections| note(attempt(connections, 0)))?;
    if edge.below == 0 {
        // Where none was found that conforms, the first one decides.
        edge = bisect(edge, 1, |connections| note(attempt(connections, 0)))?;
    }
    if edge.from == 1 {
        return Ok(MostConforming::None);
    }
    let first = f64::midpoint(edge.below.into(), edge.from.into());
    let part = (first * (AROUND - 1.0 / AROUND) / f64::from(PARTS)).max(1.0);
    let mut middles: Vec<f64> = Vec::new();
    for round in 0..rounds {
        // Each round tries other numbers in between, so that what halving leaves open differs from round to round.
        let shift = part * (f64::from(round) / f64::from(rounds) - 0.5);
        let around = middles.iter().sum::<f64>() / middles.len() as f64;
        let around = if middles.is_empty() { first } else { around };
        let [below, from] = [around / AROUND, around * AROUND].map(|end| (end + shift).max(0.0) as u32);
        let mut of_round = |connections| note(attempt(connections, round + 1));
        let edge = closed(Edge { below, from: from.max(below + 1) }, part.ceil() as u32, range.to, &mut of_round)?;
        let Some(edge) = edge else {
            return Ok(if is_cut { MostConforming::Cut } else { MostConforming::All(range.to) });
        };
        middles.push(f64::midpoint(edge.below.into(), edge.from.into()));
    }
    if is_cut {
        return Ok(MostConforming::Cut);
    }
    let Estimate { value, low, high } = estimate_column(&middles.into_iter().map(Some).collect());
    let least = part / f64::from(2 * rounds);
    Ok(MostConforming::Found(Estimate { value, low: low.min(value - least), high: high.max(value + least) }))
}

/// Where the edge is, within `step`: looked for in `whole`, whose ends have not been tried, and beyond them as far as
/// it has moved. Nothing where it is beyond `most`, or the search was cut short.
fn closed(whole: Edge, step: u32, most: u32, attempt: &mut impl FnMut(u32) -> Result<Found>) -> Result<Option<Edge>> {
    let mut edge = bisect(whole, step, &mut *attempt)?;
    while edge.from >= whole.from {
        match attempt(edge.from)? {
            Found::Below if edge.from >= most => return Ok(None),
            Found::Below => edge = Edge { below: edge.from, from: edge.from + step },
            Found::FromHereOn(_) => break,
            Found::Cut => return Ok(None),
        }
    }
    while edge.below <= whole.below && edge.below > 0 {
        match attempt(edge.below)? {
            Found::Below => break,
            Found::FromHereOn(_) => edge = Edge { below: edge.below.saturating_sub(step), from: edge.below },
            Found::Cut => return Ok(None),
        }
    }
    Ok(Some(edge))
}

/// As many connections as saturate the server: doubled from `options.connections` until that brings less than
/// [`GAIN_MIN`], or there are `connections_max`. Whether they do, and what came of the last step.
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
    use std::collections::BTreeMap;

    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_engine::load::Kept;

    use super::*;

    /// What is found where up to about so many connections conform, by a part of it more or less, and in how many runs.
    fn found(edge: f64, spread: f64, range: &str) -> (MostConforming, u32) {
        let (mut runs, mut random) = (0, SplitMix64::new(7));
        let found = most(range.parse().unwrap(), 5, |connections, _| {
            runs += 1;
            let chance = random.next_u64() as f64 / u64::MAX as f64 - 0.5;
            let conforms = f64::from(connections) <= edge * (1.0 + spread * chance);
            Ok(if conforms { Found::Below } else { Found::FromHereOn(connections) })
        });
        (found.unwrap(), runs)
    }

    #[test]
    fn the_most_connections_that_conform_are_found_with_their_interval() {
        for (edge, spread, range) in [(1_480.0, 0.0, "100..5000"), (1_480.0, 0.06, "1000..2000"), (37.0, 0.0, "1..400")]
        {
            let (MostConforming::Found(most), runs) = found(edge, spread, range) else { panic!("found") };
            assert!(most.low <= edge * 1.01 && edge * 0.99 <= most.high, "{edge}: {most:?}");
            assert!(most.high - most.low < 0.08 * edge + 2.0 && runs <= 30, "{edge}: {most:?}, {runs} runs");
        }
        // Whoever begins above the edge comes down to it.
        let (MostConforming::Found(most), _) = found(40.0, 0.0, "300..400") else { panic!("found") };
        assert!(most.low <= 40.0 && 40.0 <= most.high, "{most:?}");
        assert_eq!(found(1e9, 0.0, "100..300").0, MostConforming::All(300));
        assert_eq!(["8..300", "300..400"].map(|range| found(0.0, 0.0, range).0), [const { MostConforming::None }; 2]);
        // Where it moves, so does the search, and the interval is wide.
        let (MostConforming::Found(most), runs) = found(1_000.0, 1.0, "100..5000") else { panic!("found") };
        assert!(most.high - most.low > 100.0 && most.low < 1_000.0 && 900.0 < most.high, "{most:?}, {runs} runs");
        // A first search that was misled by half is put right.
        let mut runs = 0;
        let misled = super::most("500..5000".parse().unwrap(), 6, |connections, round| {
            runs += 1;
            let edge = if round == 0 { 600 } else { 900 };
            Ok(if connections <= edge { Found::Below } else { Found::FromHereOn(connections) })
        });
        let MostConforming::Found(most) = misled.unwrap() else { panic!("found") };
        assert!(most.low <= 900.0 && 880.0 <= most.high && runs < 50, "{most:?}, {runs} runs");
    }

    #[test]
    fn a_load_conforms_by_shares_and_failures() {
        let conforms_with = |kept_count, failed| {
            let kept = Kept { clients_count: 100, kept_count, ..Kept::default() };
            let errors = BTreeMap::from([(ErrorKind::Reset, failed)]);
            conforms(&Outcome { hits: 1_000, kept: Some(kept), errors, ..Outcome::default() })
        };
        assert_eq!(
            [conforms_with(95, 0), conforms_with(94, 0), conforms_with(100, 10), conforms_with(100, 11)],
            [true, false, true, false]
        );
        assert!(!conforms(&Outcome { hits: 1, ..Outcome::default() }), "nobody received at a rate");
        let unheard =
            Outcome { errors: BTreeMap::from([(ErrorKind::Status, 9), (ErrorKind::Reset, 1)]), ..Outcome::default() };
        assert_eq!(misconceived(&unheard), Some(ErrorKind::Status));
        assert!(["", "5", "9..5", "0..4", "a..b"].iter().all(|text| text.parse::<ConnectionRange>().is_err()));
    }

    #[test]
    fn rates_grow_to_the_end_of_the_range() {
        let rates: Vec<f64> = "100..500/s".parse::<RateRange>().unwrap().rates(2.0).collect();
        assert_eq!(rates, [100.0, 200.0, 400.0, 500.0]);
        assert_eq!("5..5".parse::<RateRange>().unwrap().rates(2.0).count(), 1);
        assert!(["5", "0..5", "6..5", "a..b", "1..1e9"].iter().all(|text| text.parse::<RateRange>().is_err()));
    }
}
