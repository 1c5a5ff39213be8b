//! Clients that receive at a rate: from its first byte on an answer takes as long as a line of that rate carries it,
//! and the client asks for no more before. An answer is taken from the socket as fast as it comes; only the next
//! request waits. Which clients kept how much of the rate is told at the end, as SPECweb99 asks of its connections.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::users::{ActiveId, ConnectionId};

/// How fast clients receive, and what they are to keep of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rated {
    /// The most that a client receives of bodies, bits a second.
    pub bits_per_second: u64,
    /// A client keeps its rate that receives so much on the average, connecting and waiting included, bits a second.
    pub keep_bits_per_second: u64,
}

/// How many clients kept their rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Kept {
    /// Clients, each with one connection at a time.
    pub clients_count: u64,
    /// Number of clients that kept the rate.
    pub kept_count: u64,
    /// Bits of bodies that all of them received in the time that counts.
    pub carried_bits: u64,
    /// That time, nanoseconds.
    pub counted_ns: u64,
}

impl Kept {
    /// The share that kept the rate, 0 to 1.
    pub fn share(&self) -> f64 {
        self.kept_count as f64 / self.clients_count.max(1) as f64
    }

    /// What a client received on the average, bits a second.
    pub fn mean_bits_per_second(&self) -> f64 {
        self.carried_bits as f64 * 1e9 / (self.counted_ns.max(1) as f64 * self.clients_count.max(1) as f64)
    }

    /// The same with another loop's clients.
    pub fn with(self, other: Kept) -> Kept {
        Kept {
            clients_count: self.clients_count + other.clients_count,
            kept_count: self.kept_count + other.kept_count,
            carried_bits: self.carried_bits + other.carried_bits,
            counted_ns: self.counted_ns.max(other.counted_ns),
        }
    }
}

/// A connection, and its number in its place.
pub type Carrying = (ConnectionId, u32);

/// The answers that are on their way to clients, and what each client got.
#[derive(Debug)]
pub struct Lines {
    rated: Rated,
    carrying: BinaryHeap<Reverse<(u64, Carrying)>>,
    /// Bits of each client in the time that counts.
    bits: Vec<f64>,
}

impl Lines {
    pub fn new(rated: Rated) -> Lines {
        Lines { rated, carrying: BinaryHeap::new(), bits: Vec::new() }
    }

    /// When a line has carried an answer of so many bytes that began then, nanoseconds.
    pub fn carried_ns(&self, began_ns: u64, body_bytes: u64) -> u64 {
        let takes_ns = u128::from(body_bytes) * 8 * 1_000_000_000 / u128::from(self.rated.bits_per_second);
        began_ns.saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX))
    }

    /// A client's answer came in this time, evenly; what lies in `counted` counts.
    pub fn credit(&mut self, client: ActiveId, body_bytes: u64, during: [u64; 2], counted: [u64; 2]) {
        let client = client as usize;
        if self.bits.len() <= client {
            self.bits.resize(client + 1, 0.0);
        }
        let overlap_ns = during[1].min(counted[1]).saturating_sub(during[0].max(counted[0]));
        let length_ns = (during[1] - during[0]).max(1);
        self.bits[client] += body_bytes as f64 * 8.0 * (overlap_ns as f64 / length_ns as f64);
    }

    /// The connection waits until then.
    pub fn wait(&mut self, until_ns: u64, connection: Carrying) {
        self.carrying.push(Reverse((until_ns, connection)));
    }

    /// When the next answer is carried.
    pub fn next_ns(&self) -> Option<u64> {
        self.carrying.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// A connection whose answer is carried by then; each is answered once.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Carrying> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.carrying.pop().map(|Reverse((_, connection))| connection)
    }

    pub fn carrying_count(&self) -> usize {
        self.carrying.len()
    }

    /// What became of so many clients in the time that counted.
    pub fn kept(&self, clients: u32, counted_ns: u64) -> Kept {
        let least = self.rated.keep_bits_per_second as f64 * counted_ns as f64 / 1e9;
        Kept {
            clients_count: clients.into(),
            kept_count: self.bits.iter().filter(|bits| **bits >= least).count() as u64,
            carried_bits: self.bits.iter().sum::<f64>() as u64,
            counted_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What a client keeps that waits so long for the first byte of each answer of so many bytes, in 100 s.
    fn kept(wait_ns: u64, body_bytes: u64) -> (u64, f64) {
        let mut lines = Lines::new(Rated { bits_per_second: 400_000, keep_bits_per_second: 320_000 });
        let counted = [10 * SECOND, 110 * SECOND];
        let mut now_ns = 0;
        while now_ns < counted[1] {
            let first_byte_ns = now_ns + wait_ns;
            now_ns = lines.carried_ns(first_byte_ns, body_bytes);
            lines.credit(0, body_bytes, [first_byte_ns, now_ns], counted);
        }
        let kept = lines.kept(1, counted[1] - counted[0]);
        (kept.kept_count, kept.mean_bits_per_second())
    }

    #[test]
    fn what_a_client_keeps_is_the_part_of_its_time_in_which_something_comes() {
        // 15,000 bytes take 0.3 s: of that and a wait of 75 ms four fifths are left.
        for (wait_ms, keeps, rate) in [(0, 1, 400e3), (74, 1, 320.9e3), (76, 0, 319.1e3), (300, 0, 200e3)] {
            let (count, found) = kept(wait_ms * 1_000_000, 15_000);
            assert!(count == keeps && (found / rate - 1.0).abs() < 2e-3, "{wait_ms} ms: {count}, {found}");
        }
        let (count, found) = kept(0, 10_000_000);
        assert!(count == 1 && (found / 400e3 - 1.0).abs() < 1e-6, "an answer longer than the run counts in part");
    }

    #[test]
    fn connections_are_due_in_order_and_once() {
        let mut lines = Lines::new(Rated { bits_per_second: 8, keep_bits_per_second: 8 });
        lines.wait(lines.carried_ns(5, 3), (7, 1));
        lines.wait(9, (8, 2));
        assert_eq!((lines.next_ns(), lines.take_due(8), lines.carrying_count()), (Some(9), None, 2));
        assert_eq!((lines.take_due(9), lines.take_due(9)), (Some((8, 2)), None));
        assert_eq!(lines.take_due(u64::MAX), Some((7, 1)));
        assert_eq!((lines.next_ns(), lines.carrying_count()), (None, 0));
    }

    #[test]
    fn who_got_nothing_kept_nothing() {
        let lines = Lines::new(Rated { bits_per_second: 400_000, keep_bits_per_second: 320_000 });
        let kept = lines.kept(3, SECOND);
        assert_eq!((kept.clients_count, kept.kept_count, kept.share()), (3, 0, 0.0));
        let both = kept.with(Kept { clients_count: 1, kept_count: 1, carried_bits: 400_000, counted_ns: SECOND });
        assert_eq!((both.share(), both.mean_bits_per_second()), (0.25, 100_000.0));
    }
}
