//! Which CPU the server runs on and which the load; the record names both.

use anyhow::{Result, ensure};
pub use tlsdyno_base::affinity::{allowed, stay_on};
use tlsdyno_record::model::Processors;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    pub server: usize,
    pub load: usize,
}

impl Cpus {
    /// Server and load share one CPU: throughput means little then.
    pub fn shared(self) -> bool {
        self.server == self.load
    }

    /// CPU of servers beside the server under test (a proxy's backend, a cache): not one of `server`, nor the load's if
    /// possible, so that the server under test has its CPUs alone.
    pub fn companion(self, server: &[usize], allowed: &[usize]) -> usize {
        let free = allowed.iter().copied().find(|cpu| !server.contains(cpu) && *cpu != self.load);
        free.unwrap_or(self.load)
    }
}

/// CPUs of the server of one configuration, and the capacity of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// As many as the configuration has processors.
    pub server: Vec<usize>,
    /// Limit of the server's CPU time, in CPUs, where its processors are slower than real ones.
    pub quota_cpus: Option<f64>,
    /// Maximum CPU time of the server, in CPUs.
    pub server_cpus: f64,
    /// Maximum CPU time of the load beside a saturated server, in CPUs.
    pub load_cpus: f64,
}

impl Placement {
    /// Elapsed time on the emulated machine: at least as long as the quota needs for this CPU time. An idle quota has a
    /// period's time in hand, so that 20 ms of work can end in half the time.
    pub fn elapsed_ns(&self, elapsed_ns: u64, server_cpu_ns: u64) -> u64 {
        self.quota_cpus.map_or(elapsed_ns, |cpus| elapsed_ns.max((server_cpu_ns as f64 / cpus) as u64))
    }
}

/// Places the server of a configuration. Slow processors may share the load's CPU, which then has the rest of it.
///
/// # Errors
/// This machine has too few CPUs, and the remedy.
pub fn place(cpus: Cpus, allowed: &[usize], processors: Option<Processors>) -> Result<Placement> {
    let Processors { count, speed } = processors.unwrap_or_default();
    let others = allowed.iter().copied().filter(|cpu| ![cpus.server, cpus.load].contains(cpu));
    let mut server: Vec<usize> = std::iter::once(cpus.server).chain(others).take(count as usize).collect();
    let slow = speed < 1.0;
    if slow && server.len() < count as usize && !server.contains(&cpus.load) {
        server.push(cpus.load);
    }
    ensure!(
        server.len() == count as usize,
        "a server with {count} processors needs {} CPUs{}, and this process may use {}: {}",
        if slow { count } else { count + 1 },
        if slow { "" } else { ", one of them for the load" },
        allowed.len(),
        if slow {
            "give it fewer"
        } else {
            "measure on a machine with more; a `speed` below 1 lets the load share a CPU with them, but emulated \
             processors tell nothing of what real ones lose to each other"
        }
    );
    let shares_load = server.contains(&cpus.load);
    Ok(Placement {
        server,
        quota_cpus: slow.then_some(f64::from(count) * speed),
        server_cpus: f64::from(count) * speed,
        load_cpus: if shares_load && slow { 1.0 - speed } else { 1.0 },
    })
}

/// The first allowed CPU for the server and the last for the load, unless others are given.
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

    #[test]
    fn a_companion_leaves_the_server_alone() {
        let cpus = Cpus { server: 0, load: 1 };
        assert_eq!(cpus.companion(&[0], &[0, 1]), 1);
        assert_eq!(cpus.companion(&[0, 2], &[0, 1, 2, 3]), 3);
    }

    #[test]
    fn no_work_is_over_before_the_quota_could_do_it() {
        let cpus = Cpus { server: 0, load: 1 };
        let of = |processors| place(cpus, &[0, 1], processors).unwrap();
        let quarter = of(Some(Processors { count: 1, speed: 0.25 }));
        assert_eq!([quarter.elapsed_ns(20, 8), quarter.elapsed_ns(40, 8)], [32, 40]);
        assert_eq!(of(None).elapsed_ns(20, 30), 20);
    }

    #[test]
    fn processors_are_real_cpus_or_parts_of_them() {
        let cpus = Cpus { server: 0, load: 1 };
        let place = |allowed: &[usize], count, speed| super::place(cpus, allowed, Some(Processors { count, speed }));
        let whole = super::place(cpus, &[0, 1], None).unwrap();
        assert_eq!((whole.server, whole.quota_cpus, whole.server_cpus, whole.load_cpus), (vec![0], None, 1.0, 1.0));
        let slow = place(&[0, 1], 1, 0.25).unwrap();
        assert_eq!((slow.server, slow.quota_cpus, slow.load_cpus), (vec![0], Some(0.25), 1.0));
        let two = place(&[0, 1], 2, 0.25).unwrap();
        assert_eq!((two.server, two.quota_cpus, two.server_cpus, two.load_cpus), (vec![0, 1], Some(0.5), 0.5, 0.75));
        let enough = place(&[0, 1, 2], 2, 1.0).unwrap();
        assert_eq!((enough.server, enough.quota_cpus, enough.load_cpus), (vec![0, 2], None, 1.0));
        let said = place(&[0, 1], 2, 1.0).unwrap_err().to_string();
        assert!(
            said.starts_with("a server with 2 processors needs 3 CPUs, one of them for the load, and this"),
            "{said}"
        );
        assert!(said.contains("may use 2: measure on a machine with more"), "{said}");
        assert!(place(&[0, 1], 3, 0.1).unwrap_err().to_string().contains("give it fewer"));
    }
}
