//! `campaign`: the runs behind published tables, each several times, in random order, on one quiet machine. A campaign
//! that was stopped goes on with the runs that are missing, on a CPU with the same features only.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_record::store::machine::{Machine, unlike};

use crate::progress::tell;
use crate::tlsdyno::{self, workspace};

/// Most that other programs may use of all CPUs, and that the host may take away, per cent.
const BUSY_MOST: f64 = 5.0;
const STEAL_MOST: f64 = 10.0;
/// How long the machine is watched, and how often, until it is quiet.
const WATCHED: Duration = Duration::from_secs(3);
const WATCHED_TIMES: u32 = 100;
/// Starting and checking servers takes about this long beside the measuring, seconds.
const BESIDES_S: u32 = 15;

#[derive(clap::Args)]
pub struct Arguments {
    /// A file of results/campaigns [default: say what there is, and how long it takes]
    name: Option<String>,
    /// Each command once, and shorter; the records are no base of a page and go to target/campaigns
    #[arg(long)]
    quick: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Campaign {
    subject: String,
    /// How often each command runs.
    runs: u32,
    command: Vec<Entry>,
}

/// A command of tlsdyno, and what its record is to show.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    arguments: String,
    claim: String,
    time_s: u32,
    quick_s: u32,
    /// Between two campaigns on CPUs with the same features.
    tolerance_percent: u32,
}

/// Runs a campaign, or lists all.
///
/// # Errors
/// The file is no campaign, the machine does not become quiet, a command fails, or the records that are there come from
/// a CPU with other features.
pub fn run(arguments: &Arguments) -> Result<()> {
    let folder = workspace().join("results/campaigns");
    let Some(name) = &arguments.name else { return list(&folder) };
    let campaign = read(&folder.join(format!("{name}.toml")))?;
    let records = match arguments.quick {
        true => tlsdyno::target().join("campaigns").join(name),
        false => workspace().join("results/records").join(name),
    };
    fs::create_dir_all(&records).with_context(|| format!("make {}", records.display()))?;
    let lock = File::create(tlsdyno::target().join("campaign.lock")).context("make the lock of campaigns")?;
    lock.try_lock().context("another campaign runs: wait for its end")?;
    let program = tlsdyno::built()?;
    let mut left = missing(&campaign, &records, arguments.quick);
    SplitMix64::new(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64).shuffle(&mut left);
    let all = left.len();
    for (number, (entry, path)) in left.into_iter().enumerate() {
        tell(&format!("{}: {} of {all}, {}", campaign.subject, number + 1, entry.name));
        until_quiet()?;
        let seconds = if arguments.quick { entry.quick_s } else { entry.time_s };
        let mut command = Command::new(&program);
        command.args(entry.arguments.split_whitespace()).args([
            "--no-report",
            "--json",
            "--time",
            &seconds.to_string(),
        ]);
        let mut record = tlsdyno::json(&mut command)?;
        ensure!(record["finished"] == true, "{} ended early; its record is not kept", entry.name);
        refuse_other_machine(&records, &record)?;
        // Pages show no blocks, which are ten times as long as all else; the store has them.
        record.as_object_mut().and_then(|record| record.remove("blocks"));
        // The path of the program tells a reader nothing.
        record["manifest"]["command_line"][0] = "tlsdyno".into();
        write_whole(&path, &record)?;
    }
    tell("");
    println!("{all} runs into {}; `cargo run -p xtask -- results` makes the pages", records.display());
    Ok(())
}

fn read(path: &Path) -> Result<Campaign> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// Each claim with its command, minutes and tolerance.
fn list(folder: &Path) -> Result<()> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).context("list campaigns")?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        let campaign = read(&path)?;
        let minutes = |s: u32, runs: u32| f64::from((s + BESIDES_S) * runs) / 60.0;
        let [long, quick]: [f64; 2] = [
            campaign.command.iter().map(|of| minutes(of.time_s, campaign.runs)).sum(),
            campaign.command.iter().map(|of| minutes(of.quick_s, 1)).sum(),
        ];
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        println!("{name}: {}, {long:.0} minutes, --quick {quick:.0}\n", campaign.subject);
        println!("| claim | command | minutes | within |\n|---|---|---:|---:|");
        for of in &campaign.command {
            let minutes = minutes(of.time_s, campaign.runs);
            println!("| {} | `tlsdyno {}` | {minutes:.0} | {} % |", of.claim, of.arguments, of.tolerance_percent);
        }
        println!();
    }
    Ok(())
}

/// The runs that have no record yet, with the path of it.
fn missing<'a>(campaign: &'a Campaign, records: &Path, quick: bool) -> Vec<(&'a Entry, PathBuf)> {
    let runs = if quick { 1 } else { campaign.runs };
    let of_entry = |of: &'a Entry| (1..=runs).map(move |run| (of, records.join(format!("{}.{run}.json", of.name))));
    campaign.command.iter().flat_map(of_entry).filter(|(_, path)| !path.exists()).collect()
}

