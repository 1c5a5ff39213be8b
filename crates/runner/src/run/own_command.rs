//! The user's own server command, as its driver takes it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tlsdyno_base::namespace::Apart;
use tlsdyno_installed::{Installed, InstalledFile};
use tlsdyno_record::model::{ConfigurationModel, Experiment, ServerName, Tls};
use tlsdyno_record::store::Warning;
use tlsdyno_servers::CommandSpec;

use super::observer::Observer;
use super::preflight::negotiated::Asked;

pub fn command_spec(experiment: &Experiment, model: Option<&ConfigurationModel>) -> CommandSpec {
    let server = experiment.server.clone();
    let of_model = model.and_then(|model| model.server_command.clone());
    let command = of_model.or(server.command).unwrap_or_default();
    CommandSpec {
        original: original(experiment, &command).map(|original| Arc::new(original) as _),
        command,
        address: server.address.unwrap_or_default(),
        plain_address: server.plain_address,
    }
}

/// The file of an installed server that it measures a copy of.
fn original(experiment: &Experiment, program: &str) -> Option<InstalledFile> {
    let server = experiment.server.clone();
    Some(InstalledFile {
        path: server.config?,
        program: program.to_owned(),
        host: server.host,
        replays: !server.ask_backend,
        may_load: server.may_load,
    })
}

/// The experiment's command, then those of configurations with another one.
pub fn command_specs(experiment: &Experiment) -> Vec<CommandSpec> {
    let builds = experiment.configurations.iter().filter(|model| model.server_command.is_some());
    let own = experiment.server.kind.is_users_own().then_some(None);
    own.into_iter().chain(builds.map(Some)).map(|model| command_spec(experiment, model)).collect()
}

/// A command listens on a port that it chooses itself.
pub fn has_fixed_port(experiment: &Experiment) -> bool {
    command_specs(experiment).iter().any(CommandSpec::has_fixed_port)
}

/// The installed configuration to copy.
pub fn installed(experiment: &Experiment) -> Option<Installed> {
    original(experiment, experiment.server.command.as_deref().unwrap_or_default())?.read().ok()
}

/// The server under test; of a copy, the server that the configuration is for.
pub fn server_of(experiment: &Experiment) -> ServerName {
    let kind = experiment.server.kind;
    let command = experiment.server.command.as_deref().filter(|_| experiment.server.config.is_some());
    command.and_then(tlsdyno_installed::server_of).filter(|_| kind.is_users_own()).unwrap_or(kind)
}

/// Differences of a copy of an installed configuration from the original.
pub fn told_of_copy(experiment: &Experiment) -> Vec<Warning> {
    let told = installed(experiment).map_or_else(Vec::new, |installed| installed.site.notes());
    told.into_iter().map(|(what, remedy)| Warning::new("copied_configuration", what).with_remedy(remedy)).collect()
}

/// Required results of a configuration's handshakes.
pub fn asked_of(experiment: &Experiment, model: &ConfigurationModel) -> Asked {
    let tls = model.tls.applied(&experiment.tls);
    match experiment.server.kind.is_users_own() {
        true => Asked::of_own(&tls, shows_ours(&command_spec(experiment, Some(model)), &tls)),
        false => Asked::of(&tls),
    }
}

/// Moves this thread, and all that it starts, to a network of its own, where the servers are copies of an installed
/// configuration that make no requests and have no load from outside. Else says why not.
pub(super) fn network(experiment: &Experiment) -> Result<Apart, String> {
    let why = match experiment {
        Experiment { server, .. } if server.config.is_none() => "it is started as it is",
        Experiment { server, .. } if server.ask_backend => "--ask-backend",
        Experiment { server, .. } if server.writable.iter().any(|path| path == Path::new("/")) => "--writable /",
        Experiment { workers: Some(_), .. } | Experiment { foreign_traffic: Some(_), .. } => "others load it",
        _ => return Apart::enter().map_err(|error| format!("{error:#}")),
    };
    Err(why.to_owned())
}

/// Warns of side effects of these commands beside answering.
pub fn tell_effects(
    experiment: &Experiment,
    network: &Result<Apart, String>,
    observer: &mut dyn Observer,
) -> Result<()> {
    let reached = match network {
        Ok(_) => "The server's network is its own: it reaches nobody but the replayed applications, and finds no name \
                  but those of /etc/hosts"
            .to_owned(),
        Err(why) => format!("Whatever the server connects to, it reaches for real ({why})"),
    };
    let mut told = BTreeSet::new();
    for command in command_specs(experiment) {
        for line in command.side_effects(&experiment.server.writable)?.into_iter().chain([reached.clone()]) {
            if told.insert(line.clone()) {
                observer.tell(&line);
            }
        }
    }
    Ok(())
}

/// Compares builds in servers that run side by side: slices tell their CPU time.
pub fn compares_builds(experiment: &Experiment) -> bool {
    let several = experiment.configurations.iter().any(|model| model.server_command.is_some());
    several && experiment.measure.slice_us != Some(0) && !has_fixed_port(experiment)
}

/// The server shows a certificate of ours: a copy of an installed configuration where one is asked for, a command where
/// it has a placeholder for it.
pub fn shows_ours(command: &CommandSpec, tls: &Tls) -> bool {
    match command.original {
        Some(_) => tls.certificate.is_some(),
        None => ["{certificate}", "{pem}"].iter().any(|placeholder| command.mentions(placeholder)),
    }
}
