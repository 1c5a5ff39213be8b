//! Which configurations are modes of one server: its stage sets, between which a word in shared memory switches while
//! it runs. What is decided once in the life of a process cannot be a mode.

use std::path::PathBuf;

use tlsdyno_record::model::{ConfigurationModel, Experiment, Tls, name_on_second};
use tlsdyno_record::store::Warning;
use tlsdyno_tls::suite::Protection;
use tlsdyno_tls::{Stage, StageSet};

use super::own_command;

/// Name of the mode with all stages real, to which the others are compared.
pub const REFERENCE: &str = "nothing off";
/// Name of the doubler's mode with nothing doubled.
const DOUBLER_REFERENCE: &str = "nothing doubled";

/// Reason why CPU time is told by blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlices {
    /// Slices make no sense there.
    AsExpected,
    /// Slices would make sense; the reason in words.
    Because(&'static str),
    /// The servers take turns by restart, because they share one port.
    FixedPort,
}

impl NoSlices {
    pub fn told(self) -> Option<Warning> {
        let (why, remedy) = match self {
            NoSlices::AsExpected => return None,
            NoSlices::Because(why) => (why, "Intervals are wider so; measure longer (--time)"),
            NoSlices::FixedPort => (
                "the port is fixed, so that the server is restarted for each of them",
                "Less than --time 300 resolves hardly anything so. Write {port} in place of the port, in --address \
                 and in the server's configuration",
            ),
        };
        let what =
            format!("CPU time is compared between blocks of tenths of a second, not slices of milliseconds: {why}");
        Some(Warning::new("no_slices", what).with_remedy(remedy))
    }
}

/// Adds configurations that host the others as their modes, where slices can compare them; else says why not.
pub fn with_host(experiment: &Experiment) -> Result<Experiment, NoSlices> {
    if experiment.measure.slice_us == Some(0) || experiment.measure.fresh_servers {
        return Err(NoSlices::AsExpected);
    }
    let mut experiment = experiment.clone();
    let hosts = libraries(&experiment).into_iter().map(|library| {
        let modes = experiment.configurations.iter().filter(|model| is_mode(model, &experiment.tls, None));
        let modes = modes.filter(|model| model.library == library);
        let stages = modes.fold(StageSet::NONE, |stages, model| stages.union(model.noop));
        (position_of_host(&experiment, &library), stages, library)
    });
    let hosts: Vec<(Option<usize>, StageSet, Option<PathBuf>)> = hosts.collect();
    let no_host = hosts.iter().all(|(host, stages, _)| host.is_none() && stages.is_empty());
    let doubles = experiment.configurations.iter().any(is_doubling_mode);
    let doubler = position_of_doubler(&experiment);
    if no_host && doubler.is_none() && !doubles {
        return Err(NoSlices::AsExpected);
    }
    let because = |why| Err(NoSlices::Because(why));
    if own_command::has_fixed_port(&experiment) {
        return Err(NoSlices::FixedPort);
    }
    // On machines they are measured in blocks only.
    let limited = |model: &ConfigurationModel| {
        model.base.is_none() && model.processors.is_some_and(|processors| processors.speed < 1.0)
    };
    if experiment.configurations.iter().any(limited) {
        return because("a quota of CPU time holds over tenths of a second only");
    }
    for (host, stages, library) in hosts {
        match host {
            Some(host) => {
                let wrapped = experiment.configurations[host].wrapped.union(stages);
                experiment.configurations[host].wrapped = wrapped;
            }
            None if stages.is_empty() => {}
            None => {
                let name = if library.is_some() { name_on_second(REFERENCE) } else { REFERENCE.to_owned() };
                let reference =
                    ConfigurationModel { wrapped: stages, library, ..ConfigurationModel::without(&name, []) };
                experiment.configurations.push(reference);
            }
        }
    }
    if doubles && doubler.is_none() {
        experiment.configurations.push(ConfigurationModel::doubling(DOUBLER_REFERENCE, StageSet::NONE));
    }
    Ok(experiment)
}

/// For each configuration, the one in whose server it is a mode; `None`: it has its own server. With a quota of one
/// processor it is in the server that it has without a quota.
pub fn hosts(experiment: &Experiment) -> Vec<Option<usize>> {
    let doubler = position_of_doubler(experiment);
    let host_of = |model: &ConfigurationModel| match is_doubling_mode(model) {
        true => doubler,
        false => {
            let host = position_of_host(experiment, &model.library);
            let name = host.map(|host| experiment.configurations[host].name.as_str());
            host.filter(|_| is_mode(model, &experiment.tls, name))
        }
    };
    let on_machine = |model: &ConfigurationModel| {
        let base = base(experiment, model).filter(|_| model.processors.is_some_and(|processors| processors.count == 1));
        base.map(|base| host_of(&experiment.configurations[base]).unwrap_or(base))
    };
    experiment.configurations.iter().map(|model| on_machine(model).or_else(|| host_of(model))).collect()
}

