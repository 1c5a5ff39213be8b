//! A network with a delay, losses and lines of a bandwidth, whose time is told.

use std::collections::{HashMap, VecDeque};

use tlsdyno_base::random::SplitMix64;
use tlsdyno_record::model::{Line, Network};

use super::relay::{Link, Travel};

/// How packets travel in a [`Network`]: into the queue of their line, along it, and then for half of the delay; what is
/// lost has had its place on the line.
#[derive(Debug)]
pub struct Wide {
    network: Network,
    random: SplitMix64,
    /// By the client's port, 0: the one of all; for each way.
    lines: [HashMap<u16, Queue>; 2],
}

/// When packets leave a line, the last one last.
type Queue = VecDeque<u64>;

impl Wide {
    pub fn new(network: Network) -> Wide {
        Wide { network, random: SplitMix64::new(network.seed), lines: Default::default() }
    }

    /// When a packet of so many bytes has left its line, in nanoseconds; `None`: the line takes no more.
    fn leaves_ns(&mut self, from: usize, port: u16, bytes: usize, now_ns: u64) -> Option<u64> {
        let Some(rate_kbit) = self.network.rate_kbit else { return Some(now_ns) };
        let queue = self.lines[from].entry(port).or_default();
        // The last one stays, in case the line is not free yet.
        while queue.len() > 1 && queue.front().is_some_and(|leaves_ns| *leaves_ns <= now_ns) {
            queue.pop_front();
        }
        let begins_ns = queue.back().map_or(now_ns, |leaves_ns| now_ns.max(*leaves_ns));
        // The one on the line does not wait.
        if begins_ns > now_ns && queue.len() > self.network.queue_packets as usize {
            return None;
        }
        let takes_ns = (bytes as f64 * 8.0 * 1e6 / rate_kbit) as u64;
        queue.push_back(begins_ns + takes_ns);
        Some(begins_ns + takes_ns)
    }
}

impl Link for Wide {
    fn travel(&mut self, from: usize, packet: &[u8], now_ns: u64) -> Travel {
        let port = match self.network.line {
            Line::All => 0,
            Line::Connection => port_of_client(from, packet).unwrap_or(0),
        };
        let Some(leaves_ns) = self.leaves_ns(from, port, packet.len(), now_ns) else { return Travel::Dropped };
        if self.network.loss_fraction > 0.0 && self.random.uniform() < self.network.loss_fraction {
            return Travel::Lost;
        }
        Travel::Arrives(leaves_ns + (self.network.delay_ms / 2.0 * 1e6) as u64)
    }
}

/// The client's port in a packet of TCP over IPv4.
fn port_of_client(from: usize, packet: &[u8]) -> Option<u16> {
    let at = usize::from(packet.first()? & 15) * 4 + 2 * from;
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn packet(from: usize, port: u16, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; bytes];
        packet[0] = 0x45;
        packet[20 + 2 * from..22 + 2 * from].copy_from_slice(&port.to_be_bytes());
        packet
    }

    #[test]
    fn a_line_takes_its_time_and_its_queue_has_an_end() {
        // 1000 bytes are 8 ms on it.
        let network: Network = "delay=50ms,rate=1mbit,queue=2".parse().unwrap();
        let mut wide = Wide::new(network);
        let mut at = |from, now_ms| wide.travel(from, &packet(from, 7, 1000), now_ms * MS);
        assert_eq!(at(0, 0), Travel::Arrives((8 + 25) * MS));
        assert_eq!(at(0, 0), Travel::Arrives((16 + 25) * MS));
        assert_eq!(at(0, 1), Travel::Arrives((24 + 25) * MS));
        assert_eq!(at(0, 1), Travel::Dropped, "one is on the line and two wait");
        assert_eq!(at(1, 1), Travel::Arrives((9 + 25) * MS), "the other way is another line");
        assert_eq!(at(0, 9), Travel::Arrives((32 + 25) * MS));
        assert_eq!(at(0, 100), Travel::Arrives((108 + 25) * MS));
    }

    #[test]
    fn each_connection_may_have_a_line_of_its_own() {
        for (text, second_ms) in [("all", 16), ("connection", 8)] {
            let network: Network = format!("delay=0ms,rate=1mbit,line={text}").parse().unwrap();
            let mut wide = Wide::new(network);
            assert_eq!(wide.travel(1, &packet(1, 7, 1000), 0), Travel::Arrives(8 * MS));
            assert_eq!(wide.travel(1, &packet(1, 8, 1000), 0), Travel::Arrives(second_ms * MS), "{text}");
        }
    }

    #[test]
    fn losses_are_as_many_as_asked_for_and_the_same_each_time() {
        let lost = |text: &str| {
            let mut wide = Wide::new(text.parse().unwrap());
            let one = packet(0, 7, 40);
            (0..100_000).map(|now| wide.travel(0, &one, now)).map(|travel| travel == Travel::Lost).collect::<Vec<_>>()
        };
        let count = |packets: &[bool]| packets.iter().filter(|lost| **lost).count();
        let first = lost("loss=1%");
        // Four standard deviations.
        assert!(count(&first).abs_diff(1000) < 126, "{}", count(&first));
        assert!(first == lost("loss=1%") && first != lost("loss=1%,seed=2"));
        assert_eq!(count(&lost("delay=1ms")), 0);
    }
}
