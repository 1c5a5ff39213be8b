//! What work costs in CPU time, fitted to the rows of records, with what the rounds scatter and the fit misses.
//!
//! At each place `CPU = Σ count · cost`, by least squares of relative errors, no cost below 0. Intervals come from
//! resampling the rounds of each record. What the fitted cells differ from the fit by is drawn in each resample too:
//! the interval of a prediction is that of a cell like those that were measured.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Serialize;
use tlsdyno_base::bootstrap::{Estimate, SEED};
use tlsdyno_base::random::SplitMix64;

use crate::measured::{Place, Row, Source, Term, Work};

/// Resamples of the rounds.
pub const RESAMPLES: usize = 1000;
/// Two kinds of work are told apart where their ratio differs by so many times between cells.
const APART_TIMES: f64 = 1.5;
/// The same of the part of the handshakes that resume.
const APART_SHARE: f64 = 0.1;
/// Half of a 95 % interval of a normal distribution, in standard deviations.
const NORMAL_95: f64 = 1.96;
/// Below this part nothing was resumed to speak of.
const FEW_SHARE: f64 = 0.05;

/// Costs of all places.
#[derive(Clone, Debug)]
pub struct Costs {
    places: BTreeMap<Place, Fitted>,
    /// The records that they are from.
    pub names: Vec<String>,
    /// What the reader must know of the records.
    pub doubts: Vec<String>,
    /// What something else costs more, by its name, nanoseconds for each full handshake.
    pub differences: Vec<(String, Estimate)>,
}

/// Costs at one place.
#[derive(Clone, Debug, Serialize)]
pub struct Fitted {
    /// By kind of work, nanoseconds; `None`: the records do not tell it.
    pub costs_ns: [Option<Estimate>; 4],
    /// Configurations that they are fitted to.
    pub cells: usize,
    /// What the fit misses in them, as a part of their CPU time; `None`: there are no more cells than costs.
    pub misfit_ratio: Option<f64>,
    /// What was measured there.
    pub range: Range,
    /// The records.
    pub from: Vec<String>,
    #[serde(skip)]
    point: Work,
    #[serde(skip)]
    samples: Vec<Work>,
    /// By which part each resample misses.
    #[serde(skip)]
    misses_ratio: Vec<f64>,
    #[serde(skip)]
    rounds: usize,
}

/// What cells of a place cover.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Part of the handshakes that resumed, least and most.
    pub resumed_fraction: [f64; 2],
    /// Requests of a connection, least and most.
    pub requests_count: [f64; 2],
    /// Kilobytes of a response, least and most.
    pub kilobytes: [f64; 2],
    /// Most requests a second of one machine; 0: not known.
    pub rate_per_s: f64,
}

/// One drawing of all costs: the fit itself, or a resample.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'c> {
    costs: &'c Costs,
    at: Option<usize>,
}

impl Drawn<'_> {
    /// CPU time of this work, nanoseconds; not a number where nothing is known of the place.
    pub fn cpu_ns(&self, place: Place, work: Work) -> f64 {
        let Some(of) = self.costs.places.get(&place) else { return f64::NAN };
        match self.at {
            None => dot(of.point, work),
            Some(at) => dot(of.samples[at], work) * (1.0 + of.misses_ratio[at]),
        }
    }
}

impl Costs {
    /// Of records that tell of the same server.
    ///
    /// # Errors
    /// There are none.
    pub fn of(sources: &[Source]) -> Result<Costs> {
        ensure!(!sources.is_empty(), "no record is given");
        let fitted = |place: Place| Some((place, Fitted::of(place, sources)?));
        let mut doubts = Vec::new();
        for (other, what) in ["server", "version, suite or group", "certificate", "processor"].iter().enumerate() {
            let mut all: Vec<&str> = sources.iter().map(|of| of.subject[other].as_str()).collect();
            all.retain(|said| !said.is_empty());
            all.sort_unstable();
            all.dedup();
            if all.len() > 1 {
                doubts.push(format!("the records differ in their {what}: {}", all.join(" | ")));
            }
        }
        let names = sources.iter().map(|of| of.name.clone()).collect();
        let differences = sources.iter().flat_map(|of| of.differences.clone()).collect();
        Ok(Costs { places: Place::ALL.into_iter().filter_map(fitted).collect(), names, doubts, differences })
    }

