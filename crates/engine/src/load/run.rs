//! The loop of the load engine: carries out what the policy in `users` decides, over sockets.
//!
//! One thread, one receive buffer, one `recv` per readable event, one `send` per flight (a client Finished and the
//! first request leave together), one registration per connection. On loopback a connection is established when
//! `connect` returns, so that the first flight is sent without waiting for an event. `events` tells the policy what
//! happened, `actions` does what it wants done.

mod actions;
mod ending;
mod events;
mod lead_in;
mod lines;
mod streams;
mod turns;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tlsdyno_tls::{Client, Entropy, Session};
use tlsdyno_wire::http2;

use super::connection::{Connection, ConnectionPhase, Exchange};
use super::limits::*;
use super::outcome::Outcome;
use super::pacing::Pacer;
use super::plan::{Pacing, Plan, Resumption, Until};
use super::progress::Watched;
use super::rated::Lines;
use super::recorder::Recorder;
use super::requests::Requests;
use super::sessions::Sessions;
use super::storm::StormWatch;
use super::users::{ConnectionId, Users};
use crate::reactor::Reactor;
use crate::sys;

use turns::Turns;
pub use turns::{AskForTurn, NextTurn, Turn};

/// Why a run could not begin. What fails during a run is counted in its [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan contradicts itself: the caller's fault.
    #[error("the load plan cannot be run: {0}")]
    Plan(&'static str),
    /// The loops that were to begin together did not.
    #[error("another loop of this load could not begin")]
    NotBegun,
    /// The system refused what every run needs.
    #[error("the system refused {what} for the load engine: {error}")]
    System {
        /// The call or resource that failed.
        what: &'static str,
        /// The error of the system.
        error: io::Error,
    },
}

/// Runs a plan on the calling thread until it is done, or `stop` is set: then what was measured so far is answered.
///
/// # Errors
/// [`LoadError`]; failures of connections and requests are no errors, but counted in the [`Outcome`].
pub fn run(plan: &Plan, stop: &AtomicBool) -> Result<Outcome, LoadError> {
    run_together_holding(plan, stop, None, &mut HeldSessions::new(plan.resumption), at_once)
}

/// As [`run`], with sessions that earlier runs have left, for a load that takes turns with others: `ask` is asked for
/// each turn and may wait until it is time. The run ends with its turns, which are what its outcome is of.
///
/// # Errors
/// As [`run`], and [`LoadError::NotBegun`] without a first turn.
pub fn run_in_turns<'t>(
    plan: &'t Plan,
    stop: &AtomicBool,
    sessions: &'t mut HeldSessions,
    ask: &'t mut AskForTurn<'t>,
) -> Result<Outcome, LoadError> {
    plan.check().map_err(LoadError::Plan)?;
    if plan.pacing != Pacing::Closed || plan.lead_in_ns > 0 || plan.window.is_some() || plan.slice_ns.is_some() {
        return Err(LoadError::Plan("turns are for a closed loop without lead-in, window and slices"));
    }
    let mut run = Run::new(plan, None, &mut sessions.0)?;
    run.turns = Some(Turns::begin(plan, ask).ok_or(LoadError::NotBegun)?);
    run.wait_until(0, stop);
    run.run(stop)
}

/// The TLS sessions of a client that outlives a run, and its count of those that it reused.
///
/// One belongs to one server in one state: sessions that were made under a no-op have known secrets, and may be offered
/// to nobody else.
#[derive(Debug)]
pub struct HeldSessions(Sessions<Session>);

impl HeldSessions {
    /// No sessions yet, and the rule by which connections will resume; a plan that uses them must have the same.
    pub fn new(resumption: Resumption) -> HeldSessions {
        HeldSessions(Sessions::new(resumption))
    }
}

/// As [`run`], for one of several loops that begin together, or for one that answers a display
/// ([`watch`](super::watch)). When all is prepared it calls `begin`, which may wait for
/// the others and answers the moment to begin at, in nanoseconds of the monotonic clock, or nothing: then the run does
/// not take place.
///
/// # Errors
/// As [`run`], and [`LoadError::NotBegun`].
pub fn run_together(
    plan: &Plan,
    stop: &AtomicBool,
    watched: Option<Watched>,
    begin: impl FnOnce() -> Option<u64>,
) -> Result<Outcome, LoadError> {
    run_together_holding(plan, stop, watched, &mut HeldSessions::new(plan.resumption), begin)
}

