//! Which backend a connection goes to: decisions only, no sockets and no clock.

use std::net::IpAddr;

use super::limits::{BACKENDS_MAX, UNLEARNABLE_SAMPLE};
use super::memory::{Memory, Name, Offer, is_hopeless};
use super::settings::Policy;
use super::shared::SlotBackend;

/// What a choice is made among.
#[derive(Clone, Copy, Debug)]
pub struct Choices<'a> {
    /// The backends in the order of the settings.
    pub targets: &'a [SlotBackend],
    /// Slots that may get the connection, as a mask.
    pub usable: u64,
    /// Number of open connections of each slot.
    pub active: &'a [u32; BACKENDS_MAX],
}

impl Choices<'_> {
    /// The slots that may get the connection, in the order of the settings from the `start`th on.
    fn from(&self, start: usize) -> impl Iterator<Item = u8> + '_ {
        let (before, after) = self.targets.split_at(start % self.targets.len().max(1));
        after.iter().chain(before).map(|target| target.slot).filter(|&slot| self.usable >> slot & 1 == 1)
    }
}

/// Why a connection was sent where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It offers no session.
    Fresh,
    /// That backend is known to hold the session.
    Known,
    /// Nobody is known to hold it: one was tried that has not refused it.
    Tried,
    /// Who holds it cannot be learned, or is not known.
    Unknown,
    /// As `Tried` or `Unknown`, and that backend is the one that this address used last.
    Address,
    /// It asks for an object that was sent to that backend before.
    Object,
    /// It asks for an object that no backend is known for.
    NewObject,
    /// The object was sent to another backend before, which is overloaded or cannot be used.
    MovedObject,
}

/// Slots that may get a connection for which those of `tried` failed, as masks. Those that are down are still better
/// than none.
pub fn wanted(up: u64, all: u64, tried: u64) -> u64 {
    (if up & !tried == 0 { all } else { up }) & !tried
}

/// The backend chosen for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Slot of the backend.
    pub slot: u8,
    /// Why this backend was chosen.
    pub reason: Reason,
    /// What becomes of the session is worth learning.
    pub learn: bool,
}

/// Chooses backends for the connections of one loop.
#[derive(Debug)]
pub struct Router {
    policy: Policy,
    /// Sessions of nameless tickets, of which a few are still looked at.
    nameless: u32,
    /// Where round robin goes on, as an index into the targets.
    next: usize,
    /// Connections sent to each slot lately: halved now and then.
    recent: [u32; BACKENDS_MAX],
}

/// When one slot got so many connections, all counts are halved.
const RECENT_MAX: u32 = 1024;

impl Router {
    /// `start`: where round robin begins, different in each loop.
    pub fn new(policy: Policy, start: usize) -> Router {
        Router { policy, nameless: 0, next: start, recent: [0; BACKENDS_MAX] }
    }

    /// Chooses by another policy from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// A backend for a connection without a known session. `None`: no slot is usable.
    pub fn blind(&mut self, choices: &Choices, address: IpAddr) -> Option<u8> {
        match self.policy {
            Policy::RoundRobin => self.round_robin(choices),
            Policy::LeastConnections | Policy::Lard => self.least(choices, |slot| (choices.active[slot], 0)),
            Policy::SourceAddress => choices.from(0).max_by_key(|&slot| affinity(address, choices.targets, slot)),
            Policy::Session | Policy::SessionAddress => self.by_load(choices),
        }
    }

