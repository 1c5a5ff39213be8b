//! Which driver starts the server that an experiment names.

use crate::model::cluster::{ClusterExperiment, Sharing};
use crate::model::{Experiment, ServerName};
use crate::servers::{CommandSpec, ServerKind};

impl Experiment {
    /// The driver of the server.
    pub fn server_kind(&self) -> ServerKind {
        match self.server.kind {
            ServerName::Builtin => ServerKind::BuiltIn,
            ServerName::Nginx => ServerKind::Nginx,
            ServerName::ApacheEvent => ServerKind::ApacheEvent,
            ServerName::ApachePrefork => ServerKind::ApachePrefork,
            ServerName::Haproxy => ServerKind::Haproxy,
            ServerName::Lighttpd => ServerKind::Lighttpd,
            ServerName::Command => ServerKind::Command(self.command_spec()),
        }
    }

    /// The server command as its driver sees it.
    pub fn command_spec(&self) -> CommandSpec {
        let server = self.server.clone();
        CommandSpec {
            command: server.command.unwrap_or_default(),
            address: server.address.unwrap_or_default(),
            plain_address: server.plain_address,
        }
    }
}

impl ClusterExperiment {
    /// The driver of each server.
    pub fn server_kind(&self) -> ServerKind {
        self.as_experiment(Sharing::Own).server_kind()
    }
}
