//! Networks that are played packet by packet, by the phase of their connection, on the product's relay. Needs root.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tlsdyno::network::{self, Link, Namespace, Travel};
use tlsdyno::random::SplitMix64;
use tlsdyno_lab::probe_weeks::network::{Fate, Network, Phase};

/// Two namespaces and what carries packets between them.
pub struct Relay {
    relay: network::Relay,
    phases: Arc<Mutex<Phases>>,
}

impl Relay {
    /// `None`: the tests may not make namespaces or devices.
    pub fn start(network: Network) -> Option<Relay> {
        let (client, server) = (Namespace::create().ok()?, Namespace::with_loopback().ok()?);
        let (connections, random) = (HashMap::new(), SplitMix64::new(1));
        let phases = Arc::new(Mutex::new(Phases { network, connections, random, last_ns: [0; 2] }));
        let link = Box::new(Played(Arc::clone(&phases)));
        let relay = network::Relay::start(client, server, link, None).ok()?;
        Some(Relay { relay, phases })
    }

    pub fn client(&self) -> &Namespace {
        &self.relay.client
    }

    pub fn server(&self) -> &Namespace {
        &self.relay.server
    }

    /// From now on another network.
    pub fn become_network(&self, network: Network) {
        let mut phases = self.phases.lock().unwrap();
        phases.network = network;
        phases.connections.clear();
    }
}

struct Played(Arc<Mutex<Phases>>);

impl Link for Played {
    fn travel(&mut self, from: usize, packet: &[u8], now_ns: u64) -> Travel {
        self.0.lock().unwrap().travel(from, packet, now_ns)
    }
}

struct Phases {
    network: Network,
    /// What is known of a connection, by its client's port.
    connections: HashMap<u16, Connection>,
    random: SplitMix64,
    /// Nothing overtakes what went before it the same way.
    last_ns: [u64; 2],
}

#[derive(Clone, Copy)]
struct Connection {
    phase: Phase,
    fate: Fate,
}

impl Phases {
    fn travel(&mut self, from: usize, packet: &[u8], now_ns: u64) -> Travel {
        let Some(segment) = Segment::of(packet) else { return Travel::Lost };
        let port = if from == 0 { segment.source } else { segment.destination };
        if segment.is_syn && from == 0 {
            let fate = self.network.fate(Phase::Tcp, &mut self.random);
            self.connections.insert(port, Connection { phase: Phase::Tcp, fate });
        }
        let known = Connection { phase: Phase::Answer, fate: Fate::Good };
        let connection = self.connections.entry(port).or_insert(known);
        // The client's first bytes are its hello; its first record of application data holds Finished, or the request.
        let next = match (from, segment.first_byte) {
            (0, Some(23)) if connection.phase == Phase::Handshake => Some(Phase::Answer),
            (0, Some(_)) if connection.phase == Phase::Tcp => Some(Phase::Handshake),
            _ => None,
        };
        if let Some(phase) = next {
            connection.phase = phase;
            if connection.fate == Fate::Good {
                connection.fate = self.network.fate(phase, &mut self.random);
            }
        }
        let connection = *connection;
        let delay_ns = self.network.delay_ns(connection.phase, 0, &mut self.random);
        match connection.fate {
            Fate::Reset if from == 0 && !segment.is_reset => {
                let at_ns = self.in_order(0, now_ns + 2 * delay_ns);
                Travel::Answered(at_ns, segment.reset(packet))
            }
            Fate::Blackhole | Fate::Reset => Travel::Lost,
            Fate::Good if self.network.is_lost(connection.phase, &mut self.random) => Travel::Lost,
            Fate::Good => Travel::Arrives(self.in_order(1 - from, now_ns + delay_ns)),
        }
    }

    fn in_order(&mut self, to: usize, at_ns: u64) -> u64 {
        self.last_ns[to] = self.last_ns[to].max(at_ns);
        self.last_ns[to]
    }
}

/// What the relay looks at in a packet.
struct Segment {
    source: u16,
    destination: u16,
    sequence: u32,
    bytes: u32,
    is_syn: bool,
    is_reset: bool,
    /// The first byte of its data.
    first_byte: Option<u8>,
}

impl Segment {
    /// `None`: no TCP over IPv4.
    fn of(packet: &[u8]) -> Option<Segment> {
        let head_bytes = usize::from(packet.first()? & 15) * 4;
        if packet[0] >> 4 != 4 || *packet.get(9)? != 6 {
            return None;
        }
        let tcp = packet.get(head_bytes..)?;
        let number = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let data = tcp.get(usize::from(*tcp.get(12)? >> 4) * 4..)?;
        let flags = *tcp.get(13)?;
        Some(Segment {
            source: number(0)?,
            destination: number(2)?,
            sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            bytes: data.len() as u32,
            is_syn: flags & 2 != 0,
            is_reset: flags & 4 != 0,
            first_byte: data.first().copied(),
        })
    }

    /// What refuses this packet: a RST that acknowledges it, back to its sender.
    fn reset(&self, packet: &[u8]) -> Vec<u8> {
        let (source, destination) = (&packet[16..20], &packet[12..16]);
        let mut tcp = Vec::with_capacity(20);
        tcp.extend(self.destination.to_be_bytes());
        tcp.extend(self.source.to_be_bytes());
        // What the sender acknowledged is what it expects next.
        let head_bytes = usize::from(packet[0] & 15) * 4;
        tcp.extend(&packet[head_bytes + 8..head_bytes + 12]);
        tcp.extend((self.sequence + self.bytes + u32::from(self.is_syn)).to_be_bytes());
        tcp.extend([5 << 4, 4 | 16, 0, 0, 0, 0, 0, 0]);
        let pseudo = [source, destination, &[0, 6, 0, 20]].concat();
        let sum = checksum(&[&pseudo[..], &tcp].concat());
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip.extend(source);
        ip.extend(destination);
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip.extend(tcp);
        ip
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
