//! What a server under test is to everything else. Each has a file with its driver, and a line in [`DRIVERS`].

use std::fmt::Debug;

use anyhow::Result;

use super::directives::Setting;
use super::programs::Package;
use super::{Capabilities, DRIVERS, Place, Prepared, ServerSpec};
use crate::model::ServerName;

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

/// The driver of a server.
pub fn driver(server: ServerName) -> &'static dyn Driver {
    let found = DRIVERS.into_iter().find(|driver| driver.server() == server);
    found.expect("a test looks every server up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_one_driver() {
        for server in ServerName::ALL {
            assert_eq!(driver(server).server(), server);
        }
        assert_eq!(DRIVERS.len(), ServerName::ALL.len());
    }

    #[test]
    fn the_tests_install_every_package() {
        let script = include_str!("../../../scripts/install-packages");
        for package in DRIVERS.iter().filter_map(|driver| driver.package()) {
            for name in package.debian.split(' ') {
                assert!(script.contains(name), "scripts/install-packages lacks {name}");
            }
        }
    }
}
