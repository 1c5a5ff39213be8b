//! Which addresses a process listens on, as the kernel tells it, not as a configuration claims.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{process_tree, socket_diag};

/// State code of a listening socket (TCP_LISTEN, proc_pid_net(5)).
const LISTEN: u8 = 0x0A;
/// State code of a UDP socket that is bound and takes datagrams from everybody (TCP_CLOSE there; connected ones have
/// another).
const UNCONNECTED: u8 = 0x07;

/// The sockets to which anybody can connect: files below `/proc/PID/net`.
const LISTENING: [(&str, u8); 2] = [("tcp", LISTEN), ("tcp6", LISTEN)];
/// Those that take what anybody sends.
const OPEN: [(&str, u8); 4] = [("tcp", LISTEN), ("tcp6", LISTEN), ("udp", UNCONNECTED), ("udp6", UNCONNECTED)];
/// Bytes of a table that are read at once.
const TABLE_PIECE: usize = 4096;

/// Every TCP address that one of these processes listens on, in its own network namespace, without duplicates.
///
/// Processes whose descriptors cannot be read (another user's) contribute nothing.
pub fn listening_addresses(pids: &[u32]) -> Vec<SocketAddr> {
    let mut tables = ListeningTables::default();
    let mut found = BTreeSet::new();
    for &pid in pids {
        let table = tables.sockets_of(pid);
        found.extend(socket_inodes(pid).iter().filter_map(|inode| table.get(inode)));
    }
    found.into_iter().collect()
}

