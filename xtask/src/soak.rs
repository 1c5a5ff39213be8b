//! `soak`: the load process at saturation for minutes, while nginx is reloaded every so often. Its memory must stay as
//! it was after warming up, and its count of answers must be the number of lines in the server's access log.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::value_parser;

use crate::nginx::Nginx;
use crate::process::{OWN_MEMORY, memory_bytes};
use crate::tlsdyno::{self, Load};

/// Growth of memory after warming up that is no leak, in percent.
const GROWTH_PERCENT_MAX: f64 = 1.0;

/// How often memory is read.
const SAMPLE: Duration = Duration::from_millis(500);

/// How long it is loaded.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    minutes: u64,
    /// Instead of minutes; at least 5
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = value_parser!(u64).range(5..))]
    seconds: Option<u64>,
    /// Time between reloads of the server
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u64).range(1..))]
    reload_seconds: u64,
}

/// Runs and prints it.
///
/// # Errors
/// nginx or the load does not start; the counts differ; the memory is not flat.
pub fn run(arguments: &Arguments) -> Result<()> {
    let seconds = arguments.seconds.unwrap_or(arguments.minutes * 60);
    let program = tlsdyno::build()?;
    let nginx = Nginx::over_tls(1, 10_000, "log_format short '$status'; access_log log short;")?;
    let shape = ["--reuse", "50%", "--requests-per-connection", "10", "--connections", "64"];
    let load = Load::start(&program, nginx.port, &[&shape[..], &["--duration", &format!("{seconds}s")]].concat())?;
    let (samples, reloads) = watch(&nginx, load.process(), seconds, arguments.reload_seconds)?;
    let measured = load.result()?;
    nginx.signal("reopen")?;
    let warm = samples.len() / 5;
    let warmed_up = samples.get(warm..).unwrap_or_default();
    let (least, most) = warmed_up.iter().min().zip(warmed_up.iter().max()).context("the load ended too early")?;
    let growth = 100.0 * (most - least) as f64 / *least as f64;
    let answers: u64 =
        measured["statuses"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    let logged = logged(&nginx, answers)?;
    println!("{seconds} s, {reloads} reloads, 64 connections of 10 requests each, half of them resumed");
    println!("hits {}   {} /s", measured["hits"], measured["hits_per_second"].as_f64().unwrap_or(0.0).round());
    println!("client busy {:.0} %", 100.0 * measured["client_busy_fraction"].as_f64().unwrap_or(0.0));
    println!("errors {}", measured["errors"]);
    println!("handshakes {}", measured["handshakes"]);
    println!("answers counted {answers}, lines in nginx's access log {logged}");
    println!(
        "own memory after warming up (the first fifth): {least} to {most} bytes, {growth:.2} % apart (bar: \
         {GROWTH_PERCENT_MAX} %)"
    );
    ensure!(answers == logged, "the counts differ");
    ensure!(answers > 0 && reloads > 0, "nothing was loaded, or nothing reloaded");
    ensure!(growth <= GROWTH_PERCENT_MAX, "the memory is not flat");
    Ok(())
}

/// Reloads nginx and reads the load's memory until it ends.
fn watch(nginx: &Nginx, load: u32, seconds: u64, every: u64) -> Result<(Vec<u64>, u64)> {
    let began = Instant::now();
    let (mut samples, mut reloads) = (Vec::new(), 0);
    // The last samples are left to the load: it frees what it had when it sums up.
    while began.elapsed() + 2 * SAMPLE < Duration::from_secs(seconds) {
        std::thread::sleep(SAMPLE);
        samples.push(memory_bytes(load, OWN_MEMORY).context("the load ended too early")?);
        if began.elapsed().as_secs() / every > reloads {
            nginx.signal("reload")?;
            reloads += 1;
        }
    }
    Ok((samples, reloads))
}

/// Lines of the access log, once the workers that still finish have written theirs.
fn logged(nginx: &Nginx, expected: u64) -> Result<u64> {
    let began = Instant::now();
    loop {
        let lines = fs::read(nginx.file("log"))?.iter().filter(|byte| **byte == b'\n').count() as u64;
        if lines == expected || began.elapsed() > Duration::from_secs(5) {
            return Ok(lines);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
