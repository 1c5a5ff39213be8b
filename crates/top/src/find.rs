//! Which processes serve: those of a number, those that hold a listening socket, or all that listen with TLS.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, Instant};

use tlsdyno_base::{listening, process_tree};

/// The first process of the machine, or of a container: it may hold sockets for others, as systemd does.
const INIT: u32 = 1;
/// All processes are looked at again after this time, and new ones at every look: reading the descriptors of all takes
/// milliseconds.
const FULL_LOOK: Duration = Duration::from_secs(20);

/// Where a server listens: `:443`, `192.0.2.1:443`, `[::1]:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// `None`: any.
    ip: Option<IpAddr>,
    port: u16,
}

impl FromStr for Listener {
    type Err = String;

    fn from_str(text: &str) -> Result<Listener, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Listener { ip: Some(address.ip()), port: address.port() });
        }
        let port = text.trim_start_matches(':').parse().ok().filter(|port| *port > 0);
        port.map(|port| Listener { ip: None, port }).ok_or_else(|| "a :PORT or an IP:PORT".to_owned())
    }
}

impl Listener {
    fn is_served_at(&self, address: &SocketAddr) -> bool {
        match self.ip {
            Some(ip) => listening::serves(address, &SocketAddr::new(ip, self.port)),
            None => address.port() == self.port,
        }
    }
}

/// Whose CPU time is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, with its descendants.
    Process(u32),
    /// All that listen there, with their descendants.
    Listener(Listener),
    /// Every server of the machine.
    All,
}

/// The processes of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The process that the others descend from, or the lowest number.
    pub root: u32,
    /// All of them, ascending.
    pub pids: Vec<u32>,
    /// Where they listen.
    pub addresses: BTreeSet<SocketAddr>,
}

impl Group {
    fn of(root: u32, listeners: &[u32], addresses: BTreeSet<SocketAddr>) -> Group {
        let with_own = |pid: &u32| process_tree::descendants(*pid).into_iter().map(|one| one.pid).chain([*pid]);
        let pids: BTreeSet<u32> = listeners.iter().flat_map(with_own).collect();
        Group { root, pids: pids.into_iter().collect(), addresses }
    }
}

/// Finds servers, again and again.
pub struct Finder {
    target: Target,
    /// Processes whose descriptors were read, and what was found.
    seen: HashSet<u32>,
    listening: BTreeMap<u32, BTreeSet<SocketAddr>>,
    looked: Option<Instant>,
}

impl Finder {
    /// For a target.
    pub fn new(target: Target) -> Finder {
        Finder { target, seen: HashSet::new(), listening: BTreeMap::new(), looked: None }
    }

    /// The servers that there are now; of a process or a listener one at most.
    pub fn look(&mut self) -> Vec<Group> {
        match self.target {
            Target::Process(pid) if process_tree::is_gone(pid) => Vec::new(),
            Target::Process(pid) => {
                let mut group = Group::of(pid, &[pid], BTreeSet::new());
                group.addresses = listening::of_each(&group.pids).into_iter().flat_map(|(_, at)| at).collect();
                vec![group]
            }
            Target::Listener(listener) => {
                self.look_for_listeners();
                group_at(&self.listening, listener).into_iter().collect()
            }
            Target::All => {
                self.look_for_listeners();
                groups(&self.listening)
            }
        }
    }

    fn look_for_listeners(&mut self) {
        let pids = process_tree::numbers_in("/proc");
        if self.looked.is_none_or(|looked| looked.elapsed() > FULL_LOOK) {
            self.looked = Some(Instant::now());
            self.seen.clear();
            self.listening.clear();
        }
        let new: Vec<u32> = pids.iter().copied().filter(|pid| !self.seen.contains(pid)).collect();
        self.listening.extend(listening::of_each(&new));
        self.seen = pids.into_iter().collect();
        let seen = &self.seen;
        self.listening.retain(|pid, _| seen.contains(pid));
    }
}

