//! A network in virtual time, with random delays, failures and closes, and the rules that must hold throughout.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::*;
use crate::load::plan::{Object, Request, User};

/// A small generator, so that a simulation is reproduced by its seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

pub fn workload(users: &[Vec<(bool, bool, bool)>]) -> Workload {
    let mut workload = Workload::default();
    workload.objects.push(Object {
        method: "GET".into(),
        path: "/".into(),
        headers: String::new(),
        body_bytes: 0,
        expect: Default::default(),
    });
    for user in users {
        let from = workload.requests.len() as u32;
        for &(page_end, close_after, forget_session) in user {
            workload.requests.push(Request { object: 0, page_end, close_after, forget_session });
        }
        workload.users.push(User { requests: from..workload.requests.len() as u32 });
    }
    workload
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Ready(ConnectionId),
    Session(ConnectionId),
    Finished(ConnectionId, u32),
    GoesAway(ConnectionId),
    Closed(ConnectionId),
    ResumeOpening,
}

/// How the simulated network misbehaves, each in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    pub connect_fails: u64,
    pub no_resources: u64,
    pub stale: u64,
    pub response_fails: u64,
    pub server_closes: u64,
    pub redirects: u64,
    /// On connections with several streams.
    pub refused: u64,
    pub goes_away: u64,
}

pub struct Simulation<'w> {
    pub users: Users<'w>,
    workload: &'w Workload,
    limits: Connections,
    trouble: Trouble,
    dice: Dice,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, Happening)>>,
    owner: HashMap<ConnectionId, ActiveId>,
    /// Requests that a connection carries at once.
    streams: u32,
    busy: HashSet<(ConnectionId, u32)>,
    sent_on: HashMap<ConnectionId, u32>,
    handshaken: HashSet<ConnectionId>,
    /// Users one of whose handshakes completed since they last had no connection.
    widened: HashSet<ActiveId>,
    /// Requests in the order in which they were sent, with the user's place; those sent again appear again.
    pub sent: Vec<(ActiveId, u32)>,
    pub finished: Vec<u32>,
    /// Redirects of the requests that are not served yet.
    hops: HashMap<(ActiveId, u32), u32>,
    pub failed: u32,
    pub forgotten: u32,
    pub opened: u64,
    pub most_open: u32,
    pub most_active: u32,
    /// Of a replay: the window, and which places are served.
    window: Option<(u32, Vec<bool>)>,
}

impl<'w> Simulation<'w> {
    pub fn new(
        workload: &'w Workload,
        limits: Connections,
        until: Option<u64>,
        alone: bool,
        trouble: Trouble,
        seed: u64,
    ) -> Self {
        let everybody = 0..workload.users.len() as u32;
        Simulation {
            users: Users::new(workload, everybody, if until.is_some() { u64::MAX } else { 1 }, limits, until, alone),
            workload,
            limits,
            trouble,
            dice: Dice(seed),
            now: 0,
            queue: BinaryHeap::new(),
            owner: HashMap::new(),
            streams: 1,
            busy: HashSet::new(),
            sent_on: HashMap::new(),
            handshaken: HashSet::new(),
            widened: HashSet::new(),
            sent: Vec::new(),
            finished: Vec::new(),
            hops: HashMap::new(),
            failed: 0,
            forgotten: 0,
            opened: 0,
            most_open: 0,
            most_active: 0,
            window: None,
        }
    }

    /// Connections carry so many requests at once.
    pub fn with_streams(self, streams: u32) -> Self {
        Simulation { streams, ..self }
    }

    /// The workload's order is kept to within a window.
    pub fn within(self, window: u32) -> Self {
        let served = vec![false; self.workload.requests.len()];
        Simulation { window: Some((window, served)), ..self.within_unwatched(window) }
    }

    /// The same where it cannot be told which requests are served.
    pub fn within_unwatched(self, window: u32) -> Self {
        Simulation { users: self.users.within_window(Some(window)), ..self }
    }

    fn served(&mut self, request: u32) {
        if let Some((_, served)) = &mut self.window {
            served[self.workload.order[request as usize] as usize] = true;
        }
    }

    pub fn run(mut self) -> Self {
        self.users.start();
        while self.step() {}
        assert!(self.users.users.iter().all(|user| user.hops.is_empty()), "a redirect is left behind");
        assert!(self.users.is_done(), "nothing is under way, and yet it is not done");
        self
    }

