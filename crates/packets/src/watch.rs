//! From packets to counts.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use crate::counts::Counts;
use crate::handshake::{End, Handshake, Outcome};
use crate::packet::{Carried, Packet, Segment};
use crate::stream::Piece;
use crate::table::{Ends, Leaves, Stage, Table};

/// How long either end may take for a step of a handshake, unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection is known after its handshake. The bytes of one that ends later are not counted.
const LIFE_NS: u64 = 24 * 3_600_000_000_000;

/// Follows the handshakes of TCP connections to some listeners, and counts them. Packets come from any capture, in the
/// order in which they passed; one that comes twice counts once. In TLS 1.3 a handshake is complete when the client's
/// Finished has passed, in older versions when both ends have sent ChangeCipherSpec.
#[derive(Debug)]
pub struct Watch {
    listeners: Vec<(SocketAddr, Counts)>,
    patience_ns: u64,
    /// Names of servers that clients ask for are counted.
    pub keeps_names: bool,
    table: Table,
}

impl Watch {
    /// `listeners`: where the server accepts connections; an unspecified IP address stands for any, and that of IPv6
    /// for those of IPv4 too. `patience`: how long either end may take for a step of a handshake before that
    /// counts as broken off.
    pub fn new(listeners: &[SocketAddr], patience: Duration) -> Watch {
        let listeners = listeners.iter().map(|address| (*address, Counts::default())).collect();
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        Watch { listeners, patience_ns, keeps_names: false, table: Table::default() }
    }

    /// What was counted since the last call, for each listener in the order in which they were told. What goes on is
    /// counted when it is over.
    pub fn take_counts(&mut self) -> Vec<Counts> {
        self.listeners.iter_mut().map(|(_, counts)| std::mem::take(counts)).collect()
    }

    /// Connections that are followed now, and bytes of their handshakes that are held. Both are bounded.
    pub fn held(&self) -> (usize, usize) {
        self.table.held()
    }

    /// Takes a packet.
    pub fn take(&mut self, packet: &Packet<'_>) {
        self.advance(packet.time_ns);
        match packet.carried() {
            Some(Carried::Segment(segment)) => self.segment(&segment, packet.time_ns),
            Some(Carried::Datagram(to)) => {
                if let Some(listener) = self.listener(to) {
                    self.listeners[listener].1.traffic.datagrams += 1;
                }
            }
            None => {}
        }
    }

