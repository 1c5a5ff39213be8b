//! The user's own server command, as its driver takes it.

use std::collections::BTreeSet;

use anyhow::Result;

use super::observer::Observer;
use super::preflight::negotiated::Asked;
use crate::model::{ConfigurationModel, Experiment, ServerName, Tls, TlsChange};
use crate::servers::CommandSpec;
use crate::servers::installed::Installed;
use crate::store::Warning;

/// The command of a server of one's own, and what is asked of it.
pub trait OwnCommand {
    /// The server command as its driver sees it.
    fn command_spec(&self) -> CommandSpec;

    /// What a copy of an installed configuration does otherwise than the original.
    fn told_of_copy(&self) -> Vec<Warning>;

    /// Whether the server under test is known to ask others over TLS.
    fn server_is_tls_client(&self) -> bool;

    /// That of a configuration, which may be another build.
    fn command_spec_of(&self, model: &ConfigurationModel) -> CommandSpec;

    /// All of them: the experiment's, then those of configurations with another.
    fn command_specs(&self) -> Vec<CommandSpec>;

    /// What a configuration asks of a server of the user's own itself, beyond what clients offer to it.
    fn asked_of_installed(&self, model: &ConfigurationModel) -> TlsChange;

    /// What the handshakes of a configuration must come to.
    fn asked_of(&self, model: &ConfigurationModel) -> Asked;

    /// Tells what becomes of whatever these commands do besides answering.
    ///
    /// # Errors
    /// An installed configuration cannot be copied.
    fn tell_effects(&self, observer: &mut dyn Observer) -> Result<()>;

    /// Builds that cannot be switched into each other, but can be up side by side: their CPU time is told by slices.
    fn compares_builds(&self) -> bool;
}

impl OwnCommand for Experiment {
    fn command_spec(&self) -> CommandSpec {
        let server = self.server.clone();
        CommandSpec {
            command: server.command.unwrap_or_default(),
            address: server.address.unwrap_or_default(),
            plain_address: server.plain_address,
            installed: server.config,
            host: server.host,
        }
    }

    fn told_of_copy(&self) -> Vec<Warning> {
        let told = self.installed().map_or_else(Vec::new, |installed| installed.told());
        told.into_iter().map(|(what, remedy)| Warning::new("copied_configuration", what).with_remedy(remedy)).collect()
    }

    fn server_is_tls_client(&self) -> bool {
        self.installed().is_some_and(|installed| installed.is_tls_client())
    }

    fn command_spec_of(&self, model: &ConfigurationModel) -> CommandSpec {
        let spec = self.command_spec();
        CommandSpec { command: model.server_command.clone().unwrap_or(spec.command), ..spec }
    }

    fn command_specs(&self) -> Vec<CommandSpec> {
        let builds = self.configurations.iter().filter(|model| model.server_command.is_some());
        let builds = builds.map(|model| self.command_spec_of(model));
        let own = (self.server.kind == ServerName::Command).then(|| self.command_spec());
        own.into_iter().chain(builds).collect()
    }

    fn asked_of_installed(&self, model: &ConfigurationModel) -> TlsChange {
        model.tls.over(&self.tls.of_server())
    }

    fn asked_of(&self, model: &ConfigurationModel) -> Asked {
        let tls = model.tls.applied(&self.tls);
        match self.server.kind {
            ServerName::Command => Asked::of_own(&tls, shows_ours(&self.command_spec_of(model), &tls)),
            _ => Asked::of(&tls),
        }
    }

    fn tell_effects(&self, observer: &mut dyn Observer) -> Result<()> {
        let mut told = BTreeSet::new();
        for command in self.command_specs() {
            for line in command.told(&self.server.writable)? {
                if told.insert(line.clone()) {
                    observer.tell(&line);
                }
            }
        }
        Ok(())
    }

    fn compares_builds(&self) -> bool {
        let several = self.configurations.iter().any(|model| model.server_command.is_some());
        several && self.measure.slice_us != Some(0) && !self.command_specs().iter().any(CommandSpec::has_fixed_port)
    }
}

/// The command of a server of one's own, and what is asked of it in parts.
trait OwnCommandParts {
    /// The installed configuration that a copy is made of.
    fn installed(&self) -> Option<Installed>;
}

impl OwnCommandParts for Experiment {
    fn installed(&self) -> Option<Installed> {
        self.server.config.as_ref().and_then(|path| Installed::read(path).ok())
    }
}

/// Whether the server shows a certificate of ours: the copy of an installed one where one is asked for, a command where
/// it has a place for it.
pub fn shows_ours(command: &CommandSpec, tls: &Tls) -> bool {
    match command.installed {
        Some(_) => tls.certificate.is_some(),
        None => ["{certificate}", "{pem}"].iter().any(|placeholder| command.mentions(placeholder)),
    }
}
