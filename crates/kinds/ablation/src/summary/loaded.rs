//! Which part of the instrument an experiment on its own cost has loaded.

use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{Record, Role};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loaded {
    #[default]
    Provider,
    Shim,
    Both,
    Doubler,
}

impl Loaded {
    pub(super) fn of(record: &Record) -> Loaded {
        let loaded = record.configurations.iter().find(|configuration| configuration.role == Role::Loaded);
        let idle = |role: &Role| record.configurations.iter().any(|configuration| configuration.role == *role);
        if loaded.is_none() && idle(&Role::NothingDoubled) {
            return Loaded::Doubler;
        }
        let models = record.kind_part.of::<Experiment>().into_iter().flat_map(|experiment| &experiment.configurations);
        let model = loaded.and_then(|loaded| models.into_iter().find(|model| model.name == loaded.name));
        let wraps = |model: &ConfigurationModel| {
            let (provider, shim) = (!model.wrapped.provider().is_empty(), !model.wrapped.is_empty());
            (model.idle_provider || provider, model.idle_shim || shim)
        };
        match model.map(wraps) {
            Some((true, true)) => Loaded::Both,
            Some((false, true)) => Loaded::Shim,
            _ => Loaded::Provider,
        }
    }
}