    /// It is `now_ns`, on the clock of the packets: breaks off what has taken too long, also where no packet comes.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some((ends, why)) = self.table.next_to_leave(now_ns) {
            let Some(flow) = self.table.get(&ends) else { continue };
            match (flow.stage(), why) {
                (Stage::Over, _) => drop(self.table.remove(&ends)),
                // Either end has moved since.
                (stage, Leaves::Due) if flow.due_ns > now_ns => {
                    let due_ns = flow.due_ns;
                    self.table.enter(&ends, stage, due_ns);
                }
                (Stage::Talking, Leaves::Due) => self.close(&ends, None, now_ns),
                (Stage::Opening, Leaves::Due) => {
                    self.listeners[flow.listener].1.note(Outcome::WithoutHello, None);
                    self.table.remove(&ends);
                }
                (_, Leaves::Displaced) => {
                    self.listeners[flow.listener].1.give_up();
                    self.table.remove(&ends);
                }
            }
        }
    }

    fn listener(&self, address: SocketAddr) -> Option<usize> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let of = |fits: &dyn Fn(&SocketAddr) -> bool| {
            self.listeners.iter().position(|(own, _)| own.port() == port && fits(own))
        };
        of(&|own| own.ip().to_canonical() == ip)
            .or_else(|| of(&|own| own.ip().is_unspecified() && own.is_ipv4() == ip.is_ipv4()))
            .or_else(|| of(&|own| own.ip().is_unspecified() && own.is_ipv6()))
    }

    fn segment(&mut self, segment: &Segment<'_>, now_ns: u64) {
        let (source, destination) = (segment.source, segment.destination);
        let (from, ends, listener) = if let Some(listener) = self.listener(destination) {
            (End::Client, Ends { client: source, server: destination }, listener)
        } else if let Some(listener) = self.listener(source) {
            (End::Server, Ends { client: destination, server: source }, listener)
        } else {
            return;
        };
        // A SYN counts as a byte.
        let first = segment.sequence.wrapping_add(segment.syn.into());
        if segment.syn && from == End::Client && !segment.reset {
            self.opens(&ends, listener, first, now_ns);
        }
        // What is older than the capture, or over, is not followed.
        let Some(flow) = self.table.get(&ends) else { return };
        if segment.syn && from == End::Server {
            flow.first[1].get_or_insert(first);
        }
        let end = segment.fin.then(|| first.wrapping_add(segment.payload_length));
        flow.last[from as usize] = flow.last[from as usize].or(end);
        if segment.payload_length > 0 && flow.stage() == Stage::Opening {
            // A SYN that did not pass here is made up for by what the client had received when it began to talk.
            let of_server = segment.acknowledged.filter(|_| from == End::Client).unwrap_or(first);
            let firsts = flow.first.map(|first| first.unwrap_or(of_server));
            flow.first = firsts.map(Some);
            flow.handshake = Some(Box::new(Handshake::new(firsts, self.keeps_names)));
            self.table.enter(&ends, Stage::Talking, now_ns.saturating_add(self.patience_ns));
        }
        self.hand_on(&ends, from, segment, (first, end), now_ns);
        let Some(flow) = self.table.get(&ends) else { return };
        if segment.reset && flow.stage() != Stage::Opening && flow.first[from as usize].is_some() {
            // A reset tells where its sender's bytes end, and what it had received.
            let told = if from == End::Client {
                [Some(first), segment.acknowledged]
            } else {
                [segment.acknowledged, Some(first)]
            };
            flow.last = [flow.last[0].or(told[0]), flow.last[1].or(told[1])];
        }
        if segment.reset || flow.bytes().is_some() {
            self.close(&ends, Some(from), now_ns);
            self.remove(&ends);
        }
    }

    /// Begins to follow a connection, unless this SYN came before.
    fn opens(&mut self, ends: &Ends, listener: usize, first: u32, now_ns: u64) {
        if let Some(flow) = self.table.get(ends) {
            if flow.first[0] == Some(first) {
                return;
            }
            // The client uses the port again: the connection before is gone.
            self.close(ends, None, now_ns);
        }
        self.listeners[listener].1.opened_connections += 1;
        self.table.insert(*ends, listener, first, now_ns.saturating_add(self.patience_ns));
    }

    /// Hands the payload on to the handshake, if it goes on.
    fn hand_on(
        &mut self,
        ends: &Ends,
        from: End,
        segment: &Segment<'_>,
        (first, end): (u32, Option<u32>),
        now_ns: u64,
    ) {
        let Some(flow) = self.table.get(ends) else { return };
        let of_other = flow.first[from.other() as usize].unwrap_or_default();
        let Some(handshake) = &mut flow.handshake else { return };
        let piece = Piece {
            sequence: first,
            acknowledged: segment.acknowledged.unwrap_or(of_other),
            time_ns: now_ns,
            bytes: Cow::Borrowed(segment.payload),
            length: segment.payload_length,
        };
        let steps = handshake.steps();
        match handshake.take(from, piece, end) {
            Some(outcome) => self.over(ends, outcome, now_ns),
            None => {
                if handshake.steps() > steps {
                    flow.due_ns = now_ns.saturating_add(self.patience_ns);
                }
                self.table.weigh(ends);
            }
        }
    }

    /// Nothing more comes in this handshake.
    fn close(&mut self, ends: &Ends, by: Option<End>, now_ns: u64) {
        let Some(flow) = self.table.get(ends) else { return };
        let outcome = match (flow.stage(), &mut flow.handshake) {
            (_, Some(handshake)) => handshake.close(by, now_ns),
            (Stage::Opening, None) => Outcome::WithoutHello,
            _ => return,
        };
        self.over(ends, outcome, now_ns);
    }

    fn over(&mut self, ends: &Ends, outcome: Outcome, now_ns: u64) {
        let Some(flow) = self.table.get(ends) else { return };
        let handshake = flow.handshake.take();
        self.listeners[flow.listener].1.note(outcome, handshake.as_deref());
        self.table.enter(ends, Stage::Over, now_ns.saturating_add(LIFE_NS));
    }

    /// Forgets a connection that has ended.
    fn remove(&mut self, ends: &Ends) {
        let Some(flow) = self.table.remove(ends) else { return };
        if let Some([client_bytes, server_bytes]) = flow.bytes() {
            let traffic = &mut self.listeners[flow.listener].1.traffic;
            traffic.connections += 1;
            traffic.client_bytes += client_bytes;
            traffic.server_bytes += server_bytes;
        }
    }
}
