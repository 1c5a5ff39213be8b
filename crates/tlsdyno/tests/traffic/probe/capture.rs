//! The robot's times beside those of a packet capture (AF_PACKET, stamps of the kernel). Needs root.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tlsdyno::model::ServerName;
use tlsdyno::network::Namespace;
use tlsdyno_tls::Version;

use super::super::place::Place;
use super::{objects, probe, server, stderr, url};

/// Prints each TCP packet on loopback to or from a port: kernel's stamp in ns, whether this end sends it, the client's
/// port, whether the server sent it, flags, bytes of data. Ends at the end of its input.
const CAPTURE: &str = r#"
import socket, struct, sys
port = int(sys.argv[1])
SO_TIMESTAMPNS, SO_RCVBUFFORCE, OUTGOING, ETH_P_ALL = 35, 33, 4, 3
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
s.bind(("lo", ETH_P_ALL))
s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
s.settimeout(0.3)
print("ready", flush=True)
# Packets wait with their stamps until all are there: a reader would take the CPU from whom it watches.
sys.stdin.readline()
while True:
    try:
        packet, stamps, _, address = s.recvmsg(65536, 256)
    except socket.timeout:
        break
    stamp = next(struct.unpack("qq", data[:16]) for level, kind, data in stamps if kind == SO_TIMESTAMPNS)
    head = (packet[0] & 15) * 4
    if packet[0] >> 4 != 4 or packet[9] != 6:
        continue
    source, destination = struct.unpack("!HH", packet[head:head + 4])
    if port not in (source, destination):
        continue
    data = struct.unpack("!H", packet[2:4])[0] - head - (packet[head + 12] >> 4) * 4
    print(stamp[0] * 10**9 + stamp[1], int(address[2] == OUTGOING), source if destination == port else destination,
          int(source == port), packet[head + 13], data)
"#;

/// How far the median of a phase may be from the capture's, in nanoseconds.
const APART_NS: f64 = 50_000.0;
const ROUNDS: usize = 15;

struct Packet {
    ns: i64,
    leaves: bool,
    from_server: bool,
    flags: u8,
    data: u32,
}

fn capture(port: u16) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", CAPTURE, &port.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Connections in order, each with its packets.
fn connections(mut child: Child, mut out: BufReader<std::process::ChildStdout>) -> Vec<Vec<Packet>> {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let mut all: BTreeMap<u16, Vec<Packet>> = BTreeMap::new();
    for line in text.lines() {
        let [ns, leaves, port, from_server, flags, data] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let packet = Packet {
            ns: ns.parse().unwrap(),
            leaves: leaves == "1",
            from_server: from_server == "1",
            flags: flags.parse().unwrap(),
            data: data.parse().unwrap(),
        };
        all.entry(port.parse().unwrap()).or_default().push(packet);
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|packets| packets[0].ns);
    all
}

/// TCP, hello to the server's first bytes, hello to Finished, Finished to the last byte: as the capture has them.
fn phases(packets: &[Packet]) -> Option<[f64; 4]> {
    let sent = |from_server: bool| packets.iter().filter(move |packet| packet.from_server == from_server);
    // The client's packets when they leave it, the server's when they arrive.
    let of_client: Vec<&Packet> = sent(false).filter(|packet| packet.leaves).collect();
    let of_server: Vec<&Packet> = sent(true).filter(|packet| !packet.leaves).collect();
    let syn = of_client.iter().find(|packet| packet.flags & 2 != 0)?;
    let answered = of_server.iter().find(|packet| packet.flags & 2 != 0)?;
    let data: Vec<&&Packet> = of_client.iter().filter(|packet| packet.data > 0).collect();
    let (hello, finished) = (data.first()?, data.get(1)?);
    let first = of_server.iter().find(|packet| packet.data > 0)?;
    // An answer on a connection that closes ends with the last data before the client's farewell.
    let farewell = data.get(2).map_or(i64::MAX, |packet| packet.ns);
    let last = of_server.iter().rev().find(|packet| packet.data > 0 && packet.ns < farewell)?;
    let ns = |from: &Packet, to: &Packet| (to.ns - from.ns) as f64;
    Some([ns(syn, answered), ns(hello, first), ns(hello, finished), ns(finished, last)])
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// `cargo test -p tlsdyno --test traffic packet_capture -- --ignored`, as root.
#[test]
#[ignore = "wants a machine that does nothing else: it compares microseconds"]
fn times_are_those_of_a_packet_capture() {
    // Of its own: whoever else loads servers on this machine would fill the capture.
    let Ok(namespace) = Namespace::with_loopback() else {
        assert!(!rustix::process::geteuid().is_root(), "root may");
        return println!("only root has network namespaces: not tried");
    };
    let place = Place::new();
    let server = namespace.within(|| server(&place, ServerName::Nginx, Version::Tls13).0).unwrap();
    let (url, port) = (url(&server), server.address().port());
    // A busy machine stops either side where it likes; what is wrong in the times themselves is wrong each time.
    let mut apart = Vec::new();
    for _ in 0..5 {
        apart = namespace.within(|| differences(&place, &url, port)).unwrap();
        println!("full handshakes, capture less probe, ns: {apart:?}");
        if apart.iter().all(|difference| difference.abs() < APART_NS) {
            return;
        }
    }
    panic!("{apart:?} ns apart");
}

fn differences(place: &Place, url: &str, port: u16) -> Vec<f64> {
    let mut child = capture(port);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let rounds: Vec<Value> = (0..ROUNDS)
        .map(|_| {
            let output = probe(place, &[url, "-4", "--once", "--json", "--no-early-data"]);
            objects(&output).pop().unwrap_or_else(|| panic!("{}", stderr(&output)))
        })
        .collect();
    // TCP alone has no data; of the others the full handshake comes first.
    let with_data = |packets: &Vec<Packet>| packets.iter().any(|packet| packet.data > 0);
    let all = connections(child, out);
    let seen: Vec<[f64; 4]> = all.iter().filter(|packets| with_data(packets)).filter_map(|one| phases(one)).collect();
    assert_eq!(seen.len(), 2 * ROUNDS, "two connections with data a round");
    let names = ["tcp_ns", "hello_ns", "handshake_ns", "whole_ns"];
    let difference = |(phase, name): (usize, &&str)| {
        let captured = median(seen.iter().step_by(2).map(|phases| phases[phase]).collect());
        let told = median(rounds.iter().map(|round| round["full"][name].as_f64().unwrap()).collect());
        captured - told
    };
    names.iter().enumerate().map(difference).collect()
}