/// The processes that listen there; init only if no other does.
fn group_at(all: &BTreeMap<u32, BTreeSet<SocketAddr>>, listener: Listener) -> Option<Group> {
    let of = |(pid, addresses): (&u32, &BTreeSet<SocketAddr>)| {
        let at: BTreeSet<SocketAddr> = addresses.iter().copied().filter(|at| listener.is_served_at(at)).collect();
        (!at.is_empty()).then_some((*pid, at))
    };
    let mut there: Vec<(u32, BTreeSet<SocketAddr>)> = all.iter().filter_map(of).collect();
    if there.len() > 1 {
        there.retain(|(pid, _)| *pid != INIT);
    }
    let pids: Vec<u32> = there.iter().map(|(pid, _)| *pid).collect();
    let is_root = |pid: &&u32| process_tree::stat(**pid).is_some_and(|process| !pids.contains(&process.parent));
    let root = pids.iter().find(is_root).or(pids.first())?;
    Some(Group::of(*root, &pids, there.into_iter().flat_map(|(_, at)| at).collect()))
}

/// Processes that share an address with an ancestor are its workers.
fn groups(all: &BTreeMap<u32, BTreeSet<SocketAddr>>) -> Vec<Group> {
    let mut found: BTreeMap<u32, (Vec<u32>, BTreeSet<SocketAddr>)> = BTreeMap::new();
    for (pid, addresses) in all.iter().filter(|(pid, _)| **pid != INIT) {
        let (pids, at) = found.entry(root_of(*pid, all)).or_default();
        pids.push(*pid);
        at.extend(addresses);
    }
    found.into_iter().map(|(root, (pids, at))| Group::of(root, &pids, at)).collect()
}

fn root_of(pid: u32, all: &BTreeMap<u32, BTreeSet<SocketAddr>>) -> u32 {
    let parent = |pid: u32| {
        let parent = process_tree::stat(pid)?.parent;
        let shares = !all.get(&parent)?.is_disjoint(all.get(&pid)?);
        (parent != INIT && shares).then_some(parent)
    };
    std::iter::successors(Some(pid), |pid| parent(*pid)).last().unwrap_or(pid)
}

/// What a process is called: the name of its program, else of the process.
pub fn name_of(pid: u32) -> String {
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = program.as_deref().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let name = name.or_else(|| Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned()));
    name.unwrap_or_else(|| "process".to_owned()).trim_end_matches(" (deleted)").to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listeners_are_named_with_or_without_an_address() {
        let listener = |text: &str| text.parse::<Listener>();
        let any = listener(":443").unwrap();
        assert_eq!(any, listener("443").unwrap());
        assert!(any.is_served_at(&"[::]:443".parse().unwrap()) && !any.is_served_at(&"[::]:444".parse().unwrap()));
        let one = listener("127.0.0.1:443").unwrap();
        assert!(
            one.is_served_at(&"0.0.0.0:443".parse().unwrap()) && !one.is_served_at(&"127.0.0.2:443".parse().unwrap())
        );
        for none in ["", ":", ":0", "https", ":70000"] {
            assert!(listener(none).is_err(), "{none}");
        }
    }

    #[test]
    fn the_processes_of_a_listener_are_found() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let own = std::process::id();
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = held.local_addr().unwrap();
        let target = |at: SocketAddr| Target::Listener(Listener { ip: Some(at.ip()), port: at.port() });
        let mut finder = Finder::new(target(at));
        for _ in 0..2 {
            let found = finder.look();
            assert!(found.len() == 1 && found[0].root == own && found[0].pids.contains(&own), "{found:?}");
            assert_eq!(found[0].addresses, [at].into());
        }
        assert_eq!(Finder::new(target(here)).look(), [], "it is closed");
        let all = Finder::new(Target::All).look();
        assert!(all.iter().any(|group| group.addresses.contains(&at)), "{all:?}");
        assert!(Finder::new(Target::Process(own)).look()[0].addresses.contains(&at));
        assert_eq!(Finder::new(Target::Process(u32::MAX)).look(), []);
        assert!(name_of(own).starts_with("tlsdyno_top"), "{}", name_of(own));
    }
}
