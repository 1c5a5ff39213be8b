//! A quota of CPU time around a server: slower or fewer processors than the machine has, emulated by control groups.
//!
//! Version 1: `cpu.cfs_quota_us` of each `cpu.cfs_period_us` of the controller `cpu`; version 2: `cpu.max`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_base::until::until;

use super::cgroup::{Cgroup, Version, make_group, own_group};

/// Period of the quota, microseconds. The kernel's default of 100 ms would let a server run for tens of milliseconds
/// and then stand still as long, and a block of half a second would hold too few periods to be measured; the least that
/// the kernel takes is 1 ms.
const PERIOD_US: u64 = 10_000;

/// The same of quotas for which [`PERIOD_US`] holds less than the kernel takes.
const LONG_PERIOD_US: u64 = 20_000;

/// The kernel refuses less CPU time in a period, microseconds.
const QUOTA_MIN_US: u64 = 1_000;

/// The smallest quota that the kernel takes, in processors.
pub const CPUS_MIN: f64 = QUOTA_MIN_US as f64 / LONG_PERIOD_US as f64;

/// What is remembered of a group without a limit.
const UNLIMITED: u64 = u64::MAX;

/// How long loops may run without being stopped until the quota is taken for ineffective.
const EXERCISE_MAX: Duration = Duration::from_secs(5);

/// A control group with a quota of CPU time. A group of its own is removed when dropped (if no process is left in it).
#[derive(Debug)]
pub struct Quota {
    /// The processors that were written last, as the bits of a number.
    limit_bits: AtomicU64,
    pub path: PathBuf,
    version: Version,
    /// Made here, so that it must be joined besides the group that accounts for the server; otherwise it is that one.
    pub own: bool,
}

impl Quota {
    /// Limits what joins [`Quota::path`] to the time of `cpus` processors (0.35: 3.5 ms in every 10 ms). A process is
    /// in one group of a hierarchy only: where the server's `account` lies in the hierarchy of the quota, that
    /// group gets it.
    pub fn set(cpus: f64, account: Option<&Cgroup>) -> Result<Quota> {
        Quota::try_set(cpus, account).context(
            "this machine does not let tlsdyno limit CPU time: processors with a `speed` below 1, and backends with \
             --backend-cpus, need a writable control group with the controller `cpu`; run as root, or inside \
             `systemd-run --scope -p Delegate=yes`",
        )
    }

    fn try_set(cpus: f64, account: Option<&Cgroup>) -> Result<Quota> {
        let (parent, version) = own_group("cpu")?;
        if version == Version::Two {
            enable_controller(&parent)?;
        }
        let quota = match account.filter(|group| group.0.path.parent() == Some(&parent)) {
            Some(group) => Quota { limit_bits: AtomicU64::default(), path: group.0.path.clone(), version, own: false },
            None => Quota { limit_bits: AtomicU64::default(), path: make_group(&parent)?, version, own: true },
        };
        quota.limit(Some(cpus))?;
        Ok(quota)
    }

    /// Limits the group to the time of so many processors from now on; `None`: to nothing.
    pub fn limit(&self, cpus: Option<f64>) -> Result<()> {
        let sensible = cpus.is_none_or(|cpus| cpus > 0.0 && cpus.is_finite());
        ensure!(sensible, "a quota of {} processors makes no sense", cpus.unwrap_or_default());
        let known = cpus.map_or(UNLIMITED, f64::to_bits);
        if self.limit_bits.load(Ordering::Relaxed) == known {
            return Ok(());
        }
        self.write(cpus)?;
        self.limit_bits.store(known, Ordering::Relaxed);
        let Some(cpus) = cpus else { return Ok(()) };
        let in_force = self.cpus()?;
        ensure!((in_force - cpus).abs() < 0.001, "{} holds a quota of {in_force} processors", self.path.display());
        Ok(())
    }

    fn write(&self, cpus: Option<f64>) -> Result<()> {
        let limit = |none: &str| cpus.map_or_else(|| none.to_owned(), |cpus| microseconds(cpus).to_string());
        let period_us = cpus.map_or(PERIOD_US, period_us);
        let settings = match self.version {
            Version::One => vec![("cpu.cfs_period_us", period_us.to_string()), ("cpu.cfs_quota_us", limit("-1"))],
            Version::Two => vec![("cpu.max", format!("{} {period_us}", limit("max")))],
        };
        for (file, value) in settings {
            let path = self.path.join(file);
            fs::write(&path, &value).with_context(|| {
                format!("write `{value}` to {} (a group above may have a smaller quota)", path.display())
            })?;
        }
        Ok(())
    }

