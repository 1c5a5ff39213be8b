//! What the rows of columns are, and what a mean over them is off by.
//!
//! Rounds of blocks are resampled (`bootstrap`). A round of slices has many sweeps, which know better than a dozen of
//! rounds how far such a round is off, unless starts of the servers differ besides. So both are asked: what rounds
//! differ by, and what a round differs by from itself without a tenth of its sweeps. Where starts show, rounds alone
//! count.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};
use tlsdyno_base::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};

use super::robust::{TRIM, mean_and_variance, trimmed_each_end, winsorised};

/// Maximum number of parts into which the sweeps of a round are cut.
const PARTS: usize = 10;
/// Weight of the sweeps in the estimate of the error, in rounds.
const SWEEPS_COUNT: f64 = 10.0;

pub type Terms<'a> = Vec<(&'a Column, f64)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    Rounds,
    Sliced(Sliced),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sliced {
    sweeps: Vec<u32>,
    /// For each row after those of whole rounds: the index of its round, of which a part is left out.
    without: Vec<usize>,
}

impl Sliced {
    /// Rounds of so many sweeps each. Also, for each further row, its round and the range of sweeps left out.
    pub fn of(sweeps: &[usize]) -> (Sliced, Vec<(usize, std::ops::Range<usize>)>) {
        let parts = |(round, count): (usize, &usize)| {
            let (count, parts) = (*count, (*count).min(PARTS));
            let part = move |part| (round, part * count / parts..(part + 1) * count / parts);
            (0..if parts > 1 { parts } else { 0 }).map(part)
        };
        let left_out: Vec<_> = sweeps.iter().enumerate().flat_map(parts).collect();
        let without = left_out.iter().map(|(round, _)| *round).collect();
        (Sliced { sweeps: sweeps.iter().map(|count| *count as u32).collect(), without }, left_out)
    }
}

impl Rows {
    pub fn estimate(&self, column: &Column) -> Estimate {
        self.estimate_sum(&[(column, 1.0)])
    }

    pub fn estimate_sum(&self, terms: &[(&Column, f64)]) -> Estimate {
        match self {
            Rows::Rounds => estimate_sum(terms),
            Rows::Sliced(sliced) => Mean::of(sliced, terms).estimate(CONFIDENCE),
        }
    }

    /// For each line, over the rows that have all of its columns: the first sum, the second, and the second less the
    /// first. The intervals of the differences hold together (Bonferroni, as in `compared`).
    pub fn compared(&self, lines: &[[Terms; 2]]) -> Vec<[Estimate; 3]> {
        let coverage = 1.0 - (1.0 - CONFIDENCE) / lines.len().max(1) as f64;
        let compare = |line: &[Terms; 2]| {
            let has_all = |row: usize| line.iter().flatten().all(|(column, _)| column[row].is_some());
            let kept = |(row, value): (usize, &Option<f64>)| value.filter(|_| has_all(row));
            let of_both = |(column, weight): &(&Column, f64)| (column.iter().enumerate().map(kept).collect(), *weight);
            let [first, second] = line.each_ref().map(|of| of.iter().map(of_both).collect::<Vec<(Column, f64)>>());
            let terms = |of: &[(Column, f64)], sign: f64| -> Vec<(Column, f64)> {
                of.iter().map(|(column, weight)| (column.clone(), sign * weight)).collect()
            };
            let more = [terms(&second, 1.0), terms(&first, -1.0)].concat();
            let sum = |of: &[(Column, f64)], coverage| {
                self.estimate_at(&of.iter().map(|(column, weight)| (column, *weight)).collect::<Vec<_>>(), coverage)
            };
            [sum(&first, CONFIDENCE), sum(&second, CONFIDENCE), sum(&more, coverage)]
        };
        lines.iter().map(compare).collect()
    }

    fn estimate_at(&self, terms: &[(&Column, f64)], coverage: f64) -> Estimate {
        let Rows::Sliced(sliced) = self else {
            let columns: Vec<&Column> = terms.iter().map(|(column, _)| *column).collect();
            let degrees = f64::from(self.pairs(&columns).max(2) - 1);
            let wider = student_t_two_sided(coverage, degrees) / student_t_two_sided(CONFIDENCE, degrees);
            let Estimate { value, low, high } = estimate_sum(terms);
            return Estimate { value, low: value - wider * (value - low), high: value + wider * (high - value) };
        };
        Mean::of(sliced, terms).estimate(coverage)
    }

    /// Standard error of the mean of a column, times the root of the number of rounds. `None`: fewer than three rounds.
    pub fn spread(&self, column: &Column) -> Option<f64> {
        let values: Vec<f64> = self.of_rounds(column).iter().flatten().copied().collect();
        if values.len() < 3 {
            return None;
        }
        Some(match self {
            Rows::Rounds => {
                // Tukey and McLaughlin 1963.
                let left = if trimmed_each_end(values.len()) == 0 { 1.0 } else { 1.0 - 2.0 * TRIM };
                mean_and_variance(&winsorised(&values)).1.sqrt() / left
            }
            Rows::Sliced(sliced) => Mean::of(sliced, &[(column, 1.0)]).error().0.sqrt() * (values.len() as f64).sqrt(),
        })
    }

