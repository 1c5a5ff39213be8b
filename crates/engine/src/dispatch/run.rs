//! The loop: carries out what [`super::route`] decides, over sockets.

mod accept;
mod connect;
mod ending;
mod forward;
mod opening;
mod patience;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(super) use self::connect::open;
use super::counters::Counts;
use super::limits::{COPY_BYTES, EVENTS};
use super::pipes::Pipes;
use super::places::{Id, Places};
use super::route::Router;
use super::shared::{Phase, Shared, Snapshot};
use crate::reactor::{Interest, Reactor};

const WAKE: u64 = u64::MAX;

/// One loop of a dispatcher, with everything that it needs to start: what is missing shows before anybody is served.
pub struct Loop<'s> {
    /// Watched: a descriptor that is closed would wake nobody.
    _wake: OwnedFd,
    shared: &'s Shared,
    counts: &'s Counts,
    snapshot: Arc<Snapshot>,
    generation: u64,
    router: Router,
    reactor: Reactor,
    listeners: Vec<TcpListener>,
    /// The listeners are watched: not while there are too many connections or too few descriptors.
    accepting: bool,
    /// Accepted in one turn at most.
    accepts: u32,
    /// No connection is accepted before this instant.
    accept_at_ns: u64,
    number: usize,
    /// There was no room: not before this instant either, unless a connection of this loop ends.
    room_at_ns: u64,
    places: Places,
    unfinished: Vec<Id>,
    /// Connections that wait for much input, and when somebody looks whether little has come.
    patient: Vec<Id>,
    patience_at_ns: u64,
    pipes: Pipes,
    buffer: Box<[u8; COPY_BYTES]>,
    /// Backends that were up when last looked at.
    seen_usable: u64,
    now_ns: u64,
    sweep_at_ns: u64,
}

impl Loop<'_> {
    /// The `number`th loop. Whatever becomes readable on `wake` makes it look at the phase and at new settings; the
    /// bytes are left there.
    pub fn new(shared: &Shared, number: usize, listeners: Vec<TcpListener>, wake: OwnedFd) -> io::Result<Loop<'_>> {
        let (snapshot, generation) = shared.snapshot();
        let reactor = Reactor::new(EVENTS)?;
        reactor.add(&wake, WAKE, Interest::EdgeRead)?;
        let mut this = Loop {
            _wake: wake,
            shared,
            counts: &shared.counts[number],
            router: Router::new(snapshot.settings.policy, number),
            pipes: Pipes::new(0),
            snapshot,
            generation,
            reactor,
            listeners,
            accepting: false,
            accepts: 1,
            accept_at_ns: 0,
            number,
            room_at_ns: 0,
            places: Places::default(),
            unfinished: Vec::new(),
            patient: Vec::new(),
            patience_at_ns: u64::MAX,
            buffer: vec![0; COPY_BYTES].try_into().map_err(|_| io::ErrorKind::OutOfMemory)?,
            seen_usable: u64::MAX,
            now_ns: tlsdyno_sys::monotonic_ns(),
            sweep_at_ns: 0,
        };
        this.take_limits();
        Ok(this)
    }

    /// Runs until [`Phase::Stop`], or until [`Phase::Drain`] and its last connection is closed.
    ///
    /// The process must ignore SIGPIPE, as Rust's start does: splicing to a socket that was reset raises it, which no
    /// flag prevents.
    ///
    /// # Errors
    /// The loop itself cannot go on; what goes wrong on a connection ends that one.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            match self.shared.phase() {
                Phase::Run => {}
                Phase::Drain => {
                    self.stop_listening()?;
                    if self.places.open() == 0 {
                        return Ok(());
                    }
                }
                Phase::Stop => return Ok(()),
            }
            if self.generation != self.shared.generation() {
                (self.snapshot, self.generation) = self.shared.snapshot();
                self.take_limits();
            }
            self.turn()?;
        }
    }

    fn take_limits(&mut self) {
        let settings = &self.snapshot.settings;
        self.router.set_policy(settings.policy);
        self.pipes.set_most(settings.limits.pipes / self.shared.counts.len() as u32);
    }

    fn turn(&mut self) -> io::Result<()> {
        self.watch_listeners()?;
        let events = self.reactor.wait(self.wait_ns())?;
        self.now_ns = tlsdyno_sys::monotonic_ns();
        self.handle(events);
        Ok(())
    }

    /// Does what these events ask for, and what is due now.
    fn handle(&mut self, events: usize) {
        for index in 0..events {
            let event = self.reactor.event(index);
            match event.token {
                WAKE => {}
                token if token >= Id::TOKENS => {
                    self.accept((token - Id::TOKENS) as usize);
                }
                _ => self.on_event(event),
            }
        }
        for id in std::mem::take(&mut self.unfinished) {
            self.drive(id);
        }
        if self.shared.room.is_waiting(self.number) && self.may_accept() {
            for listener in 0..self.listeners.len() {
                self.accept(listener);
            }
        }
        if self.now_ns >= self.patience_at_ns {
            self.end_patience();
        }
        if self.now_ns >= self.sweep_at_ns {
            self.sweep();
        }
    }

    fn wait_ns(&self) -> u64 {
        const LONG_NS: u64 = 3_600_000_000_000;
        if !self.unfinished.is_empty() {
            return 0;
        }
        let sweep_at_ns = if self.places.open() == 0 { u64::MAX } else { self.sweep_at_ns };
        let accept_at_ns = self.accept_at_ns.max(self.room_at_ns);
        let accept_at_ns = if accept_at_ns > self.now_ns { accept_at_ns } else { u64::MAX };
        sweep_at_ns.min(accept_at_ns).min(self.patience_at_ns).saturating_sub(self.now_ns).min(LONG_NS)
    }
}

/// Whole seconds, never 0.
fn seconds(now_ns: u64) -> u32 {
    (now_ns / 1_000_000_000 + 1) as u32
}

fn all(snapshot: &Snapshot) -> u64 {
    snapshot.targets.iter().fold(0, |mask, target| mask | 1 << target.slot)
}
