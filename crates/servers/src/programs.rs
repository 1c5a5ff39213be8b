//! Where server programs are installed.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::program::executable_in;
use tlsdyno_sys as sys;

use super::view::View;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    pub title: &'static str,
    /// What its program is called: Debian's name first.
    pub programs: &'static [&'static str],
    /// Arguments for which the program says its version, in one line or first of all.
    pub version: &'static [&'static str],
    pub debian: &'static str,
    pub service: Option<&'static str>,
    /// The first version that takes the configuration that is written for it; empty: any will do.
    pub oldest: &'static str,
}

impl Package {
    /// Of a program that is called as its package and its service are.
    pub const fn new(programs: &'static [&'static str]) -> Package {
        let name = programs[0];
        Package { title: name, programs, version: &["-v"], debian: name, service: Some(name), oldest: "" }
    }

    /// Whether it says of itself that it is older than what works.
    pub fn is_too_old(&self, output: &str) -> bool {
        let numbers = |text: &str| -> Option<Vec<u32>> {
            let mut words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
            words.find(|word| word.contains('.'))?.split('.').map(|number| number.parse().ok()).collect()
        };
        numbers(output).zip(numbers(self.oldest)).is_some_and(|(own, oldest)| own < oldest)
    }

    pub fn installed(&self) -> Option<PathBuf> {
        self.programs.iter().find_map(|name| find(name))
    }

    /// Where the program is installed. `otherwise`: what else one can do, to follow the advice to install it.
    pub fn require(&self, otherwise: &str) -> Result<PathBuf> {
        let found = self.installed().with_context(|| {
            let service = match self.service {
                Some(service) => format!("; its service need not run: `systemctl disable --now {service}`"),
                None => ", which starts no service".to_owned(),
            };
            format!(
                "{} was not found in PATH, /usr/sbin or /usr/local/sbin; install it (Debian: `apt-get install \
                 {}`{service}){otherwise}",
                self.title, self.debian
            )
        });
        found.or_fault(Fault::Environment)
    }
}

/// Servers live here on most distributions, and a plain user's PATH often lacks these.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"];

pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from));
    executable_in(directories, name)
}

/// What a program prints, standard output before standard error, see [`ask`]; empty if it cannot be run or takes more
/// than 5 s.
pub fn output_of(program: &Path, arguments: &[&str]) -> String {
    let arguments = arguments.iter().map(Into::into).collect();
    let output = ask(program, arguments, Duration::from_secs(5));
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&[&*output.out, &*output.error].concat()).into_owned(),
    )
}

#[derive(Debug)]
pub struct ProgramOutput {
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub error: Vec<u8>,
    /// What held it back, for whoever is told that it ran.
    pub held: &'static str,
}

/// Runs a program with these arguments once in the life of this process, and answers what it said then. It may run
/// commands of a configuration: as root it can write nothing but a directory of its own, has a network without anybody
/// in it, and all its processes end with it. Other users run it as they are.
pub fn ask(program: &Path, arguments: Vec<OsString>, patience: Duration) -> Result<Arc<ProgramOutput>, String> {
    type Answers = BTreeMap<(PathBuf, Vec<OsString>), Result<Arc<ProgramOutput>, String>>;
    static ANSWERS: Mutex<Answers> = Mutex::new(BTreeMap::new());
    let mut answers = ANSWERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = program.to_str().filter(|name| !name.contains('/')).and_then(find).unwrap_or_else(|| program.into());
    let held = || run_held(&program, &arguments, patience, View::default(), &BTreeMap::new(), true);
    let run = || held().map(Arc::new).map_err(|error| format!("{error:#}"));
    match answers.get(&(program.clone(), arguments.clone())) {
        Some(answer) => answer.clone(),
        None => answers.entry((program.clone(), arguments.clone())).or_insert_with(run).clone(),
    }
}

/// The same each time, with this view and these variables: `is_alone` keeps the network from it. The namespaces are
/// those of a thread of its own, and of what it starts.
pub fn run_held(
    program: &Path,
    arguments: &[OsString],
    patience: Duration,
    view: View,
    variables: &BTreeMap<String, String>,
    is_alone: bool,
) -> Result<ProgramOutput> {
    let scratch = tempfile::tempdir().context("make a directory")?;
    let (started, begun) = mpsc::channel();
    let (done, answer) = mpsc::channel();
    let mut command = Command::new(program);
    command.args(arguments).envs(variables).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let place = scratch.path().to_owned();
    std::thread::spawn(move || {
        let held = hold_back(&place, &view, is_alone);
        if held != UNHELD {
            command.env("TMPDIR", &place);
        }
        // What it should see is not there.
        let is_blind = held == UNHELD && !view.shown.is_empty();
        let child = match if is_blind { Err(io::Error::other(UNHELD)) } else { command.spawn() } {
            Ok(child) => child,
            Err(error) => return drop(started.send(Err(error))),
        };
        let _ = started.send(Ok(Pid::from_child(&child)));
        let output = child.wait_with_output();
        let _ = done.send(output.map(|output| ProgramOutput {
            status: output.status,
            out: output.stdout,
            error: output.stderr,
            held,
        }));
    });
    let pid = begun.recv().context("start it")?.with_context(|| format!("run {}", program.display()))?;
    match answer.recv_timeout(patience) {
        Ok(output) => output.context("read what it says"),
        Err(_) => {
            // Its thread waits for it still, so the number is nobody else's.
            let _ = kill_process(pid, Signal::KILL);
            bail!("{} took more than {} s", program.display(), patience.as_secs())
        }
    }
}