    /// The fit itself.
    pub fn point(&self) -> Drawn<'_> {
        Drawn { costs: self, at: None }
    }

    /// The costs at a place.
    pub fn at(&self, place: Place) -> Option<&Fitted> {
        self.places.get(&place)
    }

    /// All places with their costs.
    pub fn places(&self) -> impl Iterator<Item = (Place, &Fitted)> {
        self.places.iter().map(|(place, fitted)| (*place, fitted))
    }

    /// The costs that these kinds of work need and no record tells, with the command that measures them.
    pub fn missing(&self, needed: &[(Place, Term)]) -> Vec<String> {
        let lacks =
            |(place, term): &&(Place, Term)| self.at(*place).is_none_or(|of| of.costs_ns[*term as usize].is_none());
        let told = |(place, term): &(Place, Term)| {
            format!("{} at the {}: {}", term.told(*place), place.told(), place.measured_by(*term))
        };
        needed.iter().filter(lacks).map(told).collect()
    }

    /// The same where handshakes or requests cost so much more wherever TLS ends. The difference is drawn as a normal
    /// error of its interval.
    pub fn changed(&self, terms: &[Term], more_ns: Estimate) -> Costs {
        let mut costs = self.clone();
        let deviation_ns = more_ns.half_width() / NORMAL_95;
        for place in [Place::Server, Place::Proxy] {
            let Some(of) = costs.places.get_mut(&place) else { continue };
            let mut random = SplitMix64::new(SEED);
            let drawn: Vec<f64> = of.samples.iter().map(|_| more_ns.value + deviation_ns * random.normal()).collect();
            for term in terms.iter().map(|term| *term as usize) {
                of.point[term] += more_ns.value;
                of.samples.iter_mut().zip(&drawn).for_each(|(sample, more_ns)| sample[term] += more_ns);
            }
        }
        costs
    }

    /// What a function of the costs comes to, with its interval.
    pub fn estimate(&self, of: impl Fn(&Drawn<'_>) -> f64) -> Estimate {
        let value = of(&self.point());
        let sample: Vec<f64> = (0..RESAMPLES).map(|at| of(&Drawn { costs: self, at: Some(at) })).collect();
        let rounds = self.places.values().map(|of| of.rounds).min().unwrap_or(0);
        match sample.iter().all(|value| value.is_finite()) {
            true => Estimate::of_resamples(value, sample, rounds),
            false => Estimate::without_interval(value),
        }
    }
}

