//! The inputs that are kept of the fuzz targets of frames and of the padding, seeds, and seeds with changed bytes.

use proptest::prelude::*;

use crate::{form, frame, padding};

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/cryptoserver/frames.rs"]
mod frames;
#[path = "../../../fuzz/src/cryptoserver/premaster.rs"]
mod premaster;

#[test]
fn kept_inputs_and_seeds_hold() {
    corpus::run_kept("cryptoserver_frames", frames::frames);
    frames::seeds().iter().for_each(|seed| frames::frames(seed));
    corpus::run_kept("cryptoserver_premaster", premaster::premaster);
    premaster::seeds().iter().for_each(|seed| premaster::premaster(seed));
}

proptest! {
    #[test]
    fn changed_blocks_hold(
        which in 0..3usize, places in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..3),
    ) {
        let mut seed = premaster::seeds().swap_remove(which);
        for (place, value) in places {
            let place = place % seed.len();
            seed[place] = value;
        }
        premaster::premaster(&seed);
    }

    #[test]
    fn changed_seeds_and_random_bytes_hold(
        which in 0..2usize, changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        random in proptest::collection::vec(any::<u8>(), 0..700),
    ) {
        let mut seed = frames::seeds().swap_remove(which);
        for (place, value) in changes {
            let place = place % seed.len();
            seed[place] = value;
        }
        frames::frames(&seed);
        frames::frames(&random);
    }
}
