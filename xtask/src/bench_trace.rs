//! `bench-trace`: how fast `tlsdyno trace show` reads an access log, beside the least that anybody does with one in
//! mawk, and in how much memory.
//!
//! Both read the same file from the page cache on CPU 1, in turn, the first of each round by turns; user and system
//! time of the process counts.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::value_parser;

use crate::process::{PEAK_MEMORY, cpu_seconds, memory_bytes};
use crate::statistics::{extremes, median, ratios};
use crate::tlsdyno;

/// Requests by client, and the sum of all sizes.
const MAWK: &str = "{u[$1]++; s+=$10}";
/// How often the real log of 2.4 MB is repeated.
const REPEATS: usize = 100;
/// Users of the synthetic log, with 100 requests each.
const USERS: &str = "10000";

struct Log {
    name: &'static str,
    path: PathBuf,
}

/// How often it is measured.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds, in each of which both programs read each log
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Runs all rounds on both logs and prints a Markdown table.
///
/// # Errors
/// A program is missing or fails, or `trace show` is slower than mawk.
pub fn run(arguments: &Arguments) -> Result<()> {
    let tlsdyno = tlsdyno::built()?;
    let place = tempfile::tempdir()?;
    println!(
        "| log | MB | mawk MB/s | trace show MB/s | trace show's time of mawk's, by round | memory at most, MiB |"
    );
    println!("|---|---:|---:|---:|---|---:|");
    let mut slower = 0;
    for log in [synthetic(&tlsdyno, place.path())?, real(place.path())?] {
        let megabytes = fs::metadata(&log.path)?.len() as f64 / 1e6;
        let ours = ["trace".as_ref(), "show".as_ref(), log.path.as_os_str()];
        let theirs = [MAWK.as_ref(), log.path.as_os_str()];
        let (mut our_s, mut their_s) = (Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            let mut turns: [(&mut Vec<f64>, &Path, &[&OsStr]); 2] =
                [(&mut our_s, &tlsdyno, &ours), (&mut their_s, "mawk".as_ref(), &theirs)];
            turns.rotate_left(round as usize % 2);
            for (seconds, program, arguments) in turns {
                seconds.push(cpu_seconds(program, arguments)?);
            }
        }
        let ratios = ratios(&our_s, &their_s);
        let (middle, (least, most)) = (median(&ratios), extremes(&ratios));
        slower += usize::from(middle > 1.0);
        println!(
            "| {} | {megabytes:.0} | {:.0} | {:.0} | {middle:.2} ({least:.2} to {most:.2}) | {:.1} |",
            log.name,
            megabytes / median(&their_s),
            megabytes / median(&our_s),
            peak_mib(&tlsdyno, &ours)?
        );
    }
    ensure!(slower == 0, "trace show is slower than mawk");
    Ok(())
}

fn synthetic(tlsdyno: &Path, place: &Path) -> Result<Log> {
    let path = place.join("synthetic.log");
    let arguments = ["trace", "synth", "specweb96", "--users", USERS, "-o"];
    let status = Command::new(tlsdyno).args(arguments).arg(&path).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "trace synth ended with {status}");
    Ok(Log { name: "synthetic, 1,000,000 lines", path })
}

fn real(place: &Path) -> Result<Log> {
    let source = tlsdyno::workspace().join("crates/tlsdyno/tests/data/semicomplete-access.log.gz");
    let output = Command::new("gunzip").arg("-c").arg(&source).output().context("run gunzip")?;
    ensure!(output.status.success(), "{} cannot be read", source.display());
    let path = place.join("real.log");
    let mut file = File::create(&path)?;
    for _ in 0..REPEATS {
        file.write_all(&output.stdout)?;
    }
    Ok(Log { name: "real, 10,000 lines repeated 100 times", path })
}

/// The most memory that a command had resident, as seen while it ran.
fn peak_mib(program: &Path, arguments: &[&OsStr]) -> Result<f64> {
    let mut child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        // The mark only rises, and is gone when the process ends.
        peak = memory_bytes(child.id(), PEAK_MEMORY).unwrap_or(peak);
        thread::sleep(Duration::from_millis(2));
    }
    Ok(peak as f64 / f64::from(1 << 20))
}
