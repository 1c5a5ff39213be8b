//! How connections end: in order, by a reset, or because they took too long.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use super::Loop;
use crate::dispatch::connection::{ConnectionPhase, Side};
use crate::dispatch::limits::{SWEEP_NS_MAX, SWEEP_NS_MIN};
use crate::dispatch::places::Id;
use crate::sys;

impl Loop<'_> {
    /// Closes both sockets; where one side reset the connection, the other sees a reset too.
    pub(super) fn close(&mut self, id: Id) {
        self.leave_count(id);
        let Some(mut connection) = self.places.remove(id) else { return };
        connection.up.give_up(&mut self.pipes);
        connection.down.give_up(&mut self.pipes);
        if connection.counted {
            self.shared.per_address.leave(connection.client_address.ip());
        }
        self.shared.room.give_back();
        self.room_at_ns = 0;
        self.counts.all.closed.add(1);
        let backend = connection.backend.as_ref().map(|backend| &backend.socket.descriptor);
        match connection.reset_by {
            Some(Side::Client) => {
                self.counts.all.reset_by_client.add(1);
                backend.into_iter().for_each(pass_on_reset);
            }
            Some(Side::Backend) => {
                self.counts.all.reset_by_backend.add(1);
                if let Some(backend) = &connection.backend {
                    self.counts.backends[usize::from(backend.slot)].resets.add(1);
                }
                pass_on_reset(&connection.client.descriptor);
            }
            None => {}
        }
    }

    pub(super) fn leave_count(&mut self, id: Id) {
        if let Some(backend) = self.places.get(id).and_then(|connection| connection.backend.as_ref()) {
            self.shared.slots[usize::from(backend.slot)].active.fetch_sub(1, Relaxed);
        }
    }

    /// Ends what took too long. Looking at all connections now and then is cheaper than a timer for each event.
    pub(super) fn sweep(&mut self) {
        let limits = self.snapshot.settings.limits;
        let shortest = limits.hello_time.min(limits.connect_time).min(limits.idle_time).min(limits.half_closed_time);
        let interval_ns = (shortest.ns() / 8).clamp(SWEEP_NS_MIN, SWEEP_NS_MAX);
        self.sweep_at_ns = self.now_ns + interval_ns;
        for place in 0..self.places.count() {
            let Some(id) = self.places.at(place) else { continue };
            let Some(connection) = self.places.get(id) else { continue };
            let waited_ns = self.now_ns.saturating_sub(connection.since_ns);
            match connection.phase {
                ConnectionPhase::Hello if waited_ns >= limits.hello_time.ns() => {
                    self.counts.all.timed_out_hello.add(1);
                    self.close(id);
                }
                ConnectionPhase::Connecting if waited_ns >= limits.connect_time.ns() => self.connect_to_next(id),
                ConnectionPhase::Relaying => {
                    let most = if connection.is_half_closed() { limits.half_closed_time } else { limits.idle_time };
                    if waited_ns >= most.ns() {
                        self.counts.all.timed_out_idle.add(1);
                        self.close(id);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Closing this socket will reset the connection. Where bytes are still on their way to the peer, it is closed in order
/// instead: they were sent before the reset, and a peer of TLS notices the missing end.
fn pass_on_reset(descriptor: &OwnedFd) {
    if sys::unsent_bytes(descriptor) == 0 {
        let _ = rustix::net::sockopt::set_socket_linger(descriptor, Some(std::time::Duration::ZERO));
    }
}
