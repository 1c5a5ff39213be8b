//! A user's pages and sessions: when they begin and end, by the order of its requests, the limits on sessions, and the
//! schedule of an open loop.

use super::{Action, ActiveId, SessionUse, Users};

impl Users<'_> {
    /// Tells the time, and begins the pages that are due by the schedule while there are free users for them.
    pub fn pace(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.recorded.is_some() {
            return self.begin_what_is_due();
        }
        self.end_pauses();
        while let Some(&id) = self.held.front() {
            let Some(intended_ns) = self.pacer.as_mut().and_then(|pacer| pacer.take_due(now_ns)) else {
                return;
            };
            self.held.pop_front();
            self.users[id as usize].intended_ns = Some(intended_ns);
            self.open_page(id);
            self.advance(id);
        }
    }

    /// When the next page is to begin, if a user is free for it.
    pub fn next_due_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.recorded.is_some() {
            return self.next_recorded_ns();
        }
        if self.pauses.is_some() {
            return self.next_pause_ns();
        }
        if self.held.is_empty() {
            return None;
        }
        self.pacer.as_mut()?.next_due_ns(now_ns)
    }

    /// Whether all users are free, and so nobody waits for the server.
    pub fn is_waiting_for_schedule(&self) -> bool {
        let waiting = self.waiting_for_time().or(self.pausing()).or(self.pacer.as_ref().map(|_| self.held.len()));
        waiting.is_some_and(|waiting| waiting as u32 == self.active)
            && !self.held.iter().any(|id| self.users[*id as usize].under_way > 0)
    }

    /// Arrivals that were due by now, but that no user was free for; each is answered once.
    pub fn take_unserved(&mut self, now_ns: u64) -> u64 {
        if self.recorded.is_some() {
            return if self.draining { 0 } else { self.recorded_unserved(now_ns) };
        }
        let pacer = self.pacer.as_mut();
        pacer.map_or(0, |pacer| std::iter::from_fn(|| pacer.take_due(now_ns)).count() as u64)
    }

    /// Whether the user's session may be used further. When it is up, its connections close, and once they are closed a
    /// new one begins.
    pub(super) fn session_lasts(&mut self, id: ActiveId) -> bool {
        if self.session_is_up(id) && self.users[id as usize].open_requests() > 0 {
            self.close_idle(id);
            if !self.users[id as usize].connections.is_empty() {
                return false;
            }
            self.forget(id);
        }
        true
    }

    pub(super) fn session_is_up(&self, id: ActiveId) -> bool {
        self.users[id as usize].session.is_up(&self.session_limits, self.now_ns)
    }

    pub(super) fn page_is_done(&self, id: ActiveId) -> bool {
        let user = &self.users[id as usize];
        let has_room = |connection: &u32| self.connections[*connection as usize].has_room();
        let may_begin_next = || user.under_way < self.pages_at_once && user.connections.iter().any(has_room);
        user.active
            && !user.held
            && !self.draining
            && user.open_requests() == 0
            && (user.under_way == 0 || may_begin_next())
    }

    /// Goes on to the next page or, at the end, lets the user go. Answers whether it could.
    pub(super) fn end_page(&mut self, id: ActiveId) -> bool {
        let user = &self.users[id as usize];
        let done = user.next == user.end || self.requests_left == Some(0);
        if done || self.workload.requests[user.next as usize - 1].close_after || self.forgets_next(id) {
            self.close_idle(id);
            // The next page, or user, begins on a clean table.
            if !self.users[id as usize].connections.is_empty() {
                return false;
            }
        }
        if done {
            self.release(id);
        } else {
            self.begin_page(id);
        }
        true
    }

    fn forgets_next(&self, id: ActiveId) -> bool {
        let user = &self.users[id as usize];
        self.workload.requests[user.next as usize].forget_session
    }

    pub(super) fn begin_page(&mut self, id: ActiveId) {
        if self.begin_recorded_page(id) || self.begin_pause(id) {
            return;
        }
        if self.pacer.is_none() {
            return self.open_page(id);
        }
        self.hold(id);
        self.held.push_back(id);
    }

    pub(super) fn hold(&mut self, id: ActiveId) {
        let user = &mut self.users[id as usize];
        user.held = true;
        user.page_end = user.next;
        user.page_requests = 0;
    }

    pub(super) fn open_page(&mut self, id: ActiveId) {
        self.users[id as usize].held = false;
        if self.forgets_next(id) {
            self.forget(id);
        }
        let user = &mut self.users[id as usize];
        let rest = &self.workload.requests[user.next as usize..user.end as usize];
        let length = rest.iter().position(|request| request.page_end);
        user.page_end = length.map_or(user.end, |last| user.next + last as u32 + 1);
        user.page_requests = user.page_end - user.next;
        self.take_requests(id);
    }

    /// Takes the requests of the user's page from those that the run makes. The last page may be cut short, and those
    /// who wait for their next one go.
    fn take_requests(&mut self, id: ActiveId) {
        let Some(left) = &mut self.requests_left else { return };
        let user = &mut self.users[id as usize];
        user.page_requests = u64::from(user.page_requests).min(*left) as u32;
        user.page_end = user.next + user.page_requests;
        *left -= u64::from(user.page_requests);
        if *left > 0 {
            return;
        }
        self.held.clear();
        self.stop_pauses();
        for id in 0..self.users.len() as ActiveId {
            if std::mem::take(&mut self.users[id as usize].held) {
                self.advance(id);
            }
        }
    }

    fn forget(&mut self, id: ActiveId) {
        self.users[id as usize].session = SessionUse::default();
        self.actions.push_back(Action::Forget { user: id });
    }

    pub(super) fn release(&mut self, id: ActiveId) {
        self.drop_hops(id);
        let user = &mut self.users[id as usize];
        user.held = false;
        user.session = SessionUse::default();
        user.active = false;
        user.waits = false;
        user.again.clear();
        self.reserved -= user.reserved;
        self.active -= 1;
        self.free_users.push(id);
        self.actions.push_back(Action::Forget { user: id });
    }
}
