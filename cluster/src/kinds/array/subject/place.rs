//! Which CPUs the machines of an array run on. Where they share CPUs each has a quota of CPU time.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::kinds::array::file::ArrayExperiment;
use crate::model::{WorkersModel, place_of_load};
use crate::run::cpus;
use crate::servers::quota;

/// The part of a CPU that all machines on it together may use: the rest is for their kernel's work that no group pays
/// for.
const USED_OF_CPU: f64 = 0.9;

/// The placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// CPU of the transaction server.
    pub server: usize,
    /// CPU of each proxy.
    pub proxies: Vec<usize>,
    /// CPU of the load and of the dispatchers.
    pub load: usize,
    /// CPU time that each machine may use, in CPUs; `None`: it has a whole CPU for itself.
    pub quota_cpus: Option<f64>,
}

impl Placement {
    /// Spreads the server and the most proxies that are measured over the CPUs that this process may use, the load
    /// apart.
    ///
    /// # Errors
    /// They do not fit, or the kernel cannot limit them to so little.
    pub fn of(experiment: &ArrayExperiment, allowed: &[usize]) -> Result<Placement> {
        let measure = &experiment.measure;
        let cpus::Cpus { server, load } = cpus::choose(allowed, measure.server_cpu, measure.load_cpu)?;
        let others = allowed.iter().copied().filter(|cpu| *cpu != load && *cpu != server);
        let homes: Vec<usize> = std::iter::once(server).chain(others).collect();
        let proxies = experiment.array.proxies.iter().copied().max().unwrap_or(0) as usize;
        // Of each spread with other ticket keys there is a set, but only one works at a time.
        let on_fullest = (1 + proxies).div_ceil(homes.len()) as f64;
        let each = experiment.array.machine_cpus;
        ensure!(
            each * on_fullest <= if on_fullest > 1.0 { USED_OF_CPU } else { 1.0 } + 1e-9,
            "a server and {proxies} proxies of {each} CPUs each do not fit on {} CPUs beside the load's; give \
             --machine-cpus {:.2} at most, or fewer --proxies",
            homes.len(),
            (100.0 * USED_OF_CPU / on_fullest).floor() / 100.0
        );
        let quota_cpus = (each < 1.0).then_some(each);
        ensure!(
            quota_cpus.is_none_or(quota::is_possible),
            "the kernel limits nobody to {each} CPUs, less than {}; give --machine-cpus {} or more",
            quota::CPUS_MIN,
            quota::CPUS_MIN
        );
        let home = |machine: usize| homes[machine % homes.len()];
        Ok(Placement { server, proxies: (1..=proxies).map(home).collect(), load, quota_cpus })
    }

    /// It in words, for the manifest.
    pub fn description(&self, workers: Option<&WorkersModel>) -> String {
        let each = self.quota_cpus.map_or("a CPU each".to_owned(), |cpus| format!("at most {cpus} CPUs each (quota)"));
        let cpus: BTreeSet<usize> = self.proxies.iter().copied().collect();
        let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        let on = format!("on {} {}", if cpus.len() == 1 { "CPU" } else { "CPUs" }, cpus.join(", "));
        let of_proxies = match self.proxies.len() {
            0 => "no proxies".to_owned(),
            1 => format!("1 proxy {on}"),
            count => format!("{count} proxies {on}"),
        };
        let load = place_of_load(workers, self.load);
        format!("transaction server on CPU {}, {of_proxies}, {each}; {load}", self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(allowed: &[usize], proxies: u32, cpus: f64) -> Result<Placement> {
        let mut experiment = ArrayExperiment::default();
        experiment.array.proxies = vec![proxies];
        experiment.array.machine_cpus = cpus;
        Placement::of(&experiment, allowed)
    }

    #[test]
    fn machines_share_what_the_load_leaves() {
        let two = placed(&[0, 1], 4, 0.1).unwrap();
        assert_eq!((two.server, &two.proxies[..], two.load, two.quota_cpus), (0, &[0; 4][..], 1, Some(0.1)));
        assert!(two.description(None).contains(", 4 proxies on CPU 0, "), "{}", two.description(None));
        let four = placed(&[0, 1, 2, 3], 4, 0.4).unwrap();
        assert_eq!((four.server, &four.proxies[..], four.load), (0, &[1, 2, 0, 1][..], 3));
        assert!(four.description(None).contains(", 4 proxies on CPUs 0, 1, 2, "), "{}", four.description(None));
        assert_eq!(placed(&[0, 1, 2], 1, 1.0).unwrap().quota_cpus, None, "a CPU each");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_does() {
        let said = placed(&[0, 1], 4, 0.2).unwrap_err().to_string();
        assert!(said.contains("--machine-cpus 0.18"), "{said}");
        placed(&[0, 1], 4, 0.18).unwrap();
        assert!(placed(&[0, 1], 1, 0.04).unwrap_err().to_string().contains("--machine-cpus 0.05 "));
    }
}
