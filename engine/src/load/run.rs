//! The loop of the load engine: carries out what the policy in `users` decides, over sockets.
//!
//! One thread, one receive buffer, one `recv` per readable event, one `send` per flight (a client Finished and the first request leave
//! together), one registration per connection. On loopback a connection is established when `connect` returns, so that the first flight
//! is sent without waiting for an event.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tlsdyno_tls::{Client, EarlyData, Entropy, Receiver, Session};
use tlsdyno_wire::http::Response;

use super::connection::{Connection, Exchange, Found, Read, Stage};
use super::limits::*;
use super::outcome::{ErrorKind, Outcome, Phase};
use super::pacing::Pacer;
use super::plan::{Pacing, Plan, Resumption, Until};
use super::recorder::Recorder;
use super::requests::Requests;
use super::sessions::Sessions;
use super::storm::StormWatch;
use super::users::{Action, ActiveId, ConnectionId, Loss, Users};
use crate::reactor::{Event, Reactor};
use crate::sys;

/// Why a run could not begin. What fails during a run is counted in its [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan contradicts itself: the caller's fault.
    #[error("the load plan cannot be run: {0}")]
    Plan(&'static str),
    /// The system refused what every run needs.
    #[error("the system refused {what} for the load engine: {error}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

/// Counts of a run under way, for a progress display in another thread. Updated once in each turn of the loop.
#[derive(Debug, Default)]
pub struct Progress {
    /// Hits so far.
    pub hits: AtomicU64,
    /// Errors so far.
    pub errors: AtomicU64,
    /// Connections opened so far.
    pub connections: AtomicU64,
    /// Full handshakes so far.
    pub full: AtomicU64,
    /// Resumed handshakes so far.
    pub resumed: AtomicU64,
    /// Hits of the last slice.
    pub slice_hits: AtomicU64,
    /// Length of the last slice, in nanoseconds; 0: there was none yet.
    pub slice_ns: AtomicU64,
    /// Median latency in the last slice, in nanoseconds.
    pub latency_ns_p50: AtomicU64,
    /// The 99th percentile of the same.
    pub latency_ns_p99: AtomicU64,
}

/// Runs a plan on the calling thread until it is done, or `stop` is set: then what was measured so far is answered.
///
/// # Errors
/// [`LoadError`]; failures of connections and requests are no errors, but counted in the [`Outcome`].
pub fn run(plan: &Plan, stop: &AtomicBool) -> Result<Outcome, LoadError> {
    run_observed(plan, stop, &Progress::default())
}

/// As [`run`], and keeps `progress` up to date.
///
/// # Errors
/// As [`run`].
pub fn run_observed(plan: &Plan, stop: &AtomicBool, progress: &Progress) -> Result<Outcome, LoadError> {
    check(plan).map_err(LoadError::Plan)?;
    Run::new(plan)?.run(stop, progress)
}

fn check(plan: &Plan) -> Result<(), &'static str> {
    let workload = &plan.workload;
    let Some(users) = workload.users.get(plan.users.start as usize..plan.users.end as usize) else {
        return Err("it names users that the workload does not have");
    };
    if users.iter().all(|user| user.requests.is_empty()) {
        return Err("its users have no requests");
    }
    if users
        .iter()
        .any(|user| workload.requests.get(user.requests.start as usize..user.requests.end as usize).is_none())
    {
        return Err("a user has requests that the workload does not have");
    }
    if workload.requests.iter().any(|request| request.object as usize >= workload.objects.len()) {
        return Err("a request is for an object that the workload does not have");
    }
    if (plan.window.is_some() || plan.numbered) && workload.order.len() != workload.requests.len() {
        return Err("its workload is no trace, and so has no order to keep to or to number by");
    }
    if plan.window == Some(0) {
        return Err("the window must let at least one request in");
    }
    if plan.window.is_some() && plan.pacing != Pacing::Closed {
        return Err("a window over the order of a trace is for a closed loop");
    }
    let connections = &plan.connections;
    if connections.total == 0 || connections.per_user == 0 || connections.requests_each == Some(0) {
        return Err("numbers of connections and of requests on each must be at least 1");
    }
    if connections.total > plan.route.connections_max(CONNECTIONS_MAX) {
        return Err(
            "one source address has no more than 65,535 ports, and so connections; name more of them (--source)",
        );
    }
    if let Some(body) = &plan.body
        && workload.objects.iter().any(|object| object.body_bytes > 0 && object.body_bytes != body.len() as u64)
    {
        return Err("a request body has another length than its content");
    }
    if connections.timeout_ns == 0 {
        return Err("the time-out must not be zero");
    }
    if let Resumption::Share(share) = plan.resumption
        && !(0.0..=1.0).contains(&share)
    {
        return Err("the share of resumed connections must be between 0 and 1");
    }
    if let Pacing::Open(rate) = plan.pacing
        && !(rate.per_second > 0.0 && rate.per_second <= RATE_MAX)
    {
        return Err("the rate must be above 0 and at most ten million a second");
    }
    if plan.session_limits.requests == Some(0) {
        return Err("a session must be good for at least one request");
    }
    Ok(())
}

