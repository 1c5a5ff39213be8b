//! The satellites: programs of their own with some of the commands, which `tlsdyno NAME` becomes.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use tlsdyno_base::program;

use crate::fault::{Fault, OrFault};

/// A program with some of the commands.
pub struct Satellite {
    /// Its file, and the package of the workspace that makes it.
    pub file: &'static str,
    /// Its commands, with what the list of all commands says of each. The flags of a single one are the program's own.
    pub commands: &'static [(&'static str, &'static str)],
}

/// All satellites, and which commands are whose.
pub const SATELLITES: &[Satellite] = &[
    Satellite {
        file: "tlsdyno-cryptoserver",
        commands: &[(
            "cryptoserver",
            "Hold private keys on another machine than the web servers, and sign their handshakes over mutual TLS",
        )],
    },
    Satellite {
        file: "tlsdyno-dispatch",
        commands: &[("dispatch", "Pass TLS connections through to backends, each to the one that holds its session")],
    },
    Satellite {
        file: "tlsdyno-probe",
        commands: &[(
            "probe",
            "Probe sites: what a full and a resumed handshake cost a user, beside TCP and the answer",
        )],
    },
];

impl Satellite {
    /// Its program.
    ///
    /// # Errors
    /// It is not installed; says where it is had.
    pub fn program(&self) -> Result<PathBuf> {
        let Satellite { file, .. } = self;
        let missing = || {
            format!(
                "{file} is neither beside this program nor on the path; it is in tlsdyno's packages and tarball, and in \
                 the source `cargo build --workspace --bins` makes it"
            )
        };
        program::find(file).with_context(missing).or_fault(Fault::Usage)
    }

    /// Its commands as it tells them, or without their flags where it is not installed.
    fn described(&self) -> Vec<Command> {
        let told = self.program().ok().and_then(|path| program::described_by(&path).ok());
        told.unwrap_or_else(|| self.named())
    }

    /// Its commands without their flags.
    fn named(&self) -> Vec<Command> {
        self.commands.iter().map(|(name, about)| Command::new(*name).about(*about)).collect()
    }
}

/// All commands of satellites, by name and what they are about.
pub fn named() -> Vec<Command> {
    SATELLITES.iter().flat_map(Satellite::named).collect()
}

/// All commands of satellites, with the flags of those that are installed.
pub fn described() -> Vec<Command> {
    SATELLITES.iter().flat_map(Satellite::described).collect()
}

/// Becomes the satellite whose command these words name, with the help of one where that is asked for. Otherwise
/// nothing happens.
///
/// # Errors
/// The satellite is not installed, or cannot be started.
pub fn hand_on(words: &[OsString]) -> Result<Option<Infallible>> {
    let (words, help) = match words {
        [first, rest @ ..] if first == "help" => (rest, Some("--help-all".into())),
        _ => (words, None),
    };
    let Some((name, rest)) = words.split_first() else { return Ok(None) };
    let Some(satellite) = SATELLITES.iter().find(|one| one.commands.iter().any(|(command, _)| name == command)) else {
        return Ok(None);
    };
    let own = if satellite.commands.len() == 1 { rest } else { words };
    let words: Vec<OsString> = own.iter().cloned().chain(help).collect();
    program::become_program(&satellite.program()?, &words).map(Some)
}