    /// A backend for a connection whose hello was read. `None`: no slot is usable.
    pub fn by_session(
        &mut self,
        choices: &Choices,
        address: IpAddr,
        offer: &Offer,
        memory: &Memory,
        now_s: u32,
    ) -> Option<Route> {
        let mut unknown: Option<Name> = None;
        for name in offer.names() {
            match memory.known_name(name, now_s) {
                Some(known) if known.accepted & choices.usable != 0 => {
                    memory.note_meeting(name, true);
                    return self.among(choices, known.accepted, Reason::Known, true);
                }
                _ => unknown = unknown.or(Some(name)),
            }
        }
        if let Some(id) = offer.id() {
            let holders = memory.holders_of_id(id, now_s);
            if holders & choices.usable != 0 {
                return self.among(choices, holders, Reason::Known, true);
            }
        }
        if let Some(name) = unknown {
            return self.try_one(choices, address, name, memory, now_s);
        }
        match offer.offers_session() {
            true => self.hinted(choices, address, memory, now_s, Reason::Unknown, true),
            false => self.among(choices, u64::MAX, Reason::Fresh, true),
        }
    }

    /// For a key that nobody is known to hold: one that has not rejected it. The last one left must hold it, if anybody
    /// does.
    fn try_one(
        &mut self,
        choices: &Choices,
        address: IpAddr,
        name: Name,
        memory: &Memory,
        now_s: u32,
    ) -> Option<Route> {
        let known = memory.known_name(name, now_s);
        let nameless = memory.note_meeting(name, known.is_some());
        if nameless && known.is_none() {
            self.nameless = self.nameless.wrapping_add(1);
            let learn = self.nameless.is_multiple_of(UNLEARNABLE_SAMPLE);
            return self.hinted(choices, address, memory, now_s, Reason::Unknown, learn);
        }
        let known = known.unwrap_or_default();
        let left = choices.usable & !known.rejected;
        if is_hopeless(&known) || left == 0 {
            return self.hinted(choices, address, memory, now_s, Reason::Unknown, true);
        }
        self.hinted(&Choices { usable: left, ..*choices }, address, memory, now_s, Reason::Tried, true)
    }

    /// The backend that the address used last, if the policy allows that hint and it is among the choices; else by
    /// load.
    fn hinted(
        &mut self,
        choices: &Choices,
        address: IpAddr,
        memory: &Memory,
        now_s: u32,
        reason: Reason,
        learn: bool,
    ) -> Option<Route> {
        if self.policy == Policy::SessionAddress {
            let last = memory.last_of_address(address, now_s);
            if last & choices.usable != 0 {
                return self.among(choices, last, Reason::Address, learn);
            }
        }
        self.among(choices, u64::MAX, reason, learn)
    }

    fn among(&mut self, choices: &Choices, slots: u64, reason: Reason, learn: bool) -> Option<Route> {
        let slot = self.by_load(&Choices { usable: choices.usable & slots, ..*choices })?;
        Some(Route { slot, reason, learn })
    }

