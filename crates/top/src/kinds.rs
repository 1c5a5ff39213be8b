//! Kinds of handshakes that the servers have, counted from copies of their packets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use tlsdyno_base::foreign::quoted;
use tlsdyno_base::namespace::Namespace;
use tlsdyno_base::units::{format_duration, format_of, format_percent, format_rate};
use tlsdyno_packets::{Captured, Counts, Names, Settings, open_socket};
use tlsdyno_tls::Group;

use crate::reader::Reader;
use crate::server::Server;

/// A group that a smaller part of the handshakes agreed on is not shown, percent.
const SHOWN_PERCENT: f64 = 1.0;
/// Names of servers that are shown.
const NAMES_SHOWN: usize = 10;

/// Captures the packets of all servers that are watched.
pub struct Kinds {
    networks: Vec<Network>,
    pub window: Option<Duration>,
    pub settings: Settings,
    sums: Sums,
}

/// What was counted since the beginning.
#[derive(Default)]
struct Sums {
    /// By network namespace and listener.
    counts: BTreeMap<(PathBuf, SocketAddr), Counts>,
    dropped_packets: u64,
}

/// What passes in a network namespace.
struct Network {
    /// What the kernel calls it.
    name: PathBuf,
    /// Where servers listen in it, in the order of the capture's counts.
    listeners: Vec<SocketAddr>,
    one_client_in: u32,
    /// Who reads it. `Err`: why nobody does.
    reader: Result<Reader, String>,
    /// What was counted until when, the oldest first.
    taken: VecDeque<(Instant, Captured)>,
    /// Beginning of the oldest.
    since: Instant,
}

/// What passed a server.
#[derive(Debug, Serialize)]
pub struct Passed {
    /// Time in which it did.
    elapsed_ns: u64,
    /// Of so many clients one was followed: all counts are of those alone.
    one_client_in_count: u32,
    /// Packets of all servers for which there was no room, so that some handshakes are not counted, or unreadable.
    dropped_packets: u64,
    /// Names that hellos ask for, the most frequent first, if they are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<OfName>,
    #[serde(flatten)]
    pub counts: Counts,
}

/// How many hellos ask for a server.
#[derive(Debug, Serialize)]
struct OfName {
    /// Empty: they ask for none. `null`: all others.
    name: Option<String>,
    hellos: u64,
}

impl Kinds {
    /// Captures nothing yet. `window`: what is older is forgotten.
    pub fn new(window: Option<Duration>, settings: Settings) -> Kinds {
        Kinds { networks: Vec::new(), window, settings, sums: Sums::default() }
    }

    /// Captures anew where servers listen elsewhere than before, because what was counted there is in another order,
    /// where another part of the clients is to be followed, and where nobody reads.
    pub fn follow(&mut self, servers: &[Server]) {
        let mut wanted: BTreeMap<PathBuf, (u32, BTreeSet<SocketAddr>)> = BTreeMap::new();
        for server in servers.iter().filter(|server| !server.addresses.is_empty()) {
            let (pid, listeners) = wanted.entry(network_of(server.root)).or_default();
            *pid = server.root;
            listeners.extend(&server.addresses);
        }
        let mut before = std::mem::take(&mut self.networks);
        for (name, (pid, listeners)) in wanted {
            let is_same =
                |of: &mut Network| of.name == name && of.listeners.iter().eq(&listeners) && of.is_read(self.settings);
            let same = before.iter_mut().position(is_same);
            let network = match same {
                Some(at) => before.swap_remove(at),
                None => Network::open(name, pid, listeners.into_iter().collect(), self.settings),
            };
            self.networks.push(network);
        }
        // What the others saw since it was asked for.
        before.iter_mut().filter_map(|of| of.reader.as_mut().ok()).for_each(Reader::ask);
        for gone in &mut before {
            if let Ok(Ok(captured)) = gone.reader.as_mut().map(Reader::answer) {
                self.sums.add(&gone.name, &gone.listeners, &captured);
            }
        }
        let networks = &self.networks;
        self.sums
            .counts
            .retain(|(name, at), _| networks.iter().any(|of| of.name == *name && of.listeners.contains(at)));
    }

