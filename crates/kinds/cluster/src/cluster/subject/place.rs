//! Where a cluster's machines run, in words, and what must be said of it.

use tlsdyno_record::model::place_of_load;
use tlsdyno_record::store::Warning;
use tlsdyno_record::store::warning::shared_cpus;

use crate::cluster::file::ClusterExperiment;
use crate::several_machines::placement::{Placement, Wanted, on_cpus};

/// `3 backends and 2 front ends`.
fn machines(experiment: &ClusterExperiment) -> String {
    let (backends, front_ends) = (experiment.cluster.backends, experiment.cluster.most_front_ends());
    let of = |count, name: &str| if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") };
    let front_ends = (front_ends > 0).then(|| format!(" and {}", of(front_ends, "front end")));
    of(backends, "backend") + &front_ends.unwrap_or_default()
}

pub fn wanted(experiment: &ClusterExperiment) -> Wanted<'_> {
    Wanted {
        measure: &experiment.measure,
        count: (experiment.cluster.backends + experiment.cluster.most_front_ends()) as usize,
        name: machines(experiment),
        cpus: experiment.cluster.backend_cpus,
        shared_most: 1.0,
        dispatcher_apart: true,
        flag: "--backend-cpus",
        otherwise: match experiment.cluster.has_front_ends() {
            true => "fewer --backends or --front-ends, or --backend-cpus 0 for no limit",
            false => "fewer --backends, or --backend-cpus 0 for no limit",
        },
        no_limit: "--backend-cpus cannot be had here; --backend-cpus 0 goes without a limit",
    }
}

pub fn description(placement: &Placement, experiment: &ClusterExperiment) -> String {
    let load = place_of_load(experiment.workers.as_ref(), placement.load);
    let has_addresses = experiment.has_addresses();
    let from = match experiment.network {
        Some(network) => format!("; between clients and what they connect to {network}"),
        None if has_addresses => String::new(),
        None => "; clients have the addresses of their workers".to_owned(),
    };
    let servers = machines(experiment);
    let dispatcher = match experiment.cluster.has_dispatcher() {
        true => format!("dispatcher on CPU {}", placement.dispatcher),
        false => "no dispatcher".to_owned(),
    };
    format!("{servers} on {}, {}; {dispatcher}; {load}{from}", on_cpus(&placement.machines), placement.limit())
}

/// That the backends have no limit of CPU time because this machine does not let us set one.
pub fn unlimited_warning(placement: &Placement) -> Option<Warning> {
    let why = placement.limit_refused.as_ref()?;
    let what = format!("the backends share CPUs and were to have a limit of CPU time each, but they have none: {why}");
    let remedy = "With control groups, or a CPU for each backend, the cluster has a defined capacity; --backend-cpus \
                  0 asks for no limit and is silent about it";
    Some(Warning::new("no_quota", what).with_remedy(remedy))
}

/// What it means that the machine has fewer CPUs than the cluster has machines. `is_loaded_here`: the load is one of
/// them.
pub fn sharing_warnings(placement: &Placement, experiment: &ClusterExperiment, is_loaded_here: bool) -> Vec<Warning> {
    let (who, has_dispatcher) = (machines(experiment), experiment.cluster.has_dispatcher());
    let mut warnings = Vec::new();
    if is_loaded_here && placement.machines.contains(&placement.load) {
        warnings.push(shared_cpus(&format!("backends and load are on CPU {}", placement.load)));
    }
    warnings.extend(unlimited_warning(placement));
    if placement.shared_by_machines().any(|count| count > 1) {
        let what = match placement.quota_cpus {
            Some(cpus) => format!(
                "{who} share CPUs, each with a quota of {cpus} CPUs, so that {} has a capacity of {:.2} CPUs: hits/s \
                 are those of that capacity, and latency has the quota's period of 10 ms in it",
                if experiment.cluster.has_front_ends() { "the largest cell" } else { "the cluster" },
                placement.capacity_cpus()
            ),
            None => format!(
                "{who} share CPUs without a quota: one that gets more of the load uses the others' time too, so that \
                 hits/s hide an uneven balance"
            ),
        };
        let remedy = "Compare CPU per hit and accepted resumptions first; absolute hits/s want a CPU for each backend";
        warnings.push(Warning::new("backends_share_cpus", what).with_remedy(remedy));
    }
    if is_loaded_here && has_dispatcher && placement.dispatcher_shares_load() {
        let what = "the dispatcher shares the load's CPU: what it costs is measured, but not how much it could carry";
        let remedy = "A machine with more CPUs gives it one of its own";
        warnings.push(Warning::new("dispatcher_shares_cpu", what).with_remedy(remedy));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_for_everything_is_said() {
        let by = |allowed: &[usize], is_loaded_here| {
            let experiment = ClusterExperiment::default();
            let placement = Placement::of(&wanted(&experiment), allowed).unwrap();
            sharing_warnings(&placement, &experiment, is_loaded_here)
        };
        let warnings = |allowed: &[usize]| by(allowed, true);
        let one = warnings(&[0]);
        assert!(one[0].code == "shared_cpus" && one.len() == 3, "{one:?}");
        assert_eq!(warnings(&[0, 1]).len(), 2);
        assert_eq!(warnings(&[0, 1, 2, 3, 4]), []);
        assert_eq!((by(&[0], false).len(), by(&[0, 1], false).len()), (1, 1), "the load is on another machine");
        let mut experiment = ClusterExperiment::default();
        let placement = Placement::of(&wanted(&experiment), &[0, 1]).unwrap();
        experiment.cluster.policies = vec![tlsdyno_record::model::Policy::Direct];
        let said = sharing_warnings(&placement, &experiment, true).iter().map(Warning::to_string).collect::<String>();
        assert!(!said.contains("dispatcher"), "who connects directly has none: {said}");
    }

    #[test]
    fn a_limit_that_cannot_be_set_is_said_with_the_flag() {
        let experiment = ClusterExperiment::default();
        let placement = Placement::of(&wanted(&experiment), &[0, 1]).unwrap();
        let placement = placement.or_unlimited(&wanted(&experiment), || anyhow::bail!("read-only")).unwrap();
        let said = sharing_warnings(&placement, &experiment, true)
            .iter()
            .map(Warning::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        assert!(said.contains("read-only") && said.contains("--backend-cpus 0"), "{said}");
        assert!(said.contains("share CPUs without a quota"), "{said}");
    }
}