const UNHELD: &str = "held back by nothing (that takes the rights of root)";

/// Gives this thread a view of the file system in which only `scratch` can be written, a network with nobody in it if
/// it `is_alone`, and processes that end with the first. Answers what of it the system allows.
fn hold_back(scratch: &Path, view: &View, is_alone: bool) -> &'static str {
    if !geteuid().is_root() || view.enter(scratch).is_err() {
        return UNHELD;
    }
    // Where these are not allowed, what it can do is told.
    let _ = sys::unshare_pid_namespace();
    match is_alone && sys::unshare_network_namespace().is_ok() {
        true => "read-only and without a network",
        false => "read-only",
    }
}

/// A module of a server, in the first of these directories that has it. `otherwise`: what stands behind the advice to
/// install it.
pub fn require_module(server: &str, file: &str, directories: &[&str], otherwise: &str) -> Result<PathBuf> {
    let found = directories.iter().map(|directory| Path::new(directory).join(file)).find(|path| path.exists());
    let missing =
        || format!("{server}'s module {file} was not found in {}; install it ({otherwise})", directories.join(", "));
    found.with_context(missing).or_fault(Fault::Environment)
}

/// A path as a configuration can hold it.
pub fn writable<'path>(path: &'path Path, server: &str, forbidden: &str) -> Result<&'path str> {
    match path.to_str() {
        Some(text) if !text.contains(|c| c == '\n' || forbidden.contains(c) && c != ' ') => Ok(text),
        _ => bail!(
            "{server} cannot be given the path {} (not UTF-8, or {forbidden} in it); use another directory",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_says_nothing() {
        let shell = find("sh").unwrap();
        assert_eq!(output_of(&shell, &["-c", "echo out; echo error >&2"]), "out\nerror\n");
        let slow = ask(&shell, ["-c", "echo out; exec sleep 100"].map(Into::into).into(), Duration::from_millis(50));
        assert!(slow.unwrap_err().contains("took more than"));
        assert_eq!(output_of(Path::new("/no/such/program"), &[]), "");
    }

    #[test]
    fn a_program_is_asked_once_and_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let counted = place.path().join("counted");
        let script = format!("echo x >> {}; echo $TMPDIR; exec 3<>/dev/tcp/127.0.0.1/9", counted.display());
        let run = |script: &str| ask(&find("bash").unwrap(), vec!["-c".into(), script.into()], Duration::from_secs(60));
        let output = run(&script).unwrap();
        assert!(Arc::ptr_eq(&output, &run(&script).unwrap()), "it ran once");
        if geteuid().is_root() && output.held != UNHELD {
            assert!(!counted.exists(), "it was read-only");
            let error = String::from_utf8_lossy(&output.error);
            assert!(error.contains("Read-only file system") && error.contains("unreachable"), "{error}");
            let of_its_own = run("touch $TMPDIR/x && echo $$").unwrap();
            assert_eq!(of_its_own.out, b"1\n", "{of_its_own:?}");
        }
    }

    #[test]
    fn who_lacks_a_program_is_told_how_to_get_it() {
        let package = Package {
            title: "Server",
            programs: &["no-such-program-anywhere"],
            version: &["-v"],
            debian: "server server-tls",
            service: Some("serverd"),
            oldest: "1.19.4",
        };
        let message = |package: Package| format!("{:#}", package.require(" or wait").unwrap_err());
        assert_eq!(
            message(package),
            "Server was not found in PATH, /usr/sbin or /usr/local/sbin; install it (Debian: `apt-get install \
             server server-tls`; its service need not run: `systemctl disable --now serverd`) or wait"
        );
        assert!(message(Package { service: None, ..package }).contains("server-tls`, which starts no service)"));
        let old = ["nginx version: nginx/1.18.0 (Ubuntu)", "nginx version: nginx/1.19.4", "1.22.1", "says no version"];
        assert_eq!(old.map(|output| package.is_too_old(output)), [true, false, false, false]);
        assert!(!Package { oldest: "", ..package }.is_too_old("nginx version: nginx/1.18.0"));
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").unwrap().is_absolute());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