impl Fitted {
    fn of(place: Place, sources: &[Source]) -> Option<Fitted> {
        let sources: Vec<(&Source, Vec<&Row>)> = sources
            .iter()
            .map(|of| (of, of.rows.iter().filter(|row| row.place == place).collect::<Vec<_>>()))
            .filter(|(_, rows)| !rows.is_empty())
            .collect();
        if sources.is_empty() {
            return None;
        }
        let rows: Vec<Vec<&Row>> = sources.iter().map(|(_, rows)| rows.clone()).collect();
        let cells = sums(&rows, &|_, _| 1.0);
        let range = Range::of(&cells, rows.iter().flatten().copied());
        let told = told_apart(place, &cells, &range);
        let point = fit(&cells, told);
        let off: Vec<f64> = cells.iter().map(|(work, cpu_ns)| cpu_ns / dot(point, *work) - 1.0).collect();
        let free = cells.len().checked_sub(told.iter().filter(|is| **is).count()).filter(|free| *free > 0);
        let misfit_ratio = free.map(|free| (off.iter().map(|off| off * off).sum::<f64>() / free as f64).sqrt());
        let mut random = SplitMix64::new(SEED ^ place as u64);
        let mut samples = Vec::with_capacity(RESAMPLES);
        let mut misses_ratio = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let drawn: Vec<BTreeMap<u32, f64>> = rows.iter().map(|rows| draw(rows, &mut random)).collect();
            let sample = sums(&rows, &|source, row| drawn[source].get(&row.round).copied().unwrap_or(0.0));
            samples.push(fit(&sample, told));
            misses_ratio.push(misfit_ratio.unwrap_or(0.0) * random.normal());
        }
        let rounds = rows.iter().map(|rows| rounds_of(rows).len()).min().unwrap_or(0);
        let cost = |term: Term| {
            let of = |work: &Work| work[term as usize];
            let estimate = Estimate::of_resamples(of(&point), samples.iter().map(of).collect(), rounds);
            told[term as usize].then_some(estimate)
        };
        let costs_ns = Term::ALL.map(cost);
        let from = sources.iter().map(|(of, _)| of.name.clone()).collect();
        Some(Fitted { costs_ns, cells: cells.len(), misfit_ratio, range, from, point, samples, misses_ratio, rounds })
    }

    /// Requests on each connection that the cost of a connection has in it, where the two cannot be told apart.
    pub fn requests_included(&self) -> Option<f64> {
        let is_apart = self.costs_ns[Term::Request as usize].is_some();
        (!is_apart).then_some(self.range.requests_count[1])
    }
}

impl Range {
    fn of<'r>(cells: &[(Work, f64)], rows: impl Iterator<Item = &'r Row>) -> Range {
        let ends = |of: &dyn Fn(&Work) -> f64| {
            let values = cells.iter().map(|(work, _)| of(work)).filter(|value| value.is_finite());
            values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| [low.min(value), high.max(value)])
        };
        Range {
            resumed_fraction: ends(&|work| work[1] / (work[0] + work[1])),
            requests_count: ends(&|work| work[2] / (work[0] + work[1])),
            kilobytes: ends(&|work| work[3] / work[2]),
            rate_per_s: rows.map(|row| row.rate_per_s).fold(0.0, f64::max),
        }
    }
}

/// The kinds of work whose costs the cells tell apart.
fn told_apart(place: Place, cells: &[(Work, f64)], range: &Range) -> [bool; 4] {
    let differs = |[low, high]: [f64; 2]| high.is_finite() && high > APART_TIMES * low.max(f64::MIN_POSITIVE);
    let has = |term: Term| cells.iter().any(|(work, _)| work[term as usize] > 0.0);
    let [least, most] = range.resumed_fraction;
    let both = most - least >= APART_SHARE;
    let ends_tls = matches!(place, Place::Server | Place::Proxy);
    let full = has(Term::Full) && (!ends_tls || both || most < FEW_SHARE);
    let resumed = ends_tls && has(Term::Resumed) && (both || least > 1.0 - FEW_SHARE);
    let request = has(Term::Request) && (differs(range.requests_count) || !full && !resumed);
    let kilobyte = differs(range.kilobytes) && cells.len() > 2;
    [full, resumed, request, kilobyte]
}

