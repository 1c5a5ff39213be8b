//! The order of a sweep: which configuration's slice comes when. Knows neither servers nor clocks.

use std::collections::BTreeMap;

use tlsdyno_base::random::SplitMix64;

/// Counted slices of a visit to a server with one mode. Also those at both ends of a visit to a server with many modes,
/// for the comparison with its neighbour.
const TURNS_ALONE: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The configuration whose server is visited; its modes are compared with it.
    pub host: usize,
    /// Modes that the visit measures besides `host`.
    pub modes: Vec<usize>,
    /// The server with which the others are compared, or the same on another library.
    pub is_untouched: bool,
}

/// The place of one slice in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index of the slice's configuration.
    pub configuration: usize,
    /// `false` for the first slices of a visit: caches are still full of another server's data.
    pub counts: bool,
    /// Store of the slice's sessions: each of the configuration's slices in a sweep has its own, so that all have
    /// equally many full handshakes.
    pub store: u32,
}

impl Stop {
    /// The slices of this visit, of which the first `lead_in` do not count. Modes come twice, the second time in
    /// mirrored order, so that linear drift cancels out. Slices of the host stand at both ends and between groups of
    /// modes, about √k for k modes: each takes part in all comparisons (Dunnett 1955). `is_short`: every mode comes
    /// once, and the host at both ends and between groups. `stores`: the last store of each configuration that this
    /// sweep has used.
    pub fn positions(&self, lead_in: usize, is_short: bool, stores: &mut BTreeMap<usize, u32>) -> Vec<Position> {
        let mut configurations = match (self.modes.is_empty(), is_short) {
            (true, true) => vec![self.host],
            (true, false) => vec![self.host; TURNS_ALONE],
            (false, true) => self.there().into_iter().chain([self.host]).collect(),
            (false, false) => self.there_and_back(),
        };
        configurations.splice(..0, vec![self.host; lead_in]);
        let position = |(place, configuration): (usize, usize)| {
            let counts = place >= lead_in;
            let store = stores.entry(configuration).or_default();
            *store += u32::from(counts);
            Position { configuration, counts, store: if counts { *store } else { 0 } }
        };
        configurations.into_iter().enumerate().map(position).collect()
    }

    fn there(&self) -> Vec<usize> {
        let groups = (self.modes.len() as f64).sqrt().round().max(1.0) as usize;
        let groups = self.modes.chunks(self.modes.len().div_ceil(groups));
        groups.flat_map(|modes| [&[self.host], modes].concat()).collect()
    }

    fn there_and_back(&self) -> Vec<usize> {
        let there = self.there();
        let end = [self.host; TURNS_ALONE - 1];
        let back = there.iter().rev().copied();
        end.into_iter().chain(there.iter().copied()).chain([self.host]).chain(back).chain(end).collect()
    }
}

