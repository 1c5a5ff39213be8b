//! What a server under test is to everything else. Each has a file with its driver, and a line in [`super::DRIVERS`].

use anyhow::Result;
use tlsdyno_record::model::ServerName;

use super::capabilities::Capabilities;
use super::directives::Setting;
use super::programs::Package;
use super::{InstancePlace, Prepared, ServerSpec};

/// A server: what is known of it before it runs, and how it is started.
#[derive(Debug)]
pub struct Driver {
    pub server: ServerName,
    /// What must be installed; `None`: nothing that tlsdyno knows of.
    pub package: Option<&'static Package>,
    /// What it can be told; `None`: a user's own, whose configuration is the user's.
    pub capabilities: Option<Capabilities>,
    /// Why it cannot log its sessions, with the remedy; `None`: it can.
    pub no_session_log: Option<&'static str>,
    /// What stands in lines of its logs when something is badly wrong.
    pub alarms: &'static [&'static str],
    /// Writes its configuration and files, starts what it needs beside it, and says how to start it. Errors say what is
    /// missing or cannot be configured, with the remedy.
    pub(super) prepare: fn(&ServerSpec, InstancePlace) -> Result<Prepared>,
    /// What an operator writes into its configuration to have a setting; paths are examples. Empty: no line does it.
    pub(super) lines: fn(Setting) -> Vec<String>,
}
