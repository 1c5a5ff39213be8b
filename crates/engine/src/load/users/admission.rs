//! Who begins and who waits: free connections go to those who wait, then to new users while there is room for their
//! widest pages.

use super::{Active, ActiveId, SessionUse, Users};

impl Users<'_> {
    /// Gives free connections to those who wait, then to new users.
    pub(super) fn fill(&mut self) {
        while self.may_open() {
            if self.next_user_is_first() {
                self.start_user();
            } else if let Some((_, user)) = self.waiting.pop_first() {
                self.users[user as usize].waits = false;
                self.advance(user);
            } else {
                break;
            }
        }
        if self.open == self.limits.total && (!self.waiting.is_empty() || self.next_user_is_first()) {
            self.take_unused_connection();
            self.take_waiting_connection();
        }
    }

    /// Whether a new user is to begin, before any that waits: in a replay by the order of the trace, else when nobody
    /// waits and there is room.
    fn next_user_is_first(&self) -> bool {
        if !self.users_left() || !self.next_user_is_due() {
            return false;
        }
        match self.next_user_place() {
            Some(place) => {
                self.next_user_may_begin() && self.waiting.first().is_none_or(|(waiting, _)| place < *waiting)
            }
            // Who has an order or times to keep to sets nothing aside.
            None => {
                let ordered = self.follow.is_some() || self.recorded.is_some();
                self.waiting.is_empty() && (ordered || self.has_room_for_next_user())
            }
        }
    }

    pub(super) fn users_left(&self) -> bool {
        !self.draining && self.requests_left != Some(0) && self.next_user < self.range.end
    }

    pub(super) fn may_open(&self) -> bool {
        let room = if self.alone { 1 } else { self.limits.total };
        self.open < room && !self.opening_paused && !self.draining
    }

    /// Whether the next user's widest page fits beside what is set aside for the others. A single user always has room.
    fn has_room_for_next_user(&self) -> bool {
        self.active == 0 || self.reserved + self.width(self.next_user) <= self.limits.total
    }

    /// Connections that the widest page of a user can use.
    fn width(&self, user: u32) -> u32 {
        let mut widest = 0;
        let mut page = 0;
        for request in self.workload.users[user as usize].requests.clone() {
            page += 1;
            widest = page.max(widest);
            if widest >= self.limits.per_user {
                return self.limits.per_user;
            }
            if self.workload.requests[request as usize].page_end {
                page = 0;
            }
        }
        widest
    }

    fn start_user(&mut self) {
        let user = self.user_at(self.next_user);
        let requests = self.workload.users[user as usize].requests.clone();
        let reserved = self.width(user);
        self.next_user += self.share.count;
        let lap = self.follow.as_ref().map_or(0, |follow| follow.lap);
        if self.next_user >= self.range.end && self.laps_left > 1 {
            self.laps_left -= 1;
            self.next_user = self.range.start + self.share.index;
            if let Some(follow) = &mut self.follow {
                follow.lap += 1;
            }
        }
        if requests.is_empty() {
            return;
        }
        let id = self.free_users.pop().unwrap_or_else(|| {
            let id = self.users.len() as ActiveId;
            let limits = &self.session_limits;
            // Among the clients of all parts of the load.
            let (share, clients) = (self.share, self.limits.total);
            let number = id * share.count + share.index;
            let staggered = limits.staggered.then(|| SessionUse::staggered(limits, number, clients * share.count));
            self.users.push(Active { session: staggered.unwrap_or_default(), ..Active::default() });
            id
        });
        let active = &mut self.users[id as usize];
        active.active = true;
        active.next = requests.start;
        active.page_end = requests.start;
        active.end = requests.end;
        active.may_widen = false;
        active.reserved = reserved;
        active.lap = lap;
        active.intended_ns = None;
        self.reserved += reserved;
        self.active += 1;
        self.begin_page(id);
        self.advance(id);
    }
}
