//! `bench-dispatch`: what the dispatcher costs for each connection and each MiB, beside HAProxy in TCP mode in the same
//! run.
//!
//! One thread of each on CPU 0; built-in servers, two of each kind, and the load on CPU 1. A connection is connecting,
//! a hello of which four in five offer a session, a handshake, a request, 7 KB and the close. With TLS 1.2 and session
//! IDs HAProxy's stick table does what the dispatcher does; with tickets of TLS 1.3 it does the same work in vain, for
//! the load sends no session ID beside them. The MiB are those of 64 MiB bodies. Rounds interleave the subjects, each
//! beginning with another one; the median of the ratios within rounds counts, with its distribution-free interval.

mod programs;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::value_parser;

use crate::process::Ending;
use crate::progress::tell;
use crate::statistics::{interval_of_median, median, ratios};
use crate::tlsdyno;
use programs::{Dispatcher, haproxy, own, serve};

/// How much is measured.
#[derive(clap::Args)]
pub struct Effort {
    /// Rounds, in each of which every dispatcher works; at least six
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Connections through each dispatcher in each round
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = value_parser!(u64).range(1..))]
    connections: u64,
    /// Bodies of 64 MiB, likewise
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u64).range(1..))]
    bodies: u64,
}

const BODY_MIB: u64 = 64;
/// Minimum number of rounds for a 95 % interval.
const ROUNDS_MIN: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Connections; their sessions are TLS 1.3 tickets.
    Tickets,
    /// Connections; their sessions are TLS 1.2 IDs.
    Ids,
    /// MiB of bodies, in connections of TLS 1.3.
    Bodies,
}

const WORKS: [Work; 3] = [Work::Ids, Work::Tickets, Work::Bodies];

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Tickets => "connection, TLS 1.3 tickets",
            Work::Ids => "connection, TLS 1.2 session IDs",
            Work::Bodies => "MiB",
        }
    }
}

struct Subject {
    name: &'static str,
    /// Sessions pass that its table can learn.
    sticks: bool,
    dispatcher: Dispatcher,
    rows: Vec<Row>,
}

/// One row of the table: microseconds of CPU time for each connection or MiB, one for each round.
struct Row {
    work: Work,
    cpu_us: Vec<f64>,
    offered: u64,
    accepted: u64,
}

const OURS: &str = "tlsdyno session";
const THEIRS: &str = "haproxy stick table";

/// Runs all rounds and prints a Markdown table.
///
/// # Errors
/// A program is missing or fails, HAProxy did not do what it is compared for, or the dispatcher costs more.
pub fn run(effort: &Effort) -> Result<()> {
    ensure!(effort.rounds >= ROUNDS_MIN, "--rounds must be at least {ROUNDS_MIN}: fewer have no 95 % interval");
    let tlsdyno = tlsdyno::built()?;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("7k.bin"), vec![b'x'; 7 * 1024])?;
    fs::write(directory.path().join("big.bin"), vec![b'x'; (BODY_MIB << 20) as usize])?;
    let (mut subjects, _servers) = subjects(&tlsdyno, directory.path())?;
    for round in 0..effort.rounds {
        subjects.rotate_left(1);
        for subject in &mut subjects {
            tell(&format!("round {} of {}: {}", round + 1, effort.rounds, subject.name));
            subject.measure(&tlsdyno, effort)?;
        }
    }
    tell("");
    subjects.iter().try_for_each(|subject| subject.dispatcher.check_work(subject.sticks))?;
    print_table(&subjects);
    let missed = verdicts(&subjects)?;
    ensure!(missed.is_empty(), "the dispatcher costs more than HAProxy per {}", missed.join(" and per "));
    Ok(())
}

fn subjects(tlsdyno: &Path, directory: &Path) -> Result<(Vec<Subject>, Vec<Ending>)> {
    let (mut subjects, mut servers) = (Vec::new(), Vec::new());
    for ids in [false, true] {
        let (one, two) = (serve(tlsdyno, directory, ids)?, serve(tlsdyno, directory, ids)?);
        let backends = [one.1.as_str(), two.1.as_str()];
        let works: &[Work] = if ids { &[Work::Ids] } else { &[Work::Tickets, Work::Bodies] };
        let mut add = |name, sticks, dispatcher| {
            let row = |&work: &Work| Row { work, cpu_us: Vec::new(), offered: 0, accepted: 0 };
            subjects.push(Subject { name, sticks, dispatcher, rows: works.iter().map(row).collect() });
        };
        let stick = format!("stick-{ids}");
        add(OURS, false, own(tlsdyno, "session", &backends)?);
        add(THEIRS, ids, haproxy(&stick, true, &backends, directory)?);
        if !ids {
            add("tlsdyno round-robin", false, own(tlsdyno, "round-robin", &backends)?);
            add("haproxy plain", false, haproxy("plain", false, &backends, directory)?);
        }
        servers.extend([one.0, two.0]);
    }
    Ok((subjects, servers))
}

impl Subject {
    fn measure(&mut self, tlsdyno: &Path, effort: &Effort) -> Result<()> {
        for row in &mut self.rows {
            let (object, count, connections, reuse, units) = match row.work {
                Work::Ids | Work::Tickets => ("7k.bin", effort.connections, "16", "80%", effort.connections),
                Work::Bodies => ("big.bin", effort.bodies, "2", "0%", effort.bodies * BODY_MIB),
            };
            let count = count.to_string();
            let arguments = ["--total-connections", &count, "--connections", connections, "--reuse", reuse];
            let answered = self.dispatcher.load(tlsdyno, object, &arguments);
            let answered = answered.with_context(|| format!("{} failed", self.name))?;
            row.cpu_us.push(answered.cpu_us / units as f64);
            row.offered += answered.offered;
            row.accepted += answered.accepted;
        }
        Ok(())
    }
}

fn print_table(subjects: &[Subject]) {
    println!("| per | dispatcher | CPU us | sessions taken of offered |\n|---|---|---:|---:|");
    for work in WORKS {
        let mut rows: Vec<_> = subjects
            .iter()
            .flat_map(|subject| subject.rows.iter().map(|row| (subject.name, row)))
            .filter(|(_, row)| row.work == work)
            .collect();
        rows.sort_by_key(|(name, _)| *name);
        for (name, row) in rows {
            let taken = match row.offered {
                0 => String::new(),
                offered => format!("{:.0} %", row.accepted as f64 / offered as f64 * 100.0),
            };
            println!("| {} | {name} | {:.1} | {taken} |", work.name(), median(&row.cpu_us));
        }
    }
    println!();
}

/// Prints a line for each kind of work; answers in which the dispatcher costs more.
fn verdicts(subjects: &[Subject]) -> Result<Vec<&'static str>> {
    let mut missed = Vec::new();
    for work in WORKS {
        let of = |name: &str| {
            let rows = subjects.iter().filter(|subject| subject.name == name).flat_map(|subject| &subject.rows);
            rows.into_iter().find(|row| row.work == work).context("both do all the work")
        };
        let (ours, theirs) = (of(OURS)?, of(THEIRS)?);
        let ratios = ratios(&ours.cpu_us, &theirs.cpu_us);
        let (ratio, [low, high]) = (median(&ratios), interval_of_median(&ratios));
        let verdict = if ratio <= 1.0 { "met" } else { "MISSED" };
        println!("{verdict}: per {}, {ratio:.2} [{low:.2}, {high:.2}] of {THEIRS}", work.name());
        if ratio > 1.0 {
            missed.push(work.name());
        }
    }
    Ok(missed)
}
