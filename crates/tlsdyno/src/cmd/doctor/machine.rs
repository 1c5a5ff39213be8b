//! The machine: CPUs, limits, accounting, what disturbs measuring.

use std::collections::BTreeMap;
use std::fs;
use std::thread::available_parallelism;

use rustix::fs::StatVfsMountFlags;
use rustix::process::{Resource, getrlimit};
use tlsdyno_base::process_tree;

use super::{Check, Verdict};
use crate::servers::cgroup::Cgroup;
use crate::servers::quota;
use crate::store::Machine;
use crate::store::machine::telling;
use crate::units::format_binary_bytes;

/// Connections of a usual run, with room to spare.
const OPEN_FILES_WANTED: u64 = 4096;
/// A load run of one connection per hit uses ports about this fast for half a minute.
const PORTS_WANTED: u32 = 20_000;

pub fn checks() -> Vec<Check> {
    let cores = available_parallelism().map_or(1, usize::from);
    let limit = getrlimit(Resource::Nofile);
    let unlimited = u64::MAX;
    let machine = Machine::here();
    [
        Some(told(&machine)),
        judge_features(&machine, telling(process_tree::environment(std::process::id()))),
        Some(judge_cores(cores)),
        read("/proc/loadavg").map(|text| judge_load(&text, cores)),
        read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").map(|text| judge_siblings(&text)),
        Some(judge_governor(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_deref())),
        read("/proc/stat").map(|text| judge_steal(&text)),
        Some(judge_accounting(Cgroup::create().map(drop))),
        Some(judge_quota(quota::require())),
        Some(judge_open_files(limit.current.unwrap_or(unlimited), limit.maximum.unwrap_or(unlimited))),
        read("/proc/sys/net/ipv4/ip_local_port_range")
            .and_then(|range| judge_ports(&range, &read("/proc/net/sockstat")?)),
        Some(temporary_space()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The machine as records keep it.
fn told(machine: &Machine) -> Check {
    let known = machine.facts().into_iter().filter(|(_, fact)| !fact.is_empty());
    Check::ok("machine", known.map(|(name, fact)| format!("{name}: {fact}")).collect::<Vec<_>>().join(" · "))
}

/// What the CPU does for cryptography; `None`: it tells none of its features.
fn judge_features(machine: &Machine, variables: BTreeMap<String, String>) -> Option<Check> {
    let meanings = machine.meanings();
    let features = machine.features.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let check = Check::ok("cryptography", format!("{} ({features})", meanings.join("; ")));
    let names = variables.into_keys().collect::<Vec<_>>().join(" ");
    let remedy = format!("{names}: servers may use less than that; unset it, or compare only with its like");
    (!meanings.is_empty()).then(|| check.but_if(!names.is_empty(), Verdict::Warn, remedy))
}

fn judge_cores(cores: usize) -> Check {
    let remedy = "CPU per hit stays valid; hits/s are too low by the load's share: use a machine with at least 2 CPUs";
    match cores {
        0 | 1 => Check::but("CPUs", Verdict::Warn, "one CPU for the server and its load", remedy),
        _ => Check::ok("CPUs", format!("{cores} usable")),
    }
}

fn judge_load(loadavg: &str, cores: usize) -> Check {
    let load: f64 = loadavg.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default();
    let check = Check::ok("other work", format!("load average {load:.2} on {cores} CPUs"));
    let remedy = "something else is running; end it, or expect wide intervals";
    check.but_if(load > 0.3 * cores as f64, Verdict::Warn, remedy)
}

fn judge_siblings(list: &str) -> Check {
    let list = list.trim();
    if !list.contains([',', '-']) {
        return Check::ok("SMT", "no other CPU of this machine shares a core with CPU 0");
    }
    let remedy = "with server and load on such a pair each slows the other; give them different cores (--server-cpu, \
                  --load-cpu)";
    Check::but("SMT", Verdict::Note, format!("CPUs {list} share a core"), remedy)
}

fn judge_governor(governor: Option<&str>) -> Check {
    match governor.map(str::trim) {
        None => Check::ok("frequency", "no governor visible (a virtual machine, or fixed)"),
        Some("performance") => Check::ok("frequency", "governor performance"),
        Some(other) => Check::but(
            "frequency",
            Verdict::Warn,
            format!("governor {other}: the clock changes with the load"),
            "`cpupower frequency-set -g performance` while measuring",
        ),
    }
}

/// Share of time that the host took from this virtual machine since boot: eighth value of the first line, proc_stat(5).
fn judge_steal(stat: &str) -> Check {
    let times: Vec<u64> =
        stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1).flat_map(str::parse).collect();
    let (steal, total) = (times.get(7).copied().unwrap_or_default(), times.iter().take(8).sum::<u64>().max(1));
    let percent = 100.0 * steal as f64 / total as f64;
    let check = Check::ok("steal", format!("{percent:.1} % of CPU time taken by the host since boot"));
    check.but_if(percent > 1.0, Verdict::Warn, "a busy host: prefer CPU per hit to hits/s, or another machine")
}

fn judge_accounting(cgroup: anyhow::Result<()>) -> Check {
    let finding = |error: anyhow::Error| format!("clocks of the server's processes; no control group: {error:#}");
    let remedy = "exact for servers whose processes stay; for others run as root or in a delegated scope (`systemd-run \
                  --user --scope -p Delegate=yes`)";
    match cgroup {
        Ok(()) => Check::ok("CPU account", "control group of our own"),
        Err(error) => Check::but("CPU account", Verdict::Note, finding(error), remedy),
    }
}

fn judge_quota(quota: anyhow::Result<()>) -> Check {
    let remedy = "without it configurations with slow processors are left out, and backends of a cluster that share \
                  CPUs have no defined capacity";
    match quota {
        Ok(()) => Check::ok("CPU quota", "CPU time of servers can be limited"),
        Err(error) => Check::but("CPU quota", Verdict::Note, format!("{error:#}"), remedy),
    }
}

/// A low soft limit is no matter: servers of ours and the load raise it.
fn judge_open_files(soft: u64, hard: u64) -> Check {
    let remedy = format!(
        "raise it to {OPEN_FILES_WANTED} or more in /etc/security/limits.conf (nofile), or use fewer connections"
    );
    let check = Check::ok("open files", format!("ulimit -n: soft {soft}, hard {hard}"));
    check.but_if(hard < OPEN_FILES_WANTED, Verdict::Warn, remedy)
}

fn judge_ports(range: &str, sockstat: &str) -> Option<Check> {
    let ends: Vec<u32> = range.split_ascii_whitespace().flat_map(str::parse).collect();
    let ports = ends.get(1)?.checked_sub(*ends.first()?)? + 1;
    // `TCP: inuse 5 orphan 0 tw 12 alloc 8 mem 1`
    let words: Vec<&str> = sockstat.lines().find(|line| line.starts_with("TCP:"))?.split(' ').collect();
    let waiting: u32 = words.iter().position(|&word| word == "tw").and_then(|at| words.get(at + 1)?.parse().ok())?;
    let check = Check::ok("ports", format!("{ports} local ports, {waiting} connections in TIME_WAIT"));
    let few = "`sysctl net.ipv4.ip_local_port_range=\"15000 60999\"`: each new connection takes a port for a minute";
    let busy = "wait a minute, or connections may find no free port";
    Some(check.but_if(waiting > ports / 2, Verdict::Warn, busy).but_if(ports < PORTS_WANTED, Verdict::Warn, few))
}

fn temporary_space() -> Check {
    const WANTED_BYTES: u64 = 1 << 30;
    let directory = std::env::temp_dir();
    let system = rustix::fs::statvfs(&directory);
    let found = match &system {
        Err(error) => error.to_string(),
        Ok(system) if system.f_flag.contains(StatVfsMountFlags::NOEXEC) => {
            "mounted noexec, so that the no-op provider cannot be loaded from there".to_owned()
        }
        Ok(system) => format!("{} free", format_binary_bytes((system.f_bavail * system.f_frsize) as f64)),
    };
    let check = Check::ok("temporary files", format!("{}: {found}", directory.display()));
    let Ok(system) = system else { return check.but_if(true, Verdict::Fail, "set TMPDIR to a writable directory") };
    let (is_small, is_noexec) =
        (system.f_bavail * system.f_frsize < WANTED_BYTES, system.f_flag.contains(StatVfsMountFlags::NOEXEC));
    check.but_if(is_small, Verdict::Note, "large workloads write their files there; free some, or set TMPDIR").but_if(
        is_noexec,
        Verdict::Fail,
        "set TMPDIR to another file system",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_machines_pass() {
        assert_eq!(judge_cores(2).verdict, Verdict::Ok);
        assert_eq!(judge_load("0.10 0.2 0.3 1/100 5\n", 2).verdict, Verdict::Ok);
        assert_eq!(judge_siblings("0\n").verdict, Verdict::Ok);
        assert_eq!(judge_governor(Some("performance\n")).verdict, Verdict::Ok);
        assert_eq!(judge_governor(None).verdict, Verdict::Ok);
        assert_eq!(judge_steal("cpu  100 0 100 800 0 0 0 1 0 0\n").verdict, Verdict::Ok);
        assert_eq!(judge_accounting(Ok(())).verdict, Verdict::Ok);
        assert_eq!(judge_open_files(1024, 1 << 20).verdict, Verdict::Ok);
        let ports =
            judge_ports("32768\t60999\n", "sockets: used 9\nTCP: inuse 5 orphan 0 tw 12 alloc 8 mem 1\n").unwrap();
        assert_eq!(
            (ports.verdict, ports.finding.as_str()),
            (Verdict::Ok, "28232 local ports, 12 connections in TIME_WAIT")
        );
    }

    #[test]
    fn features_are_told_with_what_they_mean() {
        let machine = Machine::of_cpuinfo("flags: adx aes avx512ifma avx512vl bmi2");
        let judged = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            judge_features(&machine, variables).unwrap()
        };
        assert!(judged(&[]).verdict == Verdict::Ok && judged(&[]).finding.contains("RSA-2048 takes about half"));
        let masked = judged(&[("OPENSSL_ia32cap", ":~0x200000")]);
        assert!(masked.verdict == Verdict::Warn && masked.remedy.contains("OPENSSL_ia32cap"));
        assert_eq!(judge_features(&Machine::default(), BTreeMap::new()), None);
    }

    #[test]
    fn what_is_wrong_comes_with_a_remedy() {
        let tcp = |waiting: u32| format!("TCP: inuse 5 orphan 0 tw {waiting} alloc 8 mem 1\n");
        let refused = || Err(anyhow::anyhow!("not allowed"));
        for (check, verdict) in [
            (judge_cores(1), Verdict::Warn),
            (judge_load("1.50 0.2 0.3 1/100 5\n", 2), Verdict::Warn),
            (judge_siblings("0-1\n"), Verdict::Note),
            (judge_governor(Some("powersave\n")), Verdict::Warn),
            (judge_steal("cpu  100 0 100 700 0 0 0 100 0 0\n"), Verdict::Warn),
            (judge_accounting(refused()), Verdict::Note),
            (judge_quota(refused()), Verdict::Note),
            (judge_open_files(256, 1024), Verdict::Warn),
            (judge_ports("50000 60000", &tcp(0)).unwrap(), Verdict::Warn),
            (judge_ports("20000 60000", &tcp(30_000)).unwrap(), Verdict::Warn),
        ] {
            assert!(check.verdict == verdict && !check.remedy.is_empty(), "{check:?}");
        }
        assert_eq!(judge_ports("nonsense", &tcp(0)), None);
    }
}
