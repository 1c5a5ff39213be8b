//! Capture files, by which another program judges the same packets: tshark, where it is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use tlsdyno_packets::Packet;

use crate::conversations::ALL;
use crate::kinds::expected;
use crate::packets::{Line, PATIENCE, STEP_NS, counts, timeless, watch};

/// What a file begins with: nanoseconds, and packets that begin with IP (draft-ietf-opsawg-pcap, `LINKTYPE_RAW`).
const MAGIC: u32 = 0xa1b2_3c4d;
const RAW: u32 = 101;

fn write(path: &Path, packets: &[Vec<u8>]) {
    let mut file: Vec<u8> =
        [MAGIC, 4 << 16 | 2, 0, 0, 1 << 18, RAW].iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        file.extend([0, at as u32 * STEP_NS as u32, length, length].iter().flat_map(|word| word.to_le_bytes()));
        file.extend_from_slice(packet);
    }
    fs::write(path, file).unwrap();
}

/// Hands over each packet of a file with the header that [`write`] puts.
fn read(path: &Path, mut each: impl FnMut(&Packet<'_>)) {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (MAGIC, RAW));
    let mut at = 24;
    while at < file.len() {
        let (time_ns, captured) =
            (u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)), word(at + 8) as usize);
        let bytes = &file[at + 16..at + 16 + captured];
        each(&Packet { time_ns, bytes, length: word(at + 12) as usize });
        at += 16 + captured;
    }
}

/// All conversations at the same time, each from a port of its own.
fn all_packets() -> Vec<Vec<u8>> {
    let lines = ALL.iter().enumerate().map(|(at, conversation)| {
        let mut line = Line::new();
        line.client.set_port(10_000 + at as u16);
        line.groups(&conversation.flights, 1460)
    });
    let mut lines: Vec<_> = lines.map(Vec::into_iter).collect();
    let mut packets = Vec::new();
    loop {
        let before = packets.len();
        packets.extend(lines.iter_mut().filter_map(Iterator::next).flatten());
        if packets.len() == before {
            return packets;
        }
    }
}

#[test]
fn a_file_comes_to_the_same_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (path, packets) = (directory.path().join("packets.pcap"), all_packets());
    write(&path, &packets);
    let mut watch = watch();
    read(&path, |packet| watch.take(packet));
    watch.advance(3 * PATIENCE.as_nanos() as u64);
    let of_file = watch.take_counts().remove(0);
    assert_eq!(of_file, counts(&packets));
    let sum =
        |field: fn(&crate::conversations::Expected) -> u64| ALL.iter().map(|one| field(&one.expected)).sum::<u64>();
    let found = expected(&timeless(of_file));
    assert_eq!((found.full, found.resumed), (sum(|of| of.full), sum(|of| of.resumed)));
    assert_eq!((found.offered, found.refused), (sum(|of| of.offered), sum(|of| of.refused)));
}

/// So that 20,000 handshakes a second are read faster than they come, many times over.
#[test]
#[ignore = "tells the pace of a release build: cargo test --release -p tlsdyno-packets -- --ignored --nocapture"]
fn a_file_is_read_at_this_pace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("packets.pcap");
    let all = all_packets();
    write(&path, &all);
    let (mut watch, mut packets, mut hellos, began) = (watch(), 0, 0, std::time::Instant::now());
    while began.elapsed().as_secs() < 3 {
        read(&path, |packet| watch.take(packet));
        packets += all.len();
        hellos += watch.take_counts().iter().map(|counts| counts.offers.hellos).sum::<u64>();
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{:.0} packets/s, {:.0} hellos/s", packets as f64 / seconds, hellos as f64 / seconds);
    assert!(hellos as f64 / seconds > 20_000.0);
}

/// tshark tells of each ServerHello what it is, as text in fields.
#[test]
fn tshark_counts_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (path, packets) = (directory.path().join("packets.pcap"), all_packets());
    write(&path, &packets);
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path).args(["-d", "tcp.port==443,tls", "-Y", "tls.handshake.type == 2", "-T", "fields"]);
    let fields = "type extensions.supported_version extensions_key_share_selected_group extensions_key_share_group \
                  extensions.psk.identity.selected";
    command.args(fields.split_whitespace().flat_map(|field| ["-e".to_owned(), format!("tls.handshake.{field}")]));
    let Ok(output) = command.output() else {
        println!("no tshark: not tried");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let hellos: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let count = |is: &dyn Fn(&[&str]) -> bool| hellos.iter().filter(|hello| is(hello)).count() as u64;
    let (is_13, is_retry) = (|hello: &[&str]| hello[1] == "0x0304", |hello: &[&str]| !hello[2].is_empty());
    let has_certificate = |hello: &[&str]| hello[0].split(',').any(|kind| kind == "11");
    let counts = counts(&packets);
    let (of, agreed) = (&counts.connections, &counts.agreed);
    // Those that clients refused had a ServerHello too: two in TLS 1.3, one in TLS 1.2.
    assert_eq!(count(&|hello| is_13(hello) && !is_retry(hello)), agreed.tls13_handshakes + 2);
    assert_eq!(count(&|hello| !is_13(hello)), agreed.tls12_handshakes + 1);
    assert_eq!((of.refused_by_clients, count(&is_retry)), (3, agreed.retried_handshakes));
    let is_resumed = |hello: &[&str]| !hello[4].is_empty() || (!is_13(hello) && !has_certificate(hello));
    assert_eq!(count(&is_resumed), of.resumed_handshakes);
    for (group, chosen) in counts.chosen_groups.iter().filter(|(group, _)| **group != 23) {
        assert_eq!(count(&|hello| hello[3] == group.to_string()), *chosen, "{group}");
    }
}
