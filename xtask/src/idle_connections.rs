//! `idle-connections`: what an open TLS connection without traffic costs the load process in memory of its own, and
//! that one process on one core holds 19,000 of them.
//!
//! An open loop asks each of as many users as there are connections once in a while; a user keeps its connection. The
//! memory of the process is read when the first tenth is open and when all are: what is there but once (buffers,
//! histograms) drops out of the difference.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::value_parser;

use crate::nginx::Nginx;
use crate::process::{OWN_MEMORY, memory_bytes, sockets};
use crate::tlsdyno::{self, Load};

/// Own memory for each idle connection, at most, in bytes.
const BYTES_MAX: f64 = 4096.0;

/// Workers of nginx: each may have 20,000 descriptors, and none shares its connections evenly.
const WORKERS: u32 = 4;

/// Handshakes under way when the memory is read, at most.
const IN_FLIGHT_MAX: u64 = 100;

/// How long connections may take to open.
const PATIENCE: Duration = Duration::from_secs(180);

/// How many connections are opened how fast.
#[derive(clap::Args)]
pub struct Arguments {
    /// Connections; at least 100
    #[arg(long, value_name = "N", default_value_t = 19_000, value_parser = value_parser!(u64).range(100..))]
    connections: u64,
    /// How many open in a second
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = value_parser!(u64).range(1..))]
    per_second: u64,
}

/// Opens them and prints what one costs.
///
/// # Errors
/// nginx or the load does not start; connections fail or take too long to open; one takes more than the bar.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { connections, per_second } = *arguments;
    let program = tlsdyno::build()?;
    let nginx = Nginx::over_tls(WORKERS, 20_000 - 100, "access_log off;")?;
    let (count, rate) = (connections.to_string(), format!("{per_second}/s"));
    let arguments = ["--connections", &count, "--rate", &rate, "--duration", "1h", "--timeout", "60s", "--cpu", "0"];
    let mut load = Load::start(&program, nginx.port, &arguments)?;
    let measured = measure(&mut load, connections)?;
    load.interrupt()?;
    let result = load.result()?;
    println!("{} connections open at once in one process on CPU 0, each with a TLS session of its own", measured.open);
    println!("negotiated {}   errors {}", result["negotiated"], result["errors"]);
    println!(
        "own memory: {} bytes at {} connections, {} bytes at {}",
        measured.bytes_few, measured.few, measured.bytes, measured.open
    );
    println!("{:.0} bytes for each idle connection (bar: {BYTES_MAX})", measured.bytes_each());
    ensure!(result["errors"] == serde_json::json!({}), "connections failed");
    let count = |kind: &str| result["handshakes"][kind].as_u64().unwrap_or(0);
    let handshakes = count("full") + count("resumed_accepted");
    // A socket is open before its handshake is done: behind a stalled server all would be.
    ensure!(
        handshakes + IN_FLIGHT_MAX >= measured.open,
        "only {handshakes} of {} had finished their handshake: the machine is too busy; use a lower --per-second",
        measured.open
    );
    ensure!(measured.bytes_each() <= BYTES_MAX, "an idle connection takes too much memory");
    Ok(())
}

struct Measured {
    few: u64,
    bytes_few: u64,
    open: u64,
    bytes: u64,
}

impl Measured {
    fn bytes_each(&self) -> f64 {
        (self.bytes as f64 - self.bytes_few as f64) / (self.open - self.few) as f64
    }
}

fn measure(load: &mut Load, connections: u64) -> Result<Measured> {
    let (few, bytes_few) = when_open(load, connections / 10)?;
    let (open, bytes) = when_open(load, connections)?;
    ensure!(open > few, "all connections opened at once: nothing to compare with; use a lower --per-second");
    Ok(Measured { few, bytes_few, open, bytes })
}

/// Waits until so many connections are open; answers how many are, and the process's memory.
fn when_open(load: &mut Load, connections: u64) -> Result<(u64, u64)> {
    let began = Instant::now();
    loop {
        let before = sockets(load.process())?;
        let bytes = memory_bytes(load.process(), OWN_MEMORY)?;
        if before >= connections {
            return Ok((before, bytes));
        }
        if let Some(status) = load.ended()? {
            bail!("the load ended by itself: {status}");
        }
        ensure!(began.elapsed() < PATIENCE, "only {before} of {connections} connections opened in time");
        std::thread::sleep(Duration::from_millis(200));
    }
}
