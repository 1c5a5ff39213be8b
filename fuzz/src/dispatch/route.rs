//! Decisions and what is learned, without sockets: arbitrary bytes of clients and servers, in arbitrary pieces, over
//! time.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::Relaxed;

use tlsdyno_engine::dispatch::learn::{Lesson, Outcome, Student};
use tlsdyno_engine::dispatch::limits::BACKENDS_MAX;
use tlsdyno_engine::dispatch::memory::{Memory, Object};
use tlsdyno_engine::dispatch::route::{Choices, Reason, Router};
use tlsdyno_engine::dispatch::{Backend, Policy, SlotBackend};
use tlsdyno_wire::http::{TargetReader, target_path};
use tlsdyno_wire::session_keys::ClientReader;

/// Kinds of steps; others change the time.
pub const CLIENT: u8 = 0;
pub const SERVER: u8 = 1;
pub const NEXT_CONNECTION: u8 = 2;
pub const BACKENDS_UP: u8 = 3;
/// Open connections of each backend: one byte for each.
pub const LOADS: u8 = 4;

/// Bit of the byte of choices: clients speak plain HTTP, and connections go by their object.
pub const BY_OBJECT: u8 = 0x80;

const HELLO_MAX: usize = 16 * 1024;
const TIMEOUT_S: u32 = 300;
const TABLE_ENTRIES: usize = 64;

/// Runs the script once with all bytes of a step at once and once in pieces: what comes of it must not depend on that.
pub fn dispatch_route(script: &[u8]) {
    let Some((&choice, rest)) = script.split_first() else { return };
    let whole = Site::run(choice, rest, usize::MAX);
    let pieces = Site::run(choice, rest, 1 + usize::from(choice >> 3 & 15));
    assert_eq!(whole, pieces, "however the bytes are cut");
}

/// What one connection came to, for comparison.
#[derive(Debug, Default, PartialEq, Eq)]
struct Story {
    slot: Option<u8>,
    reason: Option<Reason>,
    outcomes: Vec<Outcome>,
    done: bool,
}

/// A connection of which the hello or the request is being read, or whose backend is chosen.
enum Follows {
    Hello(ClientReader),
    Request(TargetReader, Vec<u8>),
    Handshake(Box<Student>, u8),
    Nothing,
}

struct Site {
    memory: Memory,
    router: Router,
    targets: Vec<SlotBackend>,
    usable: u64,
    active: [u32; BACKENDS_MAX],
    now_s: u32,
    piece: usize,
}

impl Site {
    fn run(choice: u8, script: &[u8], piece: usize) -> Vec<Story> {
        let policy = match choice & 1 {
            _ if choice & BY_OBJECT != 0 => Policy::Lard,
            0 => Policy::Session,
            _ => Policy::SessionAddress,
        };
        let backends = 1 + (choice >> 1 & 3);
        let backend =
            |slot: u8| Backend { name: slot.to_string(), address: ([127, 0, 0, 1], 1000 + u16::from(slot)).into() };
        let mut site = Site {
            memory: Memory::new(TABLE_ENTRIES),
            router: Router::new(policy, 0),
            targets: (0..backends).map(|slot| SlotBackend { slot, backend: backend(slot) }).collect(),
            usable: (1 << backends) - 1,
            active: [0; BACKENDS_MAX],
            now_s: 1,
            piece,
        };
        if policy == Policy::Lard {
            site.memory.keep_objects();
        }
        let fresh = || match policy {
            Policy::Lard => Follows::Request(TargetReader::new(HELLO_MAX), Vec::new()),
            _ => Follows::Hello(ClientReader::new(HELLO_MAX)),
        };
        let (mut stories, mut story, mut follows) = (Vec::new(), Story::default(), fresh());
        for step in super::steps(script) {
            match step.kind {
                CLIENT => site.client(step.bytes, &mut follows, &mut story),
                SERVER => site.server(step.bytes, &mut follows, &mut story),
                NEXT_CONNECTION => {
                    stories.push(std::mem::take(&mut story));
                    follows = fresh();
                }
                BACKENDS_UP => {
                    site.usable = (u64::from(step.bytes.first().copied().unwrap_or(255)) & site.all()).max(1)
                }
                LOADS => {
                    site.active.iter_mut().zip(step.bytes).for_each(|(active, byte)| *active = u32::from(*byte));
                }
                seconds => site.now_s += u32::from(seconds),
            }
        }
        stories.push(story);
        stories
    }

