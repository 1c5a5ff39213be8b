//! What is known about sessions, and how it is learned from what servers let everybody see; and which backend an object
//! is sent to.
//!
//! All times are seconds of one clock that starts above 0; nothing here looks at a clock.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tlsdyno_wire::session_keys::{IDENTITIES, SessionId, SessionKeys, Ticket};

use super::limits::{FAILED_ROUNDS_MAX, NAMES, UNLEARNABLE_AFTER, UNLEARNABLE_CREDIT, UNLEARNABLE_MAX};
use super::table::{Known, Table};

/// The tables, common to all loops.
#[derive(Debug)]
pub struct Memory {
    /// Names of ticket keys, of both versions of TLS.
    pub names: Table,
    /// TLS 1.2 session IDs.
    pub ids: Table,
    /// Slots of backends by client address.
    pub addresses: Table,
    /// Paths of requests; not there before [`Memory::keep_objects`].
    objects: OnceLock<Table>,
    objects_max: usize,
    /// For tickets of similar length: how many names in a row nobody had met before.
    strangers: [AtomicU32; 64],
    /// Keyed by chance, so that nobody can choose what falls into the same set.
    hasher: RandomState,
}

/// The name of a ticket's key under which it is looked up, and the kind of ticket it came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    tag: u64,
    kind: u8,
}

/// An object of the servers, by the path of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object(u64);

/// What a client offers, as far as it can be looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    id: SessionId,
    ticket: Option<Name>,
    ticket_offered: bool,
    identities: [Option<Name>; IDENTITIES],
    identities_offered: u16,
    tls13: bool,
}

impl Offer {
    /// Names of keys in the order in which a server would try them.
    pub fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.identities.iter().copied().chain([self.ticket]).flatten()
    }

    /// The session ID, where it may be that of a session: beside a ticket it is made up.
    pub fn id(&self) -> Option<SessionId> {
        (!self.id.is_empty() && !self.ticket_offered).then_some(self.id)
    }

    /// The session ID, also where it is made up.
    pub fn session_id(&self) -> SessionId {
        self.id
    }

    /// The key of the TLS 1.2 ticket.
    pub fn ticket_name(&self) -> Option<Name> {
        self.ticket
    }

    /// The key of the TLS 1.3 identity of this index.
    pub fn identity(&self, index: u16) -> Option<Name> {
        self.identities.get(usize::from(index)).copied().flatten()
    }

    /// The keys of the TLS 1.3 identities.
    pub fn identity_names(&self) -> impl Iterator<Item = Name> + '_ {
        self.identities.iter().copied().flatten()
    }

    /// Identities in the hello, also those whose key has no name.
    pub fn identities_offered(&self) -> u16 {
        self.identities_offered
    }

    /// A server that chose TLS 1.2 was offered a session, as far as can be told.
    pub fn offers_tls12_session(&self) -> bool {
        self.ticket_offered || (!self.id.is_empty() && !self.tls13)
    }

    /// A session is offered for sure: an ID beside TLS 1.3 may be there for compatibility only.
    pub fn offers_session(&self) -> bool {
        self.identities_offered > 0 || self.offers_tls12_session()
    }
}

impl Memory {
    /// Tables for so many session IDs, as many addresses, and as many objects where these are kept.
    pub fn new(entries: usize) -> Memory {
        Memory {
            names: Table::new(NAMES),
            ids: Table::new(entries),
            addresses: Table::new(entries),
            objects: OnceLock::new(),
            objects_max: entries,
            strangers: std::array::from_fn(|_| AtomicU32::new(0)),
            hasher: RandomState::new(),
        }
    }

    /// What can be looked up of a hello.
    pub fn offer(&self, keys: &SessionKeys) -> Offer {
        let mut identities = [None; IDENTITIES];
        identities.iter_mut().zip(keys.identities()).for_each(|(name, identity)| *name = self.name(identity));
        Offer {
            id: keys.session_id,
            ticket: keys.ticket.as_ref().and_then(|ticket| self.name(ticket)),
            ticket_offered: keys.ticket.is_some(),
            identities,
            identities_offered: keys.identities_offered,
            tls13: keys.tls13,
        }
    }

    /// A ticket's key; `None` where it has no visible name.
    pub fn name(&self, ticket: &Ticket) -> Option<Name> {
        let name = ticket.key_name()?;
        // Tickets of one server have nearly the same length.
        Some(Name { tag: self.hasher.hash_one(name), kind: (ticket.length / 16 % 64) as u8 })
    }

    /// What is known about a key.
    pub fn known_name(&self, name: Name, now_s: u32) -> Option<Known> {
        self.names.get(name.tag, now_s)
    }

    /// Slots that hold the session of this ID, as a mask.
    pub fn holders_of_id(&self, id: SessionId, now_s: u32) -> u64 {
        self.ids.get(self.hasher.hash_one(id.bytes()), now_s).map_or(0, |known| known.accepted)
    }

