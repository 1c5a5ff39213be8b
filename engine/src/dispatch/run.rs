//! The loop: carries out what [`super::route`] decides, over sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};
use socket2::{Domain, Protocol, Type};
use tlsdyno_wire::proxy_protocol;
use tlsdyno_wire::session_keys::{ClientReader, SessionKeys, Unreadable};

use super::connection::{BackendSocket, Connection, Side, Socket, Stage};
use super::counters::{Counts, LoopCounts};
use super::learn::{Lesson, Outcome, Student};
use super::limits::*;
use super::pipes::Pipes;
use super::places::{Id, Places};
use super::relay::{Fault, Flow, Tools};
use super::route::{Choices, Reason, Router};
use super::settings::{Policy, ProxyHeader};
use super::shared::{Phase, Shared, Snapshot};
use crate::reactor::{Event, Interest, Reactor};
use crate::sys;

const WAKE: u64 = u64::MAX;

/// Binds a listening socket as the loops want it: each loop has its own on the same address, among which the kernel distributes connections.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it: what comes in pieces is passed on in pieces.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Runs the `number`th loop until [`Phase::Stop`], or until [`Phase::Drain`] and its last connection is closed. Whatever becomes readable on `wake`
/// makes it look at the phase and at new settings; the bytes are left there.
///
/// Fails only when the loop itself cannot go on; what goes wrong on a connection ends that one.
pub fn run(shared: &Shared, number: usize, listeners: Vec<TcpListener>, wake: impl AsFd) -> io::Result<()> {
    let (snapshot, generation) = shared.snapshot();
    let reactor = Reactor::new(EVENTS)?;
    reactor.add(&wake, WAKE, Interest::EdgeRead)?;
    let mut this = Loop {
        shared,
        counts: &shared.counts[number],
        router: Router::new(snapshot.settings.policy, number),
        pipes: Pipes::new(0),
        snapshot,
        generation,
        reactor,
        listeners,
        accepting: false,
        accept_at_ns: 0,
        places: Places::default(),
        unfinished: Vec::new(),
        buffer: vec![0; COPY_BYTES].try_into().map_err(|_| io::ErrorKind::OutOfMemory)?,
        seen_usable: u64::MAX,
        now_ns: sys::monotonic_ns(),
        sweep_at_ns: 0,
    };
    this.take_limits();
    this.run()
}

struct Loop<'s> {
    shared: &'s Shared,
    counts: &'s Counts,
    snapshot: Arc<Snapshot>,
    generation: u64,
    router: Router,
    reactor: Reactor,
    listeners: Vec<TcpListener>,
    /// The listeners are watched: not while there are too many connections or too few descriptors.
    accepting: bool,
    /// Not before this instant.
    accept_at_ns: u64,
    places: Places,
    /// Connections that want another turn.
    unfinished: Vec<Id>,
    pipes: Pipes,
    buffer: Box<[u8; COPY_BYTES]>,
    /// Backends that were up when last looked at.
    seen_usable: u64,
    now_ns: u64,
    sweep_at_ns: u64,
}