    fn all(&self) -> u64 {
        (1 << self.targets.len()) - 1
    }

    fn client(&mut self, bytes: &[u8], follows: &mut Follows, story: &mut Story) {
        for piece in bytes.chunks(self.piece.min(bytes.len().max(1))) {
            match follows {
                Follows::Hello(reader) => match reader.read(piece) {
                    Ok(None) => {}
                    // What is behind the hello is forwarded without being looked at, so that it must not matter in
                    // which piece it comes.
                    Ok(Some(keys)) => {
                        *follows = self.route(Student::new(self.memory.offer(&keys)), story);
                        return;
                    }
                    Err(_) => {
                        *follows = Follows::Nothing;
                        return;
                    }
                },
                Follows::Request(reader, said) => {
                    said.extend_from_slice(piece);
                    match reader.read(said) {
                        Ok(None) => {}
                        Ok(Some(target)) => {
                            let object = target_path(target).map(|path| self.memory.object(path));
                            *follows = Follows::Nothing;
                            return self.route_by_object(object, story);
                        }
                        Err(_) => {
                            *follows = Follows::Nothing;
                            return self.route_by_object(None, story);
                        }
                    }
                }
                Follows::Handshake(student, _) => student.read_client(piece, &self.memory),
                Follows::Nothing => return,
            }
        }
    }

    fn route(&mut self, mut student: Student, story: &mut Story) -> Follows {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let choices = Choices { targets: &self.targets, usable: self.usable, active: &[0; BACKENDS_MAX] };
        let route = self.router.by_session(&choices, address, student.offer(), &self.memory, self.now_s);
        let route = route.expect("a backend is up");
        assert!(self.usable >> route.slot & 1 == 1, "it goes to one that is up");
        self.router.sent_to(route.slot);
        student.set_route(&route);
        self.memory.note_address(address, route.slot, self.now_s, TIMEOUT_S);
        self.assert_bounded();
        (story.slot, story.reason) = (Some(route.slot), Some(route.reason));
        Follows::Handshake(Box::new(student), route.slot)
    }

    fn route_by_object(&mut self, object: Option<Object>, story: &mut Story) {
        let choices = Choices { targets: &self.targets, usable: self.usable, active: &self.active };
        let Some(object) = object else {
            story.slot = self.router.blind(&choices, IpAddr::V4(Ipv4Addr::LOCALHOST));
            return assert!(story.slot.is_some_and(|slot| self.usable >> slot & 1 == 1), "it goes to one that is up");
        };
        let before = self.memory.slot_of_object(object, self.now_s);
        let route = self.router.by_object(&choices, object, &self.memory, self.now_s, TIMEOUT_S);
        let route = route.expect("a backend is up");
        assert!(self.usable >> route.slot & 1 == 1, "it goes to one that is up");
        assert_eq!(route.reason == Reason::Object, before == 1 << route.slot);
        assert_eq!(route.reason == Reason::NewObject, before == 0);
        assert_eq!(self.memory.slot_of_object(object, self.now_s), 1 << route.slot, "it is known where it went");
        (story.slot, story.reason) = (Some(route.slot), Some(route.reason));
    }

    fn server(&self, bytes: &[u8], follows: &mut Follows, story: &mut Story) {
        let Follows::Handshake(student, slot) = follows else { return };
        let lesson =
            Lesson { memory: &self.memory, slot: *slot, all: self.all(), now_s: self.now_s, timeout_s: TIMEOUT_S };
        for piece in bytes.chunks(self.piece.min(bytes.len().max(1))) {
            let was_done = student.is_done();
            let outcome = student.read_server(piece, HELLO_MAX, &lesson);
            assert!(outcome.is_none() || !was_done, "nothing is learned once all is known");
            story.outcomes.extend(outcome);
        }
        story.done = student.is_done();
        assert!(story.outcomes.len() <= 1, "a handshake has one outcome: {:?}", story.outcomes);
    }

    /// Looks at a whole table: when something was noted there, not at each step.
    fn assert_bounded(&self) {
        let Memory { ids, addresses, .. } = &self.memory;
        assert!(ids.capacity() == TABLE_ENTRIES && addresses.live(self.now_s) <= 1);
        assert_eq!(addresses.evicted.load(Relaxed), 0, "one address, one entry");
    }
}
