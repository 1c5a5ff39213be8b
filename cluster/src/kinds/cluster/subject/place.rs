//! Which CPUs backends, dispatcher and load run on, and how much of them each backend may use.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::kinds::cluster::file::ClusterExperiment;
use crate::model::place_of_load;
use crate::run::cpus;
use crate::servers::quota;

/// The part of the CPUs that backends share which all of them together may use: the rest is for their kernel's work
/// that no group pays for.
const USED_OF_SHARED: f64 = 0.9;

/// The placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// CPU of each backend.
    pub backends: Vec<usize>,
    /// CPU of the dispatchers.
    pub dispatcher: usize,
    /// CPU of the load.
    pub load: usize,
    /// CPU time that each backend may use, in CPUs.
    pub backend_cpus: Option<f64>,
    /// Why this machine cannot limit the backends' CPU time, where it would have been limited though nobody asked for
    /// it.
    pub limit_refused: Option<String>,
}

impl Placement {
    /// Spreads backends, dispatcher and load over the CPUs that this process may use, or where the experiment says.
    ///
    /// # Errors
    /// The experiment names a CPU that may not be used, or wants more CPU time for the backends than there is, or less
    /// for each than the kernel can limit it to.
    pub fn of(experiment: &ClusterExperiment, allowed: &[usize]) -> Result<Placement> {
        let measure = &experiment.measure;
        let cpus::Cpus { server, load } = cpus::choose(allowed, measure.server_cpu, measure.load_cpu)?;
        let mut free: Vec<usize> = allowed.iter().copied().filter(|cpu| *cpu != load && *cpu != server).collect();
        // The dispatcher gets a CPU of its own where there is one; else it shares the load's, because the backends are
        // what is compared.
        let dispatcher = free.pop().unwrap_or(load);
        let homes: Vec<usize> = std::iter::once(server).chain(free).collect();
        let count = experiment.cluster.backends as usize;
        let backends: Vec<usize> = (0..count).map(|backend| homes[backend % homes.len()]).collect();
        let on_fullest = count.div_ceil(homes.len()) as f64;
        let backend_cpus = match experiment.cluster.backend_cpus {
            Some(0.0) => None,
            Some(cpus) => {
                ensure!(
                    cpus * on_fullest <= 1.0 + 1e-9,
                    "{count} backends of {cpus} CPUs each do not fit on {} CPUs; {}",
                    homes.len(),
                    remedy(on_fullest)
                );
                Some(cpus)
            }
            None if on_fullest > 1.0 => Some(two_digits(USED_OF_SHARED / on_fullest)),
            None => None,
        };
        ensure!(
            backend_cpus.is_none_or(quota::is_possible),
            "{count} backends on {} CPUs would have {} CPUs each, but the kernel limits nobody to less than {}; {}",
            homes.len(),
            backend_cpus.unwrap_or(0.0),
            quota::CPUS_MIN,
            remedy(on_fullest)
        );
        Ok(Placement { backends, dispatcher, load, backend_cpus, limit_refused: None })
    }

    /// The same where `limit` says that CPU time cannot be limited: backends go without a limit that nobody asked for.
    ///
    /// # Errors
    /// The one of `limit`, where the experiment asks for a limit.
    pub fn or_unlimited(self, experiment: &ClusterExperiment, limit: impl FnOnce() -> Result<()>) -> Result<Placement> {
        if self.backend_cpus.is_none() {
            return Ok(self);
        }
        match limit() {
            Ok(()) => Ok(self),
            Err(error) if experiment.cluster.backend_cpus.is_some() => {
                Err(error.context("--backend-cpus cannot be had here; --backend-cpus 0 goes without a limit"))
            }
            Err(error) => Ok(Placement { backend_cpus: None, limit_refused: Some(format!("{error:#}")), ..self }),
        }
    }

    /// Backends share CPUs with each other.
    pub fn backends_share(&self) -> bool {
        self.shared_by_backends().any(|count| count > 1)
    }

    fn shared_by_backends(&self) -> impl Iterator<Item = usize> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        self.backends.iter().for_each(|cpu| *counts.entry(*cpu).or_default() += 1);
        counts.into_values()
    }

    /// Dispatcher and load share a CPU.
    pub fn dispatcher_shares_load(&self) -> bool {
        self.dispatcher == self.load
    }

    /// The load is on a CPU of backends: there is no other, or that was asked for.
    pub fn load_shares_backends(&self) -> bool {
        self.backends.contains(&self.load)
    }

    /// CPU time that all backends together can have, in CPUs.
    pub fn capacity_cpus(&self) -> f64 {
        match self.backend_cpus {
            Some(cpus) => cpus * self.backends.len() as f64,
            None => self.shared_by_backends().count() as f64,
        }
    }

    /// It in words, for the manifest.
    pub fn description(&self, experiment: &ClusterExperiment) -> String {
        let limit = self.backend_cpus.map_or_else(
            || "no limit of CPU time".to_owned(),
            |cpus| format!("at most {cpus} CPUs each (quota of the kernel)"),
        );
        let cpus: BTreeSet<usize> = self.backends.iter().copied().collect();
        let backends: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        let load = place_of_load(experiment.workers.as_ref(), self.load);
        let has_addresses = experiment.cluster.has_addresses();
        let from = if has_addresses { "" } else { "; clients have the addresses of their workers" };
        let count = self.backends.len();
        let servers = if count == 1 { "1 backend".to_owned() } else { format!("{count} backends") };
        let dispatcher = match experiment.cluster.has_dispatcher() {
            true => format!("dispatcher on CPU {}", self.dispatcher),
            false => "no dispatcher".to_owned(),
        };
        format!("{servers} on CPU {}, {limit}; {dispatcher}; {load}{from}", backends.join(", "))
    }
}

