//! valgrind's callgrind, which counts the instructions that the processes of a server execute in user space, and where
//! caches are given what misses them.

mod format;
mod locks;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;
use tlsdyno_base::fault::{Fault, OrFault};

use super::Instance;
use super::cpu::ProcessClocks;
pub use format::{Executed, Function};
pub use locks::{Code, Locks};

/// How long a server may work on after its last connection. Under valgrind everything takes some fifty times as long.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// A server whose CPU clocks stand still for so long has come to rest.
const REST: Duration = Duration::from_millis(30);
/// OpenSSL makes new blinding values at each so many-th operation with an RSA key (`BN_BLINDING_COUNTER`).
const OPERATIONS_PER_RENEWAL: f64 = 32.0;
/// OpenSSL calls it to make the values, and in each operation.
const RENEW: &str = "BN_BLINDING_create_param";
const BLIND: &str = "BN_BLINDING_convert_ex";
/// Prefix of the names of callgrind's files.
const COUNTS: &str = "callgrind.";
/// Prefix of the names of valgrind's logs.
const SAID: &str = "said.";

pub struct Callgrind {
    /// Its files, and the pipes by which it is told what to do.
    pub folder: TempDir,
}

impl Callgrind {
    pub fn new() -> Result<Callgrind> {
        Ok(Callgrind { folder: tempfile::tempdir().context("make a directory for callgrind's files")? })
    }

