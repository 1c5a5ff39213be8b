//! Which CPUs machines, dispatchers and load run on, and how much CPU time each machine may use.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use tlsdyno_record::model::Measure;
use tlsdyno_runner::run::cpus;
use tlsdyno_servers::quota;

/// The part of a shared CPU that the machines on it may use: the rest is for their kernel's work that no group pays
/// for.
pub const USED_OF_SHARED: f64 = 0.9;

#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub measure: &'a Measure,
    pub count: usize,
    /// These in words: `3 backends`.
    pub name: String,
    /// CPU time that each may use, in CPUs; 0: no limit; `None`: chosen, so that all fit on the CPUs that they share.
    pub cpus: Option<f64>,
    /// The most of a shared CPU that its machines may be given by name.
    pub shared_most: f64,
    /// The dispatchers get a CPU of their own where there is one.
    pub dispatcher_apart: bool,
    pub flag: &'static str,
    pub otherwise: &'static str,
    pub no_limit: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    pub machines: Vec<usize>,
    pub dispatcher: usize,
    pub load: usize,
    /// CPU time that each machine may use, in CPUs; `None`: no limit.
    pub quota_cpus: Option<f64>,
    /// Why this machine cannot limit the machines' CPU time, where it would have been limited though nobody asked for
    /// it.
    pub limit_refused: Option<String>,
}

impl Placement {
    /// Spreads machines, dispatchers and load over the CPUs that this process may use, or where the experiment says.
    ///
    /// # Errors
    /// The experiment names a CPU that may not be used, or wants more CPU time for the machines than there is, or less
    /// for each than the kernel can limit it to.
    pub fn of(wanted: &Wanted, allowed: &[usize]) -> Result<Placement> {
        let cpus::Cpus { server, load } = cpus::choose(allowed, wanted.measure.server_cpu, wanted.measure.load_cpu)?;
        let mut free: Vec<usize> = allowed.iter().copied().filter(|cpu| ![load, server].contains(cpu)).collect();
        // Else the dispatchers share the load's CPU, because the machines are what is compared.
        let own = if wanted.dispatcher_apart { free.pop() } else { None };
        let homes: Vec<usize> = std::iter::once(server).chain(free).collect();
        let on_fullest = wanted.count.div_ceil(homes.len()) as f64;
        let most = if on_fullest > 1.0 { wanted.shared_most } else { 1.0 };
        let remedy = || wanted.remedy(two_digits(most / on_fullest));
        let (name, places) = (&wanted.name, homes.len());
        let limit = match wanted.cpus {
            Some(0.0) => None,
            None if on_fullest > 1.0 => Some(two_digits(USED_OF_SHARED / on_fullest)),
            None => None,
            Some(cpus) => {
                ensure!(
                    cpus * on_fullest <= most + 1e-9,
                    "{name} of {cpus} CPUs each do not fit on {places} CPUs beside the load's; {}",
                    remedy()
                );
                Some(cpus)
            }
        };
        // Nobody uses more than the one that he is on.
        let quota_cpus = limit.filter(|cpus| *cpus < 1.0);
        ensure!(
            quota_cpus.is_none_or(quota::is_possible),
            "{name} on {places} CPUs would have {} CPUs each, but the kernel limits nobody to less than {}; {}",
            quota_cpus.unwrap_or(0.0),
            quota::CPUS_MIN,
            remedy()
        );
        let machines = (0..wanted.count).map(|machine| homes[machine % homes.len()]).collect();
        Ok(Placement { machines, dispatcher: own.unwrap_or(load), load, quota_cpus, limit_refused: None })
    }

    /// This placement; where `limit` says that CPU time cannot be limited, without a limit that nobody asked for.
    ///
    /// # Errors
    /// The one of `limit`, where the experiment asks for a limit.
    pub fn or_unlimited(self, wanted: &Wanted, limit: impl FnOnce() -> Result<()>) -> Result<Placement> {
        if self.quota_cpus.is_none() {
            return Ok(self);
        }
        match limit() {
            Ok(()) => Ok(self),
            Err(error) if wanted.cpus.is_some() => Err(error.context(wanted.no_limit)),
            Err(error) => Ok(Placement { quota_cpus: None, limit_refused: Some(format!("{error:#}")), ..self }),
        }
    }