/// The schedule of an open loop: it ends with the run.
fn pacer(plan: &Plan) -> Option<Pacer> {
    let Pacing::Open(rate) = plan.pacing else {
        return None;
    };
    let length_ns = match plan.until {
        Until::Elapsed(elapsed_ns) => Some(elapsed_ns),
        Until::UsersDone | Until::ConnectionsMade(_) => None,
    };
    Some(Pacer::new(rate, length_ns))
}

struct SystemEntropy(sys::Random);

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// A place in the table of connections. Its number distinguishes those that had the place one after the other: an event may be for a
/// connection that was closed in the same turn.
#[derive(Default)]
struct Place {
    number: u32,
    connection: Option<Connection>,
}

struct Run<'p> {
    plan: &'p Plan,
    requests: Requests,
    users: Users<'p>,
    sessions: Sessions<Session>,
    recorder: Recorder,
    reactor: Reactor,
    places: Vec<Place>,
    entropy: SystemEntropy,
    /// Where input is received and decrypted in place.
    input: Box<[u8]>,
    /// Output of one connection, sent in one piece.
    out: Vec<u8>,
    /// Whose output that is.
    out_of: Option<ConnectionId>,
    /// A request before it is encrypted.
    plain: Vec<u8>,
    /// Sessions found in one piece of input.
    found_sessions: Vec<Session>,
    /// The server is on this machine, so that connecting completes at once.
    loopback: bool,
    now_ns: u64,
    first_connect_ns: Option<u64>,
    last_response_ns: u64,
    storm: StormWatch,
    /// It was decided to give up: what the policy still wants is not carried out any more.
    gave_up: bool,
    /// When the server last sent something, or took more of a request that did not fit its buffers.
    heard_ns: u64,
    opening_paused_until_ns: Option<u64>,
    scan_at_ns: u64,
    unserved: u64,
}

