//! What the dispatcher learns, in virtual time and without sockets: simulated servers answer, and the decisions are
//! looked at.

use std::net::{IpAddr, Ipv4Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use tlsdyno_engine::dispatch::learn::{Lesson, Outcome, Student};
use tlsdyno_engine::dispatch::limits::BACKENDS_MAX;
use tlsdyno_engine::dispatch::memory::Memory;
use tlsdyno_engine::dispatch::route::{Choices, Reason, Router};
use tlsdyno_engine::dispatch::{Backend, Policy, SlotBackend};
use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::handshake::{self, NewSessionTicket12};
use tlsdyno_wire::hello::{self, ClientHello, Extensions, RETRY_RANDOM, ServerHello, put_extension};
use tlsdyno_wire::record;
use tlsdyno_wire::session_keys::{ClientReader, SessionKeys};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TIMEOUT_S: u32 = 300;

/// A key of a server; its tickets begin with its name.
type Key = u8;

fn ticket(key: Key) -> Vec<u8> {
    [vec![key; 16], vec![0xee; 176]].concat()
}

#[derive(Default)]
struct Offered<'a> {
    id: &'a [u8],
    ticket: &'a [u8],
    identities: &'a [Vec<u8>],
}

fn client_hello(offered: &Offered) -> Vec<u8> {
    let mut extensions = Vec::new();
    let out = &mut extensions;
    if !offered.identities.is_empty() {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_vector8(out, |out| put_u16(out, hello::TLS13)));
    }
    put_extension(out, hello::SESSION_TICKET, |out| out.extend_from_slice(offered.ticket));
    if !offered.identities.is_empty() {
        put_extension(out, hello::PRE_SHARED_KEY, |out| {
            put_vector16(out, |out| {
                for identity in offered.identities {
                    put_vector16(out, |out| out.extend_from_slice(identity));
                    out.extend_from_slice(&[0; 4]);
                }
            });
            put_vector16(out, |out| offered.identities.iter().for_each(|_| put_vector8(out, |out| out.push(1))));
        });
    }
    let extensions = Extensions::decode("test", &extensions).unwrap();
    let (suites, compression) = (&[0x13, 1][..], &[0][..]);
    let hello = ClientHello {
        version: hello::TLS12,
        random: &[2; 32],
        session_id: offered.id,
        suites,
        compression,
        extensions,
    };
    let mut message = Vec::new();
    handshake::put(&mut message, &hello);
    let mut out = Vec::new();
    record::put_plain(&mut out, record::HANDSHAKE, &message);
    out
}

fn keys(offered: &Offered) -> SessionKeys {
    ClientReader::new(16_384).read(&client_hello(offered)).unwrap().unwrap()
}

fn server_hello(random: [u8; 32], id: &[u8], version: u16, identity: Option<u16>) -> Vec<u8> {
    let mut extensions = Vec::new();
    if version == hello::TLS13 {
        put_extension(&mut extensions, hello::SUPPORTED_VERSIONS, |out| put_u16(out, version));
    }
    if let Some(index) = identity {
        put_extension(&mut extensions, hello::PRE_SHARED_KEY, |out| put_u16(out, index));
    }
    let extensions = Extensions::decode("test", &extensions).unwrap();
    let hello = ServerHello {
        version: hello::TLS12,
        random: &random,
        session_id: id,
        suite: 0x1301,
        compression: 0,
        extensions,
    };
    let (mut message, mut out) = (Vec::new(), Vec::new());
    handshake::put(&mut message, &hello);
    record::put_plain(&mut out, record::HANDSHAKE, &message);
    out
}

/// One loop before so many backends.
struct RouterBench {
    memory: Memory,
    router: Router,
    targets: Vec<SlotBackend>,
    usable: u64,
    now_s: u32,
}

impl RouterBench {
    fn new(policy: Policy, backends: u8) -> RouterBench {
        let backend =
            |slot: u8| Backend { name: slot.to_string(), address: ([127, 0, 0, 1], 1000 + u16::from(slot)).into() };
        let targets: Vec<_> = (0..backends).map(|slot| SlotBackend { slot, backend: backend(slot) }).collect();
        RouterBench {
            memory: Memory::new(4096),
            router: Router::new(policy, 0),
            targets,
            usable: (1 << backends) - 1,
            now_s: 1,
        }
    }

