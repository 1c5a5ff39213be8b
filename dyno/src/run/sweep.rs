//! The order of a sweep: which configuration's slice comes when. Knows neither servers nor clocks.

use std::collections::BTreeMap;

use crate::random::SplitMix64;

/// Slices that count of a server with one mode.
const TURNS_ALONE: usize = 3;

/// One visit of a sweep to a server: what it has, in the order of their slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// The configuration whose server it is; where there are modes, with nothing off, and what they are compared with.
    pub(super) host: usize,
    /// The others.
    pub(super) modes: Vec<usize>,
}

/// The place of one slice in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Whose slice.
    pub(super) configuration: usize,
    /// The first slices of a visit do not count: caches are still full of another server.
    pub(super) counts: bool,
    /// Whose sessions: each of the configuration's slices of a sweep has a store of its own, so that all of them do
    /// as many full handshakes.
    pub(super) store: u32,
}

impl Stop {
    /// The slices of this visit, of which the first `lead_in` do not count. Modes come twice, the second time in
    /// mirrored order, so that linear drift cancels out. Slices of the host stand at both ends and between groups of
    /// modes, about √k for k modes: each takes part in all comparisons (Dunnett 1955).
    pub(super) fn positions(&self, lead_in: usize) -> Vec<Position> {
        let mut configurations =
            if self.modes.is_empty() { vec![self.host; TURNS_ALONE] } else { self.there_and_back() };
        configurations.splice(..0, vec![self.host; lead_in]);
        let mut stores: BTreeMap<usize, u32> = BTreeMap::new();
        let position = |(place, configuration): (usize, usize)| {
            let counts = place >= lead_in;
            let store = stores.entry(configuration).or_default();
            *store += u32::from(counts);
            Position { configuration, counts, store: *store }
        };
        configurations.into_iter().enumerate().map(position).collect()
    }

    fn there_and_back(&self) -> Vec<usize> {
        let groups = (self.modes.len() as f64).sqrt().round().max(1.0) as usize;
        let groups = self.modes.chunks(self.modes.len().div_ceil(groups));
        let there: Vec<usize> = groups.flat_map(|modes| [&[self.host], modes].concat()).collect();
        there.iter().copied().chain([self.host]).chain(there.iter().rev().copied()).collect()
    }
}

/// The random order of a sweep.
pub(super) fn order(stops: &[Stop], random: &mut SplitMix64) -> Vec<Stop> {
    let shuffled = |stop: &Stop| Stop { modes: random.shuffled(&stop.modes), ..*stop };
    let stops: Vec<Stop> = stops.iter().map(shuffled).collect();
    random.shuffled(&stops)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn stops() -> Vec<Stop> {
        vec![
            Stop { host: 0, modes: vec![] },
            Stop { host: 11, modes: (1..10).collect() },
            Stop { host: 10, modes: vec![] },
        ]
    }

    #[test]
    fn every_mode_stands_near_the_reference_and_comes_back_in_mirrored_order() {
        let positions = Stop { host: 11, modes: (1..10).collect() }.positions(2);
        let configurations: Vec<usize> = positions.iter().map(|position| position.configuration).collect();
        let there = [11, 1, 2, 3, 11, 4, 5, 6, 11, 7, 8, 9];
        assert_eq!(configurations[..2], [11, 11]);
        assert_eq!(configurations[2..14], there);
        assert_eq!(configurations[14], 11);
        assert!(configurations[15..].iter().rev().eq(&there));
        assert!(positions.iter().position(|position| position.counts) == Some(2));
        for modes in 1..12 {
            let positions = Stop { host: 99, modes: (0..modes).collect() }.positions(3);
            let counted = positions.iter().filter(|position| position.counts);
            let stores: BTreeSet<(usize, u32)> =
                counted.clone().map(|position| (position.configuration, position.store)).collect();
            assert_eq!(stores.len(), counted.count(), "no store is used twice in a sweep");
        }
    }

    #[test]
    fn a_server_with_one_mode_warms_up_too() {
        let counts: Vec<bool> = stops()[0].positions(2).iter().map(|position| position.counts).collect();
        assert_eq!(counts, [false, false, true, true, true]);
    }

    #[test]
    fn sweeps_differ_in_their_order() {
        let mut random = SplitMix64::new(3);
        let first = order(&stops(), &mut random);
        assert_ne!(order(&stops(), &mut random), first);
    }
}