impl<'p> Run<'p> {
    fn new(plan: &'p Plan) -> Result<Run<'p>, LoadError> {
        let system = |what| move |error| LoadError::System { what, error };
        let requests = Requests::new(&plan.workload, &plan.target.host)
            .ok_or(LoadError::Plan("its requests take more than 4 GiB"))?;
        let sessions = Sessions::new(plan.resumption);
        let connections_max = match plan.until {
            Until::ConnectionsMade(count) => Some(count),
            Until::UsersDone | Until::Elapsed(_) => None,
        };
        if connections_max == Some(0) {
            return Err(LoadError::Plan("it makes no connections"));
        }
        let alone = plan.target.tls.is_some() && sessions.want_first_alone();
        let over_and_over = plan.until != Until::UsersDone;
        Ok(Run {
            plan,
            requests,
            users: Users::new(
                &plan.workload,
                plan.users.clone(),
                over_and_over,
                plan.connections,
                connections_max,
                alone,
            )
            .with_session_limits(plan.session_limits)
            .with_pacer(pacer(plan))
            .within_window(plan.window),
            sessions,
            recorder: Recorder::new(plan.slice_ns),
            reactor: Reactor::new(EVENTS_MAX).map_err(system("an epoll instance"))?,
            places: Vec::new(),
            entropy: SystemEntropy(sys::Random::new().map_err(system("randomness (/dev/urandom)"))?),
            input: vec![0; RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            out: Vec::with_capacity(SEND_CHUNK_BYTES),
            out_of: None,
            plain: Vec::with_capacity(SEND_CHUNK_BYTES),
            found_sessions: Vec::new(),
            loopback: plan.route.is_local(&plan.target.address),
            now_ns: sys::monotonic_ns(),
            first_connect_ns: None,
            last_response_ns: 0,
            storm: StormWatch::default(),
            gave_up: false,
            heard_ns: sys::monotonic_ns(),
            opening_paused_until_ns: None,
            scan_at_ns: 0,
            unserved: 0,
        })
    }

    fn run(mut self, stop: &AtomicBool, progress: &Progress) -> Result<Outcome, LoadError> {
        let cpu_before_ns = sys::thread_cpu_ns();
        let mut stopped = false;
        self.scan_at_ns = self.now_ns + self.scan_interval_ns();
        self.users.tell_time(self.now_ns);
        self.users.start();
        self.carry_out();
        while !self.users.is_done() && !self.has_given_up() {
            if stop.load(Ordering::Relaxed) {
                stopped = true;
                break;
            }
            self.turn().map_err(|error| LoadError::System { what: "waiting for events", error })?;
            self.tell(progress);
        }
        let gave_up = self.has_given_up();
        let ended_ns =
            if gave_up || stopped || self.last_response_ns == 0 { sys::monotonic_ns() } else { self.last_response_ns };
        let unserved = self.unserved;
        let mut outcome = self.recorder.finish();
        outcome.elapsed_ns = ended_ns - self.first_connect_ns.unwrap_or(ended_ns);
        outcome.client_cpu_ns = sys::thread_cpu_ns() - cpu_before_ns;
        outcome.window = self.users.window_use();
        outcome.gave_up = gave_up;
        outcome.unserved = unserved;
        outcome.stopped = stopped;
        Ok(outcome)
    }

    fn tell(&mut self, progress: &Progress) {
        let recorder = &mut self.recorder;
        let (hits, errors) = (recorder.hits, recorder.errors());
        progress.hits.store(hits, Ordering::Relaxed);
        progress.errors.store(errors, Ordering::Relaxed);
        progress.connections.store(recorder.connections, Ordering::Relaxed);
        progress.full.store(recorder.handshakes.full, Ordering::Relaxed);
        progress.resumed.store(recorder.handshakes.resumed_accepted, Ordering::Relaxed);
        if let Some(slice) = recorder.slices.as_mut().and_then(|slices| slices.advance(self.now_ns, hits, errors)) {
            progress.slice_hits.store(slice.hits, Ordering::Relaxed);
            progress.slice_ns.store(slice.elapsed_ns, Ordering::Relaxed);
            progress.latency_ns_p50.store(slice.latency_ns_p50, Ordering::Relaxed);
            progress.latency_ns_p99.store(slice.latency_ns_p99, Ordering::Relaxed);
        }
    }

    fn has_given_up(&self) -> bool {
        let silent_ns = self.now_ns.saturating_sub(self.heard_ns);
        self.gave_up
            || self.storm.is_on()
            || silent_ns >= self.plan.connections.timeout_ns.saturating_mul(SILENT_TIMEOUTS_MAX)
    }

    /// One turn of the loop: waits, handles what happened, then what is due.
    fn turn(&mut self) -> io::Result<()> {
        if self.plan.connections.batch_ns > 0 {
            sys::pause_ns(self.plan.connections.batch_ns);
        }
        let wait_ns = self.wait_ns();
        let events = self.reactor.wait(wait_ns)?;
        for index in 0..events {
            let event = self.reactor.event(index);
            self.now_ns = sys::monotonic_ns();
            self.users.tell_time(self.now_ns);
            self.on_event(event);
        }
        self.now_ns = sys::monotonic_ns();
        self.do_what_is_due();
        Ok(())
    }

    fn deadline_ns(&self) -> Option<u64> {
        match self.plan.until {
            Until::Elapsed(elapsed_ns) => Some(self.first_connect_ns.unwrap_or(self.now_ns) + elapsed_ns),
            Until::UsersDone | Until::ConnectionsMade(_) => None,
        }
    }

    fn wait_ns(&mut self) -> u64 {
        let scheduled_ns = self.users.next_due_ns(self.now_ns);
        if scheduled_ns.is_some() {
            // What was done since the turn began took time too, and a page is to begin when it is due.
            self.now_ns = sys::monotonic_ns();
        }
        let deadline_ns = self.deadline_ns().filter(|&at| at > self.now_ns);
        let due = [Some(self.scan_at_ns), self.opening_paused_until_ns, deadline_ns, scheduled_ns];
        let next = due.into_iter().flatten().min().unwrap_or(u64::MAX);
        next.saturating_sub(self.now_ns).min(WAIT_NS_MAX)
    }

    fn do_what_is_due(&mut self) {
        if self.deadline_ns().is_some_and(|deadline| self.now_ns >= deadline) {
            self.unserved += self.users.take_unserved(self.now_ns);
            self.users.drain();
        }
        if self.users.is_waiting_for_schedule() {
            // The server has nothing to say, and so is not silent.
            self.heard_ns = self.now_ns;
        }
        if self.opening_paused_until_ns.is_some_and(|until| self.now_ns >= until) {
            self.opening_paused_until_ns = None;
            self.users.resume_opening();
        }
        if self.now_ns >= self.scan_at_ns {
            self.scan_at_ns = self.now_ns + self.scan_interval_ns();
            self.end_what_timed_out();
        }
        self.carry_out();
    }

    /// Time-outs are found by looking at all connections now and then: cheaper than a timer for each request, and exact to an eighth.
    fn scan_interval_ns(&self) -> u64 {
        (self.plan.connections.timeout_ns / 8).clamp(1_000_000, 250_000_000)
    }

    fn end_what_timed_out(&mut self) {
        for id in 0..self.places.len() as ConnectionId {
            let Some(connection) = &self.places[id as usize].connection else {
                continue;
            };
            let idle_ns = self.now_ns.saturating_sub(connection.progress_ns);
            let timeout_ns = self.plan.connections.timeout_ns;
            if connection.stage == Stage::Closing {
                if idle_ns >= timeout_ns.min(CLOSE_WAIT_NS_MAX) {
                    self.close_finished(id);
                }
            } else if connection.waits_for_server() && idle_ns >= timeout_ns {
                let kind = connection.timeout_kind();
                self.fail(id, kind);
            }
        }
    }

    // --- what happened -----------------------------------------------------------------------------------------------------

    fn on_event(&mut self, event: Event) {
        let (id, number) = (event.token as ConnectionId, (event.token >> 32) as u32);
        if self.is_current(id, number) && event.writable {
            self.on_writable(id);
            self.carry_out();
        }
        if self.is_current(id, number) && event.readable {
            self.on_readable(id, number, event.peer_ended);
            self.carry_out();
        }
    }

    /// Whether the place still holds that connection: handling one event may close it and give its place to another.
    fn is_current(&self, id: ConnectionId, number: u32) -> bool {
        let place = &self.places[id as usize];
        place.connection.is_some() && place.number == number
    }

    fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.places[id as usize].connection.as_mut().expect("who calls this knows that the connection is open")
    }

    fn on_writable(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let connection = self.connection(id);
        connection.progress_ns = now_ns;
        if connection.stage == Stage::Connecting {
            return self.connected(id);
        }
        self.heard_ns = now_ns;
        match self.connection(id).send_unsent() {
            Ok(sent) => {
                self.sent(id, sent);
                self.continue_body(id);
                self.flush();
            }
            Err(kind) => self.fail_or_repeat(id, kind),
        }
    }

    fn on_readable(&mut self, id: ConnectionId, number: u32, peer_ended: bool) {
        for _ in 0..READS_PER_EVENT_MAX {
            let connection = self.places[id as usize].connection.as_mut().expect("the connection is current");
            match connection.read(&mut self.input) {
                Ok(Read::Bytes(bytes)) => {
                    connection.progress_ns = self.now_ns;
                    self.heard_ns = self.now_ns;
                    self.receive(id, bytes);
                    let more = bytes == self.input.len();
                    if !self.is_current(id, number) {
                        return;
                    }
                    // A short read has emptied the socket, and if the peer had ended the stream before, that was all.
                    match (more, peer_ended) {
                        (true, _) => continue,
                        (false, true) => return self.peer_ended(id),
                        (false, false) => return,
                    }
                }
                Ok(Read::Nothing) => return,
                Ok(Read::End) => return self.peer_ended(id),
                Err(kind) => return self.fail_or_repeat(id, kind),
            }
        }
    }

    /// Handles the first `bytes` of the input buffer.
    fn receive(&mut self, id: ConnectionId, bytes: usize) {
        self.output_for(id);
        let connection = self.places[id as usize].connection.as_mut().expect("it was just read from");
        let Connection { tls, response, exchange, .. } = connection;
        let mut found = Found::new(response, exchange, &mut self.found_sessions);
        let input = &mut self.input[..bytes];
        let result = match tls {
            Some(client) => {
                client.receive(input, self.now_ns / 1_000_000, &mut self.entropy, &mut self.out, &mut found)
            }
            None => {
                found.plaintext(input);
                Ok(())
            }
        };
        let (first_byte, bad) = (found.first_byte, found.excess || found.fault.is_some());
        if first_byte && let Some(exchange) = exchange {
            self.recorder.latency(Phase::FirstByte, self.now_ns.saturating_sub(exchange.sent_ns));
        }
        let user = connection.user;
        self.keep_sessions(id, user);
        if let Err(error) = result {
            self.recorder.tls_fault(error.to_string());
            self.send_last_words(id);
            self.fail(id, ErrorKind::Tls);
        } else if bad {
            self.fail(id, ErrorKind::Http);
        } else {
            self.after_receive(id);
        }
    }

    fn keep_sessions(&mut self, id: ConnectionId, user: ActiveId) {
        if self.found_sessions.is_empty() {
            return;
        }
        for session in self.found_sessions.drain(..) {
            self.sessions.store(user, session);
        }
        self.users.session_arrived(id);
        self.users.end_of_alone();
    }

    fn after_receive(&mut self, id: ConnectionId) {
        let number = self.places[id as usize].number;
        let connection = self.connection(id);
        if connection.stage == Stage::Handshaking && connection.tls.as_ref().is_some_and(Client::is_connected) {
            self.handshake_complete(id);
        }
        // Not "else": the answer to a request that travelled with the hello may come with the end of the handshake.
        let connection = self.connection(id);
        if connection.exchange.is_some() && connection.response.is_complete() {
            self.response_complete(id);
        }
        self.carry_out();
        if self.is_current(id, number) && self.connection(id).tls.as_ref().is_some_and(Client::peer_closed) {
            self.peer_ended(id);
        }
    }

    fn handshake_complete(&mut self, id: ConnectionId) {
        let now_ns = sys::monotonic_ns();
        let connection = self.places[id as usize].connection.as_mut().expect("its handshake just completed");
        connection.stage = Stage::Open;
        let Some(handshake) = connection.tls.as_ref().and_then(Client::handshake) else {
            // A minimal set-up has no handshake, and nothing that others could wait for.
            return self.users.ready(id, true);
        };
        let (offered, resumed) = (handshake.offered.is_some(), handshake.resumed.is_some());
        let counts = &mut self.recorder.handshakes;
        counts.resumed_intended += u64::from(connection.resumption_intended);
        counts.resumed_offered += u64::from(offered);
        counts.resumed_accepted += u64::from(resumed);
        counts.full += u64::from(!resumed);
        counts.early_offered += u64::from(handshake.early_data != EarlyData::NotOffered);
        counts.early_accepted += u64::from(handshake.early_data == EarlyData::Accepted);
        let phase = if resumed { Phase::ResumedHandshake } else { Phase::FullHandshake };
        self.recorder.latency(phase, now_ns - connection.hello_ns);
        self.recorder.negotiated(handshake);
        let (user, ready_early, held) = (connection.user, connection.ready_early, connection.held.take());
        if offered && !resumed {
            self.sessions.refused(user);
        }
        if !ready_early {
            self.users.ready(id, self.widens(user));
        }
        if let Some((request, last)) = held {
            self.send_request(id, request, last);
        }
    }

    /// Whether a user's other connections need not wait for a session any longer.
    fn widens(&self, user: ActiveId) -> bool {
        !self.sessions.matter() || self.sessions.holds(user)
    }

    fn response_complete(&mut self, id: ConnectionId) {
        let connection = self.places[id as usize].connection.as_mut().expect("its response is complete");
        let exchange = connection.exchange.take().expect("a response belongs to a request");
        let head = connection.response.head().expect("a complete response has a head");
        let body_bytes = connection.response.body_bytes();
        connection.served += 1;
        self.recorder.body_bytes += body_bytes;
        self.recorder.status(head.status);
        if exchange.expect.status.is_some_and(|status| status != head.status) {
            self.recorder.error(ErrorKind::Status);
        } else if exchange.expect.body_bytes.is_some_and(|expected| expected != body_bytes) {
            self.recorder.error(ErrorKind::Length);
        } else {
            let since = |then_ns| self.now_ns.saturating_sub(then_ns);
            self.recorder.hit(since(exchange.sent_ns), exchange.intended_ns.map(since));
        }
        self.storm.answered();
        self.last_response_ns = self.now_ns;
        // A server that answers before it has the whole request will not read the rest.
        let persists = head.persists && connection.is_all_sent();
        self.users.finished(id, persists);
        self.users.end_of_alone();
    }

    /// The server closed, by close_notify or end of stream.
    fn peer_ended(&mut self, id: ConnectionId) {
        let number = self.places[id as usize].number;
        let connection = self.connection(id);
        match connection.stage {
            Stage::Closing => self.close_finished(id),
            Stage::Connecting | Stage::Handshaking => self.fail(id, ErrorKind::Closed),
            Stage::Open if connection.exchange.is_none() => self.close_finished(id),
            Stage::Open => {
                // Without close_notify nobody knows whether a body that lasts until the end is whole, RFC 9846 section 6.1.
                let truncated = connection.tls.as_mut().is_some_and(|client| client.end_of_input().is_err());
                if truncated || connection.response.end_of_input().is_err() {
                    return self.fail_or_repeat(id, ErrorKind::Closed);
                }
                self.response_complete(id);
                self.carry_out();
                if self.is_current(id, number) {
                    self.close_finished(id);
                }
            }
        }
    }

    fn fail_or_repeat(&mut self, id: ConnectionId, kind: ErrorKind) {
        let connection = self.connection(id);
        if connection.is_stale() {
            self.remove(id);
            self.users.lost(id, Loss::Stale);
        } else if connection.waits_for_server() && connection.stage != Stage::Closing {
            self.fail(id, kind);
        } else {
            // A reset in place of the close that was expected, or that a server may do any time.
            self.close_finished(id);
        }
    }

    fn fail(&mut self, id: ConnectionId, kind: ErrorKind) {
        let connection = self.remove(id);
        if connection.stage == Stage::Handshaking {
            self.sessions.undo(connection.session_given);
        }
        self.lose(id, kind);
    }

    fn lose(&mut self, id: ConnectionId, kind: ErrorKind) {
        self.recorder.error(kind);
        self.storm.failed(kind);
        if kind.is_local() {
            self.opening_paused_until_ns = Some(self.now_ns + RESOURCE_PAUSE_NS);
            self.users.lost(id, Loss::NoResources);
        } else {
            self.users.lost(id, Loss::Failed);
        }
        self.users.end_of_alone();
    }

    /// Takes a connection out of the table; dropping it closes its socket, which ends its registration too.
    fn remove(&mut self, id: ConnectionId) -> Connection {
        if self.out_of == Some(id) {
            self.out.clear();
            self.out_of = None;
        }
        self.places[id as usize].connection.take().expect("a connection is removed once")
    }

    fn close_finished(&mut self, id: ConnectionId) {
        self.remove(id);
        // After giving up the policy is ahead of what was done: it may think that a request is under way here.
        if !self.gave_up {
            self.users.closed(id);
        }
    }

    // --- what is to be done ------------------------------------------------------------------------------------------------

    /// Carries out all that the policy wants done, and sends what that wrote.
    fn carry_out(&mut self) {
        self.users.pace(self.now_ns);
        loop {
            while let Some(action) = self.users.next_action() {
                // A server that refuses at once would keep this loop busy for ever.
                if self.has_given_up() {
                    self.gave_up = true;
                    return;
                }
                match action {
                    Action::Open { connection, user } => self.open(connection, user),
                    Action::Send { connection, request, last } => self.send_request(connection, request, last),
                    Action::Close { connection, server_first } => self.close(connection, server_first),
                    Action::Forget { user } => self.sessions.forget(user),
                }
            }
            self.flush();
            if !self.users.has_actions() {
                return;
            }
        }
    }

    fn open(&mut self, id: ConnectionId, user: ActiveId) {
        if self.opening_paused_until_ns.is_some() {
            // Decided before the system refused another one: it would refuse this one too.
            self.users.lost(id, Loss::NoResources);
            return;
        }
        let now_ns = sys::monotonic_ns();
        self.first_connect_ns.get_or_insert(now_ns);
        while self.places.len() <= id as usize {
            self.places.push(Place::default());
        }
        match self.plan.route.connect(&self.plan.target.address, self.recorder.connections) {
            Ok(socket) => {
                let place = &mut self.places[id as usize];
                place.number = place.number.wrapping_add(1);
                place.connection = Some(Connection::open(socket, user, now_ns));
                self.recorder.connections += 1;
            }
            Err(kind) => return self.lose(id, kind),
        }
        if self.loopback {
            self.connected(id);
            self.flush();
        }
        self.watch(id);
    }

    /// TCP is connected or, on loopback, is by the time the first bytes are sent.
    fn connected(&mut self, id: ConnectionId) {
        let Some(config) = &self.plan.target.tls else {
            self.connection(id).stage = Stage::Open;
            return self.users.ready(id, true);
        };
        self.output_for(id);
        let now_ms = self.now_ns / 1_000_000;
        let connection = self.places[id as usize].connection.as_mut().expect("it just connected");
        let decision = self.sessions.decide(connection.user, |session| session.is_usable(now_ms));
        connection.resumption_intended = decision.intended;
        connection.session_given = decision.session.is_some();
        connection.tls = Some(Client::new(config, decision.session, &mut self.entropy, now_ms, &mut self.out));
        connection.stage = Stage::Handshaking;
        let client = connection.tls.as_ref().expect("it was just made");
        if client.is_connected() {
            self.handshake_complete(id);
        } else if client.room() > 0 {
            self.send_with_hello(id);
        }
    }

    /// Sends the connection's first request in one write with the hello.
    fn send_with_hello(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        connection.ready_early = true;
        let user = connection.user;
        self.users.ready(id, self.widens(user));
        if let Some((request, last)) = self.users.take_send(id) {
            self.send_request(id, request, last);
        }
    }

    fn send_request(&mut self, id: ConnectionId, request: u32, last: bool) {
        self.output_for(id);
        let object = self.plan.workload.requests[request as usize].object;
        self.plain.clear();
        let number = self.plan.numbered.then(|| self.plan.workload.order[request as usize]);
        let written = self.requests.write(object, last, number, &mut self.plain);
        let now_ns = sys::monotonic_ns();
        let connection = self.places[id as usize].connection.as_mut().expect("it is to send something");
        if connection.tls.as_ref().is_some_and(|client| !fits(client.room(), self.plain.len(), written.body_bytes)) {
            connection.held = Some((request, last));
            return;
        }
        connection.response = Response::new(written.to_head);
        let (intended_ns, expect) = (self.users.intended_ns(id), written.expect);
        connection.exchange = Some(Exchange { intended_ns, sent_ns: now_ns, first_byte_seen: false, expect });
        connection.body_left = written.body_bytes;
        connection.progress_ns = now_ns;
        self.encrypt_with_body(id);
    }

    /// Appends the next piece of the body to what is in `plain`, and that to the output.
    fn encrypt_with_body(&mut self, id: ConnectionId) {
        let connection = self.places[id as usize].connection.as_mut().expect("it has something to send");
        let room = SEND_CHUNK_BYTES.saturating_sub(self.plain.len()) as u64;
        let piece = connection.body_left.min(room);
        match self.plan.body.as_deref() {
            // The end of the content is the end of the body.
            Some(content) if !content.is_empty() => {
                let from = content.len() - (connection.body_left as usize).min(content.len());
                self.plain.extend_from_slice(&content[from..from + piece as usize]);
            }
            _ => self.plain.resize(self.plain.len() + piece as usize, b'0'),
        }
        connection.body_left -= piece;
        match &mut connection.tls {
            Some(client) => {
                client.send(&self.plain, &mut self.out).expect("requests are sent on connections that are ready")
            }
            None => self.out.extend_from_slice(&self.plain),
        }
    }

    fn close(&mut self, id: ConnectionId, server_first: bool) {
        let now_ns = self.now_ns;
        let connection = self.connection(id);
        if server_first && connection.is_all_sent() {
            connection.stage = Stage::Closing;
            connection.progress_ns = now_ns;
            return;
        }
        self.output_for(id);
        let connection = self.places[id as usize].connection.as_mut().expect("it is to be closed");
        if connection.stage == Stage::Handshaking {
            self.sessions.undo(connection.session_given);
        }
        if let Some(client) = &mut connection.tls {
            client.close(&mut self.out);
        }
        self.send_last_words(id);
        self.close_finished(id);
    }

    /// Sends an alert, if there is one. Nobody depends on its arrival.
    fn send_last_words(&mut self, id: ConnectionId) {
        let connection = self.places[id as usize].connection.as_mut().expect("it is to be closed");
        if self.out_of == Some(id) && !self.out.is_empty() {
            let _ = connection.send(&self.out);
            self.out.clear();
        }
    }

    /// From now on `out` belongs to this connection.
    fn output_for(&mut self, id: ConnectionId) {
        if self.out_of != Some(id) {
            self.flush();
            self.out_of = Some(id);
        }
    }

    /// Sends what is in `out`, and of a request body as much as the socket takes.
    fn flush(&mut self) {
        while let Some(id) = self.out_of.take() {
            if self.out.is_empty() {
                return;
            }
            let connection =
                self.places[id as usize].connection.as_mut().expect("output belongs to an open connection");
            let result = connection.send(&self.out);
            self.out.clear();
            match result {
                Ok(sent) => {
                    self.sent(id, sent);
                    self.continue_body(id);
                }
                Err(kind) => self.fail_or_repeat(id, kind),
            }
        }
    }

    /// Makes the next piece of a request body once everything before it has left.
    fn continue_body(&mut self, id: ConnectionId) {
        let unfinished = |connection: &Connection| connection.unsent.is_empty() && connection.body_left > 0;
        if self.places[id as usize].connection.as_ref().is_some_and(unfinished) {
            self.plain.clear();
            self.out_of = Some(id);
            self.encrypt_with_body(id);
        }
    }

    /// So many bytes of a connection went out.
    fn sent(&mut self, id: ConnectionId, bytes: usize) {
        let connection = self.places[id as usize].connection.as_mut().expect("it just sent something");
        if bytes > 0 && !std::mem::replace(&mut connection.tcp_connected, true) {
            let now_ns = sys::monotonic_ns();
            connection.hello_ns = now_ns;
            self.recorder.latency(Phase::TcpConnect, now_ns - connection.opened_ns);
        }
        if connection.interest.is_some() {
            self.watch(id);
        }
    }

    /// Watches a connection for what it waits for.
    fn watch(&mut self, id: ConnectionId) {
        let place = &mut self.places[id as usize];
        let Some(connection) = &mut place.connection else {
            return;
        };
        let wanted = connection.wanted_interest();
        let token = u64::from(place.number) << 32 | u64::from(id);
        let result = match connection.interest {
            Some(interest) if interest == wanted => return,
            Some(_) => self.reactor.modify(&connection.socket, token, wanted),
            None => self.reactor.add(&connection.socket, token, wanted),
        };
        connection.interest = Some(wanted);
        if result.is_err() {
            self.fail(id, ErrorKind::Resources);
        }
    }
}

/// Whether a request may be sent now. Room is limited for early data, which may be replayed (RFC 9846 section 2.3): only a request
/// without a body travels so, and only whole.
fn fits(room: usize, head_bytes: usize, body_bytes: u64) -> bool {
    room == usize::MAX || head_bytes <= room && body_bytes == 0
}
