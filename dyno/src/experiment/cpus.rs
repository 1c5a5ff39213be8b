//! Which CPU the server runs on and which the load; the record names both.

use anyhow::{Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity};

/// The choice, with what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// CPU of the server under test.
    pub server: usize,
    /// CPU of the load process.
    pub load: usize,
}

impl Cpus {
    /// Server and load share one CPU: throughput means little then.
    pub fn shared(self) -> bool {
        self.server == self.load
    }

    /// CPU of servers that the server under test needs beside it (a proxy's backend, a cache): one that is neither the server's nor the
    /// load's, else the load's, so that the server under test has its own for itself.
    pub fn companion(self) -> usize {
        allowed().into_iter().find(|cpu| *cpu != self.server && *cpu != self.load).unwrap_or(self.load)
    }
}

/// The CPUs that this process may use.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Chooses the first allowed CPU for the server and the last for the load, unless told otherwise.
pub fn choose(allowed: &[usize], server: Option<usize>, load: Option<usize>) -> Result<Cpus> {
    for (cpu, flag) in [(server, "--server-cpu"), (load, "--load-cpu")] {
        if let Some(cpu) = cpu {
            ensure!(allowed.contains(&cpu), "{flag} {cpu}: this process may only use the CPUs {allowed:?}");
        }
    }
    let first_not = |taken: Option<usize>, mut candidates: Vec<usize>| {
        candidates.retain(|cpu| Some(*cpu) != taken);
        candidates.first().copied().or(taken).unwrap_or(0)
    };
    let server = server.unwrap_or_else(|| first_not(load, allowed.to_vec()));
    let load = load.unwrap_or_else(|| first_not(Some(server), allowed.iter().rev().copied().collect()));
    Ok(Cpus { server, load })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_load_are_apart_where_that_can_be() {
        let cpus = |allowed: &[usize], server, load| choose(allowed, server, load).map(|c| (c.server, c.load));
        assert_eq!(cpus(&[0, 1], None, None).unwrap(), (0, 1));
        assert_eq!(cpus(&[2, 5, 7], None, None).unwrap(), (2, 7));
        assert_eq!(cpus(&[0, 1], Some(1), None).unwrap(), (1, 0));
        assert_eq!(cpus(&[0, 1], None, Some(0)).unwrap(), (1, 0));
        assert_eq!(cpus(&[3], None, None).unwrap(), (3, 3));
        assert!(cpus(&[0, 1], Some(9), None).unwrap_err().to_string().contains("--server-cpu 9"));
    }
}
