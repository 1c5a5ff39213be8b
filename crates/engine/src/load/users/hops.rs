//! Requests that a redirect sent on: the user makes them again with another target, on whichever of its connections is
//! free.

use super::super::redirect::Hop;
use super::{ActiveId, ConnectionId, Users};

impl Users<'_> {
    /// The response to a request of the connection is complete and a redirect, which is followed. `persists`: the
    /// connection can carry another request. Answers `false` where the run ends and nothing is begun any more: then the
    /// request was served.
    pub fn redirected(&mut self, id: ConnectionId, request: u32, persists: bool, hop: Hop) -> bool {
        if self.draining {
            self.finished(id, request, persists);
            return false;
        }
        let (user, given) = self.response_done(id, request, persists);
        self.forget_hop(user, request);
        let active = &mut self.users[user as usize];
        active.hops.push((request, hop));
        active.again.push(given);
        self.advance(user);
        self.follow();
        true
    }

    /// Where a request that is under way on the connection, or was just handed to it, goes instead of where the
    /// workload says.
    pub fn hop(&self, id: ConnectionId, request: u32) -> Option<&Hop> {
        let user = self.connections[id as usize].user;
        self.users[user as usize].hops.iter().find(|(hop_request, _)| *hop_request == request).map(|(_, hop)| hop)
    }

    /// Redirects that were to be followed when the run ended, and were not.
    pub fn hops_dropped(&self) -> u64 {
        self.hops_dropped
    }

    /// The request has come to its end, whichever.
    pub(super) fn forget_hop(&mut self, id: ActiveId, request: u32) {
        self.users[id as usize].hops.retain(|(hop_request, _)| *hop_request != request);
    }

    pub(super) fn drop_hops(&mut self, id: ActiveId) {
        let hops = &mut self.users[id as usize].hops;
        self.hops_dropped += hops.len() as u64;
        hops.clear();
    }
}
