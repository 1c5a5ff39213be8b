//! Packets made of what both ends sent.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tlsdyno_packets::{Counts, Packet, Watch};

use crate::packet::{FIN, RST, SYN, TCP, UDP};

pub const ACK: u8 = 16;
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Between two packets.
pub const STEP_NS: u64 = 1_000;

/// What one end sends before it hears from the other.
#[derive(Clone, Debug)]
pub struct Flight {
    pub from_client: bool,
    pub bytes: Vec<u8>,
}

/// The ends of a connection, and where their sequence numbers begin.
#[derive(Clone, Debug)]
pub struct Line {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub first: (u32, u32),
    /// Bytes of headers of IPv6 before TCP, in eights.
    pub extensions: u8,
}

impl Line {
    pub fn new() -> Line {
        let (client, server) = ("192.0.2.7:51000".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
        Line { client, server, first: (1_000, 4_000_000_000), extensions: 0 }
    }

    pub fn version_6() -> Line {
        let (client, server) = ("[2001:db8::7]:51000".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
        Line { client, server, ..Line::new() }
    }

    /// A segment with IP before it.
    pub fn segment(&self, from_client: bool, sequence: u32, acknowledged: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = if from_client { (self.client, self.server) } else { (self.server, self.client) };
        let mut tcp = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
        tcp.extend(sequence.to_be_bytes());
        tcp.extend(acknowledged.to_be_bytes());
        // Eight words of header: options stand behind the five that must be.
        tcp.extend([8 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend([1; 12]);
        tcp.extend_from_slice(payload);
        self.packet(source, destination, TCP, &tcp)
    }

    /// A datagram of UDP from the client.
    pub fn datagram(&self) -> Vec<u8> {
        let udp = [self.client.port().to_be_bytes(), self.server.port().to_be_bytes(), [0, 12], [0, 0], [1; 2], [2; 2]];
        self.packet(self.client, self.server, UDP, &udp.concat())
    }

    fn packet(&self, source: SocketAddr, destination: SocketAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = u16::try_from(20 + body.len()).unwrap().to_be_bytes();
                let head = [0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
                [&head[..], &source.octets(), &destination.octets()].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let extensions = usize::from(self.extensions) * 8;
                let length = u16::try_from(extensions + body.len()).unwrap().to_be_bytes();
                let next = if extensions > 0 { 60 } else { protocol };
                let head = [0x60, 0, 0, 0, length[0], length[1], next, 64];
                let mut packet = [&head[..], &source.octets(), &destination.octets()].concat();
                if extensions > 0 {
                    packet.extend([protocol, self.extensions - 1]);
                    packet.resize(40 + extensions, 0);
                }
                packet
            }
            _ => unreachable!("both ends have addresses of one version"),
        };
        packet.extend_from_slice(body);
        packet
    }

    /// A connection from its first packet to its last, with so many bytes in a segment. Each flight is a group, whose
    /// packets may come in any order.
    pub fn groups(&self, flights: &[Flight], segment_bytes: usize) -> Vec<Vec<Vec<u8>>> {
        let (mut client, mut server) = self.first;
        let mut groups = self.opening();
        (client, server) = (client.wrapping_add(1), server.wrapping_add(1));
        for flight in flights {
            let mut group = Vec::new();
            for piece in flight.bytes.chunks(segment_bytes) {
                let (own, other) = if flight.from_client { (&mut client, server) } else { (&mut server, client) };
                group.push(self.segment(flight.from_client, *own, other, ACK, piece));
                *own = own.wrapping_add(piece.len() as u32);
            }
            groups.push(group);
        }
        groups.push(vec![self.segment(true, client, server, FIN | ACK, &[])]);
        groups.push(vec![self.segment(false, server, client.wrapping_add(1), FIN | ACK, &[])]);
        groups.push(vec![self.segment(true, client.wrapping_add(1), server.wrapping_add(1), ACK, &[])]);
        groups
    }

    /// The packets that open it.
    pub fn opening(&self) -> Vec<Vec<Vec<u8>>> {
        let (client, server) = self.first;
        let answer = self.segment(false, server, client.wrapping_add(1), SYN | ACK, &[]);
        let last = self.segment(true, client.wrapping_add(1), server.wrapping_add(1), ACK, &[]);
        vec![vec![self.segment(true, client, 0, SYN, &[])], vec![answer], vec![last]]
    }

    /// A reset by an end that has sent so many bytes, and received so many.
    pub fn reset(&self, from_client: bool, sent: u32, received: u32) -> Vec<u8> {
        let (client, server) = self.first;
        let (own, other) = if from_client { (client, server) } else { (server, client) };
        self.segment(from_client, own.wrapping_add(1 + sent), other.wrapping_add(1 + received), RST | ACK, &[])
    }
}

/// What a watch counts that sees these packets, and then nothing for as long as it waits.
pub fn counts(packets: &[Vec<u8>]) -> Counts {
    counts_of(watch(), packets)
}

/// The same of this watch.
pub fn counts_of(mut watch: Watch, packets: &[Vec<u8>]) -> Counts {
    for (at, bytes) in packets.iter().enumerate() {
        watch.take(&Packet { time_ns: at as u64 * STEP_NS, bytes, length: bytes.len() });
    }
    watch.advance(packets.len() as u64 * STEP_NS + 2 * PATIENCE.as_nanos() as u64);
    watch.take_counts().remove(0)
}

pub fn watch() -> Watch {
    Watch::new(&["[::]:443".parse().unwrap()], PATIENCE)
}

/// Counts without times, which depend on how many packets there are.
pub fn timeless(mut counts: Counts) -> Counts {
    counts.hello_to_answer_ns.reset();
    counts
}
