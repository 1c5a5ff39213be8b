//! The same connection in other packets comes to the same counts.

use proptest::prelude::*;

use crate::conversations::ALL;
use crate::kinds::check;
use crate::packets::{Flight, Line, counts};

#[test]
fn hellos_may_be_cut_anywhere() {
    for conversation in ALL.iter() {
        for (at, flight) in conversation.flights.iter().enumerate().take(3) {
            for cut in (1..flight.bytes.len()).filter(|cut| *cut < 400 || cut % 7 == 0) {
                let mut flights = conversation.flights.clone();
                let (first, second) = flight.bytes.split_at(cut);
                let halves =
                    [first, second].map(|bytes| Flight { from_client: flight.from_client, bytes: bytes.to_vec() });
                flights.splice(at..=at, halves);
                check(conversation, &counts(&Line::new().groups(&flights, 20_000).concat()));
            }
        }
    }
}

#[test]
fn segments_may_be_of_any_size_and_every_packet_may_come_twice() {
    for conversation in ALL.iter() {
        for segment_bytes in [1, 2, 3, 5, 64, 536, 1460, 60_000] {
            let packets = Line::new().groups(&conversation.flights, segment_bytes).concat();
            check(conversation, &counts(&packets));
            let doubled: Vec<Vec<u8>> = packets.iter().flat_map(|packet| [packet.clone(), packet.clone()]).collect();
            check(conversation, &counts(&doubled));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn segments_of_a_flight_may_come_in_any_order(
        which in any::<prop::sample::Index>(),
        segment_bytes in 64..1500_usize,
        seed in any::<u64>(),
    ) {
        let conversation = which.get(&ALL);
        let mut random = seed | 1;
        let mut below = |limit: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % limit as u64) as usize
        };
        let mut groups = Line::new().groups(&conversation.flights, segment_bytes);
        for group in &mut groups {
            for _ in 0..below(3) {
                group.push(group[below(group.len())].clone());
            }
            for at in (1..group.len()).rev() {
                group.swap(at, below(at + 1));
            }
        }
        check(conversation, &counts(&groups.concat()));
    }
}