    /// The quota in force, in processors, read back from the kernel.
    pub fn cpus(&self) -> Result<f64> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let parsed = match self.version {
            Version::One => {
                let quota = number(&self.read("cpu.cfs_quota_us")?);
                quota.zip(number(&self.read("cpu.cfs_period_us")?))
            }
            Version::Two => {
                let text = self.read("cpu.max")?;
                text.trim().split_once(' ').and_then(|(quota, period)| number(quota).zip(number(period)))
            }
        };
        match parsed {
            Some((quota, period)) if quota > 0.0 && period > 0.0 => Ok(quota / period),
            _ => bail!("{} has no quota in force", self.path.display()),
        }
    }

    /// How often the kernel has stopped the group because its time was used up.
    pub fn throttled(&self) -> Result<u64> {
        let text = self.read("cpu.stat")?;
        parse_throttled(&text).with_context(|| format!("{} counts no throttling", self.path.display()))
    }

    /// Lets loops run in the group and answers how often they were stopped: whether the quota does what its files say.
    /// One more loop than the quota has processors, so that they reach it also where other work takes a part of
    /// each processor.
    pub fn exercise(&self) -> Result<u64> {
        // Bounded, in case that nobody is left to end it.
        let script = "echo 0 > \"$1/cgroup.procs\" && i=0; while [ $i -lt 6000000 ]; do i=$((i+1)); done";
        let start = || Command::new("sh").args(["-c", script, "sh"]).arg(&self.path).spawn().context("run a shell");
        let before = self.throttled()?;
        let loops = (0..=self.cpus()?.ceil() as u32).map(|_| start()).collect::<Result<Vec<_>>>()?;
        let look = || Ok(self.throttled()? - before);
        let times = until(EXERCISE_MAX, Duration::from_micros(PERIOD_US), look, |times| *times > 0);
        for mut child in loops {
            let _ = child.kill();
            let _ = child.wait();
        }
        times
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.path.join(file);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if self.own {
            super::cgroup::remove_group(&self.path);
        }
    }
}

/// Whether this machine lets us limit CPU time at all: tries it on a group without processes.
pub fn require() -> Result<()> {
    Quota::set(1.0, None).map(drop)
}

/// The kernel takes a quota of so many processors.
pub fn is_possible(cpus: f64) -> bool {
    microseconds(cpus) >= QUOTA_MIN_US
}

/// Period of a quota of so many processors, microseconds.
pub fn period_us(cpus: f64) -> u64 {
    if (cpus * PERIOD_US as f64).round() < QUOTA_MIN_US as f64 { LONG_PERIOD_US } else { PERIOD_US }
}

/// CPU time in each period of the quota.
fn microseconds(cpus: f64) -> u64 {
    (cpus * period_us(cpus) as f64).round() as u64
}

fn parse_throttled(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?.trim().parse().ok()
}

/// Version 2: groups below `parent` have the controller only if `parent` hands it on.
fn enable_controller(parent: &Path) -> Result<()> {
    let path = parent.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    if enabled.split_whitespace().any(|controller| controller == "cpu") {
        return Ok(());
    }
    fs::write(&path, "+cpu").with_context(|| {
        format!("hand the controller `cpu` on in {} (not possible while processes are in that group)", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_counted() {
        assert_eq!(parse_throttled("nr_periods 9\nnr_throttled 4\nthrottled_time 77\n"), Some(4));
        assert_eq!(parse_throttled("nr_periods 9\n"), None);
    }

    #[test]
    fn the_least_quota_is_one_millisecond_and_small_ones_have_a_longer_period() {
        assert!(is_possible(CPUS_MIN) && is_possible(0.09) && is_possible(0.9));
        assert!(!is_possible(0.049) && !is_possible(0.0));
        assert_eq!([0.05, 0.09, 0.1, 1.0].map(period_us), [20_000, 20_000, 10_000, 10_000]);
        assert_eq!([0.05, 0.09, 0.1, 1.0].map(microseconds), [1_000, 1_800, 1_000, 10_000]);
    }

    /// A loop that never waits is stopped by the quota; where the machine has no quotas, the error says what is needed.
    #[test]
    fn a_quota_is_in_force_and_goes_away() {
        let quota = match Quota::set(0.3, None) {
            Ok(quota) => quota,
            Err(error) => return assert!(format!("{error:#}").contains("controller `cpu`"), "{error:#}"),
        };
        assert!((quota.cpus().unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(quota.throttled().unwrap(), 0);
        assert!(quota.exercise().unwrap() > 0);
        quota.limit(None).unwrap();
        assert!(quota.cpus().unwrap_err().to_string().contains("no quota"));
        // 0.05 and 0.1 are the same time of different periods.
        for cpus in [0.2, CPUS_MIN, 0.1] {
            quota.limit(Some(cpus)).unwrap();
            assert!((quota.cpus().unwrap() - cpus).abs() < 1e-9);
        }
        let path = quota.path.clone();
        drop(quota);
        assert!(!path.exists());
    }
}
