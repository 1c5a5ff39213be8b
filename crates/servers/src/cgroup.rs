//! A control group of our own around each server, where the machine lets us: its CPU account misses nothing, not even
//! processes and threads that came and went between two looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use tlsdyno_base::process_tree;

use super::memory;

/// Prefix of the names of our control groups; the owner's process id and a number follow.
const PREFIX: &str = "tlsdyno-";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Which control groups the kernel offers for a controller, cgroups(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Version 1: a hierarchy for each controller.
    One,
    /// Version 2: one hierarchy for all controllers.
    Two,
}

/// The CPU account of a control group, to be read by whoever has no part in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupClock {
    pub path: PathBuf,
    version: Version,
}

impl GroupClock {
    /// The group that these processes have for themselves with their descendants, as a service or a container has;
    /// `None`: they share theirs with others.
    pub fn around(pids: &[u32]) -> Option<GroupClock> {
        let (path, version) = group_of(&pids.first()?.to_string(), "cpuacct").ok()?;
        let clock = GroupClock { path, version };
        let of_group = clock.pids();
        let is_of_server = |mut pid: u32| {
            while !pids.contains(&pid) {
                match process_tree::stat(pid) {
                    Some(process) if process.parent > 1 => pid = process.parent,
                    // One that has ended meanwhile is nobody else's.
                    None => return true,
                    Some(_) => return false,
                }
            }
            true
        };
        let is_whole = pids.iter().all(|pid| of_group.contains(pid) || process_tree::stat(*pid).is_none());
        (is_whole && of_group.into_iter().all(is_of_server) && clock.cpu_ns().is_ok()).then_some(clock)
    }

    /// CPU time that all processes of the group ever used, in nanoseconds. Version 2 has the account in every group.
    pub fn cpu_ns(&self) -> Result<u64> {
        let path = self.path.join(match self.version {
            Version::One => "cpuacct.usage",
            Version::Two => "cpu.stat",
        });
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        parse_account(self.version, &text).with_context(|| format!("{} has no CPU account", path.display()))
    }

    /// What the kernel holds for its sockets and files, bytes; `None`: nobody accounts for the memory of this group.
    pub(super) fn kernel_bytes(&self) -> Option<u64> {
        memory::kernel_bytes(&fs::read_to_string(self.path.join("memory.stat")).ok()?)
    }

    pub fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// A control group made by us. Removed when dropped (if no process is left in it).
#[derive(Debug)]
pub struct Cgroup(pub GroupClock);

impl Cgroup {
    /// Makes a new, empty group below the one that tlsdyno itself is in; the error says why that is not possible.
    pub fn create() -> Result<Cgroup> {
        let (parent, version) = own_group("cpuacct")?;
        let group = Cgroup(GroupClock { path: make_group(&parent)?, version });
        group.0.cpu_ns()?;
        Ok(group)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove_group(&self.0.path);
    }
}

pub(super) fn make_group(parent: &Path) -> Result<PathBuf> {
    remove_stale(parent);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
    fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
    // Joining needs more rights than making one (cgroups(7), delegation), so a process that ends at once tries it.
    let procs = path.join("cgroup.procs");
    let joined = std::process::Command::new("sh").args(["-c", "echo 0 > \"$1\"", "sh"]).arg(&procs).output();
    if joined.is_ok_and(|output| output.status.success()) {
        return Ok(path);
    }
    remove_group(&path);
    bail!("processes cannot be moved into {}", path.display())
}

/// Removes a group whose processes are dead; the kernel may still be busy letting them go.
pub(super) fn remove_group(path: &Path) {
    for _ in 0..50 {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            _ => return,
        }
    }
}

/// Version 1 counts nanoseconds, version 2 microseconds.
fn parse_account(version: Version, text: &str) -> Option<u64> {
    match version {
        Version::One => text.trim().parse().ok(),
        Version::Two => {
            let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
            Some(line.trim().parse::<u64>().ok()? * 1000)
        }
    }
}

/// The group that tlsdyno itself is in, of version 1's `controller` if its hierarchy is mounted, else of version 2.
pub(super) fn own_group(controller: &str) -> Result<(PathBuf, Version)> {
    group_of("self", controller)
}

fn group_of(process: &str, controller: &str) -> Result<(PathBuf, Version)> {
    let path = format!("/proc/{process}/cgroup");
    let memberships = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").context("read /proc/self/mounts")?;
    locate(&memberships, &mounts, controller)
        .with_context(|| format!("no hierarchy with the controller `{controller}` is mounted, and none of version 2"))
}

fn locate(memberships: &str, mounts: &str, controller: &str) -> Option<(PathBuf, Version)> {
    let version1 = directory_of(memberships, mounts, controller).map(|path| (path, Version::One));
    version1.or_else(|| directory_of(memberships, mounts, "").map(|path| (path, Version::Two)))
}

/// Directory of the group that we are in, in the version 1 hierarchy of `controller`, or in that of version 2 (empty).
fn directory_of(memberships: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let named = |list: &str| list.split(',').any(|name| name == controller);
    let member = memberships.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let found = if controller.is_empty() { controllers.is_empty() } else { named(controllers) };
        found.then(|| path.trim_start_matches('/'))
    })?;
    let kind = if controller.is_empty() { "cgroup2" } else { "cgroup" };
    let mounted = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let fits = fields.get(2) == Some(&kind) && (controller.is_empty() || named(fields.get(3)?));
        fits.then(|| PathBuf::from(fields[1]))
    })?;
    Some(mounted.join(member))
}

fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if owner.is_some_and(|pid| process_tree::stat(pid).is_none()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_located() {
        let memberships = "3:cpu,cpuacct:/user\n1:name=systemd:/x\n0::/user.slice/a:b\n";
        let both = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup \
                    rw,cpu,cpuacct 0 0\n";
        let only2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        for controller in ["cpu", "cpuacct"] {
            let located = |mounts| locate(memberships, mounts, controller);
            assert_eq!(located(both), Some(("/sys/fs/cgroup/cpu,cpuacct/user".into(), Version::One)));
            assert_eq!(located(only2), Some(("/sys/fs/cgroup/user.slice/a:b".into(), Version::Two)));
            assert_eq!(located("tmpfs /tmp tmpfs rw 0 0\n"), None);
        }
    }

    #[test]
    fn accounts_parse() {
        assert_eq!(parse_account(Version::One, "123456789\n"), Some(123_456_789));
        assert_eq!(parse_account(Version::Two, "usage_usec 12\nuser_usec 3\n"), Some(12_000));
        assert_eq!(parse_account(Version::Two, "user_usec 3\n"), None);
    }

    #[test]
    fn a_group_accounts_for_its_processes_and_goes_away() {
        // Not every machine lets us; then there is nothing to test here, and cpu.rs has its own tests.
        let Ok(group) = Cgroup::create() else { return };
        let path = group.0.path.clone();
        let before = group.0.cpu_ns().unwrap();
        let script = "echo 0 > \"$1/cgroup.procs\" && i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", script, "sh"]).arg(&path).status().unwrap();
        assert!(status.success());
        assert!(group.0.cpu_ns().unwrap() - before > 1_000_000);
        drop(group);
        assert!(!path.exists());
    }
}
