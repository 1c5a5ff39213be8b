//! Packets that nobody would send but to do harm.

use proptest::prelude::*;
use tlsdyno_packets::{Packet, Watch};

use crate::conversations::ALL;
use crate::packet::SYN;
use crate::packets::{ACK, Line, PATIENCE, watch};

/// As `Watch` bounds them.
const MOST_CONNECTIONS: usize = 100_000;
const MOST_BYTES: usize = (32 << 20) + (1 << 17);

fn check(watch: &Watch) {
    let (connections, bytes) = watch.held();
    assert!(connections <= MOST_CONNECTIONS && bytes <= MOST_BYTES, "{connections} connections, {bytes} bytes");
}

/// A connection from the client with this number.
fn line(number: u32) -> Line {
    let mut line = Line::new();
    line.client = format!("{}:{}", std::net::Ipv4Addr::from(0x0a00_0000 + number / 50_000), 1_000 + number % 50_000)
        .parse()
        .unwrap();
    line
}

#[test]
fn a_flood_of_syns_is_bounded_and_displaces_no_handshake() {
    let mut watch = watch();
    let conversation = &ALL[0];
    let honest = Line::new().groups(&conversation.flights, 1460).concat();
    let mut take = |time_ns: u64, bytes: &[u8]| {
        watch.take(&Packet { time_ns, bytes, length: bytes.len() });
        watch.held()
    };
    // The hello and half of the answer, and then a million others at 100,000 a second.
    for packet in &honest[..5] {
        take(0, packet);
    }
    let mut most = 0;
    for number in 0..1_000_000 {
        let (connections, _) = take(u64::from(number) * 10_000, &line(number).segment(true, 7, 0, SYN, &[]));
        most = most.max(connections);
    }
    assert!(most <= MOST_CONNECTIONS);
    for packet in &honest[5..] {
        take(PATIENCE.as_nanos() as u64 - 1, packet);
    }
    let counts = watch.take_counts().remove(0);
    assert_eq!((counts.complete(), counts.opened_connections), (1, 1_000_001));
    assert!(counts.connections.given_up_handshakes > 900_000);
}

#[test]
fn a_flood_of_hellos_without_an_end_is_bounded() {
    let mut watch = watch();
    let begin = [&[22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xf0][..], &[0; 1_200]].concat();
    for number in 0..100_000 {
        let line = line(number);
        // The second piece leaves a hole before it.
        let packets = [
            line.segment(true, 7, 0, SYN, &[]),
            line.segment(true, 8, 1, ACK, &begin),
            line.segment(true, 9_000, 1, ACK, &begin),
        ];
        packets.iter().for_each(|bytes| watch.take(&Packet { time_ns: 1, bytes, length: bytes.len() }));
        check(&watch);
    }
    let counts = watch.take_counts().remove(0);
    assert!(counts.connections.given_up_handshakes > 70_000, "{:?}", counts.connections);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_taken(
        packets in prop::collection::vec(
            (any::<u64>(), prop::collection::vec(any::<u8>(), 0..120), any::<usize>()),
            0..20,
        ),
    ) {
        let mut watch = watch();
        for (time_ns, bytes, length) in &packets {
            watch.take(&Packet { time_ns: *time_ns, bytes, length: *length });
        }
        check(&watch);
    }

    /// Packets of a real connection of which some bytes were changed, and that were cut.
    #[test]
    fn packets_that_were_changed_are_taken(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()),
            0..30,
        ),
        cut in 20..3_000_usize,
        version_6 in any::<bool>(),
    ) {
        let line = if version_6 { Line::version_6() } else { Line::new() };
        let mut packets = line.groups(&which.get(&ALL).flights, 1460).concat();
        for (packet, place, value) in &changes {
            let at = packet.index(packets.len());
            let place = place.index(packets[at].len());
            packets[at][place] = *value;
        }
        let mut watch = watch();
        for (at, bytes) in packets.iter().enumerate() {
            watch.take(&Packet { time_ns: at as u64, bytes: &bytes[..bytes.len().min(cut)], length: bytes.len() });
        }
        watch.advance(u64::MAX);
        check(&watch);
    }
}