/// The configuration of which this is a variant on a machine.
pub fn base(experiment: &Experiment, model: &ConfigurationModel) -> Option<usize> {
    let name = model.base.as_ref()?;
    experiment.configurations.iter().position(|other| other.name == *name)
}

/// Other configurations are variants of this one on a machine, in its server.
pub fn is_on_machines(experiment: &Experiment, host: usize) -> bool {
    let all = experiment.configurations.iter().zip(hosts(experiment));
    all.into_iter().any(|(model, of)| of == Some(host) && model.base.is_some())
}

/// Maximum CPU time that a mode of this configuration's server burns in each private-key operation, nanoseconds.
pub fn burn_ns(experiment: &Experiment, host: usize) -> u64 {
    let modes = experiment.configurations.iter().zip(hosts(experiment)).filter(|(_, of)| *of == Some(host));
    modes.map(|(model, _)| model.burn_ns()).max().unwrap_or(0)
}

/// Library of each configuration: a server has only one.
fn libraries(experiment: &Experiment) -> Vec<Option<PathBuf>> {
    let mut libraries = vec![None];
    for model in &experiment.configurations {
        if !libraries.contains(&model.library) {
            libraries.push(model.library.clone());
        }
    }
    libraries
}

/// The configuration whose server, on this library, can switch stages while it runs.
fn position_of_host(experiment: &Experiment, library: &Option<PathBuf>) -> Option<usize> {
    let is_host = |model: &ConfigurationModel| !model.wrapped.is_empty() && model.repeat_of.is_none();
    experiment.configurations.iter().position(|model| is_host(model) && model.library == *library)
}

/// The configuration whose server can double stages while it runs.
fn position_of_doubler(experiment: &Experiment) -> Option<usize> {
    let idle = |model: &ConfigurationModel| model.doubled == Some(StageSet::NONE) && !model.copies;
    experiment.configurations.iter().position(|model| idle(model) && is_only_doubling(model))
}

/// A configuration differs from the untouched server only by doubled stages.
fn is_doubling_mode(model: &ConfigurationModel) -> bool {
    let does_something = model.copies || model.doubled.is_some_and(|stages| !stages.is_empty());
    does_something && is_only_doubling(model)
}

/// A configuration differs from the untouched server only by the doubler.
fn is_only_doubling(model: &ConfigurationModel) -> bool {
    ConfigurationModel { doubled: None, copies: false, ..model.clone() }.is_untouched()
}

/// A configuration differs from the untouched server only by what a running server can switch (stages, CPU time burnt),
/// or repeats the host of that name.
fn is_mode(model: &ConfigurationModel, tls: &Tls, host: Option<&str>) -> bool {
    if model.repeat_of.is_some() {
        return model.repeat_of.as_deref() == host;
    }
    let only_stages =
        ConfigurationModel { noop: StageSet::NONE, burn_us: None, library: None, ..model.clone() }.is_untouched();
    let changes = !model.noop.is_empty() || model.burn_us.is_some();
    // The perfect cache rewrites the cache of the server's own context for good.
    only_stages && changes && !model.noop.contains(Stage::SessionCache) && !splits_cbc(model.noop, tls)
}

/// One half of CBC with MAC-then-encrypt is off: libssl calls one function that does both halves.
fn splits_cbc(off: StageSet, tls: &Tls) -> bool {
    use Protection::{Aes128CbcSha, Aes128CbcSha256, Aes256CbcSha, Aes256CbcSha256};
    let is_cbc = |protection| [Aes128CbcSha, Aes256CbcSha, Aes128CbcSha256, Aes256CbcSha256].contains(&protection);
    let may_be_cbc = tls.suites().iter().any(|suite| is_cbc(suite.protection()));
    may_be_cbc && !tls.encrypt_then_mac && off.contains(Stage::Cipher) != off.contains(Stage::Mac)
}

#[cfg(test)]
mod tests {
    use tlsdyno_tls::Version;

    use super::*;
    use crate::run::check::CheckExperiment;
    use tlsdyno_record::model::{Method, Processors, Server, ServerName};

    fn ablation(change: impl FnOnce(&mut Experiment)) -> Experiment {
        let mut experiment = Experiment::default();
        change(&mut experiment);
        experiment.fill();
        experiment
    }