/// As [`run_together`], with sessions that earlier runs have left, and leaves its own to later ones.
pub fn run_together_holding(
    plan: &Plan,
    stop: &AtomicBool,
    watched: Option<Watched>,
    sessions: &mut HeldSessions,
    begin: impl FnOnce() -> Option<u64>,
) -> Result<Outcome, LoadError> {
    plan.check().map_err(LoadError::Plan)?;
    let mut run = Run::new(plan, watched, &mut sessions.0)?;
    run.say_hello_to_nobody();
    run.wait_until(begin().ok_or(LoadError::NotBegun)?, stop);
    run.run(stop)
}

/// The beginning of a run that waits for nobody.
fn at_once() -> Option<u64> {
    Some(0)
}

/// The schedule of an open loop: it ends with the run.
fn pacer(plan: &Plan) -> Option<Pacer> {
    let Pacing::Open(rate) = plan.pacing else {
        return None;
    };
    let length_ns = match plan.until {
        Until::Elapsed(elapsed_ns) => Some(elapsed_ns),
        Until::Laps(_) | Until::ConnectionsMade(_) | Until::Requests(_) => None,
    };
    Some(Pacer::new(rate, length_ns, plan.share))
}

/// The users of a plan, who know when they are done and when they may connect.
fn users<'p>(plan: &'p Plan, sessions: &Sessions<Session>) -> Result<Users<'p>, LoadError> {
    let (connections_max, requests_max) = match plan.until {
        Until::ConnectionsMade(count) => (Some(count), None),
        Until::Requests(count) => (None, Some(count)),
        Until::Laps(_) | Until::Elapsed(_) => (None, None),
    };
    if connections_max == Some(0) || requests_max == Some(0) {
        return Err(LoadError::Plan("it makes no connections or no requests"));
    }
    let alone = plan.target.tls.is_some() && sessions.want_first_alone();
    let speed = if let Pacing::Recorded(speed) = plan.pacing { Some(speed) } else { None };
    let laps = match (plan.until, speed) {
        (Until::Laps(laps), _) => laps,
        (_, Some(_)) => 1,
        (_, None) => u64::MAX,
    };
    Ok(Users::new(&plan.workload, plan.users.clone(), laps, plan.connections, connections_max, alone)
        .with_share(plan.share)
        .with_requests(requests_max)
        .with_pages_at_once(plan.pages_at_once_count)
        .with_session_limits(plan.session_limits)
        .with_pacer(pacer(plan))
        .with_pauses(if let Pacing::Pauses(pause) = plan.pacing { Some(pause) } else { None })
        .at_recorded_times(speed)
        .within_window(plan.window))
}

struct SystemEntropy(sys::Random);

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// A place in the table of connections. Its number distinguishes those that had the place one after the other: an event
/// may be for a connection that was closed in the same turn.
#[derive(Default)]
struct ConnectionSlot {
    number: u32,
    connection: Option<Connection>,
}

struct Run<'p> {
    plan: &'p Plan,
    watched: Option<Watched>,
    requests: Requests,
    users: Users<'p>,
    sessions: &'p mut Sessions<Session>,
    recorder: Recorder,
    reactor: Reactor,
    places: Vec<ConnectionSlot>,
    entropy: SystemEntropy,
    /// Where input is received and decrypted in place.
    input: Box<[u8]>,
    /// Output of one connection, sent in one piece.
    out: Vec<u8>,
    out_of: Option<ConnectionId>,
    /// A request before it is encrypted.
    plain: Vec<u8>,
    /// Frames of HTTP/2 likewise.
    frames: Vec<u8>,
    /// What a piece of input did to requests of HTTP/2.
    http2_events: Vec<http2::Event<Exchange>>,
    /// The server does not end connections of HTTP/2 whose client has taken leave: it is not waited for again.
    leaves_open: bool,
    /// Sessions found in one piece of input.
    found_sessions: Vec<Session>,
    /// The server is on this machine, so that connecting completes at once.
    loopback: bool,
    now_ns: u64,
    began_ns: u64,
    /// CPU time of the thread before the run.
    cpu_before_ns: u64,
    /// When it was to begin, where that was said.
    named_ns: Option<u64>,
    first_connect_ns: Option<u64>,
    /// When the lead-in was over.
    counting_since_ns: Option<u64>,
    /// What counted between lead-in and deadline.
    counted: Option<Outcome>,
    last_response_ns: u64,
    storm: StormWatch,
    /// It was decided to give up: what the policy still wants is not carried out any more.
    gave_up: bool,
    /// When the server last sent something, or took more of a request that did not fit its buffers.
    heard_ns: u64,
    opening_paused_until_ns: Option<u64>,
    scan_at_ns: u64,
    unserved: u64,
    /// Requests were under way when the run's time and the grace behind it were over.
    was_cut: bool,
    /// It waits for its beginning with a short time slice, so that it is not late.
    hurries: bool,
    /// Turns with another load, if the run takes any.
    turns: Option<Turns<'p>>,
    /// What carries answers to clients that receive at a rate.
    lines: Option<Lines>,
}

