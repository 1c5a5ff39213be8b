//! The search for an edge: the smallest number at which something is so, where it is so at all larger ones.

use anyhow::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not so yet.
    Below,
    /// It is so, and was so at this number at least, which may be below the one tried.
    FromHereOn(u32),
    /// The trial was cut short: the search ends.
    Cut,
}

/// Where a search ended: it is not so at `below` and is so at `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The largest number at which it was found not to be so, or what the search began with.
    pub below: u32,
    /// The smallest at which it was found to be so, likewise.
    pub from: u32,
}

impl Edge {
    /// What is to be tried next to halve what is left: the number in the middle. Nothing where the two are within
    /// `step` of each other.
    fn middle(self, step: u32) -> Option<u32> {
        let middle = self.below + self.from.saturating_sub(self.below) / 2;
        (self.from.saturating_sub(self.below) > step.max(1)).then_some(middle)
    }
}

/// Halves what lies between the ends of `edge` by trials of the number in the middle, until they are within `step`.
pub fn bisect(mut edge: Edge, step: u32, mut attempt: impl FnMut(u32) -> Result<Found>) -> Result<Edge> {
    while let Some(number) = edge.middle(step) {
        match attempt(number)? {
            Found::Below => edge.below = number,
            Found::FromHereOn(from) => edge.from = from.min(number),
            Found::Cut => break,
        }
    }
    Ok(edge)
}
