//! Network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tlsdyno_engine::sys::unshare_network_namespace;

/// A network namespace, which lives as long as this or anything in it.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// The one of this thread.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn current() -> io::Result<Namespace> {
        File::open("/proc/thread-self/ns/net").map(Namespace)
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
    ///
    /// # Errors
    /// Those of [`Namespace::create`].
    pub fn with_loopback() -> Result<Namespace> {
        let namespace = Namespace::create()?;
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
    ///
    /// # Errors
    /// Those of [`Namespace::enter`].
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || self.enter().map(|()| work());
        thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|fault| std::panic::resume_unwind(fault)))
    }

    /// Runs a script of the shell in there.
    ///
    /// # Errors
    /// It fails; what it said.
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