    pub fn shared_by_machines(&self) -> impl Iterator<Item = usize> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        self.machines.iter().for_each(|cpu| *counts.entry(*cpu).or_default() += 1);
        counts.into_values()
    }

    pub fn dispatcher_shares_load(&self) -> bool {
        self.dispatcher == self.load
    }

    /// CPU time that all machines together can have, in CPUs.
    pub fn capacity_cpus(&self) -> f64 {
        match self.quota_cpus {
            Some(cpus) => cpus * self.machines.len() as f64,
            None => self.shared_by_machines().count() as f64,
        }
    }

    pub fn cpus(&self) -> Vec<u32> {
        let different: BTreeSet<usize> = self.machines.iter().copied().collect();
        different.into_iter().map(|cpu| cpu as u32).collect()
    }

    pub fn limit(&self) -> String {
        self.quota_cpus.map_or_else(
            || "no limit of CPU time".to_owned(),
            |cpus| format!("at most {cpus} CPUs each (quota of the kernel)"),
        )
    }
}

impl Wanted<'_> {
    /// What to ask for instead, where each machine can have so much at most.
    fn remedy(&self, most: f64) -> String {
        let Wanted { flag, otherwise, .. } = self;
        if quota::is_possible(most) {
            format!("give {flag} {most} at most and {} at least, or {otherwise}", quota::CPUS_MIN)
        } else {
            format!("give {otherwise}")
        }
    }
}

/// These CPUs in words, each once: `CPUs 0, 1`.
pub fn on_cpus(cpus: &[usize]) -> String {
    let different: BTreeSet<usize> = cpus.iter().copied().collect();
    let names: Vec<String> = different.iter().map(ToString::to_string).collect();
    format!("{} {}", if names.len() == 1 { "CPU" } else { "CPUs" }, names.join(", "))
}

