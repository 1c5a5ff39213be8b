//! What work costs in CPU time, fitted to the rows of records, with what the rounds scatter and the fit misses.
//!
//! At each place `CPU = pace · Σ count · cost`, by least squares of relative errors, no cost below 0. A machine does
//! the same work for a fifth more or less CPU time an hour later, so that each record has a pace of its own: a random
//! effect (Laird and Ware 1982), on average 1. Intervals come from resampling the rounds of each record. What the
//! fitted cells differ from the fit by is drawn in each resample too, and what runs differ by, where it is known: the
//! interval of a prediction is that of a cell like those that were measured, at another hour. At the pace of a record
//! that has a cell of its own in the fit it is that of another cell of that record.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Serialize;
use tlsdyno_base::bootstrap::{Estimate, SEED};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::robust::mean_and_variance;
use tlsdyno_base::units::format_micros;
use tlsdyno_cost::choice::{Choice, Told};

use tlsdyno_record::store::machine::unlike;

use crate::fit::{RESAMPLES, deviations, dot, fit_with_paces, resampled, rounds_of, sums};
use crate::measured::{Place, Row, Source, Term, Work};

/// Two kinds of work are told apart where their ratio differs by so many times between cells.
const APART_TIMES: f64 = 1.5;
/// Two kinds of work are told apart where the part of the handshakes that resume differs by so much between cells.
const APART_SHARE: f64 = 0.1;
/// Pages are of two sizes where these differ by more than so many kilobytes, which cost some microseconds; a site's are
/// as measured where they do not.
pub const KILOBYTES_APART: f64 = 1.0;
/// Half of a 95 % interval of a normal distribution, in standard deviations.
const NORMAL_95: f64 = 1.96;
/// From fewer records nothing is said of what runs differ by (as in `between_runs` of the ablation).
const RUNS_LEAST: usize = 4;
/// Below this part nothing was resumed to speak of.
const FEW_SHARE: f64 = 0.05;

#[derive(Clone, Debug)]
pub struct Costs {
    places: BTreeMap<Place, Fitted>,
    pub names: Vec<String>,
    /// What the reader must know of the records.
    pub doubts: Vec<String>,
    /// What the cells were measured with and nothing contradicts, what other choices cost more, what a signature does.
    pub told: Told,
    /// What runs differ by: for each resample a deviation, as a part; empty: it is not known.
    runs_ratio: Vec<f64>,
    /// The record at whose pace costs are told, by its number; `None`: at that of another run.
    at_pace_of: Option<usize>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Fitted {
    /// By kind of work, nanoseconds; `None`: the records do not tell it.
    pub costs_ns: [Option<Estimate>; 4],
    /// Configurations that they are fitted to.
    pub cells: usize,
    /// What the fit misses in them, as a part of their CPU time; `None`: there are no more cells than costs.
    pub misfit_ratio: Option<f64>,
    pub range: Range,
    pub from: Vec<String>,
    #[serde(skip)]
    point: Work,
    /// How much more CPU time the same work takes in each record than in all of them, as a logarithm; `None`: it
    /// tells nothing here.
    #[serde(skip)]
    paces: Vec<Option<f64>>,
    #[serde(skip)]
    sampled: Vec<(Work, Vec<f64>)>,
    /// Misfit of each resample, as a part of the CPU time.
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
    /// The same drawing of other costs from the same records.
    pub fn of_same(self, costs: &Costs) -> Drawn<'_> {
        Drawn { costs, at: self.at }
    }

    /// CPU time of this work, nanoseconds; not a number where nothing is known of the place.
    pub fn cpu_ns(&self, place: Place, work: Work) -> f64 {
        let Some(of) = self.costs.places.get(&place) else { return f64::NAN };
        let record = self.costs.at_pace_of.filter(|record| of.paces[*record].is_some());
        let Some(at) = self.at else {
            return dot(of.point, work) * record.and_then(|record| of.paces[record]).unwrap_or_default().exp();
        };
        let pace = match record {
            Some(record) => of.sampled[at].1[record].exp(),
            None => self.costs.runs_ratio.get(at).copied().unwrap_or_default().exp(),
        };
        dot(of.sampled[at].0, work) * pace * (1.0 + of.misses_ratio[at])
    }
}