    /// The slot that this address used last, as a mask.
    pub fn last_of_address(&self, address: IpAddr, now_s: u32) -> u64 {
        self.addresses.get(self.hasher.hash_one(address), now_s).map_or(0, |known| known.accepted)
    }

    /// Notes which slot an address uses.
    pub fn note_address(&self, address: IpAddr, slot: u8, now_s: u32, timeout_s: u32) {
        let known = Known { accepted: 1 << slot, expires_s: now_s.saturating_add(timeout_s), ..Known::default() };
        self.addresses.update(self.hasher.hash_one(address), now_s, |_| known);
    }

    /// The backend in this slot has shown that it holds the key.
    pub fn name_accepted(&self, name: Name, slot: u8, now_s: u32, timeout_s: u32) {
        self.names.update(name.tag, now_s, |known| {
            let known = known.unwrap_or_default();
            Known {
                accepted: known.accepted | 1 << slot,
                rejected: known.rejected & !(1 << slot),
                expires_s: now_s.saturating_add(timeout_s),
                confirmed: known.accepted != 0,
                rounds: 0,
            }
        });
    }

    /// The backend in this slot did not take a ticket of this key. Where another was seen to take one, that means
    /// nothing: a ticket may also have been too old or forged. `all`: the slots there are.
    pub fn name_rejected(&self, name: Name, slot: u8, all: u64, now_s: u32, timeout_s: u32) {
        self.names.update(name.tag, now_s, |known| {
            let mut known = known.unwrap_or_default();
            if known.accepted & all != 0 {
                return known;
            }
            known.accepted = 0;
            known.rejected |= 1 << slot;
            known.expires_s = now_s.saturating_add(timeout_s);
            if known.rejected & all == all {
                // Perhaps one of them rejected an old ticket: once more from the start.
                known.rejected = 0;
                known.rounds = known.rounds.saturating_add(1);
            }
            known
        });
    }

    /// A session ID was given out, or taken, by the backend in this slot.
    pub fn id_issued(&self, id: SessionId, slot: u8, now_s: u32, timeout_s: u32) {
        let known = Known { accepted: 1 << slot, expires_s: now_s.saturating_add(timeout_s), ..Known::default() };
        self.ids.update(self.hasher.hash_one(id.bytes()), now_s, |_| known);
    }

    /// Makes the table of objects, which only [`super::Policy::Lard`] needs, if it is not there yet. For whoever
    /// changes the settings: it allocates, and loops must not.
    pub fn keep_objects(&self) {
        self.objects.get_or_init(|| Table::new(self.objects_max));
    }

    /// The table of objects; `None` if they were never kept.
    pub fn objects(&self) -> Option<&Table> {
        self.objects.get()
    }

    /// The object that requests with this path ask for.
    pub fn object(&self, path: &[u8]) -> Object {
        Object(self.hasher.hash_one(path))
    }

    /// The slot that this object was sent to last, as a mask.
    pub fn slot_of_object(&self, object: Object, now_s: u32) -> u64 {
        self.objects().and_then(|objects| objects.get(object.0, now_s)).map_or(0, |known| known.accepted)
    }

    /// Notes which slot an object is sent to. As it is noted at each request, what a full set gives up first is what
    /// nobody has asked for the longest.
    pub fn note_object(&self, object: Object, slot: u8, now_s: u32, timeout_s: u32) {
        let known = Known { accepted: 1 << slot, expires_s: now_s.saturating_add(timeout_s), ..Known::default() };
        if let Some(objects) = self.objects().filter(|objects| objects.get(object.0, now_s) != Some(known)) {
            objects.update(object.0, now_s, |_| known);
        }
    }

    /// Notes whether a key was met before. Whether tickets of this kind seem to begin with no name at all, as those of
    /// Go.
    pub fn note_meeting(&self, name: Name, met_before: bool) -> bool {
        let strangers = &self.strangers[usize::from(name.kind)];
        let count = strangers.load(Relaxed);
        let count = match met_before {
            true if count == 0 => return false,
            true => count.saturating_sub(UNLEARNABLE_CREDIT),
            false => (count + 1).min(UNLEARNABLE_MAX),
        };
        strangers.store(count, Relaxed);
        count >= UNLEARNABLE_AFTER
    }

    /// Kinds of tickets that seem to begin with no name.
    pub fn unlearnable_kinds(&self) -> usize {
        self.strangers.iter().filter(|strangers| strangers.load(Relaxed) >= UNLEARNABLE_AFTER).count()
    }

    /// Other backends have got these slots.
    pub fn forget_slots(&self, slots: u64) {
        let tables = [&self.names, &self.ids, &self.addresses].into_iter().chain(self.objects());
        tables.for_each(|table| table.forget_slots(slots));
    }
}

/// Every backend has rejected this key, and again: no more is to be learned.
pub fn is_hopeless(known: &Known) -> bool {
    known.accepted == 0 && known.rounds >= FAILED_ROUNDS_MAX
}
