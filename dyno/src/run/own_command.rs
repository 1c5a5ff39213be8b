//! The user's own server command, as its driver takes it.

use crate::model::Experiment;
use crate::servers::CommandSpec;

impl Experiment {
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
