//! The function of the fuzz target, for a moment, on the inputs that are kept and on mutated connections; `cargo fuzz`
//! runs it for long.

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/src/packets.rs"]
mod target;

use proptest::prelude::*;

use crate::conversations::ALL;
use crate::packets::Line;

/// A connection as the target reads it.
fn seed(which: usize, version_6: bool) -> Vec<u8> {
    let line = if version_6 { Line { extensions: 1, ..Line::version_6() } } else { Line::new() };
    let packets = line.groups(&ALL[which % ALL.len()].flights, 1460).concat();
    let with_length = |packet: &Vec<u8>| [&(packet.len() as u16).to_be_bytes()[..], &[1], packet].concat();
    packets.iter().flat_map(with_length).collect()
}

#[test]
fn kept_inputs() {
    corpus::run_kept("packets", target::packets);
}

#[test]
fn every_connection() {
    (0..ALL.len()).for_each(|which| target::packets(&seed(which, which % 2 == 0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn mutated_connections(
        which in any::<usize>(),
        version_6 in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..12),
    ) {
        let mut bytes = seed(which, version_6);
        for (place, value, how) in changes {
            let place = place.index(bytes.len());
            match how {
                0 => bytes[place] = value,
                1 => bytes[place] ^= 1 << (value % 8),
                2 => drop(bytes.drain(place..bytes.len().min(place + usize::from(value)))),
                _ => {
                    let copy = bytes[place..bytes.len().min(place + 3 * usize::from(value))].to_vec();
                    bytes.splice(place..place, copy);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        target::packets(&bytes);
    }
}