    /// What passed a server since it is watched; `None`: nothing of it is seen.
    pub fn since_begin(&self, server: &Server) -> Option<Counts> {
        let name = network_of(server.root);
        self.networks.iter().find(|network| network.name == name)?.reader.as_ref().ok()?;
        let mut counts = Counts::default();
        let all = server.addresses.iter().filter_map(|at| self.sums.counts.get(&(name.clone(), *at)));
        all.for_each(|of| counts.add(of));
        Some(counts)
    }

    /// Packets of all servers that found no room since the beginning.
    pub fn dropped_packets(&self) -> u64 {
        self.sums.dropped_packets
    }

    /// Keeps what was counted since the last call, and forgets what is too old.
    pub fn take(&mut self) {
        self.networks.iter_mut().filter_map(|of| of.reader.as_mut().ok()).for_each(Reader::ask);
        for Network { name, listeners, reader, taken, since, .. } in &mut self.networks {
            let Ok(reading) = reader else { continue };
            match reading.answer() {
                Ok(captured) => {
                    self.sums.add(name, listeners, &captured);
                    taken.push_back((Instant::now(), captured));
                }
                Err(error) => *reader = Err(format!("{error:#}")),
            }
            while let (Some((ended, _)), Some(window)) = (taken.front(), self.window)
                && ended.elapsed() > window
            {
                *since = *ended;
                taken.pop_front();
            }
        }
    }

    /// CPU time of the processes that read packets, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.networks.iter().filter_map(|network| network.reader.as_ref().ok()).map(Reader::cpu_ns).sum()
    }

    /// What passed a server. `Err`: why nothing of it is seen.
    pub fn of(&self, server: &Server) -> Result<Passed, String> {
        let name = network_of(server.root);
        let network = self.networks.iter().find(|network| network.name == name);
        let network = network.filter(|_| !server.addresses.is_empty());
        let Network { listeners, reader, taken, since, .. } = network.ok_or("it listens nowhere")?;
        reader.as_ref().map_err(String::clone)?;
        let mut counts = Counts::default();
        let is_own = |(_, listener): &(usize, &SocketAddr)| server.addresses.contains(listener);
        let own: Vec<usize> = listeners.iter().enumerate().filter(is_own).map(|(at, _)| at).collect();
        for (_, captured) in taken {
            own.iter().filter_map(|at| captured.listeners.get(*at)).for_each(|of| counts.add(of));
        }
        let names = std::mem::take(&mut counts.names);
        let until = taken.back().map_or(*since, |(ended, _)| *ended);
        Ok(Passed {
            elapsed_ns: until.saturating_duration_since(*since).as_nanos() as u64,
            one_client_in_count: taken.back().map_or(1, |(_, captured)| captured.one_client_in_count),
            dropped_packets: taken.iter().map(|(_, captured)| captured.dropped_packets).sum(),
            names: of_names(&names),
            counts,
        })
    }
}

impl Sums {
    fn add(&mut self, name: &Path, listeners: &[SocketAddr], captured: &Captured) {
        self.dropped_packets += captured.dropped_packets;
        for (at, counts) in listeners.iter().zip(&captured.listeners) {
            let sum = self.counts.entry((name.to_owned(), *at)).or_default();
            // Each client stands for so many.
            (0..captured.one_client_in_count).for_each(|_| sum.add(counts));
        }
    }
}

impl Network {
    /// `pid`: a process in it, which a container has of its own.
    fn open(name: PathBuf, pid: u32, listeners: Vec<SocketAddr>, settings: Settings) -> Network {
        let open = || open_socket(&listeners, settings);
        let opened = if name == network_of(std::process::id()) {
            open()
        } else {
            let there = Namespace::open(&namespace_of(pid)).and_then(|there| there.within(open));
            there.context("failed to enter its network namespace; run this as root").and_then(|opened| opened)
        };
        let reader = opened.and_then(|socket| Reader::start(socket, &listeners, settings));
        let reader = reader.map_err(|error| format!("{error:#}"));
        let one_client_in = settings.one_client_in_count;
        Network { name, listeners, one_client_in, reader, taken: VecDeque::new(), since: Instant::now() }
    }

