//! `bench-threads`: whether two loops of one load process do what two processes with a loop each do, at the same CPU
//! time per hit. One loop alone stands beside them: it shares neither of two CPUs with another loop, so that its hits
//! are cheaper, whether or not that other loop is a thread of its process.

use anyhow::{Context, Result, ensure};
use clap::value_parser;
use serde_json::Value;

use crate::nginx::Nginx;
use crate::statistics::{interval_of_median, median, ratios};
use crate::tlsdyno::{self, Load};

/// Two threads may load less than two processes by this part.
const SLOWER_MAX: f64 = 0.03;
/// Hits for each CPU-second of two threads, as a part of those of loops in processes of their own, at least.
const EFFICIENCY_MIN: f64 = 0.95;

/// What is measured.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds; in each all three are measured once, in turn
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = value_parser!(u32).range(6..))]
    rounds: u32,
    /// How long each is measured
    #[arg(long, value_name = "TIME", default_value = "4s")]
    duration: String,
    /// Share of connections that resume a session
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    reuse: String,
}

const ARMS: [&str; 3] = ["one loop on CPU 1", "two threads", "two processes"];

/// What came of one of them: hits a second, and hits for each CPU-second of the load.
#[derive(Clone, Copy)]
struct Pace {
    per_s: f64,
    per_cpu_s: f64,
}

/// Measures all rounds and prints the ratios.
///
/// # Errors
/// A program fails, or a ratio misses its bar.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = tlsdyno::build()?;
    let nginx = Nginx::over_tls(2, 1024, "access_log off;")?;
    let mut paces: [Vec<Pace>; 3] = Default::default();
    for round in 0..arguments.rounds as usize {
        for place in 0..ARMS.len() {
            let arm = (round + place) % ARMS.len();
            let common = ["--duration", &arguments.duration, "--reuse", &arguments.reuse, "--connections"];
            let start = |more: &[&str]| Load::start(&program, nginx.port, &[&common[..], more].concat());
            let loads = match arm {
                0 => vec![start(&["16", "--cpu", "1"])?],
                1 => vec![start(&["32", "--threads", "2"])?],
                _ => vec![start(&["16", "--cpu", "0"])?, start(&["16", "--cpu", "1"])?],
            };
            let results: Vec<Value> = loads.into_iter().map(Load::result).collect::<Result<_>>()?;
            paces[arm].push(pace(&results).with_context(|| format!("{}: no hits", ARMS[arm]))?);
        }
    }
    println!("| load | hits/s | hits per CPU-second of the load |\n|---|---:|---:|");
    for (name, paces) in ARMS.iter().zip(&paces) {
        let middle = |of: fn(&Pace) -> f64| median(&paces.iter().map(of).collect::<Vec<_>>());
        println!("| {name} | {:.0} | {:.0} |", middle(|pace| pace.per_s), middle(|pace| pace.per_cpu_s));
    }
    let [one, threads, processes] = &paces;
    let throughput = said("hits/s, two threads over two processes", threads, processes, |pace| pace.per_s);
    let efficiency =
        said("hits per CPU-second, two threads over two processes", threads, processes, |pace| pace.per_cpu_s);
    said("hits per CPU-second, two threads over one loop", threads, one, |pace| pace.per_cpu_s);
    said("hits per CPU-second, two processes over one loop", processes, one, |pace| pace.per_cpu_s);
    said("hits/s, two threads over one loop", threads, one, |pace| pace.per_s);
    ensure!(throughput >= 1.0 - SLOWER_MAX, "two threads load less than two processes by more than {SLOWER_MAX}");
    ensure!(efficiency >= EFFICIENCY_MIN, "a hit costs two threads more than two processes (bar {EFFICIENCY_MIN})");
    Ok(())
}

fn pace(results: &[Value]) -> Option<Pace> {
    let sum = |of: &dyn Fn(&Value) -> Option<f64>| results.iter().map(of).sum::<Option<f64>>();
    let per_s = sum(&|result| result["hits_per_second"].as_f64())?;
    let hits = sum(&|result| result["hits"].as_f64())?;
    let cpu_ns = sum(&|result| Some(result["client_cpu_ns_per_hit"].as_f64()? * result["hits"].as_f64()?))?;
    Some(Pace { per_s, per_cpu_s: hits / cpu_ns * 1e9 })
}

/// Prints the median ratio of two rounds' figures with its 95 % interval, and answers it.
fn said(what: &str, above: &[Pace], below: &[Pace], of: fn(&Pace) -> f64) -> f64 {
    let [above, below] = [above, below].map(|paces| paces.iter().map(of).collect::<Vec<f64>>());
    let ratios = ratios(&above, &below);
    let [low, high] = interval_of_median(&ratios);
    println!("{what}: {:.3} [{low:.3}, {high:.3}]", median(&ratios));
    median(&ratios)
}
