//! How a server process is started: the note that the driver leaves for the supervisor.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tlsdyno_base::{private, program};
use tlsdyno_native::Handed;

use super::view::View;

/// File in the instance's directory that holds the [`Launch`] as JSON.
pub const LAUNCH_FILE: &str = "launch.json";
/// File in the instance's directory that receives the server's standard output.
pub const STDOUT_FILE: &str = "stdout";
/// File in the instance's directory that receives the server's standard error.
pub const STDERR_FILE: &str = "stderr";

/// Variables that would change the cryptography of a server behind the experiment's back; only those of the experiment
/// count.
pub const FOREIGN_VARIABLES: [&str; 4] = ["OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "LD_PRELOAD"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The program: a path, or a name looked up in PATH.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// What it gets, and nothing else does (neither the supervisor nor tlsdyno sees the variables).
    pub handed: Handed,
    /// Process id of the tlsdyno whose descriptors are handed.
    pub owner_process_id: u32,
    /// Environment variables that are not inherited.
    pub without: Vec<OsString>,
    /// Run it in a PID namespace of its own, where that is allowed: then not one of its processes outlives the
    /// supervisor.
    pub own_pid_namespace: bool,
    /// The instance's private directory: output goes there, and the supervisor removes it in the end.
    pub directory: PathBuf,
    pub working_directory: PathBuf,
    /// Processors to run on; empty: wherever tlsdyno may run.
    pub cpus: Vec<usize>,
    /// Control groups to join for CPU accounting and a quota; removed in the end.
    pub cgroups: Vec<PathBuf>,
    /// What it may write; `None`: whatever its user may.
    pub view: Option<View>,
    /// Raise the soft limit of open files to the hard one (our own servers; a user's server keeps what it has).
    pub raise_open_files: bool,
    /// How long the server may take to end after SIGTERM before it is killed, in milliseconds.
    pub grace_ms: u64,
    /// It goes on when tlsdyno dies, until somebody ends it.
    pub outlives_owner: bool,
}

impl Launch {
    pub fn write(&self) -> Result<PathBuf> {
        let path = self.directory.join(LAUNCH_FILE);
        private::write(&path, &serde_json::to_vec(self)?).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// The server's variables: inherited ones, and what it is given. What no text can hold is left out.
    pub fn variables(&self) -> Vec<(String, String)> {
        let inherited = std::env::vars_os().filter(|(name, _)| !self.without.contains(name));
        let given = self.handed.environment.iter().cloned();
        let all: BTreeMap<OsString, OsString> = inherited.chain(given).collect();
        all.into_iter().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok())).collect()
    }

    pub fn read(path: &Path) -> Result<Launch> {
        let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("{} is not a launch note", path.display()))
    }
}

static OWN_EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();

/// Names the tlsdyno program, for programs that use this library without being it (integration tests). The first call
/// counts.
pub fn set_own_executable(path: &Path) {
    let _ = OWN_EXECUTABLE.set(path.to_owned());
}

/// A command that runs this very tlsdyno, also when its file was replaced meanwhile; for a satellite, that beside it.
pub fn own_executable() -> Result<Command> {
    Ok(Command::new(match OWN_EXECUTABLE.get() {
        Some(path) => path.clone(),
        None => program::core()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_inherited_variables_and_its_own() {
        let (inherited, value) = std::env::vars().next().expect("a variable");
        let launch = |without: &[&str], given: &[(&str, &str)]| Launch {
            handed: Handed {
                environment: given.iter().map(|(a, b)| (a.into(), b.into())).collect(),
                ..Handed::default()
            },
            without: without.iter().map(Into::into).collect(),
            ..Launch::of_nothing()
        };
        let found = |launch: &Launch, name: &str| {
            launch.variables().into_iter().find(|(one, _)| one == name).map(|(_, value)| value)
        };
        assert_eq!(found(&launch(&[], &[]), &inherited), Some(value));
        assert_eq!(found(&launch(&[&inherited], &[]), &inherited), None);
        let given = launch(&[], &[("OPENSSL_ia32cap", ":~0x200000"), (&inherited, "other")]);
        assert_eq!(found(&given, "OPENSSL_ia32cap").as_deref(), Some(":~0x200000"));
        assert_eq!(found(&given, &inherited).as_deref(), Some("other"));
    }

    impl Launch {
        fn of_nothing() -> Launch {
            Launch {
                program: OsString::new(),
                arguments: Vec::new(),
                handed: Handed::default(),
                owner_process_id: 0,
                without: Vec::new(),
                own_pid_namespace: false,
                directory: PathBuf::new(),
                working_directory: PathBuf::new(),
                cpus: Vec::new(),
                cgroups: Vec::new(),
                view: None,
                raise_open_files: false,
                grace_ms: 0,
                outlives_owner: false,
            }
        }
    }
}
