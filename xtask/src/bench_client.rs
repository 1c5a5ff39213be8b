//! `bench-client`: what one operation costs the load client, beside other clients in the same run.
//!
//! One nginx worker on CPU 0, the client on CPU 1. Client CPU is user and system time of the whole process, start-up
//! included; operations are counted by the server, and so is how many of them resumed: some clients resume without
//! being asked, others never do. The suite is pinned at the server, so that everybody gets the same; the ports for full
//! handshakes keep no sessions. Ours is kept saturated by a pause before each wait for events; how busy each client was
//! is in the table. Rounds interleave the clients, each in the opposite order of the one before; medians count, and for
//! a bar the median of the ratios within rounds.

mod bars;
mod client;
mod operation;
mod server;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::value_parser;

use crate::process::cpu_seconds;
use crate::progress::tell;
use crate::tlsdyno;
use client::Client;
use operation::{OPERATIONS, Operation};
use server::{Logged, Server};

/// How long and how often each client runs, and what is measured.
#[derive(clap::Args)]
pub struct Effort {
    /// Rounds, in each of which every client runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each client runs in a round
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    seconds: u32,
    /// What is measured; may be repeated. `hybrid` wants nginx, wrk and h2load on OpenSSL 3.5:
    /// `LD_LIBRARY_PATH=PREFIX/lib`
    #[arg(long = "operation", value_name = "NAME", default_values = Operation::usual())]
    #[arg(value_parser = OPERATIONS.map(|operation| operation.name))]
    operations: Vec<String>,
}

/// One row of the table; no figures where the client is missing.
pub struct Row {
    client: Client,
    operation: &'static Operation,
    /// Client CPU per operation in microseconds, one for each round.
    client_us: Vec<f64>,
    /// Share of the time that the client was on its CPU, one for each round.
    client_busy: Vec<f64>,
    /// Server CPU per operation in microseconds, one for each round.
    server_us: Vec<f64>,
    operations: u64,
    logged: Logged,
    /// What ended its rounds early.
    failure: Option<String>,
}

/// Runs all rounds and prints a Markdown table.
///
/// # Errors
/// tlsdyno or nginx is missing, or a bar is missed or cannot be judged because ours failed. Another client that is
/// missing or fails is said.
pub fn run(effort: &Effort) -> Result<()> {
    tlsdyno::built()?;
    let is_asked = |operation: &&Operation| effort.operations.iter().any(|name| name == operation.name);
    let operations: Vec<&'static Operation> = OPERATIONS.iter().filter(is_asked).collect();
    let server = Server::start(&operations)?;
    let mut rows = Vec::new();
    for operation in operations {
        rows.extend(measure_operation(operation, &server, effort)?);
    }
    tell("");
    print!("{}", bars::table(&rows));
    let (missed, all) = bars::verdicts(&rows);
    for row in &rows {
        if let Some(failure) = &row.failure {
            println!("failed: {}: {failure}", row.operation.title);
        }
    }
    ensure!(missed == 0, "{missed} of {all} bars missed");
    Ok(())
}

fn measure_operation(operation: &'static Operation, server: &Server, effort: &Effort) -> Result<Vec<Row>> {
    let empty = |client| Row {
        client,
        operation,
        client_us: Vec::new(),
        client_busy: Vec::new(),
        server_us: Vec::new(),
        operations: 0,
        logged: Logged::default(),
        failure: None,
    };
    let mut rows: Vec<Row> = Client::of(operation).into_iter().map(empty).collect();
    for round in 0..effort.rounds {
        // What a client leaves behind for its successor, as sockets in TIME_WAIT, is not always for the same one.
        rows.reverse();
        for row in &mut rows {
            let Some(program) = row.client.program().filter(|_| row.failure.is_none()) else {
                continue;
            };
            tell(&format!("{}: round {} of {}: {}", operation.name, round + 1, effort.rounds, row.client.name()));
            // A client that fails leaves the others their rounds, which may have taken many minutes already.
            row.failure = measure(row, &program, server, effort.seconds).err().map(|error| format!("{error:#}"));
        }
    }
    if effort.rounds % 2 == 1 {
        rows.reverse();
    }
    Ok(rows)
}

fn measure(row: &mut Row, program: &Path, server: &Server, seconds: u32) -> Result<()> {
    let arguments = row.client.arguments(row.operation, server, seconds);
    let (before, cpu_before_ns) = (server.counters()?, server.cpu_ns()?);
    let began = Instant::now();
    let client_s = cpu_seconds(program, &arguments).with_context(|| format!("{} failed", row.client.name()))?;
    let elapsed_s = began.elapsed().as_secs_f64();
    let (after, cpu_after_ns) = (server.counters()?, server.cpu_ns()?);
    // Reading the counters is itself one connection and one request.
    let (connections, requests) = (after.accepts - before.accepts - 1, after.requests - before.requests - 1);
    let operations = if row.operation.keeps { requests } else { connections };
    ensure!(operations > 100, "{} did only {operations} operations", row.client.name());
    if row.operation.shakes_hands() && row.client.makes_requests() && row.client != Client::OwnBareTcp {
        let logged = server.logged(before, requests)?;
        row.logged.requests += logged.requests;
        row.logged.resumed += logged.resumed;
    }
    row.operations += operations;
    row.client_us.push(client_s * 1e6 / operations as f64);
    row.client_busy.push(client_s / elapsed_s);
    row.server_us.push((cpu_after_ns - cpu_before_ns) as f64 / 1e3 / operations as f64);
    Ok(())
}
