//! What the record of a cluster experiment says before its first block.

use std::collections::BTreeMap;

use super::place::Placement;
use super::testbed::{CellUnderTest, ClusterTestbed};
use crate::kinds::cluster::cell::Cell;
use crate::kinds::cluster::file::ClusterExperiment;
use crate::listening::is_loopback;
use crate::run::manifest;
use crate::store::warning::shared_cpus;
use crate::store::{Configuration, Measured, Record, Warning};

/// A cell as a configuration of the record, with the checks that it passed.
pub fn configuration(tested: &CellUnderTest, cells: &[Cell]) -> Configuration {
    Configuration::setting(tested.cell.name(cells), tested.has_tls, tested.checks.clone())
}

/// Fills in the circumstances, once everything runs, and what must be said of them.
pub fn describe(record: &mut Record, experiment: &ClusterExperiment, testbed: &ClusterTestbed) {
    record.measured = Measured::from(experiment.clone());
    let manifest = &mut record.manifest;
    manifest::describe_seed(manifest, &experiment.workload);
    let placement = &testbed.placement;
    let mut cpus: Vec<u32> = placement.backends.iter().map(|cpu| *cpu as u32).collect();
    cpus.sort_unstable();
    cpus.dedup();
    manifest.server_cpus = cpus;
    manifest.client_cpus = manifest::cpus_of_load(experiment.workers.as_ref(), placement.load);
    manifest.hardware = BTreeMap::from([("cluster".to_owned(), placement.description(experiment))]);
    if !experiment.cluster.plain {
        manifest.certificate = experiment.tls.certificate().to_string();
    }
    manifest.effort = experiment.traffic.effort.to_string();
    manifest.workload = manifest::workload_line(&testbed.site.summary);
    manifest.server_name = experiment.cluster.server.name().to_owned();
    if let Some(backend) = testbed.groups.first().and_then(|group| group.backends.first()) {
        manifest::describe_server(manifest, backend.description());
    }
    for group in &testbed.groups {
        if let Some(server) = &group.session_server {
            let description = server.description();
            let name = format!("{} of all backends", group.sharing.name());
            manifest.server_config.insert(name, format!("# {}\n{}", description.version, description.config));
        }
    }
    for (tested, dispatcher) in testbed.cells.iter().filter_map(|tested| Some((tested, tested.dispatcher.as_ref()?))) {
        let description = dispatcher.instance.description();
        let name = format!("dispatcher {}, {} sessions", tested.cell.policy.name(), tested.cell.sharing.name());
        let text = format!("# {}\n{}", description.version, description.config);
        manifest.server_config.entry(name).or_insert(text);
    }
    if let Ok(toml) = experiment.to_toml() {
        manifest.server_config.insert("experiment.toml".to_owned(), toml);
    }
    let is_loaded_here = experiment.workers.is_none() || is_loopback(experiment.cluster.ip());
    let has_dispatcher = experiment.cluster.has_dispatcher();
    record.warnings.extend(sharing_warnings(placement, is_loaded_here, has_dispatcher));
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
fn sharing_warnings(placement: &Placement, is_loaded_here: bool, has_dispatcher: bool) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if is_loaded_here && placement.load_shares_backends() {
        warnings.push(shared_cpus(&format!("backends and load are on CPU {}", placement.load)));
    }
    warnings.extend(unlimited_warning(placement));
    if placement.backends_share() {
        let what = match placement.backend_cpus {
            Some(cpus) => format!(
                "{} backends share CPUs, each with a quota of {cpus} CPUs, so that the cluster has a capacity of \
                 {:.2} CPUs: hits/s are those of that capacity, and latency has the quota's period of 10 ms in it",
                placement.backends.len(),
                placement.capacity_cpus()
            ),
            None => format!(
                "{} backends share CPUs without a quota: one that gets more of the load uses the others' time too, so \
                 that hits/s hide an uneven balance",
                placement.backends.len()
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
            let placement = Placement::of(&ClusterExperiment::default(), allowed).unwrap();
            sharing_warnings(&placement, is_loaded_here, true)
        };
        let warnings = |allowed: &[usize]| by(allowed, true);
        let one = warnings(&[0]);
        assert!(one[0].code == "shared_cpus" && one.len() == 3, "{one:?}");
        assert_eq!(warnings(&[0, 1]).len(), 2);
        assert_eq!(warnings(&[0, 1, 2, 3, 4]), []);
        assert_eq!((by(&[0], false).len(), by(&[0, 1], false).len()), (1, 1), "the load is on another machine");
        let placement = Placement::of(&ClusterExperiment::default(), &[0, 1]).unwrap();
        let said = sharing_warnings(&placement, true, false).iter().map(Warning::to_string).collect::<String>();
        assert!(!said.contains("dispatcher"), "who connects directly has none: {said}");
    }

    #[test]
    fn a_limit_that_cannot_be_set_is_said_with_the_flag() {
        let placement = Placement::of(&ClusterExperiment::default(), &[0, 1]).unwrap();
        let placement = placement.or_unlimited(&ClusterExperiment::default(), || anyhow::bail!("read-only")).unwrap();
        let said =
            sharing_warnings(&placement, true, true).iter().map(Warning::to_string).collect::<Vec<_>>().join("\n");
        assert!(said.contains("read-only") && said.contains("--backend-cpus 0"), "{said}");
        assert!(said.contains("share CPUs without a quota"), "{said}");
    }
}