    /// Time is over while something is under way: a response that comes byte by byte, a handshake that never ends.
    pub fn cut_off(mut self) {
        let (busy, open) = (self.busy.len() as u64, u64::from(self.users.open_connections()));
        let cut = self.users.cut_off();
        assert!((busy..=busy + open).contains(&cut), "{cut} cut of {busy} busy and {open} open connections");
        assert!(self.users.is_done(), "something is under way that nobody waits for");
        assert_eq!((self.users.open_connections(), self.users.active_users()), (0, 0));
        assert!(self.users.users.iter().all(|user| user.hops.is_empty()), "a redirect is left behind");
        // Redirects excepted, each request that was sent once has come to its end once.
        let sent: HashSet<_> = self.sent.iter().map(|(_, request)| *request).collect();
        let ended = self.finished.len() as u64 + u64::from(self.failed) + cut;
        assert!(ended >= sent.len() as u64, "{ended} ends of {} requests", sent.len());
        assert!(ended <= self.workload.requests.len() as u64, "more ends than requests");
    }

    /// Does what is to be done, and lets the next thing happen; `false`: nothing will.
    pub fn step(&mut self) -> bool {
        while let Some(action) = self.users.next_action() {
            self.carry_out(action);
        }
        self.most_open = self.most_open.max(self.users.open_connections());
        self.most_active = self.most_active.max(self.users.active_users());
        assert_eq!(self.users.open_connections() as usize, self.owner.len());
        let Some(Reverse((time, happening))) = self.queue.pop() else {
            return false;
        };
        assert!(time >= self.now && self.sent.len() < 100_000, "no end in sight");
        self.now = time;
        self.happen(happening);
        true
    }

