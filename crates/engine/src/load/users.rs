//! Which user requests what over which connection, and when: the policy of the load engine, without sockets or clocks.
//!
//! It is told what happened to connections and answers with [`Action`]s. A user works through its pages in order; the
//! requests of a page go to its connections as they become free; a new connection is opened while there are more
//! requests than connections that could take them. A new user starts only when there is room for all the connections
//! that its widest page can use. So how many connections a page gets does not depend on how fast the server is: two
//! servers given the same users make the same handshakes, which comparing their costs needs. Where a single user could
//! use more connections than the run has, it waits in a queue for its next one.
//!
//! `admission` says who begins, `pages` what a user does next, `connections` what becomes of a connection. A replayed
//! trace has an order beyond its users (`follow`): requests wait until they are in a window of it.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::pacing::Pacer;
use super::plan::{Connections, SessionLimits, Workload};
use super::redirect::Hop;
use super::share::Share;

mod admission;
mod connections;
mod follow;
mod hops;
mod pages;
mod pauses;
mod recorded;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timed_tests;

use follow::Follow;
use pauses::Pauses;
use recorded::Recorded;

/// A connection, by its place in the engine's table. Places are used again.
pub type ConnectionId = u32;

/// An active user, by its place in the table of active users. Places are used again.
pub type ActiveId = u32;

/// What the engine has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open this connection for this user.
    Open { connection: ConnectionId, user: ActiveId },
    /// Send this request (index into [`Workload::requests`]) on this connection.
    Send {
        /// The connection; it is ready and has room.
        connection: ConnectionId,
        /// Index into [`Workload::requests`].
        request: u32,
        /// No further request will follow on the connection: say so to the server.
        last: bool,
    },
    /// Close this connection, and say [`Users::closed`] when it is. `server_first`: the server was told, or told, that
    /// it closes; wait for that.
    Close {
        /// The connection; no response is outstanding on it.
        connection: ConnectionId,
        /// The server closes first.
        server_first: bool,
    },
    /// Forget this user's TLS sessions: a new browser session begins, or the user is done.
    Forget { user: ActiveId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its request failed with it; if it had none yet, the user's next request did.
    Failed,
    /// The server closed a kept connection before it saw the request: the request is made again (RFC 9112 section
    /// 9.3.1).
    Stale,
    /// The system had no means for it: nothing is used up, and nothing opened until [`Users::resume_opening`].
    NoResources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Opening,
    Open,
    /// It carries no further request, and closes when those under way are done.
    Ending,
    Closing,
}

/// A request that is under way or is to be made again.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// Index into [`Workload::requests`].
    request: u32,
    /// When it was to be sent, by the schedule.
    intended_ns: Option<u64>,
}

#[derive(Clone, Debug)]
struct Connection {
    user: ActiveId,
    used: Use,
    sent: u32,
    /// Requests that it carries at once: 1 in HTTP/1.1, as many as streams in HTTP/2.
    room: u32,
    under_way: Vec<Given>,
    /// The server was told, or told, that it closes.
    server_closes: bool,
}

impl Connection {
    fn is_idle(&self) -> bool {
        self.used == Use::Open && self.under_way.is_empty()
    }

    fn has_room(&self) -> bool {
        self.used == Use::Open && self.under_way.len() < self.room as usize
    }
}

#[derive(Clone, Debug, Default)]
struct Active {
    /// Next request that was not handed out, index into the workload's requests.
    next: u32,
    /// One past the last request of the current page.
    page_end: u32,
    page_requests: u32,
    /// One past the user's last request.
    end: u32,
    /// Requests to be made again; at most as many as its connections carry at once.
    again: Vec<Given>,
    /// Those of the requests not served that a redirect sent on, with where to.
    hops: Vec<(u32, Hop)>,
    under_way: u32,
    /// The first request of a page, while it is under way on a connection that carries several: only its response says
    /// what else is to be requested.
    document: Option<u32>,
    connections: Vec<ConnectionId>,
    /// Connections set aside for it: what its widest page can use.
    reserved: u32,
    /// Further connections may open: the first handshake is complete.
    may_widen: bool,
    waits: bool,
    /// In a replay: how often all users had had their turn when it began.
    lap: u64,
    /// The place in the trace of the request that waits for the window.
    stalled_at: Option<u64>,
    /// Takes part; otherwise the place is free.
    active: bool,
    /// Waits for the schedule of an open loop to begin its next page.
    held: bool,
    /// When the page was to begin, by the schedule.
    intended_ns: Option<u64>,
    session: SessionUse,
}

/// What was made of a user's TLS session so far.
#[derive(Clone, Copy, Debug, Default)]
struct SessionUse {
    began_ns: Option<u64>,
    requests: u32,
    /// Age that it had when it began.
    older_ns: u64,
}

