//! Packets as a capture gives them, whatever is in them.

use std::time::Duration;

use tlsdyno_packets::{Counts, Packet, Watch};

/// Packets, each behind two bytes with its length and one that says how many milliseconds passed and what was cut off
/// it. Nothing panics, little is held, and what comes twice counts once.
pub fn packets(data: &[u8]) {
    let once = watch(data, 1);
    let mut twice = watch(data, 2);
    // Nothing tells a datagram from another.
    twice.traffic.datagrams = once.traffic.datagrams;
    assert_eq!(once, twice);
    let of = &once.connections;
    let over = [
        of.full_handshakes,
        of.resumed_handshakes,
        of.refused_by_clients,
        of.left_by_clients,
        of.closed_by_servers,
        of.without_answers,
        of.unfinished_handshakes,
        of.without_hellos,
        of.without_tls_records,
        of.unreadable_handshakes,
        of.given_up_handshakes,
    ];
    assert_eq!(over.iter().sum::<u64>(), once.opened_connections, "each connection comes to one end");
    assert!(once.agreed.resumption_refused_count <= once.connections.full_handshakes);
}

fn watch(mut data: &[u8], times: usize) -> Counts {
    let patience = Duration::from_millis(300);
    let mut watch = Watch::new(&["0.0.0.0:443".parse().unwrap(), "[::]:443".parse().unwrap()], patience);
    let (mut time_ns, all) = (0, data.len());
    while let Some((&[high, low, way], rest)) = data.split_first_chunk() {
        let (packet, after) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([high, low]))));
        time_ns += u64::from(way & 0x3f) * 1_000_000;
        let bytes = if way & 0x80 == 0 { packet } else { &packet[..packet.len() / 2] };
        (0..times).for_each(|_| watch.take(&Packet { time_ns, bytes, length: packet.len() }));
        let (connections, held_bytes) = watch.held();
        assert!(connections <= all && held_bytes <= 4 * all);
        data = after;
    }
    watch.advance(time_ns + 10 * patience.as_nanos() as u64);
    let mut sum = Counts::default();
    watch.take_counts().iter().for_each(|counts| sum.add(counts));
    sum
}
