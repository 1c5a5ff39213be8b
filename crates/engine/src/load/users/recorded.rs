//! Pages at the times that a trace has, or at a multiple of its speed: an open loop in which every user keeps its own
//! schedule.
//!
//! A page that is late (its user is not done with the last one, or all connections are in use) begins as soon as it
//! can; its latency counts from when it was due. A user that waits keeps its connection until somebody else needs it.

use std::collections::BTreeSet;

use super::{ActiveId, ConnectionId, Users};

#[derive(Debug)]
pub(super) struct Recorded {
    /// So many seconds of the trace go by in one.
    speed: f64,
    /// The users in the order in which they begin; a trace is written in another, as requests end.
    turns: Vec<u32>,
    start_ns: u64,
    /// Users that wait until their next page is due.
    waiting: BTreeSet<(u64, ActiveId)>,
    /// Those of them that held a connection when they began to.
    holding: BTreeSet<(u64, ActiveId)>,
    /// A connection that was taken from one of them and is not closed yet.
    taken: Option<ConnectionId>,
}

impl Users<'_> {
    /// The same with pages at the times of the trace, `speed` times as fast.
    pub fn at_recorded_times(mut self, speed: Option<f64>) -> Self {
        self.recorded = speed.map(|speed| {
            let first = |user: &u32| {
                let requests = &self.workload.users[*user as usize].requests;
                self.workload.at_ms.get(requests.start as usize).copied().filter(|_| !requests.is_empty())
            };
            let own = self.range.clone().skip(self.share.index as usize).step_by(self.share.count as usize);
            let mut turns: Vec<u32> = own.collect();
            turns.sort_by_key(first);
            Recorded { speed, turns, start_ns: 0, waiting: BTreeSet::new(), holding: BTreeSet::new(), taken: None }
        });
        self
    }

    /// The user whose turn it is to begin as the one with this number.
    pub(super) fn user_at(&self, turn: u32) -> u32 {
        match &self.recorded {
            Some(recorded) => recorded.turns[((turn - self.range.start) / self.share.count) as usize],
            None => turn,
        }
    }

    pub(super) fn start_clock(&mut self) {
        let now_ns = self.now_ns;
        if let Some(recorded) = &mut self.recorded {
            recorded.start_ns = now_ns;
        }
    }

    /// When a request is due, in a replay by the clock.
    fn due_ns(&self, request: u32) -> Option<u64> {
        let recorded = self.recorded.as_ref()?;
        let after_ms = self.workload.at_ms.get(request as usize)?;
        Some(recorded.start_ns + (*after_ms as f64 * 1e6 / recorded.speed) as u64)
    }

    /// When the next user's first request is due. A user without requests is due at once.
    fn next_user_due_ns(&self) -> Option<u64> {
        let requests = &self.workload.users[self.user_at(self.next_user) as usize].requests;
        if requests.is_empty() { None } else { self.due_ns(requests.start) }
    }

    /// Whether the next user need not wait for its time.
    pub(super) fn next_user_is_due(&self) -> bool {
        self.recorded.is_none() || self.next_user_due_ns().is_none_or(|due_ns| due_ns <= self.now_ns)
    }

    /// Begins the page of a user that is due, or lets the user wait. Answers whether there are such times at all.
    pub(super) fn begin_recorded_page(&mut self, id: ActiveId) -> bool {
        let Some(due_ns) = self.due_ns(self.users[id as usize].next) else { return false };
        if due_ns <= self.now_ns {
            self.users[id as usize].intended_ns = Some(due_ns);
            self.open_page(id);
            return true;
        }
        self.hold(id);
        let holds = self.idle_connection(id).is_some();
        if let Some(recorded) = &mut self.recorded {
            recorded.waiting.insert((due_ns, id));
            if holds {
                recorded.holding.insert((due_ns, id));
            }
        }
        true
    }

    pub(super) fn begin_what_is_due(&mut self) {
        let now_ns = self.now_ns;
        while let Some(recorded) = &mut self.recorded
            && let Some((due_ns, id)) = recorded.waiting.first().copied().filter(|(due_ns, _)| *due_ns <= now_ns)
        {
            recorded.waiting.remove(&(due_ns, id));
            recorded.holding.remove(&(due_ns, id));
            self.users[id as usize].intended_ns = Some(due_ns);
            self.open_page(id);
            self.advance(id);
        }
        self.fill();
    }

    /// When something comes due next that could then begin.
    pub(super) fn next_recorded_ns(&self) -> Option<u64> {
        let recorded = self.recorded.as_ref()?;
        let page_ns = recorded.waiting.first().map(|(due_ns, _)| *due_ns);
        let has_connection = self.may_open() || self.open == self.limits.total && !recorded.holding.is_empty();
        let user_ns = if self.users_left() && has_connection { self.next_user_due_ns() } else { None };
        page_ns.into_iter().chain(user_ns).min()
    }

    pub(super) fn waiting_for_time(&self) -> Option<usize> {
        self.recorded.as_ref().map(|recorded| recorded.waiting.len())
    }

    /// Requests that were not made, though they were due by now: of users that have begun, and of those that could not.
    pub(super) fn recorded_unserved(&self, now_ns: u64) -> u64 {
        let due = |request: &u32| self.due_ns(*request).is_some_and(|due_ns| due_ns <= now_ns);
        let active = self.users.iter().filter(|user| user.active);
        let late: u64 = active.map(|user| (user.next..user.end).take_while(due).count() as u64).sum();
        let turns = (self.next_user..self.range.end).step_by(self.share.count as usize);
        let users = turns.map(|turn| &self.workload.users[self.user_at(turn) as usize]);
        let begun = users.take_while(|user| user.requests.is_empty() || due(&user.requests.start));
        late + begun.map(|user| user.requests.clone().take_while(due).count() as u64).sum::<u64>()
    }

    pub(super) fn stop_clock(&mut self) {
        if let Some(recorded) = &mut self.recorded {
            recorded.waiting.clear();
            recorded.holding.clear();
        }
    }

    /// All connections are in use, and somebody who is due needs one: closes the one of whoever has the longest to
    /// wait.
    pub(super) fn take_waiting_connection(&mut self) {
        while let Some(recorded) = self.recorded.as_mut().filter(|recorded| recorded.taken.is_none()) {
            let Some((_, id)) = recorded.holding.pop_last() else { return };
            // The server may have closed it in the meantime.
            if let Some(connection) = self.idle_connection(id) {
                self.close(connection);
                if let Some(recorded) = &mut self.recorded {
                    recorded.taken = Some(connection);
                }
            }
        }
    }

    pub(super) fn note_closed_by_clock(&mut self, id: ConnectionId) {
        if let Some(recorded) = &mut self.recorded {
            recorded.taken.take_if(|taken| *taken == id);
        }
    }

    fn idle_connection(&self, id: ActiveId) -> Option<ConnectionId> {
        let idle = |connection: &&ConnectionId| self.connections[**connection as usize].is_idle();
        self.users[id as usize].connections.iter().find(idle).copied()
    }
}
