//! Least squares of relative errors, with a pace for each record, and what is drawn again for intervals.

use std::collections::BTreeMap;

use tlsdyno_base::bootstrap::SEED;
use tlsdyno_base::least_squares;
use tlsdyno_base::random::SplitMix64;

use crate::measured::{Row, Work};

/// Resamples of the rounds.
pub(crate) const RESAMPLES: usize = 1000;
/// Variance of what a cell differs from the fit by, beside that of the paces of records. It decides nothing but for
/// records with no work in common: these have the same pace.
const MISFIT_OF_PACE: f64 = 0.02;
/// Turns in which costs and paces follow from each other, at most, and the change after which there is no other.
const TURNS_MAX: usize = 100;
const TURN_LEAST: f64 = 1e-5;
/// With so many degrees of freedom Student's t is a normal distribution.
const DEGREES_MAX: usize = 100;

pub(crate) fn rounds_of(rows: &[&Row]) -> Vec<u32> {
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

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub source: usize,
    pub work: Work,
    pub cpu_ns: f64,
}

impl Cell {
    /// Its CPU time by these costs and paces, nanoseconds.
    pub fn fitted(&self, costs: Work, paces: &[f64]) -> f64 {
        dot(costs, self.work) * paces[self.source].exp()
    }
}

/// Work and CPU time of each cell of each source, over the rounds as often as they count.
pub(crate) fn sums(sources: &[Vec<&Row>], weight: &dyn Fn(usize, &Row) -> f64) -> Vec<Cell> {
    let mut cells: BTreeMap<(usize, usize), Cell> = BTreeMap::new();
    for (source, row) in sources.iter().enumerate().flat_map(|(source, rows)| rows.iter().map(move |row| (source, row)))
    {
        let weight = weight(source, row);
        let cell = cells.entry((source, row.cell)).or_insert(Cell { source, ..Cell::default() });
        cell.work.iter_mut().zip(row.work).for_each(|(sum, count)| *sum += weight * count);
        cell.cpu_ns += weight * row.cpu_ns;
    }
    cells.into_values().filter(|of| of.cpu_ns > 0.0).collect()
}

/// Costs and paces of rounds that are drawn again.
pub(crate) fn resampled(rows: &[Vec<&Row>], told: [bool; 4], random: &mut SplitMix64) -> (Work, Vec<f64>) {
    let drawn: Vec<BTreeMap<u32, f64>> = rows.iter().map(|rows| draw(rows, random)).collect();
    let cells = sums(rows, &|source, row| drawn[source].get(&row.round).copied().unwrap_or(0.0));
    fit_with_paces(&cells, told, rows.len())
}

/// So many draws of what runs differ by: of Student's t, where no more than so many told it.
pub(crate) fn deviations(ratio: f64, runs: usize) -> Vec<f64> {
    let mut random = SplitMix64::new(SEED ^ 0x0072_756e);
    let mut unit = || {
        let free = runs.saturating_sub(1).min(DEGREES_MAX);
        let squares: f64 = (0..free).map(|_| random.normal().powi(2)).sum();
        random.normal() / if free < DEGREES_MAX { (squares / free as f64).sqrt() } else { 1.0 }
    };
    (0..RESAMPLES).map(|_| ratio * unit()).collect()
}

pub(crate) fn dot(costs: Work, work: Work) -> f64 {
    costs.iter().zip(work).map(|(cost, count)| cost * count).sum()
}

/// Costs, and the pace of each source as a logarithm: each follows from the other, in turns.
pub(crate) fn fit_with_paces(cells: &[Cell], of: [bool; 4], sources: usize) -> (Work, Vec<f64>) {
    let mut paces: Vec<f64> = vec![0.0; sources];
    for _ in 0..TURNS_MAX {
        let even: Vec<(Work, f64)> = cells.iter().map(|of| (of.work, of.cpu_ns / paces[of.source].exp())).collect();
        let costs = fit(&even, of);
        let new = centred((0..sources).map(|source| pace(cells, costs, source)).collect());
        let change = new.iter().zip(&paces).map(|(new, old)| (new - old).abs()).fold(0.0, f64::max);
        // Of one record there is no pace but that of the costs.
        if change < TURN_LEAST || !cells.iter().any(|of| of.source != cells[0].source) {
            return (costs, paces);
        }
        paces = new;
    }
    (fit(&cells.iter().map(|of| (of.work, of.cpu_ns / paces[of.source].exp())).collect::<Vec<_>>(), of), paces)
}

/// The pace of a source that its cells tell, as a logarithm; `None`: it has no cells.
fn pace(cells: &[Cell], costs: Work, source: usize) -> Option<f64> {
    let own = cells.iter().filter(|of| of.source == source);
    let off = own.map(|of| (of.cpu_ns / dot(costs, of.work).max(f64::MIN_POSITIVE)).ln());
    let (sum, count) = off.fold((0.0, 0.0), |(sum, count), off| (sum + off, count + 1.0));
    (count > 0.0).then_some(sum / (count + MISFIT_OF_PACE))
}

/// These paces beside their mean, without which they drift: relative errors and logarithms have other means.
fn centred(paces: Vec<Option<f64>>) -> Vec<f64> {
    let known: Vec<f64> = paces.iter().flatten().copied().collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    paces.into_iter().map(|pace| pace.map_or(0.0, |pace| pace - mean)).collect()
}

/// The costs of the kinds of work in `of` for which the relative errors of the cells are least, none below 0.
fn fit(cells: &[(Work, f64)], mut of: [bool; 4]) -> Work {
    loop {
        let costs = nearest(cells, of);
        let worst = (0..4).filter(|at| of[*at]).min_by(|one, two| costs[*one].total_cmp(&costs[*two]));
        match worst {
            Some(at) if costs[at] < 0.0 => of[at] = false,
            _ => return costs,
        }
    }
}

/// Costs of these kinds of work alone; 0 for the others, and for one that a resample left out.
fn nearest(cells: &[(Work, f64)], of: [bool; 4]) -> Work {
    let row = |(work, cpu_ns): &(Work, f64)| {
        let term = |at: usize| if of[at] { work[at] / cpu_ns } else { 0.0 };
        ((0..4).map(term).collect(), 1.0)
    };
    let found = least_squares::of_rows(&cells.iter().map(row).collect::<Vec<_>>());
    found.and_then(|costs| costs.try_into().ok()).unwrap_or_default()
}
