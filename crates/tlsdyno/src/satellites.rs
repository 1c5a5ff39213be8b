//! The satellites: programs of their own with some of the commands and kinds of experiment. `tlsdyno NAME` becomes one,
//! and so do `run` and `report` with a file or a record of a kind that is a satellite's.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use tlsdyno_base::program;

use crate::fault::{Fault, OrFault};

/// Commands, or what stands below one of the core, with what the list of all says of each.
type Commands = &'static [(&'static str, &'static str)];

/// A program with some of the commands.
pub struct Satellite {
    /// Its file, and the package of the workspace that makes it.
    pub file: &'static str,
    /// Its commands. The flags of a single one are the program's own, where it has no kinds.
    pub commands: Commands,
    /// Its kinds of experiment: the key of their files, and the field of their records.
    pub kinds: &'static [&'static str],
}

/// All satellites, and which commands and kinds are whose.
pub const SATELLITES: &[Satellite] = &[
    Satellite { file: "tlsdyno-cryptoserver", commands: CRYPTOSERVER, kinds: &[] },
    Satellite { file: "tlsdyno-dispatch", commands: DISPATCH, kinds: &[] },
    Satellite { file: "tlsdyno-lab", commands: LAB, kinds: &["primitives", "probe", "stacks"] },
    Satellite { file: "tlsdyno-probe", commands: PROBE, kinds: &[] },
    Satellite { file: "tlsdyno-sizes", commands: SIZES, kinds: &["cluster", "array"] },
    Satellite { file: "tlsdyno-top", commands: TOP, kinds: &[] },
];

const CRYPTOSERVER: Commands = &[(
    "cryptoserver",
    "Hold private keys on another machine than the web servers, and sign their handshakes over mutual TLS",
)];
const DISPATCH: Commands =
    &[("dispatch", "Pass TLS connections through to backends, each to the one that holds its session")];
const LAB: Commands = &[
    (
        "profile primitives",
        "Throughput of the primitives of a server's own OpenSSL by size of a call, beside that of `openssl speed`",
    ),
    (
        "scoreboard",
        "Show what became of the papers' claims: each with the paper's number, ours and its interval, from records",
    ),
    (
        "stacks",
        "Servers with their TLS libraries, for `run stacks`: list which there are, and build those that are missing",
    ),
];
const PROBE: Commands =
    &[("probe", "Probe sites: what a full and a resumed handshake cost a user, beside TCP and the answer")];
const SIZES: Commands = &[
    ("cluster", "What each way of dispatching makes of a cluster: throughput, latency, sessions kept, balance, CPU"),
    ("array", "How many proxies a site needs at its reuse: throughput, half serving points, CPU of each machine"),
    ("plan", "How many machines carry a site, from measured costs, and how long its visitors wait"),
];

const TOP: Commands = &[("top", "What TLS costs the servers that run now, live, with nothing loaded into them")];

impl Satellite {
    /// The path of its program.
    ///
    /// # Errors
    /// It is not installed; says where it is had.
    pub fn program(&self) -> Result<PathBuf> {
        let Satellite { file, .. } = self;
        let missing = || {
            format!(
                "{file} is neither beside this program nor on the path; it is in tlsdyno's packages and tarball, and \
                 `cargo build --workspace --bins` makes it from source"
            )
        };
        program::find(file).with_context(missing).or_fault(Fault::Usage)
    }

    /// Its commands as it tells them, or without their flags where it is not installed.
    fn described(&self) -> Result<Vec<Command>> {
        self.program().map_or_else(|_| Ok(self.named()), |path| program::described_by(&path))
    }

    /// Its commands without their flags. The core names what is below its own.
    fn named(&self) -> Vec<Command> {
        let own = self.commands.iter().filter(|(name, _)| !name.contains(' '));
        own.map(|(name, about)| Command::new(*name).about(*about)).collect()
    }

    /// What it is to be given where these words name this command of it. `help` among them asks for its whole help.
    fn words(&self, command: &str, words: &[OsString]) -> Option<Vec<OsString>> {
        let parts: Vec<&str> = command.split(' ').collect();
        let mut words = words.to_vec();
        if let Some(at) = words.iter().take(parts.len()).position(|word| word == "help") {
            words.remove(at);
            words.push("--help-all".into());
        }
        let is_named = words.len() >= parts.len() && words.iter().zip(&parts).all(|(word, part)| word == part);
        let is_alone = self.is_one_command();
        is_named.then(|| words.split_off(usize::from(is_alone)))
    }

    fn is_one_command(&self) -> bool {
        self.commands.len() == 1 && self.kinds.is_empty()
    }
}

/// All commands of satellites, by name and what they are about.
pub fn named() -> Vec<Command> {
    SATELLITES.iter().flat_map(Satellite::named).collect()
}

/// All commands of satellites, with the flags of those that are installed.
pub fn described() -> Result<Vec<Command>> {
    SATELLITES.iter().map(Satellite::described).collect::<Result<Vec<_>>>().map(|all| all.concat())
}

/// Becomes the satellite whose command these words name. Otherwise nothing happens.
///
/// # Errors
/// The satellite is not installed, or cannot be started.
pub fn hand_on(words: &[OsString]) -> Result<Option<Infallible>> {
    let all = SATELLITES.iter().flat_map(|one| one.commands.iter().map(move |(command, _)| (one, command)));
    let asked = all.filter_map(|(one, command)| Some((one, one.words(command, words)?))).next();
    let Some((satellite, words)) = asked else { return Ok(None) };
    // Records keep how tlsdyno was called.
    let name = if satellite.is_one_command() { None } else { env::args_os().next() };
    program::become_program(&satellite.program()?, &words, name).map(Some)
}

/// Becomes the satellite that has this kind, with all words that this program was given. Otherwise nothing happens.
///
/// # Errors
/// The satellite is not installed, or cannot be started.
pub fn hand_on_kind(is_of: impl Fn(&str) -> Result<bool>) -> Result<()> {
    for (satellite, kind) in SATELLITES.iter().flat_map(|one| one.kinds.iter().map(move |kind| (one, kind))) {
        if is_of(kind)? {
            let mut words = env::args_os();
            let name = words.next();
            program::become_program(&satellite.program()?, &words.collect::<Vec<_>>(), name)?;
        }
    }
    Ok(())
}