    fn route(&mut self, offered: &Offered, address: IpAddr) -> (u8, Reason, Student) {
        let offer = self.memory.offer(&keys(offered));
        let active = [0; BACKENDS_MAX];
        let choices = Choices { targets: &self.targets, usable: self.usable, active: &active };
        let route = self.router.by_session(&choices, address, &offer, &self.memory, self.now_s).unwrap();
        self.router.sent_to(route.slot);
        if !matches!(route.reason, Reason::Known) {
            self.memory.note_address(address, route.slot, self.now_s, TIMEOUT_S);
        }
        let mut student = Student::new(offer);
        student.set_route(&route);
        (route.slot, route.reason, student)
    }

    fn tell(&self, student: &mut Student, slot: u8, bytes: &[u8]) -> Option<Outcome> {
        let all = (1 << self.targets.len()) - 1;
        let lesson = Lesson { memory: &self.memory, slot, all, now_s: self.now_s, timeout_s: TIMEOUT_S };
        student.read_server(bytes, 16_384, &lesson)
    }

    /// A TLS 1.3 client offers a ticket of this key; `holds` says which slots hold it. Whether it was taken.
    fn resume13(&mut self, identity: Vec<u8>, holds: u64) -> bool {
        let (slot, _, mut student) = self.route(&Offered { identities: &[identity], ..Offered::default() }, CLIENT);
        let taken = holds >> slot & 1 == 1;
        let answer = server_hello([1; 32], &[], hello::TLS13, taken.then_some(0));
        let outcome = self.tell(&mut student, slot, &answer);
        assert_eq!(outcome, Some(if taken { Outcome::Accepted } else { Outcome::Rejected }));
        assert!(student.is_done());
        taken
    }

    /// A TLS 1.2 server gives out this ID.
    fn issue_id(&mut self, id: [u8; 32]) -> u8 {
        let (slot, _, mut student) = self.route(&Offered::default(), CLIENT);
        assert_eq!(
            self.tell(&mut student, slot, &server_hello([1; 32], &id, hello::TLS12, None)),
            Some(Outcome::Fresh)
        );
        self.tell(&mut student, slot, b"\x14\x03\x03\x00\x01\x01");
        slot
    }
}

#[test]
fn a_key_costs_at_most_one_rejection_for_each_other_backend() {
    for backends in 1..=8_u8 {
        for holder in 0..backends {
            let mut site = RouterBench::new(Policy::Session, backends);
            let taken: Vec<_> = (0..20).map(|_| site.resume13(ticket(7), 1 << holder)).collect();
            let rejections = taken.iter().filter(|taken| !**taken).count();
            assert!(rejections < usize::from(backends).max(1));
            assert!(taken[rejections..].iter().all(|taken| *taken), "once known, always right");
        }
    }
}

#[test]
fn sessions_are_forgotten_when_their_time_is_over() {
    let mut site = RouterBench::new(Policy::Session, 3);
    let slot = site.issue_id([9; 32]);
    let offered = Offered { id: &[9; 32], ..Offered::default() };
    // The dispatcher's time is not prolonged by use, as the servers' is not (Apostolopoulos et al. 2000, "Improving
    // Session Reuse").
    for now_s in [1, 150, TIMEOUT_S] {
        site.now_s = now_s;
        assert!(matches!(site.route(&offered, CLIENT), (found, Reason::Known, _) if found == slot));
    }
    site.now_s = TIMEOUT_S + 1;
    assert_eq!(site.route(&offered, CLIENT).1, Reason::Unknown);
}

#[test]
fn keys_live_as_long_as_they_are_used() {
    let mut site = RouterBench::new(Policy::Session, 3);
    while !site.resume13(ticket(7), 0b100) {}
    for _ in 0..10 {
        site.now_s += TIMEOUT_S - 1;
        assert!(site.resume13(ticket(7), 0b100));
    }
    site.now_s += TIMEOUT_S;
    let offered = Offered { identities: &[ticket(7)], ..Offered::default() };
    assert_eq!(site.route(&offered, CLIENT).1, Reason::Tried);
}