    #[test]
    fn stage_sets_share_a_server_whose_cache_is_its_own() {
        let with = with_host(&ablation(|_| ())).unwrap();
        let host = with.configurations.len() - 1;
        assert_eq!(with.configurations[host].name, REFERENCE);
        let hosts = hosts(&with);
        for (model, host_of) in with.configurations.iter().zip(&hosts) {
            let own = ["as is", "plain HTTP", "perfect session cache", REFERENCE].contains(&model.name.as_str());
            assert_eq!(host_of.is_none(), own, "{}", model.name);
            assert!(host_of.is_none_or(|of| of == host));
        }
        assert!(!with.configurations[host].wrapped.contains(Stage::SessionCache));
        assert!(with.configurations[host].wrapped.contains(Stage::Marshalling));
        assert_eq!(with_host(&with).unwrap(), with, "a record's experiment can be run again");
    }

    #[test]
    fn each_library_has_a_server_for_its_modes() {
        let libraries = vec![PathBuf::from("/a"), PathBuf::from("/b")];
        let with = with_host(&ablation(|experiment| experiment.server.libraries = libraries)).unwrap();
        let place = |name: &str| with.configurations.iter().position(|model| model.name == name).unwrap();
        let hosts = hosts(&with);
        for (name, host) in [("no KDF", "nothing off"), ("no KDF, library B", "nothing off, library B")] {
            assert_eq!(hosts[place(name)], Some(place(host)), "{name}");
        }
        assert_eq!(with.configurations[place("nothing off, library B")].library, Some("/b".into()));
        assert_eq!(hosts[place("as is, library B")], None);
        assert_eq!(with_host(&with).unwrap(), with);
        with.check().unwrap();
    }

    #[test]
    fn what_is_computed_twice_shares_a_server_of_its_own() {
        let with =
            with_host(&ablation(|experiment| experiment.methods = vec![Method::Removing, Method::Doubling])).unwrap();
        let (mut removed, mut doubled) = (0, 0);
        for (model, host) in with.configurations.iter().zip(hosts(&with)) {
            let host = host.map(|host| with.configurations[host].name.as_str());
            if model.needs_doubler() {
                let alone = model.name == DOUBLER_REFERENCE;
                assert_eq!(host, (!alone).then_some(DOUBLER_REFERENCE), "{}", model.name);
                assert!(model.noop.is_empty() && model.wrapped.is_empty());
                doubled += 1;
            } else if host.is_some() {
                assert_eq!(host, Some(REFERENCE), "{}", model.name);
                removed += 1;
            }
        }
        // Idle, six sets of stages, copies, all; seven stages, records as one, all, two of the shim.
        assert_eq!((removed, doubled), (11, 9));
        let only = with_host(&ablation(|experiment| experiment.methods = vec![Method::Doubling])).unwrap();
        assert!(only.configurations.iter().all(|model| !model.needs_provider() && !model.needs_shim()));
        assert_eq!(hosts(&only).iter().flatten().count(), 8);
    }

    #[test]
    fn halves_of_stitched_code_have_servers_of_their_own() {
        let cbc = |encrypt_then_mac| {
            ablation(|experiment| {
                experiment.tls.version = Version::Tls12;
                experiment.tls.suite = Some("AES128-SHA".parse().unwrap());
                experiment.tls.encrypt_then_mac = encrypt_then_mac;
            })
        };
        for (encrypt_then_mac, alone) in [(true, false), (false, true)] {
            let with = with_host(&cbc(encrypt_then_mac)).unwrap();
            let hosts = hosts(&with);
            for name in ["no cipher", "no MAC"] {
                let index = with.configurations.iter().position(|model| model.name == name).unwrap();
                assert_eq!(hosts[index].is_none(), alone, "{name}");
            }
        }
    }

    #[test]
    fn what_cannot_be_sliced_says_why() {
        let why = |change: fn(&mut Experiment)| match with_host(&ablation(change)).unwrap_err() {
            NoSlices::AsExpected => "",
            NoSlices::Because(why) => why,
            NoSlices::FixedPort => "fixed",
        };
        assert_eq!(why(|experiment| experiment.measure.slice_us = Some(0)), "");
        assert_eq!(why(|experiment| experiment.measure.fresh_servers = true), "");
        let fixed = |experiment: &mut Experiment| {
            let address = Some("127.0.0.1:8443".to_owned());
            experiment.server = Server { kind: ServerName::Command, address, ..Server::default() };
        };
        assert!(why(fixed).contains("fixed"));
        let alone = |experiment: &mut Experiment| {
            experiment.configurations = vec![ConfigurationModel::as_is(), ConfigurationModel::plain_http()];
        };
        assert_eq!(why(alone), "");
        let slow = |experiment: &mut Experiment| {
            let slow = Processors { count: 1, speed: 0.5 };
            let half = ConfigurationModel { name: "half".to_owned(), processors: Some(slow), ..Default::default() };
            let without = ConfigurationModel::without("no kdf", [Stage::Kdf]);
            experiment.configurations = vec![ConfigurationModel::as_is(), half, without];
        };
        assert!(why(slow).contains("quota"));
    }
}