/// What to ask for instead, where at most `on_fullest` backends are on one CPU.
fn remedy(on_fullest: f64) -> String {
    let most = two_digits(1.0 / on_fullest);
    let otherwise = "fewer --backends, or --backend-cpus 0 for no limit";
    if quota::is_possible(most) {
        format!("give --backend-cpus {most} at most and {} at least, or {otherwise}", quota::CPUS_MIN)
    } else {
        format!("give {otherwise}")
    }
}

/// Rounded down, because it shall still fit: what is short of a hundredth by the error of a division only is not cut.
fn two_digits(cpus: f64) -> f64 {
    (cpus * 100.0 + 1e-6).floor() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::cluster::file::Cluster;
    use crate::model::Measure;

    fn placed(allowed: &[usize], edit: impl Fn(&mut ClusterExperiment)) -> Result<Placement> {
        let mut experiment = ClusterExperiment::default();
        edit(&mut experiment);
        Placement::of(&experiment, allowed)
    }

    #[test]
    fn few_cpus_are_shared_and_the_capacity_is_defined() {
        let two = placed(&[0, 1], |_| ()).unwrap();
        assert_eq!((&two.backends[..], two.dispatcher, two.load), (&[0, 0, 0][..], 1, 1));
        assert_eq!(two.backend_cpus, Some(0.3));
        assert!(two.backends_share() && two.dispatcher_shares_load());
        assert!((two.capacity_cpus() - 0.9).abs() < 1e-9);
        let free = placed(&[0, 1], |e| e.cluster.backend_cpus = Some(0.0)).unwrap();
        assert_eq!((free.backend_cpus, free.capacity_cpus()), (None, 1.0));
    }

    #[test]
    fn enough_cpus_are_not_shared() {
        let five = placed(&[0, 1, 2, 3, 4], |_| ()).unwrap();
        assert_eq!((&five.backends[..], five.dispatcher, five.load), (&[0, 1, 2][..], 3, 4));
        assert_eq!((five.backend_cpus, five.capacity_cpus()), (None, 3.0));
        assert!(!five.backends_share() && !five.dispatcher_shares_load());
        let four = placed(&[0, 1, 2, 3], |_| ()).unwrap();
        assert_eq!((&four.backends[..], four.backend_cpus), (&[0, 1, 0][..], Some(0.45)));
    }

    #[test]
    fn too_much_is_refused_with_what_fits() {
        let error = placed(&[0, 1], |e| e.cluster.backend_cpus = Some(0.5)).unwrap_err().to_string();
        assert!(error.contains("--backend-cpus 0.33 "), "{error}");
        let six = |cpus| {
            placed(&[0, 1], |e| {
                e.cluster.backends = 6;
                e.cluster.backend_cpus = Some(cpus);
            })
        };
        let error = six(0.17).unwrap_err().to_string();
        assert!(error.contains("--backend-cpus 0.16 "), "{error}");
        assert_eq!(six(0.16).unwrap().backend_cpus, Some(0.16), "the remedy is accepted");
        let measure = Measure { server_cpu: Some(7), ..Measure::default() };
        assert!(placed(&[0, 1], |e| e.measure = measure.clone()).unwrap_err().to_string().contains("--server-cpu 7"));
    }

    #[test]
    fn quotas_that_the_kernel_refuses_are_refused_first() {
        let with = |backends, cpus| {
            placed(&[0, 1], |e| {
                e.cluster.backends = backends;
                e.cluster.backend_cpus = cpus;
            })
        };
        assert_eq!(with(18, None).unwrap().backend_cpus, Some(0.05));
        let error = with(19, None).unwrap_err().to_string();
        assert!(error.contains("--backends") && error.contains("--backend-cpus 0.05 at most"), "{error}");
        assert_eq!(with(20, Some(0.05)).unwrap().backend_cpus, Some(0.05), "the remedy is accepted");
        let error = with(21, Some(0.05)).unwrap_err().to_string();
        assert!(error.contains("give fewer --backends, or --backend-cpus 0 for no limit"), "{error}");
        assert_eq!(with(21, Some(0.0)).unwrap().backend_cpus, None, "the remedy is accepted");
        assert!(with(3, Some(0.04)).unwrap_err().to_string().contains("less than 0.05"));
    }

    #[test]
    fn only_a_limit_that_was_asked_for_must_be_possible() {
        let refused = || anyhow::bail!("no control group");
        let three = |cpus| ClusterExperiment {
            cluster: Cluster { backend_cpus: cpus, ..Cluster::default() },
            ..ClusterExperiment::default()
        };
        let placed = |cpus| Placement::of(&three(cpus), &[0, 1]).unwrap().or_unlimited(&three(cpus), refused);
        let unlimited = placed(None).unwrap();
        assert_eq!((unlimited.backend_cpus, unlimited.limit_refused.as_deref()), (None, Some("no control group")));
        let error = format!("{:#}", placed(Some(0.3)).unwrap_err());
        assert!(error.contains("--backend-cpus 0 ") && error.ends_with("no control group"), "{error}");
        assert_eq!(placed(Some(0.0)).unwrap().limit_refused, None, "nothing was to be limited");
    }

    #[test]
    fn one_cpu_is_shared_by_everybody() {
        assert!(placed(&[0], |_| ()).unwrap().load_shares_backends());
        assert!(!placed(&[0, 1], |_| ()).unwrap().load_shares_backends());
    }
}