impl<'p> Run<'p> {
    fn new(
        plan: &'p Plan,
        watched: Option<Watched>,
        sessions: &'p mut Sessions<Session>,
    ) -> Result<Run<'p>, LoadError> {
        let system = |what| move |error| LoadError::System { what, error };
        let requests = Requests::new(&plan.workload, &plan.target.host)
            .ok_or(LoadError::Plan("its requests take more than 4 GiB"))?;
        let users = users(plan, sessions)?;
        Ok(Run {
            plan,
            requests,
            users,
            sessions,
            recorder: Recorder::new(plan.slice_ns, plan.share.count > 1, watched.as_ref().and_then(Watched::recent)),
            watched,
            reactor: Reactor::new(EVENTS_MAX).map_err(system("an epoll instance"))?,
            places: Vec::new(),
            entropy: SystemEntropy(sys::Random::new().map_err(system("randomness (/dev/urandom)"))?),
            input: vec![0; RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            out: Vec::with_capacity(SEND_CHUNK_BYTES),
            out_of: None,
            plain: Vec::with_capacity(SEND_CHUNK_BYTES),
            frames: Vec::new(),
            http2_events: Vec::new(),
            leaves_open: false,
            found_sessions: Vec::new(),
            loopback: plan.route.is_local(&plan.target.address),
            now_ns: tlsdyno_sys::monotonic_ns(),
            began_ns: tlsdyno_sys::monotonic_ns(),
            cpu_before_ns: 0,
            named_ns: None,
            first_connect_ns: None,
            counting_since_ns: None,
            counted: None,
            last_response_ns: 0,
            storm: StormWatch::default(),
            gave_up: false,
            heard_ns: tlsdyno_sys::monotonic_ns(),
            opening_paused_until_ns: None,
            scan_at_ns: 0,
            unserved: 0,
            was_cut: false,
            hurries: false,
            turns: None,
            lines: plan.rated.map(Lines::new),
        })
    }

    /// Makes a hello that nobody gets. The first one of a thread costs milliseconds: its random generator is seeded,
    /// code and memory are fetched. Of loops that begin together the others would wait for that, where they share a
    /// CPU, and the first handshakes would take so much longer.
    fn say_hello_to_nobody(&mut self) {
        if let Some(config) = &self.plan.target.tls {
            Client::new(config, None, &mut self.entropy, self.now_ns / 1_000_000, &mut self.out);
            self.out.clear();
        }
    }

