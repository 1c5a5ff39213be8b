//! What a library has counted in its area: numbers with names.

use std::fmt;
use std::ops::Sub;

use tlsdyno_tls::Stage;

use crate::layout::Name;

/// Counts with their names. Subtract two snapshots to get what happened between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts<const N: usize> {
    names: &'static [Name; N],
    counts: [u64; N],
}

impl<const N: usize> Counts<N> {
    /// The first of these counts, by these names.
    pub(super) fn new(names: &'static [Name; N], counts: &[u64]) -> Counts<N> {
        Counts { names, counts: std::array::from_fn(|place| counts[place]) }
    }

    /// What was counted under `name`; `None` if there is no such name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(_, candidate, _)| *candidate == name).map(|(.., count)| count)
    }

    /// All that was counted of `stage`.
    pub fn total(&self, stage: Stage) -> u64 {
        self.of_stages().filter(|(counted, ..)| *counted == stage).map(|(.., count)| count).sum()
    }

    /// The counts that belong to a stage: stage, name, count.
    pub fn of_stages(&self) -> impl Iterator<Item = (Stage, &'static str, u64)> {
        self.iter().filter_map(|(stage, name, count)| Some((stage?, name, count)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Option<Stage>, &'static str, u64)> {
        self.names.iter().zip(self.counts).map(|(&(stage, name), count)| (stage, name, count))
    }
}

impl<const N: usize> Sub for Counts<N> {
    type Output = Counts<N>;

    /// What was counted after `earlier`. Counts only grow, so this is never negative for snapshots in order.
    fn sub(self, earlier: Counts<N>) -> Counts<N> {
        let counts = std::array::from_fn(|place| self.counts[place].saturating_sub(earlier.counts[place]));
        Counts { counts, ..self }
    }
}

impl<const N: usize> fmt::Display for Counts<N> {
    /// Those that are not zero, `name=count`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.iter().filter(|(.., count)| *count > 0);
        let texts: Vec<String> = counted.map(|(_, name, count)| format!("{name}={count}")).collect();
        f.write_str(&texts.join(" "))
    }
}