impl Costs {
    /// Fits records that tell of the same server. `runs_ratio`: what runs of one cell differ by, as a part (standard
    /// deviation), where that is known and the records shall not tell it.
    pub fn of(sources: &[Source], runs_ratio: Option<f64>) -> Result<Costs> {
        ensure!(!sources.is_empty(), "no record is given");
        let fitted = |place: Place| Some((place, Fitted::of(place, sources)?));
        let mut doubts = Vec::new();
        let fitting = || sources.iter().filter(|of| !of.rows.is_empty());
        let mut differ = |mut all: Vec<String>, what: &str| {
            all.retain(|said| !said.is_empty());
            all.sort_unstable();
            all.dedup();
            doubts.extend((all.len() > 1).then(|| format!("the records differ{what}: {}", all.join(" | "))));
            all.len() == 1
        };
        differ(fitting().map(|of| of.server.clone()).collect(), " in their server");
        let mut told = Told::default();
        let agreed = || fitting().flat_map(|of| of.told.agreed.iter().copied());
        for choice in agreed() {
            let like: Vec<Choice> = agreed().filter(|other| other.is_like(choice)).collect();
            if like[0] == choice
                && !told.agreed.contains(&choice)
                && differ(like.iter().map(|of| of.told()).collect(), "")
            {
                told.agreed.push(choice);
            }
        }
        let pairs = fitting().take(1).flat_map(|first| fitting().map(move |of| (first, of)));
        for (first, of) in pairs.filter(|(first, of)| first.id != of.id) {
            let unlike = unlike(first.machine.as_ref(), of.machine.as_ref());
            doubts.extend(unlike.map(|why| format!("{} and {}: {why}", first.id, of.id)));
        }
        doubts.dedup();
        told.differences = sources.iter().flat_map(|of| of.told.differences.clone()).collect();
        told.signature_ns = fitting().chain(sources).find_map(|of| of.told.signature_ns);
        let names = sources.iter().map(|of| of.name.clone()).collect();
        let places: BTreeMap<Place, Fitted> = Place::ALL.into_iter().filter_map(fitted).collect();
        let of_records = places.values().filter_map(Fitted::runs_ratio).max_by_key(|(_, runs)| *runs);
        let known = runs_ratio.map(|ratio| (ratio, usize::MAX)).or(of_records);
        let runs_ratio = known.map_or(Vec::new(), |(ratio, runs)| deviations(ratio, runs));
        Ok(Costs { places, names, doubts, told, runs_ratio, at_pace_of: None })
    }

    pub fn knows_runs(&self) -> bool {
        !self.runs_ratio.is_empty()
    }

    #[must_use]
    pub fn at_pace_of(&self, record: usize) -> Costs {
        Costs { at_pace_of: Some(record), ..self.clone() }
    }

    /// How much more CPU time the same work takes in each record than in all of them, as a part; `None`: it tells
    /// nothing that another does.
    pub fn paces(&self, place: Place) -> Vec<Option<f64>> {
        self.at(place).map_or(Vec::new(), |of| of.paces.iter().map(|pace| pace.map(f64::exp_m1)).collect())
    }

