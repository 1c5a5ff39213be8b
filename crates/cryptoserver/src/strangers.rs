//! Connections that have not said yet who they are. There are only so many of them, and they take no place from agents
//! that are known: one more has the place of the oldest, from the network that has most.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nobody gives way before: a handshake takes two ways there and back, and an agent's machine may be busy.
const GRACE: Duration = Duration::from_millis(50);

pub struct Strangers {
    most: usize,
    all: Mutex<All<Arc<TcpStream>>>,
    one_left: Condvar,
}

#[derive(Default)]
struct All<S> {
    here: Vec<One<S>>,
    /// Where agents that were let in have come from: who comes from there gives way last.
    known: HashSet<IpAddr>,
}

struct One<S> {
    network: IpAddr,
    since: Instant,
    stream: S,
}

/// The place of one stranger, until this is dropped.
pub struct Stranger {
    among: Arc<Strangers>,
    stream: Arc<TcpStream>,
    network: IpAddr,
}

impl Strangers {
    pub fn new(most: u32) -> Arc<Strangers> {
        let all = Mutex::new(All { here: Vec::new(), known: HashSet::new() });
        Arc::new(Strangers { most: most as usize, all, one_left: Condvar::new() })
    }

    /// A place for one more. Where there is none, it waits until another one has given way.
    pub fn enter(self: &Arc<Self>, stream: Arc<TcpStream>, from: IpAddr) -> Stranger {
        let mut all = self.all();
        while all.here.len() >= self.most {
            let Some(other) = all.to_give_way() else { break };
            let left = GRACE.saturating_sub(other.since.elapsed());
            if left.is_zero() {
                // Its thread reads the end and gives the place back.
                let _ = other.stream.shutdown(Shutdown::Both);
            }
            all = self.one_left.wait_timeout(all, left.max(GRACE / 50)).unwrap_or_else(PoisonError::into_inner).0;
        }
        let network = network_of(from);
        all.here.push(One { network, since: Instant::now(), stream: Arc::clone(&stream) });
        Stranger { among: Arc::clone(self), stream, network }
    }

    fn all(&self) -> MutexGuard<'_, All<Arc<TcpStream>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stranger {
    /// It is an agent, and has a place among those.
    pub fn has_shown_itself(self) {
        self.among.all().known.insert(self.network);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.among.all().here.retain(|one| !Arc::ptr_eq(&one.stream, &self.stream));
        self.among.one_left.notify_one();
    }
}

impl<S> All<S> {
    fn to_give_way(&self) -> Option<&One<S>> {
        let mut of_network: HashMap<IpAddr, u32> = HashMap::new();
        self.here.iter().for_each(|one| *of_network.entry(one.network).or_default() += 1);
        let order = |one: &&One<S>| (self.known.contains(&one.network), Reverse(of_network[&one.network]), one.since);
        self.here.iter().min_by_key(order)
    }
}

/// Whoever has one address of IPv6 has the 64 bits behind its network, too.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gives_way(all: &All<u32>) -> Option<u32> {
        all.to_give_way().map(|one| one.stream)
    }

    #[test]
    fn the_oldest_of_the_fullest_network_gives_way_and_known_networks_last() {
        let mut all = All::default();
        assert_eq!(gives_way(&all), None);
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let [agent, other, flood] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|text| text.parse::<IpAddr>().unwrap());
        for (network, stream) in [agent, other, flood, flood].into_iter().zip(1..) {
            all.here.push(One { network, since: now + stream * second, stream });
        }
        assert_eq!(gives_way(&all), Some(3));
        all.here.pop();
        // One from each network: the agent's is the oldest, and known.
        assert_eq!(gives_way(&all), Some(1));
        all.known.insert(agent);
        assert_eq!(gives_way(&all), Some(2));
        // From its own machine come so many that only they are there: the oldest.
        all.here.retain(|one| one.network == agent);
        all.here.push(One { network: agent, since: now + 9 * second, stream: 9 });
        assert_eq!(gives_way(&all), Some(1));
    }

    #[test]
    fn a_network_of_ipv6_is_one() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::5"), of("2001:db8:0:1:ffff::6"));
        assert_ne!(of("2001:db8:0:1::5"), of("2001:db8:0:2::5"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
