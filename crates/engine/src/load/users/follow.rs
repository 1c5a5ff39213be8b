//! Users of a trace: they follow its order within a window, and wait for each other.
//!
//! A user whose next request is not in the window yet waits. It keeps its connection as long as nobody in the window
//! needs it. Whoever waits for a connection gets it in the order of the trace, so that the oldest request is never left
//! behind.

use std::collections::BTreeSet;

use super::super::outcome::WindowUse;
use super::super::window::Window;
use super::{ActiveId, ConnectionId, Users};

#[derive(Debug)]
pub(super) struct Follow {
    pub window: Window,
    /// How often all users had their turn.
    pub lap: u64,
    /// Users that wait for the window, by the place of their next request.
    stalled: BTreeSet<(u64, ActiveId)>,
    /// Those of them that hold a connection without use.
    holding: BTreeSet<(u64, ActiveId)>,
    /// A connection that was taken from one of them and is not closed yet.
    taken: Option<ConnectionId>,
}

impl Users<'_> {
    /// The same with requests that keep to a window of the trace's order; see [`Window`].
    pub fn within_window(mut self, limit: Option<u32>) -> Self {
        self.follow = limit.map(|limit| Follow {
            window: Window::new(self.workload, self.range.clone(), limit),
            lap: 0,
            stalled: BTreeSet::new(),
            holding: BTreeSet::new(),
            taken: None,
        });
        self
    }

    /// How the window was used, if there is one.
    pub fn window_use(&self) -> Option<WindowUse> {
        self.follow.as_ref().map(|follow| follow.window.report())
    }

    /// The place of a user's request in the trace.
    fn place(&self, id: ActiveId, request: u32) -> Option<u64> {
        let follow = self.follow.as_ref()?;
        Some(follow.window.place(self.users[id as usize].lap, request))
    }

    /// The place of the next request that a user was not handed out yet, while there is one in its page.
    fn next_place(&self, id: ActiveId) -> Option<u64> {
        let user = &self.users[id as usize];
        if user.next < user.page_end { self.place(id, user.next) } else { None }
    }

    /// Where a user stands in the queue for a connection: in a replay by its next request, else by when it came.
    pub(super) fn turn(&mut self, id: ActiveId) -> u64 {
        let user = &self.users[id as usize];
        let request = user.again.last().map_or(user.next, |given| given.request);
        self.place(id, request).unwrap_or_else(|| {
            self.arrivals += 1;
            self.arrivals
        })
    }

    /// Whether the next request of a user may be made now.
    pub(super) fn may_present(&self, id: ActiveId) -> bool {
        let user = &self.users[id as usize];
        let in_window = |follow: &Follow| self.next_place(id).is_some_and(|place| follow.window.admits(place));
        !user.again.is_empty() || self.follow.as_ref().is_none_or(in_window)
    }

    /// Requests of a user's page that may be made now.
    pub(super) fn presentable(&self, id: ActiveId) -> u32 {
        let user = &self.users[id as usize];
        let Some(follow) = &self.follow else {
            return user.open_requests();
        };
        let admitted = |request: &u32| follow.window.admits(follow.window.place(user.lap, *request));
        // No user can use more connections than it may have, so that there is no need to count further.
        let most = self.limits.per_user as usize;
        user.again.len() as u32 + (user.next..user.page_end).take(most).take_while(admitted).count() as u32
    }

    pub(super) fn next_user_may_begin(&self) -> bool {
        let Some(place) = self.next_user_place() else { return true };
        self.follow.as_ref().is_none_or(|follow| follow.window.admits(place))
    }

    /// The place of the next user's first request, in a replay.
    pub(super) fn next_user_place(&self) -> Option<u64> {
        let follow = self.follow.as_ref()?;
        let requests = &self.workload.users.get(self.next_user as usize)?.requests;
        (!requests.is_empty()).then(|| follow.window.place(follow.lap, requests.start))
    }

    /// A request of a user is on its way.
    pub(super) fn note_presented(&mut self, id: ActiveId, request: u32) {
        let lap = self.users[id as usize].lap;
        if let Some(follow) = &mut self.follow {
            follow.window.presented(follow.window.place(lap, request));
        }
    }

    /// A request of a user is served, or has failed.
    pub(super) fn note_served(&mut self, id: ActiveId, request: u32) {
        self.forget_hop(id, request);
        let lap = self.users[id as usize].lap;
        if let Some(follow) = &mut self.follow {
            follow.window.served(follow.window.place(lap, request));
        }
    }

    /// Keeps the lists of those who wait for the window up to date about one user.
    pub(super) fn note_waiting(&mut self, id: ActiveId) {
        let place = self.next_place(id);
        let user = &mut self.users[id as usize];
        let Some(follow) = &mut self.follow else { return };
        let waits = user.active && !self.draining && user.again.is_empty();
        let place = place.filter(|place| waits && !follow.window.admits(*place));
        if let Some(before) = std::mem::replace(&mut user.stalled_at, place).filter(|before| Some(*before) != place) {
            follow.stalled.remove(&(before, id));
            follow.holding.remove(&(before, id));
        }
        let Some(place) = place else { return };
        follow.stalled.insert((place, id));
        let idle = |connection: &ConnectionId| self.connections[*connection as usize].is_idle();
        if user.connections.iter().any(idle) {
            follow.holding.insert((place, id));
        } else {
            follow.holding.remove(&(place, id));
        }
    }

    /// After anything happened: who is in the window now goes on, and connections go where they are of use.
    pub(super) fn follow(&mut self) {
        while let Some(id) = self.next_admitted() {
            self.advance(id);
        }
        if self.follow.is_none() || self.draining {
            return;
        }
        self.fill();
        let blocked = self.users_left() && !self.next_user_may_begin();
        let spare = self.may_open();
        let Some(follow) = &mut self.follow else { return };
        let unused = spare || !follow.holding.is_empty();
        follow.window.note_stall(unused && (blocked || !follow.stalled.is_empty()));
    }

    /// A user that waited for the window and is in it now.
    fn next_admitted(&mut self) -> Option<ActiveId> {
        let follow = self.follow.as_mut()?;
        let (place, id) = *follow.stalled.first()?;
        if !follow.window.admits(place) {
            return None;
        }
        follow.stalled.remove(&(place, id));
        follow.holding.remove(&(place, id));
        self.users[id as usize].stalled_at = None;
        Some(id)
    }

    /// All connections are in use, and somebody in the window needs one: closes one that is held by a user outside, the
    /// one with the longest to wait.
    pub(super) fn take_unused_connection(&mut self) {
        let Some(follow) = &mut self.follow else { return };
        if self.draining || follow.taken.is_some() {
            return;
        }
        let Some((_, id)) = follow.holding.pop_last() else { return };
        let idle = |connection: &&ConnectionId| self.connections[**connection as usize].is_idle();
        let held = self.users[id as usize].connections.iter().find(idle).copied();
        if let Some(connection) = held {
            follow.taken = Some(connection);
            self.close(connection);
        }
    }

    pub(super) fn note_closed(&mut self, id: ConnectionId) {
        if let Some(follow) = &mut self.follow {
            follow.taken.take_if(|taken| *taken == id);
        }
    }
}