    fn later(&mut self, happening: Happening) {
        let delay = 1 + self.dice.roll(50);
        self.queue.push(Reverse((self.now + delay, happening)));
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.dice.roll(100) < percent
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Open { connection, user } => self.open(connection, user),
            Action::Send { connection, request, last } => {
                assert!(self.busy.insert((connection, request)), "a request twice at once");
                let others = self.on(connection).count() - 1;
                assert!(others < self.streams as usize, "more requests on a connection than streams");
                let first = self.first_of_page(request);
                let waits = self.on(connection).any(|other| other == first) && request != first;
                assert!(self.streams == 1 || !waits, "an object before its document");
                assert!(self.handshaken.contains(&connection));
                let count = self.sent_on.get_mut(&connection).unwrap();
                *count += 1;
                if let Some(each) = self.limits.requests_each {
                    assert!(*count <= each);
                    assert!(last || *count < each);
                }
                if let Some((window, served)) = &self.window {
                    let oldest = served.iter().position(|served| !served).unwrap() as u32;
                    let place = self.workload.order[request as usize];
                    assert!(
                        place < oldest.saturating_add(*window),
                        "{place} was presented while {oldest} was not served"
                    );
                }
                let user = self.owner[&connection];
                let hop = self.users.hop(connection, request).map_or(0, |hop| hop.count);
                assert_eq!(
                    hop,
                    self.hops.get(&(user, request)).copied().unwrap_or(0),
                    "the redirect is lost or another's"
                );
                self.sent.push((user, request));
                self.later(Happening::Finished(connection, request));
            }
            Action::Close { connection, server_first } => {
                assert!(self.on(connection).next().is_none());
                if server_first {
                    self.later(Happening::Closed(connection));
                } else {
                    self.happen(Happening::Closed(connection));
                }
            }
            Action::Forget { .. } => self.forgotten += 1,
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Ready(id) if self.percent(self.trouble.connect_fails) => {
                let user = self.owner.remove(&id).unwrap();
                self.failed += self.users.lost(id, Loss::Failed) as u32;
                // Which of the user's requests failed with it is the policy's choice.
                let left: HashSet<u32> =
                    self.users.users[user as usize].hops.iter().map(|(request, _)| *request).collect();
                self.hops.retain(|(owner, request), _| *owner != user || left.contains(request));
                self.users.end_of_alone();
            }
            Happening::Ready(id) => {
                self.handshaken.insert(id);
                self.widened.insert(self.owner[&id]);
                self.users.ready(id, false, self.streams);
                self.later(Happening::Session(id));
                if self.streams > 1 && self.percent(self.trouble.goes_away) {
                    self.later(Happening::GoesAway(id));
                }
            }
            Happening::Session(id) => {
                // It may be closed by now, and even its place used again; the engine sees to that by itself.
                if self.handshaken.contains(&id) {
                    self.users.session_arrived(id);
                    self.users.end_of_alone();
                }
            }
            // Its connection was lost with it, or it was not looked at.
            Happening::Finished(id, request) if !self.busy.remove(&(id, request)) => {}
            Happening::GoesAway(id) if !self.handshaken.contains(&id) => {}
            Happening::GoesAway(id) => {
                // The server looks at the first of those under way, and at no other.
                self.users.going_away(id);
                for request in self.on(id).skip(1).collect::<Vec<_>>() {
                    self.busy.remove(&(id, request));
                    self.users.unprocessed(id, request);
                }
            }
            Happening::Finished(id, request) => self.finish(id, request),
            Happening::Closed(id) => {
                self.gone(id);
                self.users.closed(id);
            }
            Happening::ResumeOpening => self.users.resume_opening(),
        }
    }

    fn open(&mut self, connection: ConnectionId, user: ActiveId) {
        self.opened += 1;
        assert!(self.owner.insert(connection, user).is_none(), "a place used twice");
        let siblings = self.owner.values().filter(|owner| **owner == user).count() - 1;
        assert!(siblings < self.limits.per_user as usize);
        if siblings == 0 {
            self.widened.remove(&user);
        } else if self.limits.first_alone {
            assert!(self.widened.contains(&user), "the first handshake was not awaited");
        }
        self.sent_on.insert(connection, 0);
        if self.percent(self.trouble.no_resources) {
            self.owner.remove(&connection);
            self.users.lost(connection, Loss::NoResources);
            self.later(Happening::ResumeOpening);
        } else {
            self.later(Happening::Ready(connection));
        }
    }

    fn finish(&mut self, id: ConnectionId, request: u32) {
        if self.sent_on[&id] > 1 && self.percent(self.trouble.stale) {
            self.gone(id);
            self.busy.retain(|(other, _)| *other != id);
            self.users.lost(id, Loss::Stale);
        } else if self.streams > 1 && self.percent(self.trouble.refused) {
            self.users.unprocessed(id, request);
        } else if self.percent(self.trouble.redirects) {
            let count = self.hops.entry((self.owner[&id], request)).or_default();
            *count += 1;
            let hop = Hop { target: Vec::new(), to_get: false, count: *count, began_ns: 0 };
            let persists = !self.percent(self.trouble.server_closes);
            assert!(self.users.redirected(id, request, persists, hop), "nobody drains");
            self.users.end_of_alone();
        } else if self.percent(self.trouble.response_fails) {
            let requests: Vec<u32> = [request].into_iter().chain(self.on(id)).collect();
            for request in &requests {
                self.hops.remove(&(self.owner[&id], *request));
                self.busy.remove(&(id, *request));
                self.served(*request);
            }
            self.gone(id);
            let failed = self.users.lost(id, Loss::Failed);
            assert_eq!(failed, requests.len() as u64, "all on the connection");
            self.failed += failed as u32;
            self.users.end_of_alone();
        } else {
            self.hops.remove(&(self.owner[&id], request));
            self.served(request);
            self.finished.push(request);
            let persists = !self.percent(self.trouble.server_closes);
            self.users.finished(id, request, persists);
            self.users.end_of_alone();
        }
    }

    /// The requests under way on a connection.
    fn on(&self, id: ConnectionId) -> impl Iterator<Item = u32> + use<'_, 'w> {
        self.busy.iter().filter(move |(connection, _)| *connection == id).map(|(_, request)| *request)
    }

    fn first_of_page(&self, request: u32) -> u32 {
        let user = self.workload.users.iter().find(|user| user.requests.contains(&request)).unwrap();
        let before = user.requests.start..request;
        before.rev().take_while(|before| !self.workload.requests[*before as usize].page_end).last().unwrap_or(request)
    }

    fn gone(&mut self, id: ConnectionId) {
        self.owner.remove(&id);
        self.handshaken.remove(&id);
    }

    /// Every request was made once (or failed), and no page began before the one before it was done.
    pub fn assert_complete(&self) {
        assert_eq!(self.finished.len() as u32 + self.failed, self.workload.requests.len() as u32);
        let distinct: HashSet<_> = self.finished.iter().collect();
        assert_eq!(distinct.len(), self.finished.len(), "a request was made twice");
        for user in &self.workload.users {
            let page = |request: u32| {
                let before = &self.workload.requests[user.requests.start as usize..request as usize];
                before.iter().filter(|request| request.page_end).count()
            };
            let pages: Vec<_> = self
                .sent
                .iter()
                .map(|sent| sent.1)
                .filter(|request| user.requests.contains(request))
                .map(page)
                .collect();
            assert!(pages.is_sorted(), "pages out of order: {pages:?}");
        }
    }
}

pub fn limits(total: u32, per_user: u32, first_alone: bool, requests_each: Option<u32>) -> Connections {
    Connections { total, per_user, first_alone, requests_each, timeout_ns: 1, batch_ns: 0 }
}