impl SessionUse {
    /// The first of a client, of so many, that is to renew at another time than those of the others.
    fn staggered(limits: &SessionLimits, client: ActiveId, clients: u32) -> SessionUse {
        let part = |all: u64| all * u64::from(client % clients) / u64::from(clients);
        SessionUse {
            began_ns: None,
            requests: limits.requests.map_or(0, |most| part(most.into()) as u32),
            older_ns: limits.lifetime_ns.map_or(0, part),
        }
    }

    fn is_up(&self, limits: &SessionLimits, now_ns: u64) -> bool {
        let age_ns = |began_ns| now_ns.saturating_sub(began_ns) + self.older_ns;
        let old = |lifetime_ns| self.began_ns.is_some_and(|began_ns| age_ns(began_ns) >= lifetime_ns);
        limits.lifetime_ns.is_some_and(old) || limits.requests.is_some_and(|most| self.requests >= most)
    }
}

impl Active {
    fn open_requests(&self) -> u32 {
        self.again.len() as u32 + self.page_end - self.next
    }

    /// The request that is made next.
    fn take_next(&mut self) -> Given {
        self.again.pop().unwrap_or_else(|| {
            self.next += 1;
            Given { request: self.next - 1, intended_ns: self.intended_ns }
        })
    }
}

#[derive(Debug)]
pub struct Users<'w> {
    workload: &'w Workload,
    range: Range<u32>,
    share: Share,
    /// How often the users take their turns yet, this time included.
    laps_left: u64,
    next_user: u32,
    limits: Connections,
    /// Pages that a user has under way at once, while its connection has room for them.
    pages_at_once: u32,
    /// Connections that may still be opened; `None`: any number.
    connections_left: Option<u64>,
    /// Requests that no page has yet; `None`: any number.
    requests_left: Option<u64>,
    connections: Vec<Connection>,
    free_connections: Vec<ConnectionId>,
    open: u32,
    /// Connections set aside for all active users.
    reserved: u32,
    users: Vec<Active>,
    free_users: Vec<ActiveId>,
    active: u32,
    /// Who waits for a connection, by [`Users::turn`].
    waiting: BTreeSet<(u64, ActiveId)>,
    /// How often somebody began to wait.
    arrivals: u64,
    follow: Option<Follow>,
    /// Only one connection may be open: see [`Users::new`], `first_alone`.
    alone: bool,
    opening_paused: bool,
    draining: bool,
    actions: VecDeque<Action>,
    session_limits: SessionLimits,
    /// The schedule of an open loop; `None`: a closed one.
    pacer: Option<Pacer>,
    /// The times of a replayed trace, if they are kept to.
    recorded: Option<Recorded>,
    /// Pauses between connections; `None`: there are none.
    pauses: Option<Pauses>,
    /// Users that are free to begin a page, in the order in which they became so.
    held: VecDeque<ActiveId>,
    now_ns: u64,
    hops_dropped: u64,
}