    /// Waits for the beginning of the run. Where CPUs are shared, those that begin together go before whoever has work
    /// for longer, the server of this machine for one, until their first requests are on their way.
    fn wait_until(&mut self, at_ns: u64, stop: &AtomicBool) {
        self.named_ns = (at_ns > 0).then_some(at_ns);
        self.now_ns = tlsdyno_sys::monotonic_ns();
        self.hurries = self.now_ns < at_ns;
        if self.hurries {
            sys::set_time_slice(START_SLICE_NS);
        }
        while self.now_ns < at_ns && !stop.load(Ordering::Relaxed) {
            sys::pause_ns((at_ns - self.now_ns).min(WAIT_NS_MAX));
            self.now_ns = tlsdyno_sys::monotonic_ns();
        }
        (self.began_ns, self.heard_ns) = (self.now_ns, self.now_ns);
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Outcome, LoadError> {
        self.cpu_before_ns = tlsdyno_sys::thread_cpu_ns();
        let mut stopped = false;
        self.scan_at_ns = self.now_ns + self.scan_interval_ns();
        self.users.tell_time(self.now_ns);
        self.users.start();
        self.carry_out();
        if self.hurries {
            sys::set_time_slice(0);
        }
        while !self.users.is_done() && !self.has_given_up() && !self.has_had_its_turns() {
            if stop.load(Ordering::Relaxed) {
                stopped = true;
                break;
            }
            self.turn().map_err(|error| LoadError::System { what: "waiting for events", error })?;
            self.recorder.cut(self.now_ns);
            self.count_after_lead_in();
            self.take_turns();
            self.answer_display();
        }
        let gave_up = self.has_given_up();
        let ended_ns = if gave_up || stopped { tlsdyno_sys::monotonic_ns() } else { self.ended_ns() };
        let (unserved, was_cut) = (self.unserved, self.was_cut);
        let counted_turns_ns = self.counted_turns_ns();
        let (start_ns, kept) = (self.start_ns().unwrap_or(ended_ns), self.kept());
        if let Some(counted) = self.counted {
            return Ok(Outcome { gave_up, unserved, stopped, ..counted });
        }
        let start_ns = self.counting_since_ns.unwrap_or(start_ns);
        let mut outcome = self.recorder.finish();
        outcome.began_ns = start_ns;
        outcome.elapsed_ns = counted_turns_ns.unwrap_or(ended_ns.saturating_sub(start_ns));
        outcome.client_cpu_ns = tlsdyno_sys::thread_cpu_ns() - self.cpu_before_ns;
        outcome.kept = kept;
        outcome.window = self.users.window_use();
        // Decided to be followed, but the run ended first.
        outcome.redirects_followed -= self.users.hops_dropped();
        outcome.redirects_unfinished += self.users.hops_dropped();
        outcome.gave_up = gave_up;
        outcome.unserved = unserved;
        outcome.stopped = stopped;
        if was_cut {
            ending::drop_slices_after_the_end(&mut outcome);
        }
        Ok(outcome)
    }

    fn answer_display(&mut self) {
        if let Some(watched) = self.watched.as_ref().filter(|watched| watched.is_asked()) {
            let cpu_ns = tlsdyno_sys::thread_cpu_ns() - self.cpu_before_ns;
            let snapshot = self.recorder.snapshot(self.now_ns, cpu_ns, self.users.window_use());
            watched.tell(snapshot, |empty| self.recorder.take_recent(empty));
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
            self.now_ns = tlsdyno_sys::monotonic_ns();
            self.users.tell_time(self.now_ns);
            self.on_event(event);
        }
        self.now_ns = tlsdyno_sys::monotonic_ns();
        self.do_what_is_due();
        Ok(())
    }

    fn wait_ns(&mut self) -> u64 {
        let scheduled_ns = self.users.next_due_ns(self.now_ns);
        if scheduled_ns.is_some() {
            // What was done since the turn began took time too, and a page is to begin when it is due.
            self.now_ns = tlsdyno_sys::monotonic_ns();
        }
        let [deadline_ns, cut_ns] = [self.deadline_ns(), self.cut_ns()].map(|at| at.filter(|&at| at > self.now_ns));
        let (turn_ends_ns, counts_at_ns) = (self.turn_ends_ns(), self.counts_at_ns());
        let due = [
            Some(self.scan_at_ns),
            self.opening_paused_until_ns,
            deadline_ns,
            cut_ns,
            scheduled_ns,
            turn_ends_ns,
            counts_at_ns,
            self.lines.as_ref().and_then(Lines::next_ns),
        ];
        let next = due.into_iter().flatten().min().unwrap_or(u64::MAX);
        next.saturating_sub(self.now_ns).min(WAIT_NS_MAX)
    }

    fn do_what_is_due(&mut self) {
        if self.deadline_ns().is_some_and(|deadline| self.now_ns >= deadline) {
            self.unserved += self.users.take_unserved(self.now_ns);
            self.users.drain();
        }
        self.finish_what_is_carried();
        if self.users.is_waiting_for_schedule() || self.all_are_carried() {
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
        if self.cut_ns().is_some_and(|cut| self.now_ns >= cut) {
            return self.cut_off();
        }
        self.carry_out();
    }

    /// Time-outs are found by looking at all connections now and then: cheaper than a timer for each request, and exact
    /// to an eighth.
    fn scan_interval_ns(&self) -> u64 {
        let shortest_ns = self.plan.timeouts.iter().chain([self.plan.connections.timeout_ns]).min().unwrap_or(u64::MAX);
        (shortest_ns / 8).clamp(1_000_000, 250_000_000)
    }

    fn end_what_timed_out(&mut self) {
        for id in 0..self.places.len() as ConnectionId {
            let Some(connection) = &self.places[id as usize].connection else {
                continue;
            };
            let idle_ns = self.now_ns.saturating_sub(connection.progress_ns);
            let timeout_ns = self.plan.connections.timeout_ns;
            if connection.phase == ConnectionPhase::Closing {
                if idle_ns >= timeout_ns.min(CLOSE_WAIT_NS_MAX) {
                    self.leaves_open |= connection.http2.is_some();
                    self.close_finished(id);
                }
            } else if connection.waits_for_server() && idle_ns >= timeout_ns {
                let kind = connection.timeout_kind();
                self.fail(id, kind);
            } else if let Some(kind) = connection.overdue(&self.plan.timeouts, self.now_ns) {
                self.fail(id, kind);
            } else if connection.http2.is_some() {
                self.cancel_overdue_streams(id);
            } else if let Some(kind) =
                connection.exchange.and_then(|exchange| exchange.overdue(&self.plan.timeouts, self.now_ns))
            {
                self.fail(id, kind);
            }
        }
    }
}