#[test]
fn a_changed_key_costs_at_most_one_rejection_for_each_other_backend() {
    // Half an hour in which each of three servers changes its key every 100 seconds, not all at once.
    let mut site = RouterBench::new(Policy::Session, 3);
    let mut rejections = [0; 64];
    for second in 0..1800_u32 {
        site.now_s = second + 1;
        for turn in 0..3 {
            // Not in the order in which the dispatcher would take turns.
            let server = ((second + turn) % 3) as u8;
            let key = ((second + 33 * u32::from(server)) / 100) as u8 * 3 + server;
            rejections[usize::from(key)] += u32::from(!site.resume13(ticket(key), 1 << server));
        }
    }
    assert!(rejections.iter().all(|&count| count <= 2), "{rejections:?}");
    assert!(rejections.iter().sum::<u32>() > 10, "nobody knows them from the start: {rejections:?}");
}

#[test]
fn ids_count_only_once_the_handshake_is_over() {
    let mut site = RouterBench::new(Policy::Session, 3);
    let (slot, _, mut student) = site.route(&Offered::default(), CLIENT);
    site.tell(&mut student, slot, &server_hello([1; 32], &[9; 32], hello::TLS12, None));
    assert_eq!(site.memory.ids.live(1), 0, "anybody can make a server give out an ID");
    site.tell(&mut student, slot, b"\x14\x03\x03\x00\x01\x01");
    assert_eq!(site.memory.ids.live(1), 1);
}

#[test]
fn a_tls12_ticket_teaches_the_key_to_tls13_too() {
    let mut site = RouterBench::new(Policy::Session, 3);
    let (slot, _, mut student) = site.route(&Offered::default(), CLIENT);
    let mut message = Vec::new();
    handshake::put(&mut message, &NewSessionTicket12 { lifetime_s: 300, ticket: &ticket(7) });
    let mut bytes = server_hello([1; 32], &[], hello::TLS12, None);
    record::put_plain(&mut bytes, record::HANDSHAKE, &message);
    bytes.extend_from_slice(b"\x14\x03\x03\x00\x01\x01");
    site.tell(&mut student, slot, &bytes);
    for offered in [
        Offered { identities: &[ticket(7)], ..Offered::default() },
        Offered { ticket: &ticket(7), id: &[3; 32], ..Offered::default() },
    ] {
        assert!(matches!(site.route(&offered, CLIENT), (found, Reason::Known, _) if found == slot));
    }
}

#[test]
fn after_a_retry_the_second_hello_counts() {
    let mut site = RouterBench::new(Policy::Session, 3);
    let (slot, _, mut student) =
        site.route(&Offered { identities: &[ticket(7), ticket(8)], ..Offered::default() }, CLIENT);
    assert_eq!(site.tell(&mut student, slot, &server_hello(RETRY_RANDOM, &[], hello::TLS13, None)), None);
    // The second hello leaves out the first identity (RFC 9846 section 4.1.2), and comes after early data.
    let second = client_hello(&Offered { identities: &[ticket(8)], ..Offered::default() });
    student.read_client(&[&b"\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x02xy"[..], &second].concat(), &site.memory);
    let answer = [b"\x14\x03\x03\x00\x01\x01", &server_hello([1; 32], &[], hello::TLS13, Some(0))[..]].concat();
    assert_eq!(site.tell(&mut student, slot, &answer), Some(Outcome::Accepted));
    let reason = |site: &mut RouterBench, key| {
        site.route(&Offered { identities: &[ticket(key)], ..Offered::default() }, CLIENT).1
    };
    assert_eq!((reason(&mut site, 8), reason(&mut site, 7)), (Reason::Known, Reason::Tried));
}

#[test]
fn forged_and_old_tickets_do_not_unlearn_a_key() {
    let mut site = RouterBench::new(Policy::Session, 3);
    while !site.resume13(ticket(7), 0b010) {}
    for _ in 0..100 {
        assert!(!site.resume13(ticket(7), 0));
    }
    assert!(site.resume13(ticket(7), 0b010));
}