impl<'w> Users<'w> {
    /// The users `range` of a workload, so many times. `alone`: until [`Users::end_of_alone`] a single
    /// connection is open.
    pub fn new(
        workload: &'w Workload,
        range: Range<u32>,
        laps: u64,
        limits: Connections,
        connections_max: Option<u64>,
        alone: bool,
    ) -> Users<'w> {
        Users {
            workload,
            next_user: range.start,
            range,
            share: Share::default(),
            laps_left: laps,
            limits,
            pages_at_once: 1,
            connections_left: connections_max,
            requests_left: None,
            connections: Vec::new(),
            free_connections: Vec::new(),
            open: 0,
            reserved: 0,
            users: Vec::new(),
            free_users: Vec::new(),
            active: 0,
            waiting: BTreeSet::new(),
            arrivals: 0,
            follow: None,
            alone,
            opening_paused: false,
            draining: false,
            actions: VecDeque::new(),
            session_limits: SessionLimits::default(),
            pacer: None,
            recorded: None,
            pauses: None,
            held: VecDeque::new(),
            now_ns: 0,
            hops_dropped: 0,
        }
    }

    /// The same with a part of the users only. Comes before what looks at the users.
    pub fn with_share(self, share: Share) -> Users<'w> {
        Users { next_user: self.range.start + share.index, share, ..self }
    }

    /// The same with so many requests: the last page is as long as they are.
    pub fn with_requests(self, requests_left: Option<u64>) -> Users<'w> {
        Users { requests_left, ..self }
    }

    /// The same with users who begin their next pages while so many are under way, as far as connections have room.
    pub fn with_pages_at_once(self, pages_at_once: u32) -> Users<'w> {
        Users { pages_at_once, ..self }
    }

    /// The same with limits on the users' TLS sessions.
    pub fn with_session_limits(self, session_limits: SessionLimits) -> Users<'w> {
        Users { session_limits, ..self }
    }

    /// The same in an open loop.
    pub fn with_pacer(self, pacer: Option<Pacer>) -> Users<'w> {
        Users { pacer, ..self }
    }

    /// Tells the time, which the users' sessions age by.
    pub fn tell_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// When the request, which was handed to the connection, was to be sent, by the schedule.
    pub fn intended_ns(&self, id: ConnectionId, request: u32) -> Option<u64> {
        let given = self.connections[id as usize].under_way.iter().find(|given| given.request == request);
        given.and_then(|given| given.intended_ns)
    }

    /// The next thing to do; `None`: wait for something to happen.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The request that the connection was just handed, ahead of what else is to be done: it goes out with what the
    /// connection is about to send.
    pub fn take_send(&mut self, id: ConnectionId) -> Option<(u32, bool)> {
        let is_its = |action: &Action| matches!(action, Action::Send { connection, .. } if *connection == id);
        let at = self.actions.iter().rposition(is_its)?;
        match self.actions.remove(at) {
            Some(Action::Send { request, last, .. }) => Some((request, last)),
            _ => None,
        }
    }

    /// Whether there is something to do.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Starts as many users as there are connections for.
    pub fn start(&mut self) {
        self.start_clock();
        self.fill();
    }

    /// Nothing is under way and nothing will be.
    pub fn is_done(&self) -> bool {
        self.active == 0 && self.actions.is_empty() && !self.users_left()
    }

    /// From now on nothing new is begun; what is under way completes. A connection that is just opening still makes one
    /// request.
    pub fn drain(&mut self) {
        if std::mem::replace(&mut self.draining, true) {
            return;
        }
        self.waiting.clear();
        self.held.clear();
        self.stop_clock();
        self.stop_pauses();
        for id in 0..self.users.len() as ActiveId {
            if self.users[id as usize].active {
                self.users[id as usize].waits = false;
                self.advance(id);
            }
        }
    }

    /// Ends the time in which only one connection is open.
    pub fn end_of_alone(&mut self) {
        if std::mem::replace(&mut self.alone, false) {
            self.fill();
        }
    }

    /// Opens connections again after [`Loss::NoResources`].
    pub fn resume_opening(&mut self) {
        if std::mem::replace(&mut self.opening_paused, false) {
            self.fill();
        }
    }

    /// Connections that are open or opening.
    #[cfg(test)]
    pub fn open_connections(&self) -> u32 {
        self.open
    }

    /// Users that take part just now.
    #[cfg(test)]
    pub fn active_users(&self) -> u32 {
        self.active
    }

    /// Does for a user whatever can be done now.
    fn advance(&mut self, id: ActiveId) {
        loop {
            while self.page_is_done(id) && self.end_page(id) {}
            let under_way = self.users[id as usize].under_way;
            if !self.users[id as usize].active {
                return;
            }
            if self.draining {
                self.wind_up(id);
            } else if self.session_lasts(id) {
                self.hand_out_requests(id);
                self.open_connections_for(id);
            }
            // Where pages are made at once, the next one follows.
            if self.users[id as usize].under_way == under_way || !self.page_is_done(id) {
                break;
            }
        }
        self.note_waiting(id);
    }

    /// A user while draining: what just opened makes its first request, the rest closes.
    fn wind_up(&mut self, id: ActiveId) {
        for at in 0..self.users[id as usize].connections.len() {
            let connection = self.users[id as usize].connections[at];
            let Connection { sent, .. } = self.connections[connection as usize];
            if self.connections[connection as usize].is_idle() && sent == 0 && self.presentable(id) > 0 {
                self.hand_out(id, connection);
            }
        }
        self.close_idle(id);
        if self.users[id as usize].connections.is_empty() {
            self.release(id);
        }
    }

    fn hand_out_requests(&mut self, id: ActiveId) {
        for at in 0..self.users[id as usize].connections.len() {
            let connection = self.users[id as usize].connections[at];
            while self.connections[connection as usize].has_room() {
                let user = &self.users[id as usize];
                let waits = user.open_requests() == 0 || user.document.is_some();
                if waits || self.session_is_up(id) || !self.may_present(id) {
                    return;
                }
                self.hand_out(id, connection);
            }
        }
    }

    fn hand_out(&mut self, id: ActiveId, connection: ConnectionId) {
        let user = &mut self.users[id as usize];
        let given = user.take_next();
        let request = given.request;
        user.under_way += 1;
        user.session.requests += 1;
        let session_ends = self.session_limits.requests == Some(user.session.requests);
        let slot = &mut self.connections[connection as usize];
        if slot.room > 1 && user.page_requests > 1 && request == user.page_end - user.page_requests {
            user.document = Some(request);
        }
        slot.under_way.push(given);
        slot.sent += 1;
        let is_last = self.limits.requests_each == Some(slot.sent);
        if is_last {
            (slot.used, slot.server_closes) = (Use::Ending, true);
        }
        let last = self.draining || session_ends || is_last;
        self.note_presented(id, request);
        self.actions.push_back(Action::Send { connection, request, last });
    }
}
