//! Taking connections from the listeners, as many as may be open.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::Loop;
use crate::dispatch::connection::Connection;
use crate::dispatch::limits::{ACCEPT_PAUSE_NS, ACCEPTS_PER_TURN, ROOM_PAUSE_NS};
use crate::dispatch::places::Id;
use crate::dispatch::shared::Phase;
use crate::reactor::Interest;

impl Loop<'_> {
    /// Takes a place for one more connection; `false`: it has to wait in the queue.
    pub(super) fn take_room(&mut self) -> bool {
        let most = self.snapshot.settings.limits.connections;
        let taken = match self.shared.phase() {
            Phase::Run => self.shared.room.take(self.number, most),
            // Who does not get in now never will.
            _ => self.shared.room.take_any(most),
        };
        if !taken {
            self.room_at_ns = self.now_ns + ROOM_PAUSE_NS;
        }
        taken
    }

    pub(super) fn may_accept(&self) -> bool {
        self.now_ns >= self.accept_at_ns.max(self.room_at_ns)
    }

    /// Watches the listeners exactly while connections may be accepted.
    pub(super) fn watch_listeners(&mut self) -> io::Result<()> {
        let accepting = self.may_accept();
        if accepting != self.accepting {
            self.accepting = accepting;
            for (index, listener) in self.listeners.iter().enumerate() {
                match accepting {
                    true => self.reactor.add(listener, Id::TOKENS + index as u64, Interest::Read)?,
                    false => self.reactor.remove(listener)?,
                }
            }
        }
        Ok(())
    }

    /// Closes the listeners once what waits in their queues is accepted.
    pub(super) fn stop_listening(&mut self) -> io::Result<()> {
        for index in 0..self.listeners.len() {
            while self.accept(index) {}
        }
        self.listeners.clear();
        self.shared.room.leave_queue(self.number);
        Ok(())
    }

    /// Accepts some of those that wait; whether there may be more. How many depends on how many there were the last
    /// time: asking in vain costs a system call.
    pub(super) fn accept(&mut self, listener: usize) -> bool {
        for _ in 0..self.accepts {
            if self.shared.control_waits.load(Ordering::Relaxed) {
                self.pause_accepting();
                return false;
            }
            if !self.take_room() {
                return false;
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let (client, address) = match rustix::net::acceptfrom_with(&self.listeners[listener], flags) {
                Ok(accepted) => accepted,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.shared.room.give_back();
                    self.pause_accepting();
                    return false;
                }
                // Nobody left, or one that gave up while waiting.
                Err(_) => {
                    self.shared.room.give_back();
                    self.shared.room.leave_queue(self.number);
                    self.accepts = (self.accepts / 2).max(1);
                    return false;
                }
            };
            if let Some(Ok(address)) = address.map(SocketAddr::try_from) {
                self.counts.all.accepted.add(1);
                self.admit(client, address);
            } else {
                self.shared.room.give_back();
            }
        }
        self.accepts = (self.accepts * 2).min(ACCEPTS_PER_TURN);
        true
    }

    /// Descriptors have run out: those of idle pipes are given back, and others wait until some connection ends.
    pub(super) fn pause_accepting(&mut self) {
        self.counts.all.accept_pauses.add(1);
        self.shared.room.leave_queue(self.number);
        if !self.pipes.close_spare() {
            self.accept_at_ns = self.now_ns + ACCEPT_PAUSE_NS;
        }
    }

    pub(super) fn admit(&mut self, client: OwnedFd, address: SocketAddr) {
        let most = self.snapshot.settings.limits.connections_per_address;
        let mut connection = Connection::new(client, address, self.now_ns);
        if most > 0 {
            connection.counted = true;
            if !self.shared.per_address.enter(address.ip(), most) {
                self.shared.per_address.leave(address.ip());
                self.shared.room.give_back();
                self.counts.all.refused_address.add(1);
                self.counts.all.closed.add(1);
                return;
            }
        }
        let id = self.places.insert(connection);
        match self.snapshot.settings.policy.waits_for_client() {
            true => self.read_opening(id),
            false => self.connect_first(id),
        }
    }
}
