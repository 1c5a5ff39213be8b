//! What a library has counted in its area: numbers with names.

use std::fmt;
use std::ops::Sub;

use tlsdyno_tls::Stage;

use crate::layout::Name;

/// What is counted under one name.
pub trait Count: Copy + PartialEq {
    /// Nothing was counted.
    const NONE: Self;

    /// What came after `earlier`.
    #[must_use]
    fn since(self, earlier: Self) -> Self;

    /// This and `more`.
    #[must_use]
    fn and(self, more: Self) -> Self;

    /// For messages.
    fn text(self) -> String;
}

impl Count for u64 {
    const NONE: u64 = 0;

    fn since(self, earlier: u64) -> u64 {
        self.saturating_sub(earlier)
    }

    fn and(self, more: u64) -> u64 {
        self + more
    }

    fn text(self) -> String {
        self.to_string()
    }
}

/// Numbers that belong together. The text ends with the last one that is not zero.
impl<const N: usize> Count for [u64; N] {
    const NONE: [u64; N] = [0; N];

    fn since(self, earlier: [u64; N]) -> [u64; N] {
        std::array::from_fn(|index| self[index].since(earlier[index]))
    }

    fn and(self, more: [u64; N]) -> [u64; N] {
        std::array::from_fn(|index| self[index] + more[index])
    }

    fn text(self) -> String {
        let length = self.iter().rposition(|number| *number > 0).map_or(0, |last| last + 1);
        self[..length].iter().map(u64::to_string).collect::<Vec<_>>().join("/")
    }
}

/// Counts with their names. Subtract two snapshots to get what happened between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts<C, const N: usize> {
    names: &'static [Name; N],
    counts: [C; N],
}

impl<C: Count, const N: usize> Counts<C, N> {
    /// The count at each place.
    pub(super) fn new(names: &'static [Name; N], count: impl FnMut(usize) -> C) -> Counts<C, N> {
        Counts { names, counts: std::array::from_fn(count) }
    }

    /// What was counted under `name`; `None` if there is no such name.
    pub fn get(&self, name: &str) -> Option<C> {
        self.iter().find(|(_, candidate, _)| *candidate == name).map(|(.., count)| count)
    }

    /// All that was counted of `stage`.
    pub fn of(&self, stage: Stage) -> C {
        self.of_stages().filter(|(of, ..)| *of == stage).fold(C::NONE, |sum, (.., count)| sum.and(count))
    }

    /// The counts that belong to a stage: stage, name, count.
    pub fn of_stages(&self) -> impl Iterator<Item = (Stage, &'static str, C)> {
        self.iter().filter_map(|(stage, name, count)| Some((stage?, name, count)))
    }

    /// Every count: stage, name, count.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Stage>, &'static str, C)> {
        self.names.iter().zip(self.counts).map(|(&(stage, name), count)| (stage, name, count))
    }
}

impl<C: Count, const N: usize> Sub for Counts<C, N> {
    type Output = Counts<C, N>;

    /// What was counted after `earlier`. Counts only grow, so this is never negative for snapshots in order.
    fn sub(self, earlier: Counts<C, N>) -> Counts<C, N> {
        Counts::new(self.names, |place| self.counts[place].since(earlier.counts[place]))
    }
}

impl<C: Count, const N: usize> fmt::Display for Counts<C, N> {
    /// Those that are not zero, `name=count`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.iter().filter(|(.., count)| *count != C::NONE);
        let texts: Vec<String> = counted.map(|(_, name, count)| format!("{name}={}", count.text())).collect();
        f.write_str(&texts.join(" "))
    }
}
