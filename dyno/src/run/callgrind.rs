//! valgrind's callgrind, which counts the instructions that the processes of a server execute in user space.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

use crate::fault::{Fault, OrFault};
use crate::servers::Instance;
use crate::servers::cpu::ProcessClocks;

/// How long a server may work on after its last connection. Under valgrind everything takes some fifty times as long.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// A server whose CPU clocks stand still for so long has come to rest.
const REST: Duration = Duration::from_millis(30);
/// How the names of callgrind's files begin.
const COUNTS: &str = "callgrind.";

/// callgrind of one server.
pub(super) struct Callgrind {
    /// Its files, and the pipes by which it is told what to do.
    folder: TempDir,
}

impl Callgrind {
    /// Makes a place for the files of one server.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn new() -> Result<Callgrind> {
        Ok(Callgrind { folder: tempfile::tempdir().context("make a directory for callgrind's files")? })
    }

    /// Fails where valgrind is not installed.
    ///
    /// # Errors
    /// The remedy.
    pub(super) fn require() -> Result<()> {
        for program in ["valgrind", "vgdb"] {
            let mut command = Command::new(program);
            let ran = command.arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
            ran.with_context(|| {
                format!("instructions are counted by valgrind, and `{program}` cannot be run: install valgrind")
            })
            .or_fault(Fault::Environment)?;
        }
        Ok(())
    }

    /// Where the server under it writes.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn option(&self, name: &str, file: &str) -> OsString {
        let mut option = OsString::from(format!("--{name}="));
        option.push(self.folder.path().join(file));
        option
    }

    /// What the server runs under, with further options of callgrind.
    pub(super) fn command(&self, options: &[&str]) -> Vec<OsString> {
        let fixed = ["valgrind", "--tool=callgrind", "--trace-children=yes"].map(OsString::from);
        let files = [
            self.option("vgdb-prefix", "pipe"),
            self.option("callgrind-out-file", &format!("{COUNTS}%p")),
            self.option("log-file", "said.%p"),
        ];
        fixed.into_iter().chain(files).chain(options.iter().map(OsString::from)).collect()
    }

    /// Waits until the server has come to rest, and lets every process write what it has executed since the last call.
    /// Answers the sum.
    ///
    /// # Errors
    /// The server does not come to rest, or one of its processes is out of reach.
    pub(super) fn dump(&self, instance: &Instance) -> Result<u64> {
        self.dumped(instance)?.iter().map(|file| instructions_in(file)).sum()
    }

    /// The same by function.
    ///
    /// # Errors
    /// As [`Callgrind::dump`].
    pub(super) fn dump_by_function(&self, instance: &Instance) -> Result<ByFunction> {
        let mut all = ByFunction::default();
        for file in self.dumped(instance)? {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            all.add(&text).with_context(|| format!("{}: not a file of callgrind", file.display()))?;
        }
        Ok(all)
    }

    /// The files that every process writes once the server has come to rest.
    fn dumped(&self, instance: &Instance) -> Result<Vec<PathBuf>> {
        ensure!(
            ProcessClocks::of(instance.pids()).rest_within(REST_WITHIN, REST),
            "the server still works {} s after its last connection, so that what it does for one cannot be counted; \
             its log ends with:\n{}",
            REST_WITHIN.as_secs(),
            instance.log_tail()
        );
        refuse_other_users(&instance.pids())?;
        let before = self.files()?;
        for pid in instance.pids() {
            let told = Command::new("vgdb")
                .args([&self.option("vgdb-prefix", "pipe"), &OsString::from(format!("--pid={pid}"))])
                .args([&format!("--cmd-time-out={}", REST_WITHIN.as_secs()), "dump"])
                .output()
                .context("run vgdb, which comes with valgrind")?;
            let said = String::from_utf8_lossy(&told.stderr);
            ensure!(told.status.success(), "vgdb could not reach process {pid}: {}", said.trim());
        }
        Ok(self.files()?.into_iter().filter(|file| !before.contains(file)).collect())
    }

    /// What was written so far: `callgrind.PID.NUMBER`.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let folder = self.folder.path();
        let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        // Beside them lies an empty one without number.
        let is_count = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(COUNTS) && name.matches('.').count() == 2
        };
        Ok(paths.into_iter().filter(is_count).collect())
    }
}

/// A function, by its object file and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Function {
    pub(super) object: String,
    pub(super) name: String,
}

/// Instructions by function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ByFunction {
    /// Its own.
    pub(super) own: BTreeMap<Function, u64>,
    /// Of what it calls, with what that calls.
    pub(super) called: BTreeMap<Function, u64>,
}