    fn is_read(&mut self, settings: Settings) -> bool {
        self.one_client_in == settings.one_client_in_count && self.reader.as_mut().is_ok_and(Reader::is_there)
    }
}

fn of_names(names: &Names) -> Vec<OfName> {
    let each = names.most_frequent().into_iter().map(|(name, hellos)| (Some(name.to_owned()), hellos));
    let others = (names.other_hellos > 0).then_some((None, names.other_hellos));
    each.chain(others).map(|(name, hellos)| OfName { name, hellos }).collect()
}

fn namespace_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/ns/net"))
}

/// Name of the network namespace of a process; empty: it cannot be read.
fn network_of(pid: u32) -> PathBuf {
    fs::read_link(namespace_of(pid)).unwrap_or_default()
}

impl Passed {
    /// So many of what was counted, a second, of all clients.
    pub fn per_s(&self, count: u64) -> f64 {
        count as f64 * f64::from(self.one_client_in_count) / (self.elapsed_ns as f64 / 1e9).max(1e-9)
    }

    /// Complete handshakes and the time in which they were, nanoseconds, if all that passed were counted.
    pub fn complete_of_all(&self) -> Option<(u64, u64)> {
        (self.one_client_in_count == 1 && self.dropped_packets == 0).then(|| (self.counts.complete(), self.elapsed_ns))
    }

    /// How new connections went, what they agreed on, and what their clients waited, a line each.
    pub fn lines(&self) -> Vec<String> {
        let counts = &self.counts;
        let [complete, broken_off] = [counts.complete(), counts.broken_off()];
        let all = complete + broken_off;
        if all == 0 {
            return vec!["no handshake began and ended meanwhile".to_owned()];
        }
        let of = |count: u64, all: u64| format_percent(100.0 * count as f64 / all as f64);
        let kinds = &counts.connections;
        let mut lines = vec![format!(
            "{}, {}: full {} · resumed {} · broken off {}{}",
            format_of(all as f64, "handshake"),
            format_rate(self.per_s(all)),
            of(kinds.full_handshakes, all),
            of(kinds.resumed_handshakes, all),
            of(broken_off, all),
            self.how_broken_off(all)
        )];
        lines.extend((complete > 0).then(|| self.agreed(complete)));
        lines.extend((!self.names.is_empty()).then(|| self.asked_for()));
        let waited = counts.hello_to_answer();
        if !counts.hello_to_answer_ns.is_empty() {
            lines.push(format!(
                "hello to answer: {} p50, {} p99, {} at most",
                format_duration(waited.p50 as f64),
                format_duration(waited.p99 as f64),
                format_duration(waited.max as f64)
            ));
        }
        lines.extend(
            (self.one_client_in_count > 1).then(|| format!("of one client in {} alone", self.one_client_in_count)),
        );
        lines.extend((self.dropped_packets > 0).then(|| {
            let packets = format_of(self.dropped_packets as f64, "packet");
            format!("{packets} found no room: some handshakes are missing, or broken in these counts")
        }));
        lines
    }

    /// Connections that clients began to open in a second.
    pub fn connections_per_s(&self) -> f64 {
        self.per_s(self.counts.opened_connections)
    }

    /// Why handshakes were broken off, per cent of all.
    fn how_broken_off(&self, all: u64) -> String {
        let of = &self.counts.connections;
        let reasons = [
            (of.refused_by_clients, "refused by the client"),
            (of.left_by_clients, "left by the client"),
            (of.closed_by_servers, "closed by the server"),
            (of.without_answers, "no answer"),
            (of.unfinished_handshakes, "not finished in time"),
        ];
        let told = reasons.into_iter().filter(|(count, _)| *count > 0);
        let told = told.map(|(count, why)| format!("{} {why}", format_percent(100.0 * count as f64 / all as f64)));
        let told: Vec<String> = told.collect();
        if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
    }

