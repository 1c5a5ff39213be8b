//! The table of connections of one loop. Each place has a number that tells those apart that had it one after the
//! other: an event may be for a connection that was closed in the same turn.

use super::connection::{Connection, Side};

/// Names a connection for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    place: u32,
    number: u32,
}

impl Id {
    /// As the reactor carries it. Tokens above [`Id::TOKENS`] are free for others.
    pub(super) fn token(self, side: Side) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.place) << 1 | u64::from(side == Side::Backend)
    }

    pub(super) fn from_token(token: u64) -> (Id, Side) {
        let side = if token & 1 == 1 { Side::Backend } else { Side::Client };
        (Id { place: (token as u32) >> 1, number: (token >> 32) as u32 }, side)
    }

    /// All tokens of connections are below.
    pub(super) const TOKENS: u64 = 1 << 63;
}

#[derive(Debug, Default)]
struct Entry {
    number: u32,
    connection: Option<Connection>,
}

#[derive(Debug, Default)]
pub(super) struct Places {
    places: Vec<Entry>,
    free: Vec<u32>,
}

impl Places {
    pub(super) fn open(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, connection: Connection) -> Id {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Entry::default());
            (self.places.len() - 1) as u32
        });
        let entry = &mut self.places[place as usize];
        entry.connection = Some(connection);
        Id { place, number: entry.number }
    }

    pub(super) fn get(&mut self, id: Id) -> Option<&mut Connection> {
        let place = self.places.get_mut(id.place as usize)?;
        if place.number == id.number { place.connection.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Connection> {
        let place = self.places.get_mut(id.place as usize).filter(|place| place.number == id.number)?;
        let connection = place.connection.take()?;
        place.number = (place.number + 1) & (u32::MAX >> 1);
        self.free.push(id.place);
        Some(connection)
    }

    /// The name of whoever has the `place`th place, for looking at all in turn.
    pub(super) fn at(&self, place: usize) -> Option<Id> {
        let entry = &self.places[place];
        entry.connection.as_ref().map(|_| Id { place: place as u32, number: entry.number })
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }
}