    pub fn point(&self) -> Drawn<'_> {
        Drawn { costs: self, at: None }
    }

    pub fn at(&self, place: Place) -> Option<&Fitted> {
        self.places.get(&place)
    }

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

    /// These costs where handshakes or requests cost so much more wherever TLS ends. The difference is drawn as a
    /// normal error of its interval.
    pub fn changed(&self, terms: &[Term], more_ns: Estimate) -> Costs {
        let mut costs = self.clone();
        let deviation_ns = more_ns.half_width() / NORMAL_95;
        for place in [Place::Server, Place::Proxy] {
            let Some(of) = costs.places.get_mut(&place) else { continue };
            let mut random = SplitMix64::new(SEED);
            let drawn: Vec<f64> = of.sampled.iter().map(|_| more_ns.value + deviation_ns * random.normal()).collect();
            for term in terms.iter().map(|term| *term as usize) {
                of.point[term] += more_ns.value;
                of.sampled.iter_mut().zip(&drawn).for_each(|((costs, _), more_ns)| costs[term] += more_ns);
            }
        }
        costs
    }

    #[must_use]
    pub fn with_choice(mut self, choice: Choice, more_ns: Estimate) -> Costs {
        self.told.agreed.retain(|of| !of.is_like(choice));
        self.told.agreed.push(choice);
        let is_signed = matches!(choice, Choice::Certificate(_));
        let signature_ns = self.told.signature_ns.filter(|_| is_signed).map(|of| of.map(|ns| ns + more_ns.value));
        self.told.signature_ns = signature_ns.or(self.told.signature_ns);
        self
    }

    /// Why nothing can be planned with these costs: one has no interval above nothing, or a full handshake is cheaper
    /// than a resumed one.
    pub fn refused(&self) -> Option<String> {
        let told = |place: Place| {
            let of = self.at(place)?;
            let ns = |term: Term| of.costs_ns[term as usize].map(|_| of.point[term as usize]);
            let is_known = |of: Estimate| 0.0 < of.low && of.low < of.high;
            let is_vague = |term: &Term| {
                ns(*term).is_some_and(|ns| ns <= 0.0 || !of.costs_ns[*term as usize].is_some_and(is_known))
            };
            if let Some(term) = Term::ALL.into_iter().find(is_vague) {
                let (what, us) = (term.told(place), format_micros(of.point[term as usize]));
                return Some(format!(
                    "a {what} at the {} costs {us} µs by {} cells: too little was measured; longer: {} --time 120",
                    place.told(),
                    of.cells,
                    place.measured_by(term)
                ));
            }
            let [full, resumed] = [ns(Term::Full)?, ns(Term::Resumed)?];
            (full < resumed).then(|| {
                let [full, resumed] = [full, resumed].map(format_micros);
                format!(
                    "a full handshake costs {full} µs at the {}, a resumed one, which does less, {resumed} µs: that \
                     is a contradiction; measure again, on a machine that does little else",
                    place.told()
                )
            })
        };
        [Place::Server, Place::Proxy].into_iter().find_map(told)
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
    /// A kilobyte whose cost lies not surely above 0 is not told.
    fn of(place: Place, sources: &[Source]) -> Option<Fitted> {
        let of = Fitted::with(place, sources, true)?;
        let is_vague = of.costs_ns[Term::Kilobyte as usize].is_some_and(|cost| cost.low <= 0.0);
        if is_vague { Fitted::with(place, sources, false) } else { Some(of) }
    }

    fn with<'s>(place: Place, sources: &'s [Source], tells_kilobytes: bool) -> Option<Fitted> {
        let of_source = |of: &'s Source| of.rows.iter().filter(|row| row.place == place).collect();
        let rows: Vec<Vec<&Row>> = sources.iter().map(of_source).collect();
        if rows.iter().all(Vec::is_empty) {
            return None;
        }
        let cells = sums(&rows, &|_, _| 1.0);
        let works: Vec<(Work, f64)> = cells.iter().map(|of| (of.work, of.cpu_ns)).collect();
        let range = Range::of(&works, rows.iter().flatten().copied());
        let mut told = told_apart(place, &works, &range);
        told[Term::Kilobyte as usize] &= tells_kilobytes;
        let (point, paces) = fit_with_paces(&cells, told, rows.len());
        let off: Vec<f64> = cells.iter().map(|of| of.cpu_ns / of.fitted(point, &paces) - 1.0).collect();
        let has = |source: usize| cells.iter().any(|of| of.source == source);
        let records = (0..rows.len()).filter(|source| has(*source)).count();
        let free = (cells.len() + 1).checked_sub(told.iter().filter(|is| **is).count() + records);
        let free = free.filter(|free| *free > 0);
        let misfit_ratio = free.map(|free| (off.iter().map(|off| off * off).sum::<f64>() / free as f64).sqrt());
        let mut random = SplitMix64::new(SEED ^ place as u64);
        let sampled: Vec<_> = (0..RESAMPLES).map(|_| resampled(&rows, told, &mut random)).collect();
        let misses_ratio = (0..RESAMPLES).map(|_| misfit_ratio.unwrap_or(0.0) * random.normal()).collect();
        let paces = paces.into_iter().enumerate().map(|(source, pace)| has(source).then_some(pace)).collect();
        let rounds = rows.iter().map(|rows| rounds_of(rows).len()).filter(|rounds| *rounds > 0).min().unwrap_or(0);
        let cost = |term: Term| {
            let of = |work: &Work| work[term as usize];
            let estimate =
                Estimate::of_resamples(of(&point), sampled.iter().map(|(costs, _)| of(costs)).collect(), rounds);
            told[term as usize].then_some(estimate)
        };
        let costs_ns = Term::ALL.map(cost);
        let from = sources.iter().zip(&rows).filter(|(_, rows)| !rows.is_empty()).map(|(of, _)| of.name.clone());
        Some(Fitted {
            costs_ns,
            cells: cells.len(),
            misfit_ratio,
            range,
            from: from.collect(),
            point,
            paces,
            sampled,
            misses_ratio,
            rounds,
        })
    }

    /// What runs differ by, as a part (standard deviation), and by how many of them that is known.
    fn runs_ratio(&self) -> Option<(f64, usize)> {
        let paces: Vec<f64> = self.paces.iter().flatten().copied().collect();
        let (_, variance) = mean_and_variance(&paces);
        (paces.len() >= RUNS_LEAST).then(|| ((variance * (1.0 + 1.0 / paces.len() as f64)).sqrt(), paces.len()))
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
    let [smallest, largest] = range.kilobytes;
    let kilobyte = differs(range.kilobytes) && largest - smallest > KILOBYTES_APART && cells.len() > 2;
    [full, resumed, request, kilobyte]
}

#[cfg(test)]
pub(crate) mod samples {
    use tlsdyno_record::model::CertificateKind;
    use tlsdyno_record::store::Machine;
    use tlsdyno_tls::Group;

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
        let (server, machine) = ("nginx".to_owned(), Some(Machine::default()));
        let agreed = vec![Choice::Certificate(CertificateKind::Rsa2048), Choice::Group(Group::X25519)];
        let told = Told { agreed, ..Told::default() };
        Source { id: "3fd1".to_owned(), name: "cluster 3fd1".to_owned(), server, machine, told, rows }
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
        Costs::of(&all, None).unwrap()
    }
}

#[cfg(test)]
mod tests;