    pub fn of_rounds<'a>(&self, column: &'a Column) -> &'a [Option<f64>] {
        match self {
            Rows::Rounds => column,
            Rows::Sliced(sliced) => &column[..sliced.sweeps.len()],
        }
    }

    pub fn pairs(&self, columns: &[&Column]) -> u32 {
        let has = |row: &usize| columns.iter().all(|column| column[*row].is_some());
        let rounds = columns.first().map_or(0, |column| self.of_rounds(column).len());
        (0..rounds).filter(has).count() as u32
    }
}

struct Mean {
    value: f64,
    /// Effective number of rounds: (Σ n)² / Σ n².
    rounds: f64,
    /// Squared standard error from the differences between rounds.
    of_rounds: f64,
    /// Squared standard error from leaving out parts of the sweeps. `None`: a round has a single sweep.
    of_sweeps: Option<f64>,
    /// Degrees of freedom of `of_sweeps`: parts of rounds, less one for each round.
    degrees_of_sweeps: f64,
}

impl Mean {
    fn of(sliced: &Sliced, terms: &[(&Column, f64)]) -> Mean {
        let sum = |row: usize| terms.iter().map(|(column, weight)| Some(weight * column[row]?)).sum::<Option<f64>>();
        let rounds: Vec<(usize, f64)> = (0..sliced.sweeps.len()).filter_map(|row| Some((row, sum(row)?))).collect();
        let all: f64 = rounds.iter().map(|(row, _)| f64::from(sliced.sweeps[*row])).sum();
        let weight = |row: usize| f64::from(sliced.sweeps[row]) / all;
        let value = rounds.iter().map(|(row, value)| weight(*row) * value).sum::<f64>();
        let effective = 1.0 / rounds.iter().map(|(row, _)| weight(*row).powi(2)).sum::<f64>();
        let squares = rounds.iter().map(|(row, of)| (weight(*row) * (of - value)).powi(2)).sum::<f64>();
        let mut degrees_of_sweeps = 0.0;
        // The grouped jackknife (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 11).
        let mut of_sweeps = |row: usize| {
            let parts = (0..sliced.without.len()).filter(|part| sliced.without[*part] == row);
            let values: Vec<f64> = parts.map(|part| sum(sliced.sweeps.len() + part)).collect::<Option<_>>()?;
            let count = values.len() as f64;
            degrees_of_sweeps += count - 1.0;
            (values.len() > 1)
                .then(|| weight(row).powi(2) * mean_and_variance(&values).1 * (count - 1.0).powi(2) / count)
        };
        let of_sweeps = rounds.iter().map(|(row, _)| of_sweeps(*row)).sum::<Option<f64>>();
        let value = if rounds.is_empty() { f64::NAN } else { value };
        let of_rounds = squares * effective / (effective - 1.0);
        Mean { value, rounds: effective, of_rounds, of_sweeps, degrees_of_sweeps }
    }

    /// The square of the error, and the degrees of freedom that tell it. Where rounds differ by more than their sweeps
    /// explain, by a test at 5 %, starts of the servers differ, and rounds alone tell it. Else both do: the estimate of
    /// the error is drawn towards that of the sweeps (Smyth, Statistical Applications in Genetics and Molecular Biology
    /// 3(1), 2004, has this for many genes).
    fn error(&self) -> (f64, f64) {
        let degrees = self.rounds - 1.0;
        let Some(of_sweeps) = self.of_sweeps.filter(|of| *of > 0.0) else { return (self.of_rounds, degrees) };
        let explained = FisherSnedecor::new(degrees, self.degrees_of_sweeps).map(|f| f.inverse_cdf(CONFIDENCE));
        if explained.is_ok_and(|most| self.of_rounds > most * of_sweeps) {
            return (self.of_rounds, degrees);
        }
        let count = SWEEPS_COUNT.min(self.degrees_of_sweeps);
        ((count * of_sweeps + degrees * self.of_rounds) / (count + degrees), count + degrees)
    }