    /// Which servers hellos ask for.
    fn asked_for(&self) -> String {
        let all = self.names.iter().map(|of| of.hellos).sum::<u64>() as f64;
        let shown = self.names.iter().take(NAMES_SHOWN).map(|of| {
            let name = of.name.as_deref().map_or("others".into(), quoted);
            let name = if name.is_empty() { "no name" } else { &name };
            format!("{name} {}", format_percent(100.0 * of.hellos as f64 / all))
        });
        format!("asked for: {}", shown.collect::<Vec<_>>().join(" · "))
    }

    /// What complete handshakes agreed on.
    fn agreed(&self, complete: u64) -> String {
        let agreed = &self.counts.agreed;
        let versions = [
            (agreed.tls13_handshakes, "TLS 1.3"),
            (agreed.tls12_handshakes, "TLS 1.2"),
            (agreed.older_handshakes, "older than TLS 1.2"),
            (agreed.retried_handshakes, "with a second hello"),
            (agreed.resumption_refused_count, "offered a session in vain"),
        ];
        let percent = |count: u64| 100.0 * count as f64 / complete as f64;
        let versions = versions.into_iter().filter(|(count, _)| *count > 0);
        let versions = versions.map(|(count, what)| format!("{what} {}", format_percent(percent(count))));
        let groups = self.counts.chosen_groups.iter().filter(|(_, count)| percent(**count) >= SHOWN_PERCENT);
        let groups = groups.map(|(code, count)| format!("{} {}", group(*code), format_percent(percent(*count))));
        versions.chain(groups).collect::<Vec<_>>().join(" · ")
    }
}

/// Name of a group by its code point in the IANA registry "TLS Supported Groups".
pub fn group(code: u16) -> String {
    let known = Group::ALL.iter().find(|group| group.code() == code);
    known.map_or_else(|| format!("group {code:#06x}"), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Passed {
        pub fn of_seconds(seconds: u64) -> Passed {
            let (elapsed_ns, counts) = (1_000_000_000 * seconds, Counts::default());
            Passed { elapsed_ns, one_client_in_count: 1, dropped_packets: 0, names: Vec::new(), counts }
        }
    }

    fn passed(counts: Counts) -> Passed {
        Passed { counts, ..Passed::of_seconds(2) }
    }

    #[test]
    fn kinds_are_told_of_all_handshakes_and_what_was_agreed_on_of_complete_ones() {
        let mut counts = Counts::default();
        assert_eq!(passed(counts.clone()).lines(), ["no handshake began and ended meanwhile"]);
        counts.connections.full_handshakes = 40;
        counts.connections.resumed_handshakes = 50;
        counts.connections.refused_by_clients = 10;
        counts.agreed.tls13_handshakes = 90;
        counts.agreed.resumption_refused_count = 9;
        counts.chosen_groups = [(0x11ec, 45), (0x0100, 45)].into();
        let lines = passed(counts).lines();
        let kinds = "100 handshakes, 50.0 /s: full 40.0 % · resumed 50.0 % · broken off 10.0 % (10.0 % refused by \
                     the client)";
        let agreed = "TLS 1.3 100.0 % · offered a session in vain 10.0 % · group 0x0100 50.0 % · X25519MLKEM768 50.0 %";
        assert_eq!(lines, [kinds, agreed]);
    }

    #[test]
    fn a_part_of_the_clients_is_scaled_and_losses_are_told() {
        let mut counts = Counts::default();
        counts.connections.without_answers = 10;
        let lines = Passed { one_client_in_count: 8, dropped_packets: 1, ..passed(counts) }.lines();
        assert!(lines[0].starts_with("10 handshakes, 40.0 /s") && lines[0].contains("100.0 % no answer"), "{lines:?}");
        assert!(lines[1].contains("one client in 8") && lines[2].contains("1 packet found no room"), "{lines:?}");
    }
}