fn rounds_of(rows: &[&Row]) -> Vec<u32> {
    let mut rounds: Vec<u32> = rows.iter().map(|row| row.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    rounds
}

/// How often each round is drawn.
fn draw(rows: &[&Row], random: &mut SplitMix64) -> BTreeMap<u32, f64> {
    let rounds = rounds_of(rows);
    let mut drawn = BTreeMap::new();
    rounds.iter().for_each(|_| *drawn.entry(rounds[random.below(rounds.len())]).or_insert(0.0) += 1.0);
    drawn
}

/// Work and CPU time of each cell of each source, over the rounds as often as they count.
fn sums(sources: &[Vec<&Row>], weight: &dyn Fn(usize, &Row) -> f64) -> Vec<(Work, f64)> {
    let mut cells: BTreeMap<(usize, usize), (Work, f64)> = BTreeMap::new();
    for (source, row) in sources.iter().enumerate().flat_map(|(source, rows)| rows.iter().map(move |row| (source, row)))
    {
        let weight = weight(source, row);
        let (work, cpu_ns) = cells.entry((source, row.cell)).or_default();
        work.iter_mut().zip(row.work).for_each(|(sum, count)| *sum += weight * count);
        *cpu_ns += weight * row.cpu_ns;
    }
    cells.into_values().filter(|(_, cpu_ns)| *cpu_ns > 0.0).collect()
}

fn dot(costs: Work, work: Work) -> f64 {
    costs.iter().zip(work).map(|(cost, count)| cost * count).sum()
}

/// The costs of the kinds of work in `of` for which the relative errors of the cells are least, none below 0.
fn fit(cells: &[(Work, f64)], mut of: [bool; 4]) -> Work {
    loop {
        let costs = least_squares(cells, of);
        let worst = (0..4).filter(|at| of[*at]).min_by(|one, two| costs[*one].total_cmp(&costs[*two]));
        match worst {
            Some(at) if costs[at] < 0.0 => of[at] = false,
            _ => return costs,
        }
    }
}

/// By the normal equations, with a trace of a ridge, so that cells that a resample left out leave a solution.
fn least_squares(cells: &[(Work, f64)], of: [bool; 4]) -> Work {
    let terms: Vec<usize> = (0..4).filter(|at| of[*at]).collect();
    let size = terms.len();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for (work, cpu_ns) in cells {
        let scaled: Vec<f64> = terms.iter().map(|at| work[*at] / cpu_ns).collect();
        for (line, one) in matrix.iter_mut().zip(&scaled) {
            line.iter_mut().zip(scaled.iter().chain([&1.0])).for_each(|(sum, two)| *sum += one * two);
        }
    }
    for (at, line) in matrix.iter_mut().enumerate() {
        line[at] *= 1.0 + 1e-9;
    }
    for at in 0..size {
        let pivot = matrix[at].clone();
        for (_, line) in matrix.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let times = if pivot[at] > 0.0 { line[at] / pivot[at] } else { 0.0 };
            line.iter_mut().zip(&pivot).for_each(|(one, two)| *one -= times * two);
        }
    }
    let mut costs = Work::default();
    for (at, term) in terms.iter().enumerate() {
        costs[*term] = if matrix[at][at] > 0.0 { matrix[at][size] / matrix[at][at] } else { 0.0 };
    }
    costs
}

