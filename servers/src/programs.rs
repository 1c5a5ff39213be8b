//! Where server programs are installed.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tlsdyno_base::fault::{Fault, OrFault};

/// A server program as distributions have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// What messages call it.
    pub title: &'static str,
    /// What its program is called: Debian's name first.
    pub programs: &'static [&'static str],
    /// Arguments for which the program says its version, in one line or first of all.
    pub version: &'static [&'static str],
    /// Debian's packages, separated by blanks.
    pub debian: &'static str,
    /// The service that Debian starts with it.
    pub service: Option<&'static str>,
    /// The first version that takes the configuration that is written for it; empty: any will do.
    pub oldest: &'static str,
}

impl Package {
    /// Whether it says of itself that it is older than what works.
    pub fn is_too_old(&self, said: &str) -> bool {
        let numbers = |text: &str| -> Option<Vec<u32>> {
            let mut words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
            words.find(|word| word.contains('.'))?.split('.').map(|number| number.parse().ok()).collect()
        };
        numbers(said).zip(numbers(self.oldest)).is_some_and(|(own, oldest)| own < oldest)
    }

    /// Where the program is installed, if it is.
    pub fn installed(&self) -> Option<PathBuf> {
        self.programs.iter().find_map(|name| find(name))
    }

    /// Where the program is installed. `otherwise`: what else one can do, to follow the advice to install it.
    ///
    /// # Errors
    /// How to install it; [`Fault::Environment`].
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

/// The program's path: first in PATH, then in the directories for system programs.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|candidate| is_executable(candidate))
}

/// What a program prints, standard output before standard error; empty if it cannot be run or takes more than 5 s.
pub fn output_of(program: &Path, arguments: &[&str]) -> String {
    output_within(program, arguments, Duration::from_secs(5))
}

fn output_within(program: &Path, arguments: &[&str], patience: Duration) -> String {
    let mut command = Command::new(program);
    let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(child) = child else { return String::new() };
    let pid = Pid::from_child(&child);
    let (done, answer) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match answer.recv_timeout(patience) {
        Ok(Ok(output)) => String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        Ok(Err(_)) => String::new(),
        // Its thread waits for it still, so the number is nobody else's.
        Err(_) => {
            let _ = kill_process(pid, Signal::KILL);
            String::new()
        }
    }
}

/// A module of a server, in the first of these directories that has it. `otherwise`: what stands behind the advice to
/// install it.
///
/// # Errors
/// How to install it; [`Fault::Environment`].
pub fn require_module(of: &str, file: &str, directories: &[&str], otherwise: &str) -> Result<PathBuf> {
    let found = directories.iter().map(|directory| Path::new(directory).join(file)).find(|path| path.exists());
    let missing =
        || format!("{of}'s module {file} was not found in {}; install it ({otherwise})", directories.join(", "));
    found.with_context(missing).or_fault(Fault::Environment)
}

/// A path as a configuration can hold it.
///
/// # Errors
/// It is not UTF-8, or has a line end or one of `forbidden` in it, which the server cannot be given.
pub fn writable<'path>(path: &'path Path, server: &str, forbidden: &str) -> Result<&'path str> {
    match path.to_str() {
        Some(text) if !text.contains(|c| c == '\n' || forbidden.contains(c) && c != ' ') => Ok(text),
        _ => bail!(
            "{server} cannot be given the path {} (not UTF-8, or {forbidden} in it); use another directory",
            path.display()
        ),
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_says_nothing() {
        let shell = find("sh").unwrap();
        assert_eq!(output_of(&shell, &["-c", "echo out; echo error >&2"]), "out\nerror\n");
        assert_eq!(output_within(&shell, &["-c", "echo out; exec sleep 100"], Duration::from_millis(50)), "");
        assert_eq!(output_of(Path::new("/no/such/program"), &[]), "");
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
        let told = |package: Package| format!("{:#}", package.require(" or wait").unwrap_err());
        assert_eq!(
            told(package),
            "Server was not found in PATH, /usr/sbin or /usr/local/sbin; install it (Debian: `apt-get install \
             server server-tls`; its service need not run: `systemctl disable --now serverd`) or wait"
        );
        assert!(told(Package { service: None, ..package }).contains("server-tls`, which starts no service)"));
        let old = ["nginx version: nginx/1.18.0 (Ubuntu)", "nginx version: nginx/1.19.4", "1.22.1", "says no version"];
        assert_eq!(old.map(|said| package.is_too_old(said)), [true, false, false, false]);
        assert!(!Package { oldest: "", ..package }.is_too_old("nginx version: nginx/1.18.0"));
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").unwrap().is_absolute());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
