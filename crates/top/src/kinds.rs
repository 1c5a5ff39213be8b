//! Kinds of handshakes that the servers have, counted from copies of their packets.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tlsdyno_base::units::{format_duration, format_of, format_percent, format_rate};
use tlsdyno_packets::{Capture, Captured, Counts, Settings};
use tlsdyno_tls::Group;

use crate::server::Server;

/// A group that a smaller part of the handshakes agreed on is not shown, percent.
const SHOWN_PERCENT: f64 = 1.0;

/// Captures the packets of all servers that are watched.
pub struct Kinds {
    capture: Option<Capture>,
    /// Reason why there is none.
    refusal: Option<String>,
    /// Where servers listen, in the order of the capture's counts.
    listeners: Vec<SocketAddr>,
    /// What was counted until when, the oldest first.
    taken: VecDeque<(Instant, Captured)>,
    /// Beginning of the oldest.
    since: Instant,
    window: Option<Duration>,
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
    #[serde(flatten)]
    counts: Counts,
}

impl Kinds {
    /// Captures nothing yet. `window`: what is older is forgotten.
    pub fn new(window: Option<Duration>) -> Kinds {
        let (listeners, taken, since) = (Vec::new(), VecDeque::new(), Instant::now());
        Kinds { capture: None, refusal: Some("it listens nowhere".to_owned()), listeners, taken, since, window }
    }

    /// Captures anew where servers listen elsewhere than before.
    pub fn follow(&mut self, servers: &[Server]) {
        let all: BTreeSet<SocketAddr> = servers.iter().flat_map(|server| &server.addresses).copied().collect();
        if self.listeners.iter().eq(&all) {
            return;
        }
        // What was counted so far is in the order of the listeners before.
        self.taken.clear();
        self.since = Instant::now();
        self.listeners = all.into_iter().collect();
        let opened = is_of_this_network(servers).and_then(|()| Capture::open(&self.listeners, Settings::default()));
        self.refusal = opened.as_ref().err().map(|error| format!("{error:#}"));
        self.capture = opened.ok();
    }

    /// Waits until then, and counts what passes meanwhile.
    ///
    /// # Errors
    /// The kernel gives no packets any more.
    pub fn wait(&mut self, until: Instant) -> Result<()> {
        match &mut self.capture {
            Some(capture) => capture.read(until),
            None => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                Ok(())
            }
        }
    }

    /// Keeps what was counted since the last call, and forgets what is too old.
    ///
    /// # Errors
    /// The kernel does not tell what it lost.
    pub fn take(&mut self) -> Result<()> {
        let Some(capture) = &mut self.capture else { return Ok(()) };
        self.taken.push_back((Instant::now(), capture.take()?));
        while let (Some((ended, _)), Some(window)) = (self.taken.front(), self.window)
            && ended.elapsed() > window
        {
            self.since = *ended;
            self.taken.pop_front();
        }
        Ok(())
    }

    /// What passed a server. `Err`: why nothing of it is seen.
    pub fn of(&self, server: &Server) -> Result<Passed, String> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let mut counts = Counts::default();
        let is_own = |(_, listener): &(usize, &SocketAddr)| server.addresses.contains(listener);
        let own: Vec<usize> = self.listeners.iter().enumerate().filter(is_own).map(|(at, _)| at).collect();
        for (_, captured) in &self.taken {
            own.iter().filter_map(|at| captured.listeners.get(*at)).for_each(|of| counts.add(of));
        }
        let until = self.taken.back().map_or(self.since, |(ended, _)| *ended);
        Ok(Passed {
            elapsed_ns: until.saturating_duration_since(self.since).as_nanos() as u64,
            one_client_in_count: self.taken.back().map_or(1, |(_, captured)| captured.one_client_in),
            dropped_packets: self.taken.iter().map(|(_, captured)| captured.dropped_packets).sum(),
            counts,
        })
    }
}

/// Fails where the packets of a server pass in another network namespace, as those of a container do.
fn is_of_this_network(servers: &[Server]) -> Result<()> {
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net"));
    let own = network("self").context("read which network namespace this is")?;
    for Server { name, root, .. } in servers {
        ensure!(
            network(&root.to_string()).is_ok_and(|of| of == own),
            "packets of {name} pass in another network namespace; run tlsdyno top there: nsenter --net --target {root}"
        );
    }
    Ok(())
}

impl Passed {
    /// How new connections went, what they agreed on, and what their clients waited, a line each.
    pub fn lines(&self) -> Vec<String> {
        let counts = &self.counts;
        let [complete, broken_off] = [counts.complete(), counts.broken_off()];
        let all = complete + broken_off;
        if all == 0 {
            return vec!["no handshake began and ended meanwhile".to_owned()];
        }
        let of = |count: u64, all: u64| format_percent(100.0 * count as f64 / all as f64);
        let per_s = all as f64 * f64::from(self.one_client_in_count) / (self.elapsed_ns as f64 / 1e9).max(1e-9);
        let kinds = &counts.connections;
        let mut lines = vec![format!(
            "{}, {}: full {} · resumed {} · broken off {}{}",
            format_of(all as f64, "handshake"),
            format_rate(per_s),
            of(kinds.full_handshakes, all),
            of(kinds.resumed_handshakes, all),
            of(broken_off, all),
            self.how_broken_off(all)
        )];
        lines.extend((complete > 0).then(|| self.agreed(complete)));
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
fn group(code: u16) -> String {
    let known = Group::ALL.iter().find(|group| group.code() == code);
    known.map_or_else(|| format!("group {code:#06x}"), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(counts: Counts) -> Passed {
        Passed { elapsed_ns: 2_000_000_000, one_client_in_count: 1, dropped_packets: 0, counts }
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
        counts.chosen_groups = [(0x11ec, 45), (0x0019, 45)].into();
        let lines = passed(counts).lines();
        let kinds = "100 handshakes, 50.0 /s: full 40.0 % · resumed 50.0 % · broken off 10.0 % (10.0 % refused by \
                     the client)";
        let agreed = "TLS 1.3 100.0 % · offered a session in vain 10.0 % · group 0x0019 50.0 % · X25519MLKEM768 50.0 %";
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
