//! What a running dispatcher says about itself: as a structure, as text for people, and as Prometheus reads it.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};
use tlsdyno_base::metrics::Metrics;
use tlsdyno_engine::dispatch::counters::{BackendCounts, LoopCounts};
use tlsdyno_engine::dispatch::table::Table;
use tlsdyno_engine::dispatch::{Phase, Policy, Shared};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendStatus {
    pub name: String,
    pub address: String,
    /// It is taken for up.
    pub up: bool,
    /// Connections open now.
    pub open: u32,
    pub connections: u64,
    pub connect_failures: u64,
    pub resets: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    pub name: String,
    /// Entries that have not expired.
    pub entries: usize,
    pub capacity: usize,
    /// Entries given up for others before their time, so far.
    pub evicted: u64,
    /// New entries that found no place, so far.
    pub refused: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `running` or `draining`.
    pub phase: String,
    pub policy: Policy,
    /// Connections open now.
    pub open: u64,
    /// Kinds of tickets, by length, that seem to begin with no key name.
    pub unlearnable_kinds: usize,
    /// What can be done where sessions get lost, if anything.
    pub advice: Option<String>,
    pub backends: Vec<BackendStatus>,
    pub tables: Vec<TableStatus>,
    /// Counts since the start, summed over the loops, by name.
    pub counts: Vec<(String, u64)>,
}

impl Status {
    pub fn of(shared: &Shared, now_s: u32) -> Status {
        let (snapshot, _) = shared.snapshot();
        let backends = snapshot.targets.iter().map(|target| {
            let slot = usize::from(target.slot);
            let sum = |count: fn(&BackendCounts) -> u64| {
                shared.counts.iter().map(|counts| count(&counts.backends[slot])).sum()
            };
            BackendStatus {
                name: target.backend.name.clone(),
                address: target.backend.address.to_string(),
                up: !shared.slots[slot].down.load(Relaxed),
                open: shared.slots[slot].active.load(Relaxed),
                connections: sum(|counts| counts.connections.get()),
                connect_failures: sum(|counts| counts.connect_failures.get()),
                resets: sum(|counts| counts.resets.get()),
            }
        });
        let table = |name: &str, table: &Table| TableStatus {
            name: name.to_owned(),
            entries: table.live(now_s),
            capacity: table.capacity(),
            evicted: table.evicted.load(Relaxed),
            refused: table.refused.load(Relaxed),
        };
        let memory = &shared.memory;
        // No policy has needed that table so far.
        let no_objects = || TableStatus { name: "objects".to_owned(), ..TableStatus::default() };
        let counts = totals(shared);
        let unlearnable_kinds = memory.unlearnable_kinds();
        Status {
            phase: if shared.phase() == Phase::Run { "running" } else { "draining" }.to_owned(),
            policy: snapshot.settings.policy,
            open: shared.open_connections(),
            unlearnable_kinds,
            advice: advice(snapshot.settings.policy, unlearnable_kinds, &counts),
            backends: backends.collect(),
            tables: vec![
                table("ticket_keys", &memory.names),
                table("session_ids", &memory.ids),
                table("addresses", &memory.addresses),
                memory.objects().map_or_else(no_objects, |objects| table("objects", objects)),
            ],
            counts: counts.into_iter().map(|(name, _, count)| (name.to_owned(), count)).collect(),
        }
    }

    /// One of the counts; 0 if there is none of this name.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(found, _)| found == name).map_or(0, |(_, count)| *count)
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        let (offered, accepted) = (self.count("sessions_offered"), self.count("sessions_accepted"));
        let share =
            if offered == 0 { String::new() } else { format!(" ({:.1} %)", 100.0 * accepted as f64 / offered as f64) };
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{}, policy {}, {} connections open", self.phase, self.policy, self.open);
        let _ = writeln!(out, "sessions: {accepted} of {offered} offered were accepted{share}");
        if let Some(advice) = &self.advice {
            let _ = writeln!(out, "{advice}");
        }
        let _ = writeln!(
            out,
            "\n{:<24} {:>5} {:>8} {:>12} {:>9} {:>8}",
            "backend", "", "open", "connections", "failures", "resets"
        );
        for backend in &self.backends {
            let state = if backend.up { "up" } else { "DOWN" };
            let BackendStatus { name, open, connections, connect_failures, resets, .. } = backend;
            let _ =
                writeln!(out, "{name:<24} {state:>5} {open:>8} {connections:>12} {connect_failures:>9} {resets:>8}");
        }
        let _ =
            writeln!(out, "\n{:<24} {:>8} {:>12} {:>9} {:>8}", "table", "entries", "capacity", "evicted", "refused");
        for TableStatus { name, entries, capacity, evicted, refused } in &self.tables {
            let _ = writeln!(out, "{name:<24} {entries:>8} {capacity:>12} {evicted:>9} {refused:>8}");
        }
        out.push('\n');
        for (name, count) in self.counts.iter().filter(|(_, count)| *count > 0) {
            let _ = writeln!(out, "{name:<24} {count:>8}");
        }
        out
    }
}

