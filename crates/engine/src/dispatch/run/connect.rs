//! Choosing a backend and connecting to it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use tlsdyno_wire::proxy_protocol;

use super::{Loop, all, seconds};
use crate::dispatch::connection::{BackendSocket, Connection, ConnectionPhase, Side, Socket};
use crate::dispatch::limits::BACKENDS_MAX;
use crate::dispatch::places::Id;
use crate::dispatch::relay::FailedSide;
use crate::dispatch::route::{Choices, Reason, wanted};
use crate::dispatch::settings::{Policy, ProxyHeader};
use crate::reactor::Interest;

impl Loop<'_> {
    /// Connects, now that it is known what to send first.
    pub(super) fn connect_first(&mut self, id: Id) {
        let header = self.snapshot.settings.proxy_header;
        if let Some(connection) = self.places.get(id) {
            let first = std::mem::take(&mut connection.first_bytes);
            connection.first_bytes = with_proxy_header(header, connection, first);
            connection.opening = None;
        }
        self.connect(id);
    }

    /// Chooses a backend and connects to it; where that fails, to the next, until none is left.
    pub(super) fn connect(&mut self, id: Id) {
        loop {
            let Some(slot) = self.choose(id) else {
                self.counts.all.no_backend.add(1);
                return self.close(id);
            };
            let Some(target) = self.snapshot.targets.iter().find(|target| target.slot == slot) else {
                return self.close(id);
            };
            let address = target.backend.address;
            let Some(connection) = self.places.get(id) else { return };
            if connection.tried != 0 {
                self.counts.all.retried.add(1);
            }
            let descriptor = match open(address) {
                Ok(descriptor) => descriptor,
                Err(_) => {
                    // No descriptor for the backend: none for the next client either.
                    self.pause_accepting();
                    return self.close(id);
                }
            };
            if !connection.first_bytes.is_empty() {
                // The end of the TCP handshake goes with them, in one segment. Refused, it goes by itself.
                let _ = rustix::net::sockopt::set_tcp_quickack(&descriptor, false);
            }
            let connecting = match rustix::net::connect(&descriptor, &address) {
                Ok(()) => Ok(true),
                // On the same machine the connection stands already, and takes what the client has said: no event to
                // wait for.
                Err(Errno::INPROGRESS | Errno::INTR) => {
                    connection.up.send_early(descriptor.as_fd(), &connection.first_bytes)
                }
                Err(Errno::ADDRNOTAVAIL | Errno::AGAIN | Errno::NOBUFS) => {
                    // No port or no memory of ours is left, which is not the backend's fault and holds for the next
                    // client too.
                    self.pause_accepting();
                    return self.close(id);
                }
                Err(_) => Err(FailedSide::Receiver),
            };
            let Ok(connected) = connecting else {
                self.note_failure(id, slot);
                continue;
            };
            self.shared.slots[usize::from(slot)].active.fetch_add(1, Relaxed);
            connection.phase = ConnectionPhase::Connecting;
            connection.since_ns = self.now_ns;
            let socket = Socket { descriptor, tells_room: !connected, watched: true };
            let interest = if connected { Interest::EdgeRead } else { Interest::EdgeReadWrite };
            let watched = self.reactor.add(&socket.descriptor, id.token(Side::Backend), interest);
            connection.backend = Some(BackendSocket { socket, slot });
            if watched.is_err() {
                return self.close(id);
            }
            if connected {
                self.begin(id);
            }
            return;
        }
    }

    pub(super) fn choose(&mut self, id: Id) -> Option<u8> {
        let connection = self.places.get(id)?;
        let targets = &self.snapshot.targets;
        let up = self.shared.usable(targets);
        let usable = wanted(up, all(&self.snapshot), connection.tried);
        let mut joined = up & !self.seen_usable;
        self.seen_usable = up;
        while joined != 0 {
            self.router.joined(joined.trailing_zeros() as u8, targets);
            joined &= joined - 1;
        }
        let mut active = [0; BACKENDS_MAX];
        for target in targets {
            let slot = usize::from(target.slot);
            active[slot] = self.shared.slots[slot].active.load(Relaxed);
        }
        let choices = Choices { targets, usable, active: &active };
        let address = connection.client_address.ip();
        let counts = &self.counts.all;
        let (memory, now_s) = (&self.shared.memory, seconds(self.now_ns));
        let route = match (&mut connection.student, connection.object) {
            (Some(student), _) => {
                let route = self.router.by_session(&choices, address, student.offer(), memory, now_s)?;
                student.set_route(&route);
                connection.known = route.reason == Reason::Known;
                route
            }
            (None, Some(object)) => {
                let timeout_s = self.snapshot.settings.session_timeout_s;
                self.router.by_object(&choices, object, memory, now_s, timeout_s)?
            }
            (None, None) => {
                let slot = self.router.blind(&choices, address)?;
                counts.routed_unkeyed.add((self.snapshot.settings.policy == Policy::Lard).into());
                return Some(slot);
            }
        };
        let count = match route.reason {
            Reason::Fresh => &counts.routed_fresh,
            Reason::Known => &counts.routed_known,
            Reason::Tried => &counts.routed_tried,
            Reason::Unknown => &counts.routed_unknown,
            Reason::Address => &counts.routed_address,
            Reason::Object => &counts.routed_object,
            Reason::NewObject => &counts.routed_new_object,
            Reason::MovedObject => &counts.routed_moved_object,
        };
        count.add(1);
        Some(route.slot)
    }

    pub(super) fn note_failure(&mut self, id: Id, slot: u8) {
        self.shared.slots[usize::from(slot)].failed(self.snapshot.settings.check.fall);
        self.counts.backends[usize::from(slot)].connect_failures.add(1);
        if let Some(connection) = self.places.get(id) {
            connection.tried |= 1 << slot;
        }
    }

    pub(super) fn on_connected(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let Some(backend) = &connection.backend else { return };
        match rustix::net::sockopt::socket_error(&backend.socket.descriptor) {
            Ok(Ok(())) => self.begin(id),
            _ => self.connect_to_next(id),
        }
    }

    /// The backend is connected: sends what the client has said and lets bytes pass.
    pub(super) fn begin(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let Some(backend) = &mut connection.backend else { return };
        self.shared.slots[usize::from(backend.slot)].connected();
        self.counts.backends[usize::from(backend.slot)].connections.add(1);
        self.router.sent_to(backend.slot);
        if self.snapshot.settings.policy == Policy::SessionAddress && !connection.known {
            let (address, slot) = (connection.client_address.ip(), backend.slot);
            let timeout_s = self.snapshot.settings.session_timeout_s;
            self.shared.memory.note_address(address, slot, seconds(self.now_ns), timeout_s);
        }
        let first = std::mem::take(&mut connection.first_bytes);
        connection.phase = ConnectionPhase::Relaying;
        connection.since_ns = self.now_ns;
        let Some(backend) = &connection.backend else { return };
        let sent = connection.up.send_rest(backend.socket.descriptor.as_fd(), &first);
        self.counts.all.bytes_up.add(connection.up.bytes);
        let watched = match std::mem::replace(&mut connection.client.watched, true) {
            true => Ok(()),
            false => self.reactor.add(&connection.client.descriptor, id.token(Side::Client), Interest::EdgeRead),
        };
        if sent.is_err() {
            // It accepted and reset at once.
            connection.reset_by = Some(Side::Backend);
            connection.up.give_up(&mut self.pipes);
            connection.down.note_readable(true);
        }
        if !self.snapshot.settings.policy.waits_for_client() {
            // Nobody has looked yet whether the client has spoken.
            connection.up.note_readable(false);
        }
        match watched {
            Ok(()) => self.drive(id),
            Err(_) => self.close(id),
        }
    }

    /// Connecting to the backend failed or took too long: tries the next.
    pub(super) fn connect_to_next(&mut self, id: Id) {
        if let Some(slot) = self.leave_backend(id) {
            self.note_failure(id, slot);
            self.connect(id);
        }
    }

    pub(super) fn leave_backend(&mut self, id: Id) -> Option<u8> {
        let backend = self.places.get(id)?.backend.take()?;
        self.shared.slots[usize::from(backend.slot)].active.fetch_sub(1, Relaxed);
        Some(backend.slot)
    }
}

pub(in crate::dispatch) fn open(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let descriptor = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    rustix::net::sockopt::set_tcp_nodelay(&descriptor, true)?;
    Ok(descriptor)
}

fn with_proxy_header(header: ProxyHeader, connection: &Connection, first: Vec<u8>) -> Vec<u8> {
    let put = match header {
        ProxyHeader::None => return first,
        ProxyHeader::V1 => proxy_protocol::put_v1,
        ProxyHeader::V2 => proxy_protocol::put_v2,
    };
    let local = rustix::net::getsockname(&connection.client.descriptor).ok();
    let Some(Ok(local)) = local.map(SocketAddr::try_from) else { return first };
    let mut out = Vec::with_capacity(first.len() + 108);
    put(&mut out, connection.client_address, local);
    out.extend_from_slice(&first);
    out
}