/// Records with known costs.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    /// Cells with these counts for 1000 requests, in ten rounds, whose CPU time scatters by `noise`.
    pub(crate) fn source(place: Place, costs_us: Work, counts: &[Work], noise: f64) -> Source {
        let mut random = SplitMix64::new(5 + place as u64);
        let mut rows = Vec::new();
        for round in 0..10 {
            for (cell, work) in counts.iter().enumerate() {
                let cpu_ns = dot(costs_us, *work) * 1e3 * (1.0 + noise * random.normal());
                rows.push(Row { place, cell, round, work: *work, cpu_ns, rate_per_s: 1000.0 });
            }
        }
        let subject = ["nginx", "TLS 1.3", "rsa-2048", "a CPU"].map(str::to_owned);
        Source { name: "cluster 3fd1".to_owned(), subject, rows, differences: Vec::new() }
    }

    /// 900 µs a full handshake, 300 µs a resumed one, 40 µs a request at the server; 50 µs a connection at the
    /// dispatcher; 30 µs a request at a server behind proxies that cost as the server and 20 µs a request more.
    pub(crate) fn costs(noise: f64) -> Costs {
        let mix = |resumed: f64, requests: f64| {
            [1000.0 * (1.0 - resumed), 1000.0 * resumed, 1000.0 * requests, 7e3 * requests]
        };
        let cells = [mix(0.0, 1.0), mix(0.5, 1.0), mix(0.9, 1.0), mix(0.5, 8.0)];
        let one = [1000.0, 0.0, 1000.0, 7e3];
        let behind = [0.0, 0.0, 1000.0, 7e3];
        let all = [
            source(Place::Server, [900.0, 300.0, 40.0, 0.0], &cells, noise),
            source(Place::Proxy, [900.0, 300.0, 60.0, 0.0], &cells, noise),
            source(Place::Behind, [0.0, 0.0, 30.0, 0.0], &[behind], noise),
            source(Place::Dispatcher, [50.0, 0.0, 0.0, 0.0], &[one, one], noise),
        ];
        Costs::of(&all).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{costs, source};
    use super::*;

    #[test]
    fn known_costs_are_found_with_intervals_that_hold_them() {
        let costs = costs(0.05);
        let server = costs.at(Place::Server).unwrap();
        for (found, known) in server.costs_ns.iter().zip([900e3, 300e3, 40e3]) {
            let found = found.unwrap();
            assert!(found.low < known && known < found.high && found.half_width() < 0.2 * known, "{found:?} {known}");
        }
        assert_eq!(server.costs_ns[Term::Kilobyte as usize], None, "all responses are alike");
        let hop = costs.at(Place::Dispatcher).unwrap();
        assert!((hop.costs_ns[Term::Full as usize].unwrap().value / 50e3 - 1.0).abs() < 0.05);
        assert_eq!(hop.requests_included(), Some(1.0));
    }

    #[test]
    fn what_cells_do_not_tell_apart_is_missing_with_its_command() {
        let one_mix = [[200.0, 800.0, 1000.0, 7e3]];
        let costs = Costs::of(&[source(Place::Server, [900.0, 300.0, 40.0, 0.0], &one_mix, 0.0)]).unwrap();
        let needed = [Term::Full, Term::Resumed].map(|term| (Place::Server, term));
        let missing = costs.missing(&[needed[0], needed[1], (Place::Proxy, Term::Full)]);
        assert_eq!(missing.len(), 3, "{missing:?}");
        assert!(missing[2].contains("tlsdyno array"), "{missing:?}");
        let full_only = [[1000.0, 0.0, 1000.0, 7e3]];
        let costs = Costs::of(&[source(Place::Server, [900.0, 300.0, 40.0, 0.0], &full_only, 0.0)]).unwrap();
        assert_eq!(costs.missing(&needed[..1]), [""; 0]);
        let full = costs.at(Place::Server).unwrap().costs_ns[0].unwrap().value;
        assert!((full / 940e3 - 1.0).abs() < 1e-6, "with its request: {full}");
    }

    #[test]
    fn what_the_fit_misses_widens_intervals() {
        // A cost that grows faster than the count: the fit is wrong in each cell.
        let cells: Vec<Work> = [0.0, 0.3, 0.6, 0.9].map(|part| [1e3 * (1.0 - part), 1e3 * part, 1e3, 7e3]).into();
        let mut bent = source(Place::Server, [900.0, 300.0, 40.0, 0.0], &cells, 0.0);
        bent.rows.iter_mut().filter(|row| row.cell % 2 == 0).for_each(|row| row.cpu_ns *= 1.1);
        let costs = Costs::of(&[bent]).unwrap();
        assert!(costs.at(Place::Server).unwrap().misfit_ratio.unwrap() > 0.03);
        let estimate = costs.estimate(|of| of.cpu_ns(Place::Server, [0.5, 0.5, 1.0, 0.0]));
        assert!(estimate.half_width() > 0.05 * estimate.value, "{estimate:?}");
    }

    #[test]
    fn records_of_different_servers_are_doubted() {
        let cells = [[1000.0, 0.0, 1000.0, 7e3]];
        let one = source(Place::Server, [900.0, 300.0, 40.0, 0.0], &cells, 0.0);
        let mut other = one.clone();
        other.subject[2] = "p-256".to_owned();
        assert_eq!(Costs::of(&[one.clone(), one.clone()]).unwrap().doubts, [""; 0]);
        assert!(Costs::of(&[one, other]).unwrap().doubts[0].contains("certificate"));
    }
}