impl Loop<'_> {
    fn run(&mut self) -> io::Result<()> {
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
        self.now_ns = sys::monotonic_ns();
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
        if self.now_ns >= self.sweep_at_ns {
            self.sweep();
        }
        Ok(())
    }

    fn wait_ns(&self) -> u64 {
        const LONG_NS: u64 = 3_600_000_000_000;
        if !self.unfinished.is_empty() {
            return 0;
        }
        let sweep_at_ns = if self.places.open() == 0 { u64::MAX } else { self.sweep_at_ns };
        let accept_at_ns = if self.accept_at_ns > self.now_ns { self.accept_at_ns } else { u64::MAX };
        sweep_at_ns.min(accept_at_ns).saturating_sub(self.now_ns).min(LONG_NS)
    }

    // --- accepting -----------------------------------------------------------------------------------------------------------------

    fn connections_max(&self) -> usize {
        (self.snapshot.settings.limits.connections as usize / self.shared.counts.len()).max(1)
    }

    /// Watches the listeners exactly while connections may be accepted.
    fn watch_listeners(&mut self) -> io::Result<()> {
        let accepting = self.places.open() < self.connections_max() && self.now_ns >= self.accept_at_ns;
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
    fn stop_listening(&mut self) -> io::Result<()> {
        for index in 0..self.listeners.len() {
            while self.accept(index) {}
        }
        self.listeners.clear();
        Ok(())
    }

    /// Accepts some of those that wait; whether there may be more.
    fn accept(&mut self, listener: usize) -> bool {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.places.open() >= self.connections_max() {
                return false;
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let (client, address) = match rustix::net::acceptfrom_with(&self.listeners[listener], flags) {
                Ok(accepted) => accepted,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.pause_accepting();
                    return false;
                }
                // Nobody left, or one that gave up while waiting.
                Err(_) => return false,
            };
            if let Some(Ok(address)) = address.map(SocketAddr::try_from) {
                self.counts.all.accepted.add(1);
                self.admit(client, address);
            }
        }
        true
    }

    /// Descriptors have run out: those of idle pipes are given back, and others wait until some connection ends.
    fn pause_accepting(&mut self) {
        self.counts.all.accept_pauses.add(1);
        if !self.pipes.close_spare() {
            self.accept_at_ns = self.now_ns + ACCEPT_PAUSE_NS;
        }
    }

    fn admit(&mut self, client: OwnedFd, address: SocketAddr) {
        let most = self.snapshot.settings.limits.connections_per_address;
        let mut connection = Connection::new(client, address, self.now_ns);
        if most > 0 {
            connection.counted = true;
            if !self.shared.per_address.enter(address.ip(), most) {
                self.shared.per_address.leave(address.ip());
                self.counts.all.refused_address.add(1);
                self.counts.all.closed.add(1);
                return;
            }
        }
        let id = self.places.insert(connection);
        match self.snapshot.settings.policy.reads_hellos() {
            true => self.read_hello(id),
            false => self.connect_first(id),
        }
    }

    // --- the hello -----------------------------------------------------------------------------------------------------------------

    /// Reads what there is of the hello; connects as soon as it is whole, or cannot become one.
    fn read_hello(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let most = self.snapshot.settings.limits.hello_bytes;
        let mut reader = connection.hello.take().unwrap_or_else(|| Box::new(ClientReader::new(most)));
        loop {
            match rustix::net::recv(&connection.client.descriptor, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((0, _)) if connection.first_bytes.is_empty() => return self.close(id),
                Ok((0, _)) => {
                    self.counts.all.not_tls.add(1);
                    connection.up.note_end();
                    return self.connect_first(id);
                }
                Ok((count, _)) => {
                    connection.first_bytes.extend_from_slice(&self.buffer[..count]);
                    let found = reader.read(&self.buffer[..count]);
                    // Headers of tiny records count too: nobody may make us hold more than twice what is allowed, and one read.
                    let too_long = connection.first_bytes.len() > most * 2;
                    match found {
                        Ok(None) if !too_long => {}
                        Ok(Some(keys)) => {
                            self.understand(id, &keys);
                            return self.connect_first(id);
                        }
                        Ok(None) => self.counts.all.hellos_oversized.add(1),
                        Err(Unreadable::Oversized { .. }) => self.counts.all.hellos_oversized.add(1),
                        Err(Unreadable::Malformed(_)) => self.counts.all.hellos_malformed.add(1),
                        Err(Unreadable::Records(_) | Unreadable::NoHello) => self.counts.all.not_tls.add(1),
                    }
                    if found.is_err() || too_long {
                        return self.connect_first(id);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    connection.reset_by = Some(Side::Client);
                    return self.close(id);
                }
            }
        }
        connection.hello = Some(reader);
        if !connection.client.watched {
            connection.client.watched = true;
            if self.reactor.add(&connection.client.descriptor, id.token(Side::Client), Interest::EdgeRead).is_err() {
                self.close(id);
            }
        }
    }

    fn understand(&mut self, id: Id, keys: &SessionKeys) {
        let counts = &self.counts.all;
        counts.hellos_early_data.add(keys.early_data.into());
        counts.hellos_grease.add(keys.grease.into());
        counts.hellos_encrypted.add(keys.encrypted_hello.into());
        let offer = self.shared.memory.offer(keys);
        if let Some(connection) = self.places.get(id) {
            connection.student = Some(Box::new(Student::new(offer)));
        }
    }

    // --- connecting ----------------------------------------------------------------------------------------------------------------

    /// Connects, now that it is known what to send first.
    fn connect_first(&mut self, id: Id) {
        let header = self.snapshot.settings.proxy_header;
        if let Some(connection) = self.places.get(id) {
            let first = std::mem::take(&mut connection.first_bytes);
            connection.first_bytes = with_proxy_header(header, connection, first);
            connection.hello = None;
        }
        self.connect(id);
    }

    /// Chooses a backend and connects to it; where that fails, to the next, until none is left.
    fn connect(&mut self, id: Id) {
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
            let connecting = match rustix::net::connect(&descriptor, &address) {
                Ok(()) => Ok(true),
                // On the same machine the connection stands already, and takes what the client has said: no event to wait for.
                Err(Errno::INPROGRESS | Errno::INTR) => {
                    connection.up.send_early(descriptor.as_fd(), &connection.first_bytes)
                }
                Err(_) => Err(Fault::Receiver),
            };
            let Ok(connected) = connecting else {
                self.note_failure(id, slot);
                continue;
            };
            self.shared.slots[usize::from(slot)].active.fetch_add(1, Relaxed);
            connection.stage = Stage::Connecting;
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

    fn choose(&mut self, id: Id) -> Option<u8> {
        let connection = self.places.get(id)?;
        let targets = &self.snapshot.targets;
        let up = self.shared.usable(targets);
        // Those that are down are still better than none.
        let wanted = if up & !connection.tried == 0 { all(&self.snapshot) } else { up };
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
        let choices = Choices { targets, usable: wanted & !connection.tried, active: &active };
        let address = connection.client_address.ip();
        let Some(student) = &mut connection.student else { return self.router.blind(&choices, address) };
        let now_s = seconds(self.now_ns);
        let route = self.router.by_session(&choices, address, student.offer(), &self.shared.memory, now_s)?;
        student.set_route(&route);
        connection.known = route.reason == Reason::Known;
        let counts = &self.counts.all;
        let count = match route.reason {
            Reason::Fresh => &counts.routed_fresh,
            Reason::Known => &counts.routed_known,
            Reason::Tried => &counts.routed_tried,
            Reason::Unknown => &counts.routed_unknown,
            Reason::Address => &counts.routed_address,
        };
        count.add(1);
        Some(route.slot)
    }

    fn note_failure(&mut self, id: Id, slot: u8) {
        self.shared.slots[usize::from(slot)].failed(self.snapshot.settings.check.fall);
        self.counts.backends[usize::from(slot)].connect_failures.add(1);
        if let Some(connection) = self.places.get(id) {
            connection.tried |= 1 << slot;
        }
    }

    /// The backend is connected: sends what the client has said and lets bytes pass.
    fn begin(&mut self, id: Id) {
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
        connection.stage = Stage::Relaying;
        connection.since_ns = self.now_ns;
        connection.up.note_readable(false);
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
        match watched {
            Ok(()) => self.drive(id),
            Err(_) => self.close(id),
        }
    }

    /// Connecting to the backend failed or took too long: tries the next.
    fn connect_to_next(&mut self, id: Id) {
        if let Some(slot) = self.leave_backend(id) {
            self.note_failure(id, slot);
            self.connect(id);
        }
    }

    fn leave_backend(&mut self, id: Id) -> Option<u8> {
        let backend = self.places.get(id)?.backend.take()?;
        self.shared.slots[usize::from(backend.slot)].active.fetch_sub(1, Relaxed);
        Some(backend.slot)
    }

    // --- what happened -------------------------------------------------------------------------------------------------------------

    fn on_event(&mut self, event: Event) {
        let (id, side) = Id::from_token(event.token);
        let Some(connection) = self.places.get(id) else { return };
        let (incoming, outgoing) = match side {
            Side::Client => (&mut connection.up, &mut connection.down),
            Side::Backend => (&mut connection.down, &mut connection.up),
        };
        if event.readable {
            incoming.note_readable(event.peer_ended);
        }
        if event.writable {
            outgoing.note_writable();
        }
        if connection.stage == Stage::Connecting && side == Side::Backend {
            return self.on_connected(id);
        }
        self.drive(id);
    }

    fn on_connected(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let Some(backend) = &connection.backend else { return };
        match rustix::net::sockopt::socket_error(&backend.socket.descriptor) {
            Ok(Ok(())) => self.begin(id),
            _ => self.connect_to_next(id),
        }
    }

    /// Moves what can be moved.
    fn drive(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        match connection.stage {
            Stage::Hello => return self.read_hello(id),
            Stage::Connecting => return,
            Stage::Relaying => {}
        }
        connection.since_ns = self.now_ns;
        let (up, down) = (self.pump(id, Side::Client), self.pump(id, Side::Backend));
        // A direction that failed may have ended the other one too.
        let Some(connection) = self.places.get(id) else { return };
        if connection.up.is_done() && connection.down.is_done() {
            return self.close(id);
        }
        if up == Some(Flow::Unfinished) || down == Some(Flow::Unfinished) || connection.is_ready() {
            self.unfinished.push(id);
        }
        self.tell_room(id);
    }

    /// Moves bytes that come from `side`. `None`: the connection is closed, or there was nothing to do.
    fn pump(&mut self, id: Id, side: Side) -> Option<Flow> {
        let connection = self.places.get(id)?;
        let backend = connection.backend.as_ref()?.socket.descriptor.as_fd();
        let client = connection.client.descriptor.as_fd();
        let (direction, from, to) = match side {
            Side::Client => (&mut connection.up, client, backend),
            Side::Backend => (&mut connection.down, backend, client),
        };
        let before = direction.bytes;
        let lesson = Lesson {
            memory: &self.shared.memory,
            slot: connection.backend.as_ref().map_or(0, |backend| backend.slot),
            all: all(&self.snapshot),
            now_s: seconds(self.now_ns),
            timeout_s: self.snapshot.settings.session_timeout_s,
        };
        let hello_bytes = self.snapshot.settings.limits.hello_bytes;
        let (student, counts) = (&mut connection.student, &self.counts.all);
        let mut watch = |bytes: &[u8]| watch(student, side, bytes, hello_bytes, &lesson, counts);
        let mut tools = Tools { buffer: &mut self.buffer, pipes: &mut self.pipes, watch: &mut watch, pipes_missing: 0 };
        let flow = direction.pump(from, to, &mut tools);
        self.counts.all.pipes_missing.add(tools.pipes_missing);
        let count = if side == Side::Client { &self.counts.all.bytes_up } else { &self.counts.all.bytes_down };
        count.add(direction.bytes - before);
        match flow {
            Ok(flow) => Some(flow),
            Err(Fault::Sender) => {
                connection.reset_by.get_or_insert(side);
                self.close(id);
                None
            }
            Err(Fault::Receiver) => {
                // What it still has to say is passed on; then the reset.
                direction.give_up(&mut self.pipes);
                let gone = if side == Side::Client { Side::Backend } else { Side::Client };
                connection.reset_by.get_or_insert(gone);
                let opposite = if side == Side::Client { &mut connection.down } else { &mut connection.up };
                opposite.note_readable(true);
                Some(Flow::Done)
            }
        }
    }

    /// Asks to be told when a receiver has room again, where one has none.
    fn tell_room(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let Some(backend) = &mut connection.backend else { return };
        let both = [
            (&connection.up, &mut backend.socket, Side::Backend),
            (&connection.down, &mut connection.client, Side::Client),
        ];
        let mut failed = false;
        for (direction, receiver, side) in both {
            if direction.is_blocked() && !direction.is_done() && !receiver.tells_room {
                receiver.tells_room = true;
                failed |= self.reactor.modify(&receiver.descriptor, id.token(side), Interest::EdgeReadWrite).is_err();
            }
        }
        if failed {
            self.close(id);
        }
    }

    // --- ending --------------------------------------------------------------------------------------------------------------------

    /// Closes both sockets; where one side reset the connection, the other sees a reset too.
    fn close(&mut self, id: Id) {
        self.leave_count(id);
        let Some(mut connection) = self.places.remove(id) else { return };
        connection.up.give_up(&mut self.pipes);
        connection.down.give_up(&mut self.pipes);
        if connection.counted {
            self.shared.per_address.leave(connection.client_address.ip());
        }
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

    fn leave_count(&mut self, id: Id) {
        if let Some(backend) = self.places.get(id).and_then(|connection| connection.backend.as_ref()) {
            self.shared.slots[usize::from(backend.slot)].active.fetch_sub(1, Relaxed);
        }
    }

    /// Ends what took too long. Looking at all connections now and then is cheaper than a timer for each event.
    fn sweep(&mut self) {
        let limits = self.snapshot.settings.limits;
        let shortest = [limits.hello_ns, limits.connect_ns, limits.idle_ns, limits.half_closed_ns].into_iter().min();
        let interval_ns = (shortest.unwrap_or(SWEEP_NS_MAX) / 8).clamp(SWEEP_NS_MIN, SWEEP_NS_MAX);
        self.sweep_at_ns = self.now_ns + interval_ns;
        for place in 0..self.places.count() {
            let Some(id) = self.places.at(place) else { continue };
            let Some(connection) = self.places.get(id) else { continue };
            let waited_ns = self.now_ns.saturating_sub(connection.since_ns);
            match connection.stage {
                Stage::Hello if waited_ns >= limits.hello_ns => {
                    self.counts.all.timed_out_hello.add(1);
                    self.close(id);
                }
                Stage::Connecting if waited_ns >= limits.connect_ns => self.connect_to_next(id),
                Stage::Relaying => {
                    let most_ns = if connection.is_half_closed() { limits.half_closed_ns } else { limits.idle_ns };
                    if waited_ns >= most_ns {
                        self.counts.all.timed_out_idle.add(1);
                        self.close(id);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Shows bytes that pass to whoever learns from them; whether that goes on.
fn watch(
    student: &mut Option<Box<Student>>,
    side: Side,
    bytes: &[u8],
    hello_bytes: usize,
    lesson: &Lesson,
    counts: &LoopCounts,
) -> bool {
    let Some(follows) = student else { return false };
    let outcome = match side {
        Side::Client => {
            follows.read_client(bytes, lesson.memory);
            None
        }
        Side::Backend => follows.read_server(bytes, hello_bytes, lesson),
    };
    let (offered, accepted) = match outcome {
        None | Some(Outcome::Fresh) => (0, 0),
        Some(Outcome::Accepted) => (1, 1),
        Some(Outcome::Rejected) => (1, 0),
    };
    counts.sessions_offered.add(offered);
    counts.sessions_accepted.add(accepted);
    counts.sessions_rejected.add(offered - accepted);
    counts.sessions_refused_by_holder.add((outcome == Some(Outcome::Rejected) && follows.sent_to_holder()).into());
    if follows.is_done() {
        *student = None;
    }
    student.is_some()
}

/// Whole seconds, never 0.
fn seconds(now_ns: u64) -> u32 {
    (now_ns / 1_000_000_000 + 1) as u32
}

/// Every backend of the settings, as a mask.
fn all(snapshot: &Snapshot) -> u64 {
    snapshot.targets.iter().fold(0, |mask, target| mask | 1 << target.slot)
}

pub(super) fn open(address: SocketAddr) -> Result<OwnedFd, Errno> {
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

/// Closing this socket will reset the connection. Where bytes are still on their way to the peer, it is closed in order instead: they were sent
/// before the reset, and a peer of TLS notices the missing end.
fn pass_on_reset(descriptor: &OwnedFd) {
    if sys::unsent_bytes(descriptor) == 0 {
        let _ = rustix::net::sockopt::set_socket_linger(descriptor, Some(std::time::Duration::ZERO));
    }
}
