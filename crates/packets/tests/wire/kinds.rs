//! What became of handshakes.

use tlsdyno_packets::{Connections, Counts};
use tlsdyno_wire::proxy_protocol::{put_v1, put_v2};

use crate::conversations::{ALL, Conversation, Expected};
use crate::harness::NAME;
use crate::packet::FIN;
use crate::packets::{ACK, Flight, Line, STEP_NS, counts, counts_of, timeless, watch};

pub fn expected(counts: &Counts) -> Expected {
    let of = &counts.connections;
    let groups: Vec<u16> = counts.chosen_groups.keys().copied().collect();
    Expected {
        full: of.full_handshakes,
        resumed: of.resumed_handshakes,
        refused_by_client: of.refused_by_clients,
        closed_by_server: of.closed_by_servers,
        tls13: counts.agreed.tls13_handshakes,
        offered: counts.agreed.resumption_offered_count,
        refused: counts.agreed.resumption_refused_count,
        retried: counts.agreed.retried_handshakes,
        early_data: counts.offers.early_data_hellos,
        group: groups.first().copied().unwrap_or_default(),
    }
}

fn sum(of: &Connections) -> u64 {
    of.full_handshakes
        + of.resumed_handshakes
        + of.refused_by_clients
        + of.left_by_clients
        + of.closed_by_servers
        + of.without_answers
        + of.unfinished_handshakes
        + of.without_hellos
        + of.without_tls_records
        + of.unreadable_handshakes
        + of.given_up_handshakes
}

#[track_caller]
pub fn check(conversation: &Conversation, counts: &Counts) {
    assert_eq!(expected(counts), conversation.expected, "{}: {:?}", conversation.name, counts.connections);
    assert_eq!((counts.opened_connections, sum(&counts.connections)), (1, 1), "{}", conversation.name);
    assert_eq!(counts.offers.hellos, 1, "{}", conversation.name);
    let bytes = |from_client| {
        let of = conversation.flights.iter().filter(|flight| flight.from_client == from_client);
        of.map(|flight| flight.bytes.len() as u64).sum::<u64>()
    };
    let traffic = &counts.traffic;
    assert_eq!((traffic.connections, traffic.client_bytes, traffic.server_bytes), (1, bytes(true), bytes(false)));
}

#[test]
fn each_kind_is_told_over_both_versions_of_ip() {
    let with_extensions = Line { extensions: 3, ..Line::version_6() };
    // Sequence numbers go on with zero.
    let wrapping = Line { first: (u32::MAX - 100, u32::MAX - 1500), ..Line::new() };
    for line in [Line::new(), Line::version_6(), with_extensions, wrapping] {
        for conversation in ALL.iter() {
            check(conversation, &counts(&line.groups(&conversation.flights, 1460).concat()));
        }
    }
}

#[test]
fn names_are_counted_where_they_are_asked_for_alone() {
    let conversation = ALL.iter().find(|one| one.name == "hybrid").unwrap();
    let packets = Line::new().groups(&conversation.flights, 1460).concat();
    assert!(counts(&packets).names.is_empty());
    let mut keeping = watch();
    keeping.keeps_names = true;
    assert_eq!(counts_of(keeping, &packets).names.most_frequent(), [(NAME, 1)]);
}

#[test]
fn a_time_is_from_the_last_byte_of_the_hello_to_the_first_of_the_answer() {
    let conversation = ALL.iter().find(|one| one.name == "hybrid").unwrap();
    let mut groups = Line::new().groups(&conversation.flights, 1000);
    assert_eq!(groups[3].len(), 2, "the hello takes two segments");
    // Eight other packets pass in between, and the server's first segment comes again.
    groups.insert(4, vec![Line::new().datagram(); 8]);
    let again = groups[5][0].clone();
    groups[5].push(again);
    let counts = counts(&groups.concat());
    let waited = counts.hello_to_answer();
    assert_eq!((waited.count, waited.max / STEP_NS), (1, 9));
    assert_eq!(counts.traffic.datagrams, 8);
}

#[test]
fn a_proxys_header_may_come_first() {
    let line = Line::new();
    for put in [put_v1, put_v2] {
        for conversation in ALL.iter() {
            let mut conversation = conversation.clone();
            let mut header = Vec::new();
            put(&mut header, line.client, line.server);
            conversation.flights[0].bytes.splice(0..0, header);
            for segment_bytes in [1, 100, 1460] {
                check(&conversation, &counts(&line.groups(&conversation.flights, segment_bytes).concat()));
            }
        }
    }
}