#[test]
fn a_key_that_nobody_takes_is_given_up() {
    let mut site = RouterBench::new(Policy::Session, 3);
    for _ in 0..20 {
        site.resume13(ticket(7), 0);
    }
    let offered = Offered { identities: &[ticket(7)], ..Offered::default() };
    assert_eq!(site.route(&offered, CLIENT).1, Reason::Unknown);
    while !site.resume13(ticket(7), 0b001) {}
    assert_eq!(site.route(&offered, CLIENT).1, Reason::Known, "but it is still learned");
}

#[test]
fn nameless_tickets_are_recognised_and_go_by_address() {
    let mut site = RouterBench::new(Policy::SessionAddress, 3);
    // Go: each ticket begins with another random value.
    let random = |number: u32| [number.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec(), vec![1; 140]].concat();
    let mut holder = None;
    for number in 0..2000 {
        let (slot, _, mut student) =
            site.route(&Offered { identities: &[random(number)], ..Offered::default() }, CLIENT);
        let taken = holder == Some(slot);
        assert!(taken || number == 0, "the address leads to where its session is");
        site.tell(&mut student, slot, &server_hello([1; 32], &[], hello::TLS13, taken.then_some(0)));
        holder = Some(slot);
    }
    assert_eq!(site.memory.unlearnable_kinds(), 1);
    assert!(site.memory.names.live(site.now_s) < 500, "few of them are remembered");
    // Another kind of ticket, of another length, is learned as ever.
    let taken = (0..4).filter(|_| site.resume13(ticket(7), 0b100)).count();
    assert!(taken >= 2);
    // When the servers get names, that is noticed.
    let renamed = |key: u8| [vec![key; 16], vec![1; 128]].concat();
    for number in 0..500 {
        site.resume13(renamed(number as u8 % 3), 1 << (number % 3));
    }
    assert_eq!(site.memory.unlearnable_kinds(), 0);
}

#[test]
fn a_backend_that_is_down_is_passed_over_and_not_forgotten() {
    let mut site = RouterBench::new(Policy::Session, 3);
    while !site.resume13(ticket(7), 0b010) {}
    site.usable = 0b101;
    assert!(!site.resume13(ticket(7), 0b010));
    site.usable = 0b111;
    assert!(site.resume13(ticket(7), 0b010));
    site.memory.forget_slots(0b010);
    let offered = Offered { identities: &[ticket(7)], ..Offered::default() };
    assert_ne!(site.route(&offered, CLIENT).1, Reason::Known, "another backend has its place");
}

proptest! {
    /// Whatever comes, in whatever order: no panic, no backend that may not be used, and honest keys are learned in
    /// the end.
    #[test]
    fn the_state_machine_survives_anything(
        steps in vec((0..6_u8, any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..60)), 0..300),
    ) {
        let mut site = RouterBench::new(Policy::SessionAddress, 4);
        for (kind, one, two, bytes) in steps {
            let identities = [ticket(one % 8), [vec![two; 20], bytes.clone()].concat()];
            let offered = match kind {
                0 => Offered { identities: &identities[..1], ..Offered::default() },
                1 => Offered { identities: &identities, ..Offered::default() },
                2 => Offered { id: &[one % 8; 32], ..Offered::default() },
                3 => Offered { ticket: &identities[0], id: &[two; 32], ..Offered::default() },
                _ => Offered::default(),
            };
            site.usable = u64::from(two % 15) + 1;
            let (slot, _, mut student) = site.route(&offered, CLIENT);
            prop_assert!(site.usable >> slot & 1 == 1);
            let version = if one & 1 == 0 { hello::TLS12 } else { hello::TLS13 };
            let identity = (two & 1 == 0).then_some(u16::from(two >> 5));
            let random = if two % 7 == 0 { RETRY_RANDOM } else { [1; 32] };
            let mut answer = server_hello(random, &[one % 8; 32], version, identity);
            answer.extend_from_slice(&bytes);
            answer.extend_from_slice(b"\x14\x03\x03\x00\x01\x01");
            site.tell(&mut student, slot, &answer);
            student.read_client(&bytes, &site.memory);
            site.now_s += u32::from(one % 3);
        }
        site.usable = 0b1111;
        site.now_s += TIMEOUT_S + 3;
        let taken = (0..6).map(|_| site.resume13(ticket(200), 0b1000)).filter(|taken| *taken).count();
        prop_assert!(taken >= 3, "at most three rejections: {}", taken);
    }
}
