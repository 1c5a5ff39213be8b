//! What the processes of a server hold: memory, and descriptors, of which each connection that they accepted is one.

use std::fs;

use anyhow::{Context, Result};
use tlsdyno_base::process_tree;
use tlsdyno_record::store::MemoryPoint;

/// Of all of these processes; those that have ended hold nothing.
///
/// # Errors
/// One may not be looked into.
pub(super) fn of_processes(pids: &[u32]) -> Result<MemoryPoint> {
    let mut held = MemoryPoint::default();
    for pid in pids {
        let read = || -> Result<[u64; 2]> {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
            Ok([pss_bytes(&rollup).context("there is no Pss in it")?, descriptors])
        };
        match read() {
            Ok([pss_bytes, descriptors]) => {
                held.pss_bytes += pss_bytes;
                held.descriptors += descriptors;
            }
            Err(_) if process_tree::is_gone(*pid) => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("the memory of process {pid} cannot be read: run as the server's user or as root")
                });
            }
        }
    }
    Ok(held)
}

/// Memory of a process with its part of what it shares, without pages of files (proc_pid_smaps(5)): its part of a
/// library's pages grows when another program that uses the library ends.
fn pss_bytes(rollup: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        rollup.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok())
    };
    // Older kernels have the sum alone.
    let without_files = || Some(kib("Pss_Anon:")? + kib("Pss_Shmem:")?);
    without_files().or_else(|| kib("Pss:")).map(|kib| 1024 * kib)
}

/// What the kernel holds for a control group's sockets, and in its tables of files and connections, bytes, by the
/// `memory.stat` of cgroups(7).
pub(super) fn kernel_bytes(stat: &str) -> Option<u64> {
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
    Some(of("sock")? + of("slab")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_parse() {
        let rollup = "55d0c0c3c000-7ffd4a5f9000 ---p 00000000 00:00 0    [rollup]\nRss:  9356 kB\nPss:     1234 kB\n\
                      Pss_Anon:  900 kB\nPss_File:  330 kB\nPss_Shmem:  4 kB\n";
        assert_eq!((pss_bytes(rollup), pss_bytes("Rss: 1 kB\n")), (Some(904 * 1024), None));
        assert_eq!(pss_bytes("Rss: 9 kB\nPss: 5 kB\n"), Some(5 * 1024));
        let stat = "anon 1\nsock 4096\nslab_reclaimable 7\nslab 1000\n";
        assert_eq!((kernel_bytes(stat), kernel_bytes("anon 1\n")), (Some(5096), None));
    }

    #[test]
    fn what_is_held_shows() {
        let own = [std::process::id()];
        let before = of_processes(&own).unwrap();
        let memory = vec![1_u8; 64 << 20];
        let files: Vec<_> = (0..200).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = of_processes(&own).unwrap();
        // Other tests of this process take and leave some meanwhile.
        assert!(after.pss_bytes > before.pss_bytes + (48 << 20), "{before:?} {after:?} {}", memory.len());
        assert!(after.descriptors > before.descriptors + 100, "{before:?} {after:?} {}", files.len());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(of_processes(&[child.id()]).unwrap(), MemoryPoint::default());
    }
}