/// The packets of a conversation's first flights, without its end.
fn begun(flights: &[Flight]) -> Vec<Vec<u8>> {
    let groups = Line::new().groups(flights, 1460);
    groups[..groups.len() - 3].concat()
}

#[test]
fn handshakes_that_break_off_are_told_apart() {
    let line = Line::new();
    for conversation in ALL.iter().filter(|one| one.name.starts_with("full")) {
        let flights = &conversation.flights;
        let (hello, answer) = (flights[0].bytes.len() as u32, flights[1].bytes.len() as u32);
        let of = |count: usize, last: Option<Vec<u8>>| {
            let mut packets = begun(&flights[..count]);
            packets.extend(last);
            counts(&packets).connections
        };
        let client_fin = |sent, received| {
            Some(line.segment(true, line.first.0 + 1 + sent, line.first.1.wrapping_add(1 + received), FIN | ACK, &[]))
        };
        let server_fin = |sent: u32| {
            Some(line.segment(false, line.first.1.wrapping_add(1 + sent), line.first.0 + 1 + hello, FIN | ACK, &[]))
        };
        let one = |set: fn(&mut Connections)| {
            let mut of = Connections::default();
            set(&mut of);
            of
        };
        for (found, expected) in [
            (of(1, None), one(|of| of.without_answers = 1)),
            (of(1, client_fin(hello, 0)), one(|of| of.without_answers = 1)),
            (of(1, Some(line.reset(false, 0, hello))), one(|of| of.without_answers = 1)),
            (of(1, server_fin(0)), one(|of| of.closed_by_servers = 1)),
            (of(2, None), one(|of| of.unfinished_handshakes = 1)),
            (of(2, client_fin(hello, answer)), one(|of| of.left_by_clients = 1)),
            (of(2, Some(line.reset(true, hello, answer))), one(|of| of.left_by_clients = 1)),
            (of(2, server_fin(answer)), one(|of| of.closed_by_servers = 1)),
            (of(2, Some(line.reset(false, answer, hello))), one(|of| of.closed_by_servers = 1)),
            (of(0, client_fin(0, 0)), one(|of| of.without_hellos = 1)),
            (of(0, None), one(|of| of.without_hellos = 1)),
        ] {
            assert_eq!(found, expected, "{}", conversation.name);
        }
        let cut = [Flight { from_client: true, bytes: flights[0].bytes[..100].to_vec() }];
        assert_eq!(counts(&line.groups(&cut, 1460).concat()).connections, one(|of| of.without_hellos = 1));
    }
    let plain = [Flight { from_client: true, bytes: b"GET / HTTP/1.1\r\n\r\n".to_vec() }];
    assert_eq!(counts(&line.groups(&plain, 1460).concat()).connections.without_tls_records, 1);
}

#[test]
fn connections_that_are_older_or_of_others_are_not_counted() {
    for conversation in ALL.iter() {
        let packets = Line::new().groups(&conversation.flights, 1460).concat();
        assert_eq!(counts(&packets[1..]), Counts::default(), "{}", conversation.name);
        let other = Line { server: "198.51.100.1:444".parse().unwrap(), ..Line::new() };
        assert_eq!(counts(&other.groups(&conversation.flights, 1460).concat()), Counts::default());
    }
}

#[test]
fn a_port_that_is_used_again_is_another_connection() {
    // Without the last three packets its end is not seen.
    let once = counts(&begun(&ALL[0].flights));
    let again = Line { first: (5, 6), ..Line::new() }.groups(&ALL[0].flights, 1460).concat();
    let both = counts(&[begun(&ALL[0].flights), again].concat());
    assert_eq!((both.opened_connections, both.complete()), (2, 2 * once.complete()));
}

#[test]
fn counts_survive_json_and_add_up() {
    let mut sum = Counts::default();
    let mut packets = Vec::new();
    for (at, conversation) in ALL.iter().enumerate() {
        let mut line = Line::new();
        line.client.set_port(1_000 + at as u16);
        let own = line.groups(&conversation.flights, 1460).concat();
        sum.add(&counts(&own));
        packets.extend(own);
    }
    let all = counts(&packets);
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), all);
    assert_eq!(timeless(sum.clone()), timeless(all.clone()));
    assert_eq!(sum.hello_to_answer_ns.len(), all.hello_to_answer_ns.len());
    assert!(all.complete() > 20 && all.broken_off() == 6);
}
