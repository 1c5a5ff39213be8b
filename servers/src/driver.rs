//! What a server under test is to everything else. Each has a file with its driver, and a line in [`super::DRIVERS`].

use std::fmt::Debug;

use anyhow::Result;

use super::capabilities::Capabilities;
use super::directives::Setting;
use super::programs::Package;
use super::{Place, Prepared, ServerSpec};
use tlsdyno_record::model::ServerName;

/// A server: what is known of it before it runs, and how it is started.
pub trait Driver: Debug + Sync {
    /// Its name.
    fn server(&self) -> ServerName;

    /// What must be installed; `None`: nothing that tlsdyno knows of.
    fn package(&self) -> Option<&'static Package> {
        None
    }

    /// What it can be told; `None`: a user's own, whose configuration is the user's.
    fn capabilities(&self) -> Option<&'static Capabilities>;

    /// Why it cannot log its sessions, with the remedy; `None`: it can.
    fn no_session_log(&self) -> Option<&'static str> {
        None
    }

    /// What stands in lines of its logs when something is badly wrong.
    fn alarms(&self) -> &'static [&'static str];

    /// Writes its configuration and files, starts what it needs beside it, and says how to start it.
    ///
    /// # Errors
    /// What is missing or cannot be configured, with the remedy.
    fn prepare(&self, spec: &ServerSpec, place: Place) -> Result<Prepared>;

    /// What an operator writes into its configuration to have a setting; paths are examples. Empty: no line does it.
    fn lines(&self, setting: Setting) -> Vec<String>;
}
