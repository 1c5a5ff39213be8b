//! Runs a dispatcher: listeners, loops, signals.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::{interrupt, listening};
use tlsdyno_engine::dispatch::health::Checks;
use tlsdyno_engine::dispatch::{self, Loop, Phase, Shared};

use super::config::Config;
use super::control::Control;
use super::descriptors;

/// A dispatcher that listens and does not run yet.
pub struct Service {
    config: Config,
    shared: Shared,
    listeners: Vec<Vec<TcpListener>>,
    addresses: Vec<SocketAddr>,
    control: Option<Control>,
}

impl Service {
    /// Checks the configuration and binds the addresses.
    ///
    /// # Errors
    /// [`Fault::Usage`] for what contradicts itself, [`Fault::Environment`] for what this machine does not allow.
    pub fn new(config: Config) -> Result<Service> {
        config.settings().or_fault(Fault::Usage)?;
        let limits = descriptors::make_room_for(&config).or_fault(Fault::Environment)?;
        let config = Config { limits, ..config };
        let settings = config.settings()?;
        let shared = Shared::new(settings, config.loops(), config.table_size as usize).or_fault(Fault::Usage)?;
        // Before it listens: whoever reaches it can ask it, too.
        let control = config.control.as_deref().map(Control::bind).transpose()?;
        let mut listeners: Vec<Vec<TcpListener>> = (0..config.loops()).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for address in &config.listen {
            let mut address = *address;
            for listeners in &mut listeners {
                let bound = dispatch::bind(address, true).with_context(|| format!("failed to listen on {address}"));
                let listener = bound.or_fault(Fault::Environment)?;
                // Where the port was left open, the first socket decides it for all.
                address = listener.local_addr()?;
                listeners.push(listener);
            }
            if listening::is_shared(&address, &[std::process::id()]) {
                tell!("tlsdyno dispatch: another program listens at {address}, too: each gets a part of the clients");
            }
            addresses.push(address);
        }
        Ok(Service { config, shared, listeners, addresses, control })
    }