impl ByFunction {
    /// Adds what a file in callgrind's profile format says. `None`: it is none.
    fn add(&mut self, text: &str) -> Option<()> {
        let (mut objects, mut names) = (Names::default(), Names::default());
        let mut function = Function::default();
        let mut is_of_call = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("ob=") {
                function.object = objects.told(name)?;
            } else if let Some(name) = line.strip_prefix("fn=") {
                function.name = names.told(name)?;
            } else if let Some(name) = line.strip_prefix("cob=") {
                objects.told(name)?;
            } else if let Some(name) = line.strip_prefix("cfn=") {
                names.told(name)?;
            } else if line.starts_with("calls=") {
                is_of_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                // Behind `calls=` stands what the call cost in all.
                let place = if is_of_call { &mut self.called } else { &mut self.own };
                let count: u64 = line.split(' ').nth(1)?.parse().ok()?;
                let sum = place.entry(function.clone()).or_default();
                *sum = sum.checked_add(count)?;
                is_of_call = false;
            }
        }
        Some(())
    }
}

/// Names are written once, with a number, and then as this number.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// `(5) name`, or `(5)`.
    fn told(&mut self, text: &str) -> Option<String> {
        match text.split_once(' ') {
            Some((number, name)) => {
                self.0.insert(number.to_owned(), name.to_owned());
                Some(name.to_owned())
            }
            None => self.0.get(text).cloned(),
        }
    }
}

/// A process that became another user is out of vgdb's reach, which would wait for it in vain.
fn refuse_other_users(pids: &[u32]) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    // One that has ended since is nobody's.
    let user_of = |pid: &u32| fs::metadata(format!("/proc/{pid}")).map_or(own, |metadata| metadata.uid());
    let other = pids.iter().find(|pid| user_of(pid) != own);
    let Some(pid) = other else { return Ok(()) };
    Err(anyhow!(
        "process {pid} of the server runs as another user ({}) and cannot be told to count. Have its workers stay the \
         user that starts them (nginx: `user root;` in its configuration, where root starts it), or run tlsdyno as a \
         plain user",
        user_of(pid)
    ))
    .or_fault(Fault::Input)
}

/// The total of one file in callgrind's profile format.
fn instructions_in(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    total_of(&text).with_context(|| format!("{}: callgrind wrote no total", file.display()))
}

fn total_of(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    total?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn processes_of_other_users_are_refused_with_the_remedy() {
        refuse_other_users(&[std::process::id(), u32::MAX]).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let mut command = Command::new("sleep");
        command.arg("60");
        if is_root {
            command.uid(65_534);
        }
        let mut child = command.spawn().unwrap();
        // A plain user finds one of another user at number 1.
        let said = refuse_other_users(&[if is_root { child.id() } else { 1 }]).unwrap_err().to_string();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said.contains("user root;"), "{said}");
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(
            lines in vec("(ob|fn|cob|cfn|calls)=(\\([0-9]\\)( x)?|[0-9 ]*)|[-+*0-9 x]{0,6}", 0..30),
        ) {
            ByFunction::default().add(&lines.join("\n"));
        }
    }

    #[test]
    fn instructions_are_told_by_function() {
        let text = "version: 1\nevents: Ir\n\nob=(1) /lib/a.so\nfl=(1) a.c\nfn=(1) work\n12 5\n+1 2\n\
                    cob=(2) /lib/b.so\ncfn=(2) help\ncalls=1 9\n* 30\n* 1\n\nob=(2)\nfn=(2)\n9 30\n\ntotals: 38\n";
        let mut all = ByFunction::default();
        all.add(text).unwrap();
        all.add(text).unwrap();
        let of = |object: &str, name: &str| Function { object: object.to_owned(), name: name.to_owned() };
        assert_eq!(all.own, BTreeMap::from([(of("/lib/a.so", "work"), 16), (of("/lib/b.so", "help"), 60)]));
        assert_eq!(all.called, BTreeMap::from([(of("/lib/a.so", "work"), 60)]));
        assert_eq!(all.add("fn=(7)\n"), None, "a number that nothing was said of");
        assert_eq!(all.add("fn=(7) x\n12\n"), None);
    }

    #[test]
    fn totals_are_found() {
        assert_eq!(total_of("version: 1\nevents: Ir\nsummary: 1206\n\nfl=a\n"), Some(1206));
        assert_eq!(total_of("fl=a\n1 2\ntotals: 17\n"), Some(17));
        assert_eq!(total_of("fl=a\ntotals: x\n"), None);
        assert_eq!(total_of(""), None);
    }
}