/// Waits until other programs and the host leave the CPUs alone.
fn until_quiet() -> Result<()> {
    let mut last = [0.0; 2];
    for _ in 0..WATCHED_TIMES {
        let before = ticks(&fs::read_to_string("/proc/stat")?)?;
        std::thread::sleep(WATCHED);
        let after = ticks(&fs::read_to_string("/proc/stat")?)?;
        last = shares(before, after);
        if last[0] <= BUSY_MOST && last[1] <= STEAL_MOST {
            return Ok(());
        }
        tell(&format!("waiting: other programs use {:.0} % of the CPUs, the host takes {:.0} %", last[0], last[1]));
    }
    bail!(
        "the machine did not become quiet: other programs use {:.0} % of its CPUs (at most {BUSY_MOST} %), and the \
         host takes {:.0} % away (at most {STEAL_MOST} %)",
        last[0],
        last[1]
    )
}

/// Ticks of all CPUs in /proc/stat: busy, idle, stolen.
fn ticks(stat: &str) -> Result<[u64; 3]> {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("/proc/stat has no CPUs")?;
    let numbers: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [user, nice, system, idle, wait, irq, soft, steal] =
        numbers.get(..8).context("/proc/stat is short")?.try_into()?;
    Ok([user + nice + system + irq + soft, idle + wait, steal])
}

/// Per cent of all ticks between two readings: busy, stolen.
fn shares(before: [u64; 3], after: [u64; 3]) -> [f64; 2] {
    let [busy, idle, steal] = [0, 1, 2].map(|at| after[at].saturating_sub(before[at]) as f64);
    let all = (busy + idle + steal).max(1.0);
    [100.0 * busy / all, 100.0 * steal / all]
}

/// Fails where a record of the campaign comes from a CPU on which the same work costs another time.
fn refuse_other_machine(records: &Path, new: &Value) -> Result<()> {
    let machine = |of: &Value| serde_json::from_value::<Option<Machine>>(of["manifest"]["machine"].clone());
    let here = machine(new).context("read the machine of the new record")?;
    let paths = fs::read_dir(records)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    // What a stopped run left half written has another end.
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let record: Value = serde_json::from_slice(&fs::read(path)?).with_context(|| path.display().to_string())?;
        let there = machine(&record).with_context(|| path.display().to_string())?;
        if let Some(unlike) = unlike(there.as_ref(), here.as_ref()) {
            bail!("{}: {unlike}; move its records away and begin anew", path.display());
        }
    }
    Ok(())
}

/// Half a file never has the name. Whose home directory stacks were built in tells a reader nothing.
fn write_whole(path: &Path, record: &Value) -> Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    let cache = std::env::var("HOME").unwrap_or_default() + "/.cache/";
    file.write_all(record.to_string().replace(&cache, "~/.cache/").as_bytes())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    file.persist(path).with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_campaign_fits_its_hour_and_a_half() {
        for entry in fs::read_dir(workspace().join("results/campaigns")).unwrap() {
            let campaign = read(&entry.unwrap().path()).unwrap();
            let seconds: u32 = campaign.command.iter().map(|of| (of.time_s + BESIDES_S) * campaign.runs).sum();
            assert!(seconds <= 90 * 60, "{}: {seconds} s", campaign.subject);
        }
    }

    #[test]
    fn what_is_there_is_not_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let text = "subject = \"s\"\nruns = 3\n[[command]]\nname = \"a\"\narguments = \"run a\"\nclaim = \"c\"\n\
                    time_s = 1\nquick_s = 1\ntolerance_percent = 5\n";
        let campaign: Campaign = toml::from_str(text).unwrap();
        write_whole(&folder.path().join("a.2.json"), &json!({})).unwrap();
        let names = |quick| {
            let left = missing(&campaign, folder.path(), quick).into_iter();
            left.map(|(_, path)| path.file_name().unwrap().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            (names(false), names(true)),
            (vec!["a.1.json".to_owned(), "a.3.json".to_owned()], vec!["a.1.json".to_owned()])
        );
    }

    #[test]
    fn records_of_another_cpu_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let record = |features: &[&str]| {
            let machine = Machine { features: features.iter().map(|of| (*of).to_owned()).collect(), ..Machine::here() };
            json!({ "manifest": { "machine": machine } })
        };
        write_whole(&folder.path().join("a.1.json"), &record(&["adx"])).unwrap();
        refuse_other_machine(folder.path(), &record(&["adx"])).unwrap();
        let refused = refuse_other_machine(folder.path(), &record(&["adx", "avx512ifma"])).unwrap_err().to_string();
        assert!(refused.contains("avx512ifma") && refused.contains("a.1.json"), "{refused}");
        assert!(refuse_other_machine(folder.path(), &json!({ "manifest": {} })).is_err());
    }

    #[test]
    fn a_busy_machine_and_a_greedy_host_are_seen() {
        let stat = "cpu  100 0 50 800 20 0 30 10 0 0\ncpu0 1 2 3\n";
        assert_eq!(ticks(stat).unwrap(), [180, 820, 10]);
        assert_eq!(shares([180, 820, 10], [270, 890, 50]), [45.0, 20.0]);
        assert!(ticks("cpu  1 2 3\n").is_err() && ticks("intr 1\n").is_err());
    }
}
