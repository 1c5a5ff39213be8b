//! The emulated accelerators of an array, one in each proxy: what is put into a proxy, and the check that it works.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tlsdyno_native::{Counters, Hardware, Injection};
use tlsdyno_record::model::{Accelerator, ConfigurationModel, Processors};
use tlsdyno_runner::run::hardware::{counted_once, hardware, workers};
use tlsdyno_servers::run_directory::make_private;
use tlsdyno_servers::{Instance, ServerSpec};
use tlsdyno_tls::{Stage, StageSet};

/// What a proxy with an accelerator, and its clients, have off: the operation that takes place elsewhere.
pub const OFF: StageSet = StageSet::NONE.with(Stage::Authentication);

pub struct Accelerators {
    model: ConfigurationModel,
    hardware: Hardware,
    /// One for each proxy, by the number of its machine.
    injections: Vec<(usize, Injection)>,
}

impl Accelerators {
    /// Of proxies under this quota. `key` is their private key, whose rate is measured on `cpu` where the accelerator
    /// is declared by it.
    pub fn of(accelerator: &Accelerator, speed: f64, key: &Path, cpu: usize) -> Result<Accelerators> {
        let model = ConfigurationModel {
            accelerator: Some(accelerator.clone()),
            processors: Some(Processors { count: 1, speed }),
            ..ConfigurationModel::default()
        };
        Ok(Accelerators { hardware: hardware(&model, &[], key, cpu)?, model, injections: Vec::new() })
    }

    /// The proxy with an accelerator of its own. `directory`: where its library is to be, which does not exist yet.
    pub fn fitted(&self, spec: ServerSpec, directory: &Path) -> Result<(ServerSpec, Injection)> {
        make_private(directory)?;
        let injection = Injection::with_hardware(directory, OFF, self.hardware)?;
        let asynchronous = self.model.accelerator.as_ref().is_some_and(|of| of.asynchronous);
        let spec = ServerSpec { handed: injection.handed(), workers: workers(&self.model), asynchronous, ..spec };
        Ok((spec, injection))
    }

    pub fn keep(&mut self, machine: usize, injection: Injection) {
        self.injections.push((machine, injection));
    }

    /// What the accelerator of a machine has counted; `None`: it has none.
    pub fn counters(&self, machine: usize) -> Result<Option<Counters>> {
        let found = self.injections.iter().find(|of| of.0 == machine);
        found.map(|(_, injection)| injection.counters()).transpose()
    }

    /// Checks that all workers of a proxy have its library, and that its one full handshake since `before` was one
    /// operation of its accelerator. Says what was seen.
    pub fn check(&self, machine: usize, proxy: &Instance, before: Counters) -> Result<String> {
        let (_, injection) = self.injections.iter().find(|of| of.0 == machine).context("it has no accelerator")?;
        proxy.of_living_workers(|pids| tlsdyno_servers::require_mapped(pids, injection.library_path()))?;
        self.require_one_operation(injection.counters()? - before)?;
        Ok("one full handshake was one operation of its accelerator".to_owned())
    }

    fn require_one_operation(&self, counted: Counters) -> Result<()> {
        for (counter, what) in counted_once(&self.model) {
            let times = counted.get(counter).unwrap_or_default();
            ensure!(times == 1, "{what}: {times} times in one full handshake");
        }
        Ok(())
    }

    pub fn told(&self) -> Option<String> {
        let engines = self.hardware.accelerator?;
        Some(format!("in each proxy an emulated {}", engines.describe(workers(&self.model))))
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_record::model::ServerName;

    use super::*;

    #[test]
    fn a_proxy_whose_accelerator_does_nothing_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let accelerator =
            Accelerator { engines: 2, operation_us: Some(300.0), asynchronous: true, ..Accelerator::default() };
        let accelerators = Accelerators::of(&accelerator, 0.1, Path::new("no key is read"), 0).unwrap();
        let spec = ServerSpec::new(ServerName::Haproxy, place.path().to_owned());
        let (spec, injection) = accelerators.fitted(spec, &place.path().join("accelerator")).unwrap();
        assert!(spec.asynchronous && spec.workers == 1 && !spec.handed.environment.is_empty());
        let nothing = injection.counters().unwrap() - injection.counters().unwrap();
        let said = accelerators.require_one_operation(nothing).unwrap_err().to_string();
        assert!(said.contains("accelerator") && said.contains("0 times"), "{said}");
    }
}