    fn estimate(&self, coverage: f64) -> Estimate {
        if !self.value.is_finite() || self.rounds < 1.5 {
            return Estimate::without_interval(self.value);
        }
        let (squared_error, degrees) = self.error();
        let half = student_t_two_sided(coverage, degrees.max(1.0)) * squared_error.sqrt();
        Estimate { value: self.value, low: self.value - half, high: self.value + half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[f64]) -> Column {
        values.iter().copied().map(Some).collect()
    }

    fn of_sweeps(sweeps: [[f64; 2]; 4]) -> (Rows, Column) {
        let (sliced, left_out) = Sliced::of(&[2; 4]);
        let whole = sweeps.iter().map(|of| Some((of[0] + of[1]) / 2.0));
        let less = left_out.iter().map(|(round, part)| Some(sweeps[*round][1 - part.start]));
        (Rows::Sliced(sliced), whole.chain(less).collect())
    }

    #[test]
    fn rounds_that_agree_as_their_sweeps_do_are_told_by_both() {
        let (rows, column) = of_sweeps([[1.0, 3.0], [2.0, 4.0], [4.0, 2.0], [3.0, 5.0]]);
        let mean = Mean::of(&Sliced::of(&[2; 4]).0, &[(&column, 1.0)]);
        // Variance 2 of the sweeps of each round, so 1 of a round: 1/4 of the mean. The rounds 2, 3, 3, 4 have 2/3.
        assert!((mean.of_sweeps.unwrap() - 0.25).abs() < 1e-12 && (mean.of_rounds - 1.0 / 6.0).abs() < 1e-12);
        let (squared_error, degrees) = mean.error();
        assert!((squared_error - (4.0 * 0.25 + 3.0 / 6.0) / 7.0).abs() < 1e-12 && degrees == 7.0);
        // SciPy 1.17.1: t.ppf(.975, 7).
        let half = 2.364624251592785 * (1.5f64 / 7.0).sqrt();
        let got = rows.estimate(&column);
        assert!((got.value - 3.0).abs() < 1e-12 && (got.half_width() - half).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn starts_that_differ_are_told_by_rounds_alone() {
        let (rows, column) = of_sweeps([[1.0, 1.2], [9.0, 9.2], [5.0, 5.1], [3.0, 3.3]]);
        let mean = Mean::of(&Sliced::of(&[2; 4]).0, &[(&column, 1.0)]);
        assert_eq!(mean.error(), (mean.of_rounds, 3.0));
        assert!(rows.estimate(&column).half_width() > 4.0);
    }

    #[test]
    fn sums_have_the_errors_that_their_terms_do_not_share() {
        let (rows, one) = of_sweeps([[1.0, 3.0], [2.0, 4.0], [4.0, 2.0], [3.0, 5.0]]);
        let other: Column = one.iter().map(|value| value.map(|value| value + 2.0)).collect();
        let difference = rows.estimate_sum(&[(&other, 1.0), (&one, -1.0)]);
        assert!((difference.value - 2.0).abs() < 1e-9 && difference.half_width() < 1e-9, "{difference:?}");
    }

    #[test]
    fn lines_together_have_wider_intervals_each() {
        let (rows, one) = of_sweeps([[1.0, 3.0], [2.0, 4.0], [4.0, 2.0], [3.0, 5.0]]);
        for (rows, column) in [(&rows, one.clone()), (&Rows::Rounds, one[..4].to_vec())] {
            let nothing: Column = column.iter().map(|_| Some(0.0)).collect();
            let line = [vec![(&nothing, 1.0)], vec![(&column, 1.0)]];
            let [alone, ten] = [1, 10].map(|count| rows.compared(&vec![line.clone(); count])[0][2]);
            let single = rows.estimate(&column);
            assert!((alone.low - single.low).abs() < 1e-9 && alone.value == ten.value, "{alone:?} {single:?}");
            // The quantiles of Student's t with 7 and 3 degrees for 0.9975 by those for 0.975, its density integrated.
            let wider = ten.half_width() / alone.half_width();
            let known = if *rows == Rows::Rounds { 2.3420 } else { 1.7040 };
            assert!((wider - known).abs() < 1e-3, "{wider}");
        }
    }

    #[test]
    fn parts_are_contiguous_and_at_most_ten() {
        let (sliced, left_out) = Sliced::of(&[1, 12, 25]);
        assert_eq!((left_out.len(), &left_out[0], &left_out[9]), (20, &(1, 0..1), &(1, 10..12)));
        assert_eq!((&left_out[10], &left_out[19]), (&(2, 0..2), &(2, 22..25)));
        // One round has a single sweep: rounds alone tell the error.
        let rows = Rows::Sliced(sliced);
        let values = column(&[vec![1.0, 2.0, 3.0], vec![2.0; 20]].concat());
        assert!(rows.estimate(&values).low.is_finite() && rows.of_rounds(&values).len() == 3);
        assert_eq!(rows.pairs(&[&values]), 3);
    }

    #[test]
    fn one_round_tells_nothing_of_others() {
        let rows = Rows::Sliced(Sliced::of(&[4]).0);
        let values = column(&[2.0; 5]);
        assert!(rows.estimate(&values).low.is_infinite() && rows.spread(&values).is_none());
        assert!(rows.estimate(&vec![None; 5]).value.is_nan());
    }
}
