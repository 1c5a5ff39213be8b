//! The order of a sweep: which configuration's slice comes when. Knows neither servers nor clocks.

use crate::random::SplitMix64;

/// Slices that count of a server with one mode.
const TURNS_ALONE: usize = 2;

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
    /// The first slice of a visit does not count: caches are still full of another server.
    pub(super) counts: bool,
    /// Whose sessions: each of the configuration's slices of a sweep has a store of its own, so that all of them do
    /// as many full handshakes.
    pub(super) store: u32,
}

impl Stop {
    /// The slices of this visit. Those of the host stand at both ends and between groups of modes, about √k for k
    /// modes: each takes part in all comparisons (Dunnett 1955).
    pub(super) fn positions(&self) -> Vec<Position> {
        let host = |counts, store| Position { configuration: self.host, counts, store };
        let mut positions = vec![host(false, 0)];
        if self.modes.is_empty() {
            positions.extend((1..).take(TURNS_ALONE).map(|store| host(true, store)));
            return positions;
        }
        let groups = (self.modes.len() as f64).sqrt().round().max(1.0) as usize;
        for (store, modes) in (1..).zip(self.modes.chunks(self.modes.len().div_ceil(groups))) {
            positions.push(host(true, store));
            positions.extend(modes.iter().map(|&configuration| Position { configuration, counts: true, store: 0 }));
        }
        // As many as there were before, and the lead-in.
        let store = positions.iter().filter(|position| position.configuration == self.host).count() as u32;
        positions.push(host(true, store));
        positions
    }
}

/// The order of the next sweep: random, or the mirror image of the last.
pub(super) fn order(stops: &[Stop], last: Option<&[Stop]>, random: &mut SplitMix64) -> Vec<Stop> {
    if let Some(last) = last {
        let mirrored = |stop: &Stop| Stop { modes: stop.modes.iter().rev().copied().collect(), ..*stop };
        return last.iter().rev().map(mirrored).collect();
    }
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
    fn every_mode_stands_near_the_reference() {
        let positions = Stop { host: 11, modes: (1..10).collect() }.positions();
        let configurations: Vec<usize> = positions.iter().map(|position| position.configuration).collect();
        assert_eq!(configurations, [11, 11, 1, 2, 3, 11, 4, 5, 6, 11, 7, 8, 9, 11]);
        assert!(positions.iter().filter(|position| !position.counts).eq([&positions[0]]));
        for modes in 1..12 {
            let positions = Stop { host: 99, modes: (0..modes).collect() }.positions();
            assert_eq!(positions.last().unwrap().configuration, 99);
            let stores: BTreeSet<(usize, u32)> =
                positions.iter().map(|position| (position.configuration, position.store)).collect();
            assert_eq!(stores.len(), positions.len(), "no store is used twice in a sweep");
        }
    }

    #[test]
    fn a_server_with_one_mode_warms_up_first() {
        let counts: Vec<bool> = stops()[0].positions().iter().map(|position| position.counts).collect();
        assert_eq!(counts, [false, true, true]);
    }

    #[test]
    fn every_other_sweep_is_the_mirror_image_of_the_one_before() {
        let mut random = SplitMix64::new(3);
        let first = order(&stops(), None, &mut random);
        let second = order(&stops(), Some(&first), &mut random);
        let flat = |stops: &[Stop]| {
            let positions = stops.iter().flat_map(Stop::positions).filter(|position| position.counts);
            positions.map(|position| position.configuration).collect::<Vec<usize>>()
        };
        let mut mirrored = flat(&first);
        mirrored.reverse();
        assert_eq!(flat(&second), mirrored);
        assert_ne!(order(&stops(), None, &mut random), first);
    }
}
