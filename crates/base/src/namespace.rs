//! Network namespaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tlsdyno_sys::unshare_network_namespace;

/// A network namespace, which lives as long as this or anything in it.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// The one of this thread.
    pub fn current() -> io::Result<Namespace> {
        File::open("/proc/thread-self/ns/net").map(Namespace)
    }

    /// The one of a file, such as `/proc/4711/ns/net` or one below `/run/netns`.
    pub fn open(file: &Path) -> io::Result<Namespace> {
        File::open(file).map(Namespace)
    }

    /// A new one, whose loopback is down.
    ///
    /// # Errors
    /// Without root (CAP_SYS_ADMIN) there is none.
    pub fn create() -> io::Result<Namespace> {
        // A thread of its own, for it stays where it went.
        thread::scope(|scope| {
            let made = scope.spawn(|| unshare_network_namespace().and_then(|()| Namespace::current()));
            made.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault))
        })
    }

    /// One with a loopback of its own, where nobody else's packets are.
    pub fn with_loopback() -> Result<Namespace> {
        let namespace = Namespace::create().context("only root can make a network namespace")?;
        namespace.run("ip link set lo up")?;
        Ok(namespace)
    }

    /// Has this thread, and whatever it starts, be there.
    ///
    /// # Errors
    /// Without root (CAP_SYS_ADMIN) it may not.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// What `work` comes to in there.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || self.enter().map(|()| work());
        thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|fault| std::panic::resume_unwind(fault)))
    }

    /// Runs a script of the shell in there.
    pub fn run(&self, script: &str) -> Result<()> {
        let output = self.within(|| Command::new("sh").args(["-ec", script]).output())?.context("run sh")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "failed to set up a network namespace (`ip` comes with the package iproute2): {}",
            said.trim()
        );
        Ok(())
    }
}

/// Where this process began, once a thread of it has gone apart.
static OUTSIDE: OnceLock<Namespace> = OnceLock::new();

/// This thread, and whatever it starts, has a network in which nobody else is, until this is dropped.
#[derive(Debug)]
pub struct Apart {
    before: Namespace,
}

impl Apart {
    /// Goes there. The kernel's settings of TCP are those of the machine.
    pub fn enter() -> Result<Apart> {
        let own = Namespace::with_loopback()?;
        let settings = settings();
        own.within(|| settings.iter().for_each(|(path, value)| take_over(path, value)))?;
        let before = Namespace::current()?;
        // Whoever goes apart once more knows another one.
        let _ = OUTSIDE.set(Namespace::current()?);
        own.enter()?;
        Ok(Apart { before })
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Whoever could leave it may come back.
        let _ = self.before.enter();
    }
}

/// What `work` comes to where everybody else is, wherever this thread is.
pub fn outside<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    match OUTSIDE.get() {
        Some(outside) => outside.within(work),
        None => Ok(work()),
    }
}

/// The kernel's settings of this thread's network, by file.
fn settings() -> Vec<(PathBuf, String)> {
    let directories = ["/proc/sys/net/core", "/proc/sys/net/ipv4"].map(fs::read_dir).into_iter().flatten();
    let files = directories.flatten().flatten().map(|entry| entry.path());
    files.filter_map(|path| fs::read_to_string(&path).ok().map(|value| (path, value))).collect()
}

/// Most are as they should be. A container may forbid to change them.
fn take_over(path: &Path, value: &str) {
    if fs::read_to_string(path).is_ok_and(|own| own != value) {
        let _ = fs::write(path, value);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn who_goes_apart_meets_nobody_and_comes_back() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, machine) = (listener.local_addr().unwrap(), settings());
        let reaches = || TcpStream::connect(address).is_ok();
        let Ok(apart) = Apart::enter() else {
            assert!(!rustix::process::geteuid().is_root() || Namespace::create().is_err());
            return;
        };
        assert!(!reaches() && outside(reaches).unwrap());
        let own = TcpListener::bind(here).unwrap();
        let found = crate::listening::owner_numbers(&here).unwrap();
        assert!(found.contains(&std::process::id()) && crate::listening::owner_numbers(&address).is_none());
        drop(own);
        let backlog = |all: &[(PathBuf, String)]| {
            all.iter().find(|(path, _)| path.ends_with("somaxconn")).map(|(_, value)| value.clone())
        };
        assert_eq!(backlog(&settings()), backlog(&machine));
        drop(apart);
        assert!(reaches());
    }
}
