//! `compare-pairs`: how often `tlsdyno load --against` is right. Two built-in servers of pages with a stated cost are
//! loaded in turn: equal ones, and ones of which the second is slower by a known part.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::value_parser;

use crate::process::Ending;
use crate::tlsdyno;

/// What is measured.
#[derive(clap::Args)]
pub struct Arguments {
    /// Pairs of equal servers, and as many with a slower second one
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = value_parser!(u32).range(1..))]
    pairs: u32,
    /// How long each server of a pair is loaded
    #[arg(long, value_name = "TIME", default_value = "2s")]
    duration: String,
    /// CPU time of a page, microseconds
    #[arg(long, value_name = "US", default_value_t = 400)]
    page_us: u32,
    /// By how many per cent a slower page costs more
    #[arg(long, value_name = "PERCENT", default_value_t = 5)]
    slower_percent: u32,
}

/// A server of pages of this cost, and its URL. All servers are on one CPU and the load on the other: where the
/// scheduler puts one of two equal servers beside the load, they do differ.
fn pages(program: &Path, docroot: &Path, page_us: u32) -> Result<(Ending, String)> {
    let cost = format!("cpu:{page_us}us");
    let (process, address) = tlsdyno::serve(program, "0", docroot, &["--transaction", &cost])?;
    Ok((process, format!("https://{address}/page")))
}

/// Runs all pairs and prints how each was decided.
///
/// # Errors
/// A program fails; or more than one of ten equal pairs was decided, or fewer than nine of ten slower ones.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = tlsdyno::built()?;
    let place = tempfile::tempdir()?;
    std::fs::write(place.path().join("page"), [b'x'; 1024])?;
    let slower_us = arguments.page_us + arguments.page_us * arguments.slower_percent / 100;
    let mut counts = [[0_u32; 3]; 2];
    println!("| pair | second page | CPU per hit changed by | verdict |\n|---:|---:|---:|---|");
    for pair in 1..=arguments.pairs {
        // In turn, so that a machine that changes meanwhile meets both kinds.
        for (kind, second_us) in [arguments.page_us, slower_us].into_iter().enumerate() {
            // Servers of their own for each pair: where their memory lies is part of what equal ones differ by.
            let (_first, first) = pages(&program, place.path(), arguments.page_us)?;
            let (_second, second) = pages(&program, place.path(), second_us)?;
            let mut load = Command::new(&program);
            load.args(["load", &first, "--against", &second, "--insecure", "--json", "--connections", "8"]);
            load.args(["--cpu", "1", "--duration", &arguments.duration]);
            let result = tlsdyno::json(load.env("TLSDYNO_STORE", place.path().join("records.sqlite")))?;
            let verdict = result["verdict"].as_str().context("it has a verdict")?;
            let place = ["slower", "faster", "undecided"].iter().position(|word| *word == verdict);
            counts[kind][place.context("a verdict that is known")?] += 1;
            let compared = &result["comparisons"][0];
            ensure!(compared["quantity"] == "CPU per hit", "the servers' CPU time was not read");
            let percent = |name: &str| compared["change_percent"][name].as_f64().unwrap_or(f64::NAN);
            println!(
                "| {pair} | {second_us} µs | {:+.2} % [{:+.2}, {:+.2}] | {verdict} |",
                percent("value"),
                percent("low"),
                percent("high")
            );
        }
    }
    let [equal, slower] = counts;
    let wrong = equal[0] + equal[1];
    println!("\n{wrong} of {} equal pairs were decided.", arguments.pairs);
    println!("{} of {} slower ones were called slower.", slower[0], arguments.pairs);
    ensure!(wrong * 10 <= arguments.pairs, "more than one of ten equal pairs was decided");
    ensure!(slower[0] * 10 >= arguments.pairs * 9, "fewer than nine of ten slower pairs were called slower");
    Ok(())
}