    /// Runs until SIGINT or SIGTERM and the end of the connections that are open then. SIGHUP reads `file` again.
    /// `ready` is told where clients can connect to, once nothing that the start needs is missing: clients could
    /// take the last descriptors.
    pub fn run(mut self, file: Option<&Path>, ready: impl FnOnce(&[SocketAddr])) -> Result<End> {
        let (mut wake, woken) = UnixStream::pair().context("make the loops' wake-up")?;
        let (ended, mut loops_end) = UnixStream::pair().context("make the loops' end")?;
        let mut signals = Signals::new()?;
        for socket in [&wake, &woken, &loops_end] {
            socket.set_nonblocking(true)?;
        }
        let mut loops = Vec::new();
        for (number, listeners) in std::mem::take(&mut self.listeners).into_iter().enumerate() {
            let of_loop = Loop::new(&self.shared, number, listeners, woken.try_clone()?.into());
            loops.push((of_loop.context("prepare a loop")?, wake.try_clone()?, ended.try_clone()?));
        }
        drop(ended);
        let checks = Checks::new(&self.shared, woken.try_clone()?.into()).context("prepare the checks")?;
        ready(&self.addresses);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let started = self.start(scope, loops, checks, &mut threads);
            let mut call = || wake_up(&mut wake, &woken);
            let exit = started.and_then(|()| self.watch(&mut signals, &mut loops_end, file, &mut call));
            self.shared.end(Phase::Stop);
            call();
            self.control.iter().for_each(Control::wake);
            for thread in threads {
                let result = thread.join().map_err(|_| anyhow!("a thread panicked; its message is above"))?;
                result.context("the dispatcher could not go on")?;
            }
            exit
        })
    }

    /// Starts every thread; those that did start are in `threads` whatever happens.
    fn start<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        loops: Vec<(Loop<'env>, UnixStream, UnixStream)>,
        checks: Checks<'env>,
        threads: &mut Vec<ScopedJoinHandle<'scope, io::Result<()>>>,
    ) -> Result<()> {
        let shared = &self.shared;
        let thread = |name: String| Builder::new().name(name);
        for (number, (of_loop, mut wake, ended)) in loops.into_iter().enumerate() {
            let work = move || {
                let result = of_loop.run();
                // One for all: what a loop has accepted only it can serve.
                shared.end(if result.is_ok() { Phase::Drain } else { Phase::Stop });
                let _ = wake.write(b"w");
                drop(ended);
                result
            };
            threads.push(thread(format!("loop {number}")).spawn_scoped(scope, work).context("start a loop")?);
        }
        let checks = thread("health checks".to_owned()).spawn_scoped(scope, move || checks.run());
        threads.push(checks.context("start the checks")?);
        if let Some(control) = &self.control {
            let serve = move || control.serve(shared);
            thread("control".to_owned()).spawn_scoped(scope, serve).context("start the control")?;
        }
        Ok(())
    }

    /// Waits for signals until the loops have ended, or have to.
    fn watch(
        &self,
        signals: &mut Signals,
        loops_end: &mut UnixStream,
        file: Option<&Path>,
        call: &mut dyn FnMut(),
    ) -> Result<End> {
        let mut drain_until: Option<Instant> = None;
        loop {
            let left = drain_until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let open: u64 = self.shared.open_connections();
                tell!(
                    "tlsdyno dispatch: {open} connections were still open after {}; they are cut",
                    self.config.drain_time
                );
                return Ok(End::Cut);
            }
            let [is_told_to_end, is_told_to_reload, have_loops_ended] = signals.wait(loops_end, left)?;
            if have_loops_ended {
                return Ok(End::Drained);
            }
            if is_told_to_reload {
                self.reload(file);
                call();
            }
            if is_told_to_end && drain_until.is_some() {
                return Ok(End::Cut);
            }
            if is_told_to_end {
                drain_until = Some(Instant::now() + self.config.drain_time.0);
                let open = self.shared.open_connections();
                if open > 0 {
                    tell!(
                        "tlsdyno dispatch: no new connections; {open} open ones may go on for {} (again Ctrl-C cuts \
                         them)",
                        self.config.drain_time
                    );
                }
                self.shared.end(Phase::Drain);
                call();
            }
        }
    }

    /// Puts a changed file in force. What is wrong with it is said, and the old settings stay.
    fn reload(&self, file: Option<&Path>) {
        let Some(file) = file else {
            tell!("tlsdyno dispatch: there is nothing to reload: it was not started from a file");
            return;
        };
        let replaced = Config::read(file).and_then(|config| {
            if config.listen != self.config.listen || config.loops() != self.config.loops() {
                tell!("tlsdyno dispatch: `listen` and `loops` only change by a restart; the rest is taken");
            }
            let limits = descriptors::make_room_for(&config)?;
            Ok(self.shared.replace(Config { limits, ..config }.settings()?)?)
        });
        match replaced {
            Ok(()) => tell!("tlsdyno dispatch: reloaded {}", file.display()),
            Err(error) => tell!("tlsdyno dispatch: the old settings stay: {error:#}"),
        }
    }
}

/// Wakes all loops: each sees a new byte, though none takes it.
fn wake_up(wake: &mut UnixStream, mut woken: &UnixStream) {
    // Bytes of earlier calls are taken out first, so that the buffer never fills.
    let _ = woken.read(&mut [0; 64]);
    let _ = wake.write(b"w");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every connection had ended.
    Drained,
    /// Connections were cut: the time for them was over, or a second signal came.
    Cut,
}

/// Signals as something that can be waited for beside other things.
struct Signals {
    end: UnixStream,
    reload: UnixStream,
}

impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals { end: interrupt::stream(&[SIGINT, SIGTERM])?, reload: interrupt::stream(&[SIGHUP])? })
    }

    /// Waits for a signal to end, a signal to reload, or the end of all loops, and answers which of them came.
    fn wait(&mut self, loops_end: &mut UnixStream, most: Option<Duration>) -> Result<[bool; 3]> {
        let watched = [&self.end, &self.reload, &*loops_end];
        let mut watched = watched.map(|socket| PollFd::new(socket, PollFlags::IN));
        let timeout = most.and_then(|most| most.try_into().ok());
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for signals"),
        }
        let mut bytes = [0; 64];
        let mut has_come = |signal: &mut UnixStream| signal.read(&mut bytes).is_ok_and(|count| count > 0);
        let (end, reload) = (has_come(&mut self.end), has_come(&mut self.reload));
        Ok([end, reload, loops_end.read(&mut bytes).is_ok_and(|count| count == 0)])
    }
}
