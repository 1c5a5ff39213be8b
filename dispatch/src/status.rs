//! What a running dispatcher says about itself: as a structure, as text for people, and as Prometheus reads it.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};
use tlsdyno_engine::dispatch::counters::{BackendCounts, LoopCounts};
use tlsdyno_engine::dispatch::table::Table;
use tlsdyno_engine::dispatch::{Phase, Policy, Shared};

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// It is taken for up.
    pub up: bool,
    /// Connections open now.
    pub open: u32,
    /// Connections made so far.
    pub connections: u64,
    /// Failed attempts to connect so far.
    pub connect_failures: u64,
    /// Connections that it reset so far.
    pub resets: u64,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// What is in it.
    pub name: String,
    /// Entries that have not expired.
    pub entries: usize,
    /// Most entries.
    pub capacity: usize,
    /// Entries given up for others before their time, so far.
    pub evicted: u64,
    /// New entries that found no place, so far.
    pub refused: u64,
}

/// The whole status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `running` or `draining`.
    pub phase: String,
    /// The policy.
    pub policy: Policy,
    /// Connections open now.
    pub open: u64,
    /// Kinds of tickets, by length, that seem to begin with no key name.
    pub unlearnable_kinds: usize,
    /// What to do about it, if anything.
    pub advice: Option<String>,
    /// The backends.
    pub backends: Vec<BackendStatus>,
    /// The tables.
    pub tables: Vec<TableStatus>,
    /// Counts since the start, summed over the loops, by name.
    pub counts: Vec<(String, u64)>,
}

impl Status {
    /// Looks at everything.
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

    /// As people read it.
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

/// What can be done where sessions get lost.
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

/// The text format of Prometheus.
pub fn prometheus(shared: &Shared, status: &Status) -> String {
    let mut out = String::new();
    let head = |out: &mut String, name: &str, help: &str, kind: &str| {
        let _ = writeln!(out, "# HELP tlsdyno_dispatch_{name} {}\n# TYPE tlsdyno_dispatch_{name} {kind}", help.trim());
    };
    for (name, help, count) in totals(shared) {
        head(&mut out, &format!("{name}_total"), help, "counter");
        let _ = writeln!(out, "tlsdyno_dispatch_{name}_total {count}");
    }
    head(&mut out, "open_connections", "Connections open now.", "gauge");
    let _ = writeln!(out, "tlsdyno_dispatch_open_connections {}", status.open);
    head(&mut out, "unlearnable_ticket_kinds", "Kinds of tickets that seem to begin with no key name.", "gauge");
    let _ = writeln!(out, "tlsdyno_dispatch_unlearnable_ticket_kinds {}", status.unlearnable_kinds);
    type OfBackend = fn(&BackendStatus) -> u64;
    let per_backend: [(&str, &str, &str, OfBackend); 5] = [
        ("backend_up", "Whether the backend is taken for up.", "gauge", |backend| backend.up.into()),
        ("backend_open_connections", "Connections open now.", "gauge", |backend| backend.open.into()),
        ("backend_connections_total", "Connections made.", "counter", |backend| backend.connections),
        ("backend_connect_failures_total", "Failed attempts to connect.", "counter", |backend| {
            backend.connect_failures
        }),
        ("backend_resets_total", "Connections that the backend reset.", "counter", |backend| backend.resets),
    ];
    for (name, help, kind, value) in per_backend {
        head(&mut out, name, help, kind);
        for backend in &status.backends {
            let label = backend.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = writeln!(out, "tlsdyno_dispatch_{name}{{backend=\"{label}\"}} {}", value(backend));
        }
    }
    type OfTable = fn(&TableStatus) -> u64;
    let per_table: [(&str, &str, &str, OfTable); 4] = [
        ("table_entries", "Entries that have not expired.", "gauge", |table| table.entries as u64),
        ("table_capacity", "Most entries.", "gauge", |table| table.capacity as u64),
        ("table_evicted_total", "Entries given up for others before their time.", "counter", |table| table.evicted),
        ("table_refused_total", "New entries that found no place.", "counter", |table| table.refused),
    ];
    for (name, help, kind, value) in per_table {
        head(&mut out, name, help, kind);
        for table in &status.tables {
            let _ = writeln!(out, "tlsdyno_dispatch_{name}{{table=\"{}\"}} {}", table.name, value(table));
        }
    }
    out
}