    /// Notes where a connection was sent.
    pub fn sent_to(&mut self, slot: u8) {
        let recent = &mut self.recent[usize::from(slot)];
        *recent += 1;
        if *recent > RECENT_MAX {
            self.recent.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// A backend has come (back): it gets its share from now on, not what it missed.
    pub fn joined(&mut self, slot: u8, targets: &[SlotBackend]) {
        let others = targets.iter().filter(|target| target.slot != slot);
        self.recent[usize::from(slot)] = others.map(|target| self.recent[usize::from(target.slot)]).max().unwrap_or(0);
    }

    fn round_robin(&mut self, choices: &Choices) -> Option<u8> {
        let slot = choices.from(self.next).next()?;
        let index = choices.targets.iter().position(|target| target.slot == slot)?;
        self.next = index + 1;
        Some(slot)
    }

    /// The one that got the fewest connections lately, so that what sessions upset is evened out; those that hold more
    /// than twice as many open connections as the average are passed over, because they are slow.
    fn by_load(&mut self, choices: &Choices) -> Option<u8> {
        let (sum, count) =
            choices.from(0).fold((0, 0), |(sum, count), slot| (sum + choices.active[usize::from(slot)], count + 1));
        let most = 2 * sum / u32::max(count, 1) + 8;
        let recent = self.recent;
        self.least(choices, |slot| (u32::from(choices.active[slot] > most), recent[slot]))
    }

    /// The slot with the least cost; where several have it, round robin.
    pub(super) fn least(&mut self, choices: &Choices, cost: impl Fn(usize) -> (u32, u32)) -> Option<u8> {
        let least = choices.from(0).map(|slot| cost(usize::from(slot))).min()?;
        let mut usable = 0;
        choices.from(0).filter(|&slot| cost(usize::from(slot)) == least).for_each(|slot| usable |= 1 << slot);
        self.round_robin(&Choices { usable, ..*choices })
    }
}

/// Rendezvous hashing: the usable backend for which this is highest. When one goes or comes, only its own clients move;
/// and every loop and every dispatcher decides alike.
fn affinity(address: IpAddr, targets: &[SlotBackend], slot: u8) -> u64 {
    let backend = targets.iter().find(|target| target.slot == slot).map(|target| target.backend.address);
    let mut hash = 0xcbf2_9ce4_8422_2325; // FNV-1a
    let mut take =
        |bytes: &[u8]| bytes.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    take(&octets(address));
    if let Some(backend) = backend {
        take(&octets(backend.ip()));
        take(&backend.port().to_be_bytes());
    }
    // FNV alone leaves the high bits of similar inputs alike.
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::settings::Backend;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn targets(count: u16) -> Vec<SlotBackend> {
        let backend = |port: u16| Backend { name: port.to_string(), address: ([127, 0, 0, 1], port).into() };
        (0..count).map(|number| SlotBackend { slot: number as u8, backend: backend(8000 + number) }).collect()
    }

    #[test]
    fn round_robin_passes_over_those_that_are_down() {
        let (targets, active) = (targets(3), [0; BACKENDS_MAX]);
        let mut router = Router::new(Policy::RoundRobin, 0);
        let choices = Choices { targets: &targets, usable: 0b111, active: &active };
        assert_eq!([0; 4].map(|_| router.blind(&choices, HOME)), [Some(0), Some(1), Some(2), Some(0)]);
        let choices = Choices { usable: 0b101, ..choices };
        assert_eq!([0; 3].map(|_| router.blind(&choices, HOME)), [Some(2), Some(0), Some(2)]);
        assert_eq!(router.blind(&Choices { usable: 0, ..choices }, HOME), None);
    }

    #[test]
    fn least_connections_takes_turns_among_equals() {
        let targets = targets(3);
        let mut active = [0; BACKENDS_MAX];
        active[0] = 2;
        let mut router = Router::new(Policy::LeastConnections, 0);
        let choices = Choices { targets: &targets, usable: 0b111, active: &active };
        assert_eq!([0; 3].map(|_| router.blind(&choices, HOME)), [Some(1), Some(2), Some(1)]);
    }

    #[test]
    fn a_source_address_keeps_its_backend_when_another_goes() {
        let (targets, active) = (targets(5), [0; BACKENDS_MAX]);
        let mut router = Router::new(Policy::SourceAddress, 0);
        let all = Choices { targets: &targets, usable: 0b11111, active: &active };
        let mut sent = [0; 5];
        for number in 0..1000_u32 {
            let address = IpAddr::V4((0x0a00_0000 + number).into());
            let first = router.blind(&all, address).unwrap();
            sent[usize::from(first)] += 1;
            let without_3 = router.blind(&Choices { usable: 0b10111, ..all }, address).unwrap();
            assert!(first == 3 || without_3 == first);
        }
        assert!(sent.iter().all(|&count| (150..250).contains(&count)), "{sent:?}");
    }

    #[test]
    fn load_evens_out_what_sessions_upset() {
        let (targets, active) = (targets(3), [0; BACKENDS_MAX]);
        let mut router = Router::new(Policy::Session, 0);
        (0..10).for_each(|_| router.sent_to(1));
        let choices = Choices { targets: &targets, usable: 0b111, active: &active };
        for _ in 0..20 {
            let slot = router.blind(&choices, HOME).unwrap();
            router.sent_to(slot);
        }
        assert_eq!(router.recent[..3], [10; 3]);
        router.recent[2] = 0;
        router.joined(2, &targets);
        assert_eq!(router.recent[2], 10);
    }
}