    pub fn require() -> Result<()> {
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

    fn option(&self, name: &str, file: &str) -> OsString {
        let mut option = OsString::from(format!("--{name}="));
        option.push(self.folder.path().join(file));
        option
    }

    /// What the server runs under, with further options of callgrind.
    pub fn command(&self, options: &[&str]) -> Vec<OsString> {
        let fixed = ["valgrind", "--tool=callgrind", "--trace-children=yes"].map(OsString::from);
        let files = [
            self.option("vgdb-prefix", "pipe"),
            self.option("callgrind-out-file", &format!("{COUNTS}%p")),
            self.option("log-file", &format!("{SAID}%p")),
        ];
        fixed.into_iter().chain(files).chain(options.iter().map(OsString::from)).collect()
    }

    /// Why valgrind gave a process up, in its own words; `None`: it did not.
    pub fn failure(&self) -> Option<String> {
        let is_reason = |line: &&str| line.starts_with("Callgrind: ") || line.starts_with("valgrind: ");
        let reason = |text: String| text.lines().find(is_reason).map(str::to_owned);
        let files = fs::read_dir(self.folder.path()).ok()?.flatten();
        let mut logs = files.filter(|file| file.file_name().to_string_lossy().starts_with(SAID));
        logs.find_map(|log| reason(fs::read_to_string(log.path()).ok()?))
    }

    /// Waits until the server has come to rest, and lets every process write what it has executed since the last call.
    /// Answers the sum, by function.
    pub fn dump(&self, instance: &Instance) -> Result<ByFunction> {
        let mut all = ByFunction::default();
        self.each_file(instance, |text| all.add(text))?;
        Ok(all)
    }

    /// The same of a server that runs with [`Locks::OPTIONS`]: what it did with locks.
    pub fn locks(&self, instance: &Instance, code: &mut Code) -> Result<Locks> {
        let mut all = Locks::default();
        self.each_file(instance, |text| all.add(text, code))?;
        Ok(all)
    }

    /// Reads what every process writes. The files go: those with a line for each instruction are large.
    fn each_file(&self, instance: &Instance, mut add: impl FnMut(&str) -> Option<()>) -> Result<()> {
        for file in self.dumped(instance)? {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            add(&text).with_context(|| format!("{}: not a file of callgrind", file.display()))?;
            fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
        }
        Ok(())
    }

    /// The files that every process writes once the server has come to rest.
    fn dumped(&self, instance: &Instance) -> Result<Vec<PathBuf>> {
        ensure!(
            ProcessClocks::new(instance.pids()).rest_within(REST_WITHIN, REST),
            "the server still works {} s after its last connection, so that what it does for one cannot be counted; \
             its log ends with:\n{}",
            REST_WITHIN.as_secs(),
            instance.log_tail()
        );
        refuse_other_users(&instance.pids())?;
        let before = self.files()?;
        for pid in instance.pids() {
            let output = Command::new("vgdb")
                .args([&self.option("vgdb-prefix", "pipe"), &OsString::from(format!("--pid={pid}"))])
                .args([&format!("--cmd-time-out={}", REST_WITHIN.as_secs()), "dump"])
                .output()
                .context("run vgdb, which comes with valgrind")?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "vgdb could not reach process {pid}: {}", error.trim());
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByFunction {
    /// Instructions of the function itself.
    pub own: BTreeMap<Function, Executed>,
    /// Instructions of what the function calls, callees of those included.
    pub called: BTreeMap<Function, Executed>,
    /// By the name of what is called: how often, and with what that calls.
    callees: BTreeMap<String, Calls>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub count: u64,
    /// Callees included.
    pub instructions: u64,
}

impl Calls {
    pub fn add(&mut self, more: Calls) {
        self.count += more.count;
        self.instructions += more.instructions;
    }
}

impl ByFunction {
    pub fn total(&self) -> u64 {
        self.own.values().map(|own| own.instructions).sum()
    }

    pub fn renewals(&self) -> Calls {
        self.calls_of(RENEW)
    }

    /// Instructions of all functions, where each operation with an RSA key has its part of what renewals cost anywhere:
    /// one falls into this piece of work or not as the operations before it are.
    pub fn with_renewals_evened(&self, anywhere: Calls) -> u64 {
        let each = anywhere.instructions as f64 / anywhere.count.max(1) as f64 / OPERATIONS_PER_RENEWAL;
        let evened = each * self.calls_of(BLIND).count as f64;
        self.total().saturating_sub(self.renewals().instructions) + evened.round() as u64
    }

    /// Calls of a function of this name, whatever file it is of.
    fn calls_of(&self, name: &str) -> Calls {
        self.callees.get(name).copied().unwrap_or_default()
    }

    /// Adds what a file in callgrind's profile format says. `None`: it is none.
    fn add(&mut self, text: &str) -> Option<()> {
        format::read(text, |line| {
            let place = if line.called.is_some() { &mut self.called } else { &mut self.own };
            let sum = place.entry(line.function.clone()).or_default();
            *sum = sum.checked_add(line.executed)?;
            if let Some((callee, count)) = line.called {
                let calls = self.callees.entry(callee.to_owned()).or_default();
                *calls = Calls {
                    count: calls.count.checked_add(count)?,
                    instructions: calls.instructions.checked_add(line.executed.instructions)?,
                };
            }
            Some(())
        })
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
            lines in vec("(ob|fn|cob|cfn|calls|totals)[=:] ?(\\([0-9]\\)( x)?|[0-9 ]*)|[-+*0-9 x]{0,6}", 0..30),
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
        let function = |object: &str, name: &str| Function { object: object.to_owned(), name: name.to_owned() };
        let just = |instructions| Executed { instructions, ..Executed::default() };
        let expected = [(function("/lib/a.so", "work"), just(16)), (function("/lib/b.so", "help"), just(60))];
        assert_eq!(all.own, BTreeMap::from(expected));
        assert_eq!(all.called, BTreeMap::from([(function("/lib/a.so", "work"), just(60))]));
        assert_eq!(all.calls_of("help"), Calls { count: 2, instructions: 60 });
        assert_eq!((all.total(), all.calls_of("work")), (76, Calls::default()));
        assert_eq!(all.clone().add(&text.replace("38", "39")), None, "another total than the sum");
        assert_eq!(all.add("fn=(7)\n"), None, "a number that nothing was said of");
        assert_eq!(all.add("fn=(7) x\n12\n"), None);
    }

    /// Zeros at the end of a line are left out.
    #[test]
    fn misses_are_told_where_caches_were_given() {
        let text = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim\nfn=(1) work\n1 90 20 10 3 2 1 1 1 0 \
                    9 4 2 1\n2 10\ntotals: 100 20 10 3 2 1 1 1 0 9 4 2 1\n";
        let mut all = ByFunction::default();
        all.add(text).unwrap();
        let expected = Executed { instructions: 100, near_misses: 6, far_misses: 2, mispredicted: 5 };
        assert_eq!(all.own.values().collect::<Vec<_>>(), [&expected]);
        assert_eq!(all.add(&text.replace("\ntotals: 100 20 10 3", "\ntotals: 100 20 10 4")), None);
    }

    /// Two pieces of work of 16 signatures each, of which the second had the renewal.
    #[test]
    fn renewals_are_spread_over_the_operations() {
        let piece = |renewals: u64| {
            let text = format!(
                "fn=(1) sign\n1 1000\ncfn=(2) BN_BLINDING_convert_ex\ncalls=16 1\n1 {}\nfn=(2)\n2 160\n\
                 cfn=(3) BN_BLINDING_create_param\ncalls={renewals} 1\n1 {}\nfn=(3)\n3 {}\ntotals: {}\n",
                160 + renewals * 640,
                renewals * 640,
                renewals * 640,
                1160 + renewals * 640
            );
            let mut functions = ByFunction::default();
            functions.add(&text).unwrap();
            functions
        };
        let (without, with) = (piece(0), piece(1));
        assert_eq!((without.total(), with.total()), (1160, 1800));
        let mut anywhere = without.renewals();
        anywhere.add(with.renewals());
        assert_eq!(anywhere, Calls { count: 1, instructions: 640 });
        // Half a renewal for each.
        assert_eq!(without.with_renewals_evened(anywhere), 1480);
        assert_eq!(with.with_renewals_evened(anywhere), 1480);
    }
}