/// The random order of a sweep. The untouched server is visited just before and just after the one with modes: the
/// machine changes within some tenths of a second, which a sweep takes.
pub fn order(stops: &[Stop], random: &mut SplitMix64) -> Vec<Stop> {
    let shuffled = |stop: &Stop| Stop { modes: random.shuffled(&stop.modes), ..*stop };
    let stops: Vec<Stop> = stops.iter().map(shuffled).collect();
    let (with_modes, alone): (Vec<Stop>, Vec<Stop>) = stops.iter().cloned().partition(|stop| !stop.modes.is_empty());
    let (untouched, alone): (Vec<Stop>, Vec<Stop>) = alone.into_iter().partition(|stop| stop.is_untouched);
    if with_modes.is_empty() || with_modes.len() != untouched.len() {
        return random.shuffled(&stops);
    }
    // Of two libraries each has both, in the same order; those of one visit end where those of the other begin.
    let of_library = |(untouched, host): (&Stop, &Stop)| vec![untouched.clone(), host.clone(), untouched.clone()];
    let together: Vec<Vec<Stop>> = untouched.iter().zip(&with_modes).map(of_library).collect();
    let together = random.shuffled(&together).concat();
    let visits: Vec<Vec<Stop>> = alone.into_iter().map(|stop| vec![stop]).chain([together]).collect();
    random.shuffled(&visits).concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn stops() -> Vec<Stop> {
        vec![
            Stop { host: 0, modes: vec![], is_untouched: true },
            Stop { host: 11, modes: (1..10).collect(), is_untouched: false },
            Stop { host: 10, modes: vec![], is_untouched: false },
        ]
    }

    #[test]
    fn every_mode_stands_near_the_reference_and_comes_back_in_mirrored_order() {
        let positions =
            Stop { host: 11, modes: (1..10).collect(), is_untouched: false }.positions(2, false, &mut BTreeMap::new());
        let configurations: Vec<usize> = positions.iter().map(|position| position.configuration).collect();
        let there = [11, 1, 2, 3, 11, 4, 5, 6, 11, 7, 8, 9];
        assert_eq!(configurations[..4], [11; 4]);
        assert_eq!(configurations[4..16], there);
        assert_eq!(configurations[16], 11);
        assert!(configurations[17..29].iter().rev().eq(&there));
        assert_eq!(configurations[29..], [11; 2]);
        assert!(positions.iter().position(|position| position.counts) == Some(2));
        for modes in 1..12 {
            let positions = Stop { host: 99, modes: (0..modes).collect(), is_untouched: false }.positions(
                3,
                false,
                &mut BTreeMap::new(),
            );
            let counted = positions.iter().filter(|position| position.counts);
            let stores: BTreeSet<(usize, u32)> =
                counted.clone().map(|position| (position.configuration, position.store)).collect();
            assert_eq!(stores.len(), counted.count(), "no store is used twice in a sweep");
        }
    }

    #[test]
    fn a_server_with_one_mode_warms_up_too() {
        let counts: Vec<bool> =
            stops()[0].positions(2, false, &mut BTreeMap::new()).iter().map(|position| position.counts).collect();
        assert_eq!(counts, [false, false, true, true, true]);
    }

    #[test]
    fn a_short_sweep_has_each_mode_once_between_slices_of_its_host() {
        for modes in 1..12 {
            let stop = Stop { host: 99, modes: (0..modes).collect(), is_untouched: false };
            let positions = stop.positions(0, true, &mut BTreeMap::new());
            let configurations: Vec<usize> = positions.iter().map(|position| position.configuration).collect();
            assert!((0..modes).all(|mode| configurations.iter().filter(|one| **one == mode).count() == 1));
            assert_eq!((configurations[0], configurations[configurations.len() - 1]), (99, 99));
            assert!(positions.iter().all(|position| position.counts));
            let whole = stop.positions(0, false, &mut BTreeMap::new());
            assert!(2 * positions.len() < whole.len());
        }
        assert_eq!(stops()[0].positions(0, true, &mut BTreeMap::new()).len(), 1);
    }

    #[test]
    fn the_untouched_server_comes_before_and_after_the_one_with_modes() {
        let mut random = SplitMix64::new(1);
        let mut stores = BTreeMap::new();
        let orders: BTreeSet<Vec<usize>> =
            (0..20).map(|_| order(&stops(), &mut random).iter().map(|stop| stop.host).collect()).collect();
        assert!(orders.into_iter().eq([vec![0, 11, 0, 10], vec![10, 0, 11, 0]]));
        let visits = order(&stops(), &mut random);
        let untouched =
            visits.iter().filter(|stop| stop.host == 0).flat_map(|stop| stop.positions(2, false, &mut stores));
        assert!(untouched.map(|position| position.store).eq([0, 0, 1, 2, 3, 0, 0, 4, 5, 6]));
    }

    #[test]
    fn of_two_libraries_the_untouched_servers_meet() {
        let with_modes = |host, mode| Stop { host, modes: vec![mode], is_untouched: false };
        let untouched = |host| Stop { host, modes: vec![], is_untouched: true };
        let stops = [untouched(0), with_modes(6, 1), untouched(3), with_modes(7, 4)];
        let mut random = SplitMix64::new(1);
        let orders: BTreeSet<Vec<usize>> =
            (0..20).map(|_| order(&stops, &mut random).iter().map(|stop| stop.host).collect()).collect();
        assert!(orders.into_iter().eq([vec![0, 6, 0, 3, 7, 3], vec![3, 7, 3, 0, 6, 0]]));
    }

    #[test]
    fn sweeps_differ_in_their_order() {
        let mut random = SplitMix64::new(3);
        let first = order(&stops(), &mut random);
        assert_ne!(order(&stops(), &mut random), first);
    }
}
