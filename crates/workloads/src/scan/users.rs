//! The users seen recently: as many as were active within the longest session lifetime, however long the log is.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;

use super::super::log_summary::{Busy, busiest};
use super::connections::Handshakes;
use super::sessions::Sessions;

/// So many users are kept before any is forgotten.
const MIN_KEPT: usize = 1024;
/// Users with more than this part of all requests are kept for the list of the busiest; there can be no more of them
/// than this.
const BUSY_PART: u64 = 1_000;

#[derive(Debug)]
pub struct User {
    pub hits: u64,
    pub last_s: u32,
    pub sessions: Sessions,
    pub handshakes: Handshakes,
}

/// Whether a user was in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserLookup {
    Known,
    /// It was not: new, or gone for longer than any session lasts.
    New,
}

#[derive(Debug)]
pub struct Users {
    users: HashMap<Vec<u8>, User, RandomState>,
    /// A user that made no request for so long is forgotten, seconds.
    retention_s: u32,
    /// With so many users, those who are gone are looked for.
    full: usize,
    pub most: usize,
}

impl Users {
    pub fn new(retention_s: u32) -> Users {
        Users { users: HashMap::default(), retention_s, full: MIN_KEPT, most: 0 }
    }

    /// The user of this name, and whether it was known.
    #[inline]
    pub fn find(&mut self, name: &[u8], at_s: u32) -> (&mut User, UserLookup) {
        let users = self.users.len();
        match self.users.entry_ref(name) {
            EntryRef::Occupied(known) => (known.into_mut(), UserLookup::Known),
            EntryRef::Vacant(place) => {
                self.most = self.most.max(users + 1);
                let user = User { hits: 0, last_s: at_s, sessions: Sessions::NONE, handshakes: Handshakes::default() };
                (place.insert(user), UserLookup::New)
            }
        }
    }

    /// Forgets users whose every session is over, once they may be the half of all. `hits` is the number of requests so
    /// far: those who made a large part of them stay.
    pub fn forget_the_gone(&mut self, now_s: u32, hits: u64) {
        if self.users.len() < self.full {
            return;
        }
        let retention_s = self.retention_s;
        self.users.retain(|_, user| {
            now_s.saturating_sub(user.last_s) <= retention_s || user.hits.saturating_mul(BUSY_PART) > hits
        });
        self.full = (self.users.len() * 2).max(MIN_KEPT);
    }

    /// The users with the most requests, by name where equally busy.
    pub fn busiest(&self) -> Vec<Busy> {
        busiest(self.users.iter().map(|(name, user)| (user.hits, name.as_slice())))
    }
}