fn advice(policy: Policy, unlearnable_kinds: usize, counts: &[(&str, &str, u64)]) -> Option<String> {
    let count = |name: &str| counts.iter().find(|(found, ..)| *found == name).map_or(0, |(.., count)| *count);
    let (unkeyed, accepted) = (count("routed_unkeyed"), count("accepted"));
    if policy == Policy::Lard && unkeyed >= 100 && unkeyed * 2 > accepted {
        return Some(format!(
            "{unkeyed} of {accepted} connections did not begin with an HTTP/1 request that names a path; they went by \
             least connections. If they are TLS, `--policy session` routes them by their sessions"
        ));
    }
    let (unknown, offered) = (count("routed_unknown"), count("sessions_offered"));
    if policy != Policy::Session || unknown * 20 < offered || unknown < 100 {
        return None;
    }
    let why = if unlearnable_kinds > 0 {
        "tickets without a key name, as Go's"
    } else {
        "stateful TLS 1.3 tickets, or IDs nobody gave out"
    };
    Some(format!(
        "{unknown} connections offered a session whose holder cannot be learned ({why}); they went by load. `--policy \
         session+address` sends them to the backend that their address used last"
    ))
}

/// Names, explanations and values, summed over the loops.
fn totals(shared: &Shared) -> Vec<(&'static str, &'static str, u64)> {
    let mut totals: Vec<_> = LoopCounts::default().each().collect();
    for counts in &shared.counts {
        totals.iter_mut().zip(counts.all.each()).for_each(|(total, (.., count))| total.2 += count);
    }
    totals
}

pub fn prometheus(shared: &Shared, status: &Status) -> String {
    let mut metrics = Metrics::default();
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(Option<(&str, &str)>, u64)]| {
        let name = format!("tlsdyno_dispatch_{name}");
        metrics.head(&name, kind, help.trim());
        values.iter().for_each(|(label, value)| metrics.sample(&name, label.as_slice(), value));
    };
    for (name, help, count) in totals(shared) {
        metric(&format!("{name}_total"), "counter", help, &[(None, count)]);
    }
    metric("open_connections", "gauge", "Connections open now.", &[(None, status.open)]);
    let kinds = status.unlearnable_kinds as u64;
    let help = "Kinds of tickets that seem to begin with no key name.";
    metric("unlearnable_ticket_kinds", "gauge", help, &[(None, kinds)]);
    let mut of_backends = |name: &str, kind: &str, help: &str, value: fn(&BackendStatus) -> u64| {
        let values = status.backends.iter().map(|of| (Some(("backend", of.name.as_str())), value(of)));
        metric(&format!("backend_{name}"), kind, help, &values.collect::<Vec<_>>());
    };
    of_backends("up", "gauge", "Whether the backend is taken for up.", |of| of.up.into());
    of_backends("open_connections", "gauge", "Connections open now.", |of| of.open.into());
    of_backends("connections_total", "counter", "Connections made.", |of| of.connections);
    of_backends("connect_failures_total", "counter", "Failed attempts to connect.", |of| of.connect_failures);
    of_backends("resets_total", "counter", "Connections that the backend reset.", |of| of.resets);
    let mut of_tables = |name: &str, kind: &str, help: &str, value: fn(&TableStatus) -> u64| {
        let values = status.tables.iter().map(|of| (Some(("table", of.name.as_ref())), value(of)));
        metric(&format!("table_{name}"), kind, help, &values.collect::<Vec<_>>());
    };
    of_tables("entries", "gauge", "Entries that have not expired.", |of| of.entries as u64);
    of_tables("capacity", "gauge", "Most entries.", |of| of.capacity as u64);
    of_tables("evicted_total", "counter", "Entries given up for others before their time.", |of| of.evicted);
    of_tables("refused_total", "counter", "New entries that found no place.", |of| of.refused);
    metrics.text()
}