/// Rounded down, because it shall still fit: what is short of a hundredth by the error of a division only is not cut.
fn two_digits(cpus: f64) -> f64 {
    (cpus * 100.0 + 1e-6).floor() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(measure: &Measure, count: usize, cpus: Option<f64>) -> Wanted<'_> {
        Wanted {
            measure,
            count,
            name: format!("{count} backends"),
            cpus,
            shared_most: 1.0,
            dispatcher_apart: true,
            flag: "--backend-cpus",
            otherwise: "fewer --backends, or --backend-cpus 0 for no limit",
            no_limit: "--backend-cpus 0 goes without a limit",
        }
    }

    fn placed(allowed: &[usize], count: usize, cpus: Option<f64>) -> Result<Placement> {
        Placement::of(&wanted(&Measure::default(), count, cpus), allowed)
    }

    fn refused(allowed: &[usize], count: usize, cpus: Option<f64>) -> String {
        placed(allowed, count, cpus).unwrap_err().to_string()
    }

    #[test]
    fn few_cpus_are_shared_and_the_capacity_is_defined() {
        let two = placed(&[0, 1], 3, None).unwrap();
        assert_eq!((&two.machines[..], two.dispatcher, two.load), (&[0, 0, 0][..], 1, 1));
        assert_eq!(two.quota_cpus, Some(0.3));
        assert!(
            two.shared_by_machines().any(|count| count > 1)
                && two.dispatcher_shares_load()
                && !two.machines.contains(&two.load)
        );
        assert!((two.capacity_cpus() - 0.9).abs() < 1e-9);
        let free = placed(&[0, 1], 3, Some(0.0)).unwrap();
        assert_eq!((free.quota_cpus, free.capacity_cpus()), (None, 1.0));
        let one = placed(&[0], 3, None).unwrap();
        assert!(one.machines.contains(&one.load));
    }

    #[test]
    fn enough_cpus_are_not_shared() {
        let five = placed(&[0, 1, 2, 3, 4], 3, None).unwrap();
        assert_eq!((&five.machines[..], five.dispatcher, five.load), (&[0, 1, 2][..], 3, 4));
        assert_eq!((five.quota_cpus, five.capacity_cpus()), (None, 3.0));
        assert!(!five.shared_by_machines().any(|count| count > 1) && !five.dispatcher_shares_load());
        let four = placed(&[0, 1, 2, 3], 3, None).unwrap();
        assert_eq!((&four.machines[..], four.quota_cpus), (&[0, 1, 0][..], Some(0.45)));
        let measure = Measure::default();
        let together = Wanted { dispatcher_apart: false, ..wanted(&measure, 5, Some(0.4)) };
        let four = Placement::of(&together, &[0, 1, 2, 3]).unwrap();
        assert_eq!((&four.machines[..], four.dispatcher, four.load), (&[0, 1, 2, 0, 1][..], 3, 3));
        assert_eq!(placed(&[0, 1, 2], 2, Some(1.0)).unwrap_err().to_string().matches("0.5 at most").count(), 1);
        assert_eq!(
            Placement::of(&Wanted { count: 2, cpus: Some(1.0), ..together }, &[0, 1, 2]).unwrap().quota_cpus,
            None
        );
    }

    #[test]
    fn too_much_is_refused_with_what_fits() {
        let said = refused(&[0, 1], 3, Some(0.5));
        assert!(said.contains("--backend-cpus 0.33 "), "{said}");
        let said = refused(&[0, 1], 6, Some(0.17));
        assert!(said.contains("--backend-cpus 0.16 "), "{said}");
        assert_eq!(placed(&[0, 1], 6, Some(0.16)).unwrap().quota_cpus, Some(0.16), "the remedy is accepted");
        let most = Measure { server_cpu: Some(7), ..Measure::default() };
        let said = Placement::of(&wanted(&most, 3, None), &[0, 1]).unwrap_err().to_string();
        assert!(said.contains("--server-cpu 7"), "{said}");
        let measure = Measure::default();
        let less = |cpus| Wanted { shared_most: USED_OF_SHARED, ..wanted(&measure, 5, Some(cpus)) };
        let said = Placement::of(&less(0.2), &[0, 1]).unwrap_err().to_string();
        assert!(said.contains("--backend-cpus 0.18 at most"), "{said}");
        Placement::of(&less(0.18), &[0, 1]).unwrap();
    }

    #[test]
    fn quotas_that_the_kernel_refuses_are_refused_first() {
        assert_eq!(placed(&[0, 1], 18, None).unwrap().quota_cpus, Some(0.05));
        let said = refused(&[0, 1], 19, None);
        assert!(said.contains("--backends") && said.contains("--backend-cpus 0.05 at most"), "{said}");
        assert_eq!(placed(&[0, 1], 20, Some(0.05)).unwrap().quota_cpus, Some(0.05), "the remedy is accepted");
        let said = refused(&[0, 1], 21, Some(0.05));
        assert!(said.contains("give fewer --backends, or --backend-cpus 0 for no limit"), "{said}");
        assert_eq!(placed(&[0, 1], 21, Some(0.0)).unwrap().quota_cpus, None, "the remedy is accepted");
        assert!(refused(&[0, 1], 3, Some(0.04)).contains("less than 0.05"));
    }

    #[test]
    fn only_a_limit_that_was_asked_for_must_be_possible() {
        let measure = Measure::default();
        let placed = |cpus| {
            let wanted = wanted(&measure, 3, cpus);
            Placement::of(&wanted, &[0, 1]).unwrap().or_unlimited(&wanted, || anyhow::bail!("no control group"))
        };
        let unlimited = placed(None).unwrap();
        assert_eq!((unlimited.quota_cpus, unlimited.limit_refused.as_deref()), (None, Some("no control group")));
        let said = format!("{:#}", placed(Some(0.3)).unwrap_err());
        assert!(said.contains("--backend-cpus 0 ") && said.ends_with("no control group"), "{said}");
        assert_eq!(placed(Some(0.0)).unwrap().limit_refused, None, "nothing was to be limited");
    }

    #[test]
    fn cpus_are_named_once() {
        assert_eq!([on_cpus(&[0, 0]), on_cpus(&[1, 0, 1])], ["CPU 0", "CPUs 0, 1"]);
    }
}