/// Every TCP and UDP address at which one of these processes takes what anybody sends, in its own network namespace.
pub fn open_addresses(pids: &[u32]) -> Result<Vec<SocketAddr>> {
    // One reading of the tables for each namespace: it takes milliseconds, and a server may have a process for each
    // connection. Sockets first: what is open by then is in a table that is read later.
    let mut sockets: BTreeMap<PathBuf, BTreeMap<u32, HashSet<u64>>> = BTreeMap::new();
    for &pid in pids {
        match namespace(pid).and_then(|namespace| Ok((namespace, try_socket_inodes(pid)?))) {
            Ok((namespace, inodes)) => drop(sockets.entry(namespace).or_default().insert(pid, inodes)),
            Err(error) => cannot_tell(pid, error)?,
        }
    }
    let mut found = BTreeSet::new();
    for processes in sockets.values() {
        for &pid in processes.keys() {
            match sockets_in(pid, &OPEN) {
                Ok(table) => {
                    found.extend(processes.values().flatten().filter_map(|inode| table.get(inode)));
                    break;
                }
                Err(error) => cannot_tell(pid, error)?,
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// An error for a process that lives; of one that has ended there is nothing to tell.
fn cannot_tell(pid: u32, error: std::io::Error) -> Result<()> {
    // A process that is ending loses its namespace before it becomes a zombie; one that lives always has one.
    let is_ending = error.kind() == ErrorKind::NotFound;
    if is_ending || process_tree::is_gone(pid) {
        return Ok(());
    }
    Err(error).with_context(|| format!("cannot tell where process {pid} listens"))
}

/// The number of this thread, which may be in another network than its process.
fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// What names the network namespace that the process is in.
fn namespace(pid: u32) -> std::io::Result<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net"))
}

/// Sockets of these tables in these states, by inode, in the network namespace that the process is in.
fn sockets_in(pid: u32, tables: &[(&str, u8)]) -> std::io::Result<HashMap<u64, SocketAddr>> {
    let mut found = HashMap::new();
    let is_ours = namespace(pid).ok() == fs::read_link("/proc/thread-self/ns/net").ok();
    for &(table, state) in tables {
        // For each reading of a file the kernel walks the table of all connections, which takes milliseconds. It tells
        // the sockets in one state at once, but only those of our own namespace, and some kernels leave this out.
        if let Some(told) = is_ours.then(|| socket_diag::sockets(table, state)).and_then(Result::ok) {
            found.extend(told);
            continue;
        }
        let text = match table_of(pid, table) {
            // No IPv6 in this kernel.
            Err(error) if error.kind() == ErrorKind::NotFound && table.ends_with('6') => continue,
            other => other?,
        };
        found.extend(text.lines().filter_map(|line| entry_in_state(line, state)));
    }
    Ok(found)
}

/// A table of sockets; of TCP only the listening ones, which the kernel lists first
/// (Documentation/networking/proc_net_tcp.rst). What follows may be tens of thousands of closed connections that
/// linger, each of which costs the kernel a line.
fn table_of(pid: u32, table: &str) -> std::io::Result<String> {
    let path = format!("/proc/{pid}/net/{table}");
    if table.starts_with("udp") {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    for line in BufReader::with_capacity(TABLE_PIECE, File::open(path)?).lines().skip(1) {
        let line = line?;
        if state_of(&line) != Some(LISTEN) {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// Listening sockets by inode, for each network namespace.
#[derive(Default)]
struct ListeningTables {
    by_namespace: HashMap<PathBuf, HashMap<u64, SocketAddr>>,
}

impl ListeningTables {
    /// The table of the namespace that the process is in.
    fn sockets_of(&mut self, pid: u32) -> &HashMap<u64, SocketAddr> {
        let namespace = namespace(pid).unwrap_or_default();
        self.by_namespace.entry(namespace).or_insert_with(|| sockets_in(pid, &LISTENING).unwrap_or_default())
    }
}

/// Loopback, also when mapped into IPv6.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether programs in our network namespace can listen there: only then it is an address of this host, or the
/// wildcard.
pub fn is_of_this_host(address: IpAddr) -> bool {
    TcpListener::bind((address, 0)).is_ok()
}

/// Whether a socket bound to `listening` accepts connections made to `wanted`. Java's are bound to `::ffff:127.0.0.1`.
pub fn serves(listening: &SocketAddr, wanted: &SocketAddr) -> bool {
    let is_same = listening.ip().to_canonical() == wanted.ip().to_canonical();
    listening.port() == wanted.port() && (is_same || listening.ip().is_unspecified())
}

/// Whether somebody of this network namespace takes datagrams from everybody there, as a server of QUIC does.
pub fn takes_datagrams(wanted: &SocketAddr) -> bool {
    let udp = sockets_in(this_thread(), &OPEN[2..]).unwrap_or_default();
    udp.values().any(|address| serves(address, wanted))
}

/// The processes that listen where `wanted` points, as `pid (command line)`, for messages. Only those of this network
/// namespace.
///
/// `an unknown process of another user` stands for one whose descriptors cannot be read.
pub fn owners(wanted: &SocketAddr) -> Vec<String> {
    match owner_numbers(wanted) {
        None => Vec::new(),
        Some(found) if found.is_empty() => vec!["an unknown process of another user".to_owned()],
        Some(found) => found.iter().map(|pid| format!("{pid} ({})", process_tree::command_line(*pid))).collect(),
    }
}

/// The same processes by number, without those whose descriptors cannot be read. `None`: nobody listens there.
pub fn owner_numbers(wanted: &SocketAddr) -> Option<Vec<u32>> {
    let mut tables = ListeningTables::default();
    let wanted_inodes: HashSet<u64> = tables
        .sockets_of(this_thread())
        .iter()
        .filter(|(_, address)| serves(address, wanted))
        .map(|(inode, _)| *inode)
        .collect();
    if wanted_inodes.is_empty() {
        return None;
    }
    let holds = |pid: &u32| !socket_inodes(*pid).is_disjoint(&wanted_inodes);
    Some(process_tree::numbers_in("/proc").into_iter().filter(holds).collect())
}

/// Whether others than these processes listen where `wanted` points, too: the kernel shares connections out among all
/// who bind with SO_REUSEPORT (socket(7)). Only those of this network namespace.
pub fn is_shared(wanted: &SocketAddr, pids: &[u32]) -> bool {
    let own: HashSet<u64> = pids.iter().flat_map(|pid| socket_inodes(*pid)).collect();
    let sockets = sockets_in(this_thread(), &LISTENING).unwrap_or_default();
    sockets.iter().any(|(inode, address)| serves(address, wanted) && !own.contains(inode))
}

/// Where each of these processes listens, in its own network namespace; those that listen nowhere, or whose descriptors
/// cannot be read, are left out.
pub fn of_each(pids: &[u32]) -> Vec<(u32, BTreeSet<SocketAddr>)> {
    let mut tables = ListeningTables::default();
    let mut addresses = |pid: u32| {
        let inodes = socket_inodes(pid);
        // Most processes have no sockets at all.
        if inodes.is_empty() {
            return BTreeSet::new();
        }
        let table = tables.sockets_of(pid);
        inodes.iter().filter_map(|inode| table.get(inode).copied()).collect()
    };
    let each = pids.iter().map(|&pid| (pid, addresses(pid)));
    each.filter(|(_, addresses)| !addresses.is_empty()).collect()
}

/// Those of these processes that listen where `wanted` points, or anywhere: a worker does, the loader of a cache or a
/// program that writes a log does not.
pub fn listeners(pids: &[u32], wanted: Option<&SocketAddr>) -> Vec<u32> {
    let mut tables = ListeningTables::default();
    let mut listens = |pid: &u32| {
        let table = tables.sockets_of(*pid);
        let mut addresses = socket_inodes(*pid).into_iter().filter_map(|inode| table.get(&inode).copied());
        addresses.any(|address| wanted.is_none_or(|wanted| serves(&address, wanted)))
    };
    pids.iter().copied().filter(|pid| listens(pid)).collect()
}

/// Inodes of the sockets among a process's descriptors; none where they cannot be read.
fn socket_inodes(pid: u32) -> HashSet<u64> {
    try_socket_inodes(pid).unwrap_or_default()
}

fn try_socket_inodes(pid: u32) -> std::io::Result<HashSet<u64>> {
    // A descriptor that is closed meanwhile is none.
    let targets =
        fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |target: PathBuf| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    Ok(targets.filter_map(inode).collect())
}

/// What the heading has there is no number.
fn state_of(line: &str) -> Option<u8> {
    u8::from_str_radix(line.split_ascii_whitespace().nth(3)?, 16).ok()
}

/// Inode and local address of an entry in this state; the heading and other states are none.
fn entry_in_state(line: &str, state: u8) -> Option<(u64, SocketAddr)> {
    if state_of(line)? != state {
        return None;
    }
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    Some((fields.get(9)?.parse().ok()?, parse_address(fields[1])?))
}

/// `0100007F:1F90`: the address is printed as 32-bit words in the byte order of the machine, the port is a plain
/// number.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = Vec::new();
    for word in address.as_bytes().chunks(8) {
        bytes.extend(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn own_listeners_are_found() {
        let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        let loopback6 = TcpListener::bind("[::1]:0").ok();
        let found = listening_addresses(&[std::process::id()]);
        assert!(found.contains(&loopback.local_addr().unwrap()));
        if let Some(listener) = loopback6 {
            assert!(found.contains(&listener.local_addr().unwrap()));
        }
        let address = loopback.local_addr().unwrap();
        assert!(is_shared(&address, &[]) && !is_shared(&address, &[std::process::id()]));
        assert!(owners(&address)[0].starts_with(&std::process::id().to_string()));
        let each = of_each(&[std::process::id(), u32::MAX]);
        assert!(each.len() == 1 && each[0].1.contains(&address), "{each:?}");
    }

    #[test]
    fn open_sockets_are_found_in_both_protocols_and_connected_ones_are_not() {
        let own = std::process::id();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(udp.local_addr().unwrap()).unwrap();
        let found = open_addresses(&[own]).unwrap();
        assert!(found.contains(&tcp.local_addr().unwrap()) && found.contains(&udp.local_addr().unwrap()), "{found:?}");
        assert!(!found.contains(&connected.local_addr().unwrap()), "{found:?}");
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert_eq!(open_addresses(&[ended.id()]).unwrap(), []);
        // The kernel's two ways to tell agree on what is ours.
        let inodes = socket_inodes(own);
        for (table, state) in OPEN {
            let file = table_of(own, table).unwrap_or_default();
            let read: HashMap<u64, SocketAddr> = file
                .lines()
                .filter_map(|line| entry_in_state(line, state))
                .filter(|(at, _)| inodes.contains(at))
                .collect();
            if let Ok(told) = socket_diag::sockets(table, state) {
                let told: HashMap<u64, SocketAddr> = told.into_iter().filter(|(at, _)| inodes.contains(at)).collect();
                assert_eq!(told, read, "{table}");
            }
        }
    }

    #[test]
    fn addresses_parse_and_match() {
        assert_eq!(parse_address("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(parse_address("00000000000000000000000001000000:01BB"), Some("[::1]:443".parse().unwrap()));
        assert_eq!(parse_address("0100007F"), None);
        assert!(is_loopback("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!is_loopback("::ffff:10.0.0.1".parse().unwrap()));
        assert!(serves(&"0.0.0.0:80".parse().unwrap(), &"127.0.0.1:80".parse().unwrap()));
        assert!(serves(&"[::ffff:127.0.0.1]:80".parse().unwrap(), &"127.0.0.1:80".parse().unwrap()));
        assert!(!serves(&"127.0.0.2:80".parse().unwrap(), &"127.0.0.1:80".parse().unwrap()));
    }
}
