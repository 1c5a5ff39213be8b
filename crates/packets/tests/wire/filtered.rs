//! The kernel's program, run here: what it leaves out changes no count.

use libc::sock_filter;
use tlsdyno_packets::Packet;

use crate::conversations::ALL;
use crate::filter::{MOST_PORTS, program};
use crate::kinds::check;
use crate::packet::Carried;
use crate::packets::{Line, PATIENCE, watch};

/// What the kernel knows of a packet on a network card: its protocol, its direction, its hardware.
struct Around {
    protocol: u32,
    outgoing: bool,
    loopback: bool,
}

/// Bytes that the program keeps of a packet (Documentation/networking/filter.rst).
fn run(program: &[sock_filter], packet: &[u8], around: &Around) -> u32 {
    let (mut a, mut x, mut kept) = (0_u32, 0_u32, [0_u32; 16]);
    let load = |at: u32, bytes: usize| {
        let beside = match at.wrapping_sub(-0x1000_i32 as u32) {
            0 => Some(around.protocol),
            4 => Some(if around.outgoing { 4 } else { 0 }),
            28 => Some(if around.loopback { 772 } else { 1 }),
            _ => None,
        };
        let from = packet.get(at as usize..).and_then(|rest| rest.get(..bytes));
        beside.or_else(|| from.map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))))
    };
    let mut at = 0;
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        let loaded = match code {
            0x20 => load(k, 4),
            0x28 => load(k, 2),
            0x30 => load(k, 1),
            0x48 => load(x + k, 2),
            0x50 => load(x + k, 1),
            _ => Some(a),
        };
        // A load beyond the packet ends the program.
        let Some(loaded) = loaded else { return 0 };
        a = loaded;
        match code {
            0x20 | 0x28 | 0x30 | 0x48 | 0x50 => {}
            0x60 => a = kept[k as usize],
            0x61 => x = kept[k as usize],
            0x02 => kept[k as usize] = a,
            0x03 => kept[k as usize] = x,
            0x01 => x = k,
            0xb1 => match load(k, 1) {
                Some(byte) => x = (byte & 15) * 4,
                None => return 0,
            },
            0x07 => x = a,
            0x04 => a = a.wrapping_add(k),
            0x0c => a = a.wrapping_add(x),
            0x24 => a = a.wrapping_mul(k),
            0x54 => a &= k,
            0x74 => a >>= k,
            0xac => a ^= x,
            0x05 => at += k as usize,
            0x15 => at += jump(a == k),
            0x25 => at += jump(a > k),
            0x2d => at += jump(a > x),
            0x35 => at += jump(a >= k),
            0x45 => at += jump(a & k != 0),
            0x06 => return k,
            _ => panic!("instruction {code:#x} is not known"),
        }
    }
}

/// On the machine of the server.
fn around(packet: &[u8]) -> Around {
    let protocol = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let read = crate::packet::Packet { time_ns: 0, bytes: packet, length: packet.len() };
    let outgoing = matches!(read.carried(), Some(Carried::Segment(segment)) if segment.source.port() == 443);
    Around { protocol, outgoing, loopback: false }
}

/// The packets that pass, cut as the program says, with the lengths that they had.
fn passing(program: &[sock_filter], packets: &[Vec<u8>]) -> Vec<(Vec<u8>, usize)> {
    let cut = |packet: &Vec<u8>| {
        let keep = run(program, packet, &around(packet)) as usize;
        (keep > 0).then(|| (packet[..packet.len().min(keep)].to_vec(), packet.len()))
    };
    packets.iter().filter_map(cut).collect()
}

#[test]
fn what_the_kernel_leaves_out_changes_no_count() {
    let ports: Vec<u16> = (0..MOST_PORTS as u16 - 1).map(|port| 8_000 + port).chain([443]).collect();
    for program in [program(&[443], 1), program(&ports, 1)] {
        for line in [Line::new(), Line::version_6(), Line { extensions: 2, ..Line::version_6() }] {
            for conversation in ALL.iter() {
                // With and without packets that hold many segments.
                for segment_bytes in [536, 1400, 1460, 60_000] {
                    let packets = line.groups(&conversation.flights, segment_bytes).concat();
                    let mut watch = watch();
                    let passed = passing(&program, &packets);
                    for (at, (bytes, length)) in passed.iter().enumerate() {
                        watch.take(&Packet { time_ns: at as u64, bytes, length: *length });
                    }
                    watch.advance(2 * PATIENCE.as_nanos() as u64);
                    check(conversation, &watch.take_counts().remove(0));
                }
            }
        }
    }
}

#[test]
fn what_is_of_no_use_does_not_pass() {
    let program = program(&[443], 1);
    let line = Line::new();
    let pass = |packet: &[u8]| run(&program, packet, &around(packet)) > 0;
    let sent = |from_client, payload: &[u8]| pass(&line.segment(from_client, 5, 5, 16, payload));
    assert!(sent(true, b"x") && !sent(true, b"") && !sent(false, b"") && !sent(false, b"HTTP/1.1 200 OK"));
    assert!(sent(false, &[22, 3, 3, 0, 1, 2]) && !sent(false, &[23, 3, 3, 0, 1, 2]) && !sent(false, &[22, 2, 3, 0, 1]));
    assert!(pass(&line.datagram()) && pass(&line.segment(false, 5, 5, 17, &[])));
    let other = Line { server: "198.51.100.1:444".parse().unwrap(), ..Line::new() };
    assert!(!pass(&other.datagram()) && !pass(&other.segment(true, 5, 5, 2, &[])));
    let hello = line.segment(true, 5, 5, 16, &[22, 3, 1, 0, 1, 1]);
    let answer = line.segment(false, 5, 5, 16, &[22, 3, 3, 0, 1, 2]);
    // Loopback shows each packet twice. Elsewhere the server is here, not where this machine is a client.
    for (outgoing, loopback, of_hello, of_answer) in
        [(true, true, false, false), (false, true, true, true), (true, false, false, true), (false, false, true, false)]
    {
        let passes = |packet: &[u8]| run(&program, packet, &Around { outgoing, loopback, ..around(packet) }) > 0;
        assert_eq!((passes(&hello), passes(&answer)), (of_hello, of_answer), "{outgoing} {loopback}");
    }
    assert_eq!(run(&program, &hello, &Around { protocol: 0x0806, ..around(&hello) }), 0);
}

#[test]
fn one_client_in_so_many_is_followed_in_both_directions() {
    let one_in = 16;
    let ports: Vec<u16> = (0..MOST_PORTS as u16 - 1).map(|port| 8_000 + port).chain([443]).collect();
    let (alone, last) = (program(&[443], one_in), program(&ports, one_in));
    let (mut followed, all) = (0_u32, 20_000_u32);
    for number in 0..all {
        // Few addresses, as behind a content delivery network.
        let client = std::net::Ipv4Addr::from(0xc633_6400 + number % 3);
        let line = Line { client: (client, 20_000 + (number / 3) as u16).into(), ..Line::new() };
        let passes = |from_client| {
            let packet = line.segment(from_client, 5, 5, 2, &[]);
            let [one, other] = [&alone, &last].map(|program| run(program, &packet, &around(&packet)) > 0);
            assert_eq!(one, other);
            one
        };
        assert_eq!(passes(true), passes(false));
        followed += u32::from(passes(true));
    }
    let expected = all / one_in;
    assert!(followed.abs_diff(expected) < expected / 5, "{followed} of {all}");
}
