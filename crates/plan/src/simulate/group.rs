//! One dispatcher with its machines and users: what happens, in the order of its time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::Relaxed;

use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::dispatch::health::Verdict;
use tlsdyno_engine::dispatch::learn::{Lesson, Student};
use tlsdyno_engine::dispatch::limits::BACKENDS_MAX;
use tlsdyno_engine::dispatch::memory::Memory;
use tlsdyno_engine::dispatch::route::{Choices, Reason, Router, wanted};
use tlsdyno_engine::dispatch::{Backend, Policy, Slot, SlotBackend};
use tlsdyno_wire::hello::{TLS12, TLS13};
use tlsdyno_wire::session_keys::{ServerSays, SessionId, SessionKeys};

use super::machine::{Machine, Session};
use super::storm::{Happening, happenings};
use super::{Kept, SECOND, Scenario, Seen, Visits};

/// Key of the tickets that all machines share.
const SHARED: u32 = 1;
/// Key of the tickets of another site.
const ELSEWHERE: u32 = 2;
/// A visit that no machine took is tried again after so long, so often at most.
const RETRY_NS: u64 = 1_000_000_000;
const TRIES: u8 = 5;
/// Bytes of a ticket, by which a dispatcher tells kinds of them apart.
const TICKET_BYTES: usize = 208;

/// Requests that a connection still has to come.
#[derive(Clone, Copy, Debug)]
struct Due {
    at_ns: u64,
    machine: u8,
    left: u16,
}

pub(super) struct Group<'s> {
    of: &'s Scenario,
    random: SplitMix64,
    router: Router,
    memory: Memory,
    targets: Vec<SlotBackend>,
    all: u64,
    slots: Vec<Slot>,
    verdicts: Vec<Verdict>,
    seen_up: u64,
    active: [u32; BACKENDS_MAX],
    machines: Vec<Machine>,
    behind: Vec<Machine>,
    next_behind: usize,
    last_key: u32,
    users: Vec<Session>,
    /// Visits of a plan so far.
    visited: usize,
    /// Users who come here; behind them those of another site.
    own_users: usize,
    due: VecDeque<Due>,
    again: BinaryHeap<Reverse<(u64, u32, u8)>>,
    happenings: VecDeque<(f64, Happening)>,
    storm_ns: u64,
    others_came: bool,
    next_check_ns: u64,
    now_ns: u64,
    seen: Seen,
}

fn ns(seconds: f64) -> u64 {
    (seconds * SECOND) as u64
}

impl<'s> Group<'s> {
    pub fn new(of: &'s Scenario) -> Group<'s> {
        let backend =
            |number: u32| Backend { name: String::new(), address: (Ipv4Addr::from(0x0a80_0000 + number), 443).into() };
        let target = |slot: u32| SlotBackend { slot: slot as u8, backend: backend(slot) };
        let key = |number: u32| if of.shares_keys { SHARED } else { ELSEWHERE + 1 + number };
        let machine = |number: u32| Machine::new(of.cpus, key(number), if number == 0 { of.slow_times } else { 1.0 });
        let others = matches!(of.storm, Some((super::Storm::Failover, _)));
        let users = of.users as usize * (1 + usize::from(others));
        let memory = Memory::new(of.table);
        if of.policy == Policy::Lard {
            memory.keep_objects();
        }
        Group {
            of,
            random: SplitMix64::new(of.seed),
            router: Router::new(of.policy, 0),
            memory,
            targets: (0..of.ends).map(target).collect(),
            all: u64::MAX >> (64 - of.ends),
            slots: (0..of.ends).map(|_| Slot::default()).collect(),
            verdicts: vec![Verdict::default(); of.ends as usize],
            seen_up: u64::MAX,
            active: [0; BACKENDS_MAX],
            machines: (0..of.ends).map(machine).collect(),
            behind: (0..of.behind).map(|_| Machine::new(of.cpus, 0, 1.0)).collect(),
            next_behind: 0,
            last_key: ELSEWHERE + of.ends,
            users: vec![Session::default(); users],
            visited: 0,
            own_users: of.users as usize,
            due: VecDeque::new(),
            again: BinaryHeap::new(),
            happenings: happenings(of).into(),
            storm_ns: of.storm.map_or(u64::MAX, |(_, at_s)| ns(at_s)),
            others_came: false,
            next_check_ns: if of.storm.is_some() { 0 } else { u64::MAX },
            now_ns: 0,
            seen: Seen::of(of),
        }
    }

    pub fn run(mut self) -> Seen {
        let end_ns = ns(self.of.length_s);
        let (mut visit_ns, mut user) = self.next_visit();
        loop {
            let happens_ns = self.happenings.front().map_or(u64::MAX, |(at_s, _)| ns(*at_s));
            let due_ns = self.due.front().map_or(u64::MAX, |due| due.at_ns);
            let again_ns = self.again.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns);
            let next_ns = visit_ns.min(due_ns).min(again_ns).min(happens_ns).min(self.next_check_ns);
            if next_ns >= end_ns {
                break;
            }
            self.now_ns = next_ns;
            self.seen.events += 1;
            if next_ns == due_ns {
                self.request();
            } else if next_ns == visit_ns {
                self.visit(user, 0);
                (visit_ns, user) = self.next_visit();
            } else if next_ns == again_ns {
                let Some(Reverse((_, user, tries))) = self.again.pop() else { break };
                self.visit(user, tries);
            } else if next_ns == happens_ns {
                let Some((_, what)) = self.happenings.pop_front() else { break };
                self.happen(what);
            } else {
                self.check();
            }
        }
        self.seen.busy_s = self.machines.iter().map(|of| of.busy_ns as f64 / SECOND).collect();
        self.seen
    }

    fn now_s(&self) -> u32 {
        // The dispatcher's clock starts above 0.
        (self.now_ns / 1_000_000_000) as u32 + 1
    }

    /// When the next user comes, and who that is.
    fn next_visit(&mut self) -> (u64, u32) {
        let rates = match &self.of.visits {
            Visits::Process(rates) => rates,
            Visits::Plan(plan) => {
                self.visited += 1;
                return plan.get(self.visited - 1).map_or((u64::MAX, 0), |(at_s, user)| (ns(*at_s), *user));
            }
        };
        let part_s = self.of.length_s / rates.len() as f64;
        let part = (self.now_ns as f64 / SECOND / part_s) as usize;
        let rate = rates[part.min(rates.len() - 1)] * if self.others_came { 2.0 } else { 1.0 };
        let users = if self.others_came { self.users.len() } else { self.own_users };
        let pause_s = -self.random.uniform().ln() / rate;
        (self.now_ns + ns(pause_s.min(self.of.length_s)), self.random.below(users) as u32)
    }

    fn visit(&mut self, user: u32, tries: u8) {
        let session = self.users[user as usize];
        let now_s = self.now_s();
        let is_offered = session.key != 0 && now_s.saturating_sub(session.at_s) < self.of.lifetime_s;
        let mut student = self.of.policy.needs_tls().then(|| {
            let keys = if is_offered { self.keys(session) } else { SessionKeys::default() };
            Student::new(self.memory.offer(&keys))
        });
        let Some(slot) = self.reach(user, student.as_mut()) else {
            self.seen.at(self.now_ns).failed_count += 1;
            match tries + 1 < TRIES {
                true => self.again.push(Reverse((self.now_ns + RETRY_NS, user, tries + 1))),
                false => self.seen.given_up += 1,
            }
            return;
        };
        let (resumed, session) = self.shake_hands(slot, is_offered.then_some(session));
        self.users[user as usize] = session;
        if let Some(mut student) = student {
            self.learn(&mut student, slot, resumed, session);
        }
        self.open(slot, resumed);
    }

    /// A machine that takes the connection, as the dispatcher finds it.
    fn reach(&mut self, user: u32, mut student: Option<&mut Student>) -> Option<u8> {
        self.close_done();
        let address = IpAddr::V4(Ipv4Addr::from(0x0b00_0000_u32.wrapping_add(user)));
        let now_s = self.now_s();
        let mut tried = 0;
        loop {
            let up = self.targets.iter().filter(|of| !self.slots[usize::from(of.slot)].down.load(Relaxed));
            let up = up.fold(0_u64, |mask, of| mask | 1 << of.slot);
            for slot in (0..self.targets.len() as u8).filter(|slot| (up & !self.seen_up) >> slot & 1 == 1) {
                self.router.joined(slot, &self.targets);
            }
            self.seen_up = up;
            let usable = wanted(up, self.all, tried);
            let choices = Choices { targets: &self.targets, usable, active: &self.active };
            let mut is_known = false;
            let slot = match student.as_deref_mut() {
                None => self.router.blind(&choices, address)?,
                Some(student) => {
                    let route = self.router.by_session(&choices, address, student.offer(), &self.memory, now_s)?;
                    student.set_route(&route);
                    is_known = route.reason == Reason::Known;
                    route.slot
                }
            };
            let state = &self.slots[usize::from(slot)];
            if !self.machines[usize::from(slot)].works {
                state.failed(self.of.check.fall);
                tried |= 1 << slot;
                self.seen.retried += 1;
                continue;
            }
            state.connected();
            self.router.sent_to(slot);
            if self.of.policy == Policy::SessionAddress && !is_known {
                self.memory.note_address(address, slot, now_s, self.of.remembers_s);
            }
            return Some(slot);
        }
    }

    /// Connections that have ended are no load any more.
    fn close_done(&mut self) {
        for (machine, active) in self.machines.iter_mut().zip(&mut self.active) {
            while machine.closings_ns.front().is_some_and(|at_ns| *at_ns <= self.now_ns) {
                machine.closings_ns.pop_front();
                *active = active.saturating_sub(1);
            }
        }
    }

    /// What the machine makes of an offered session: whether it resumes, and what the client holds then.
    fn shake_hands(&mut self, slot: u8, offered: Option<Session>) -> (bool, Session) {
        let now_s = self.now_s();
        let machine = &mut self.machines[usize::from(slot)];
        let holds = if let Kept::Store(most) = self.of.kept { Some(most) } else { None };
        let taken = offered.filter(|session| machine.knows(*session, holds));
        self.seen.offered += u64::from(offered.is_some());
        self.seen.kept += u64::from(taken.is_some());
        match (taken, self.of.kept) {
            (Some(session), Kept::Store(_)) => (true, session),
            (taken, _) => (taken.is_some(), machine.issue(now_s)),
        }
    }

    /// What a hello says of a session.
    fn keys(&self, session: Session) -> SessionKeys {
        match self.of.kept {
            Kept::Tickets => {
                let mut ticket = [0; TICKET_BYTES];
                ticket[..4].copy_from_slice(&session.key.to_be_bytes());
                SessionKeys::with_identity(&ticket)
            }
            Kept::Store(_) => {
                let mut keys = SessionKeys::default();
                keys.session_id = id_of(session);
                keys
            }
        }
    }

    /// The dispatcher sees what the machine answers.
    fn learn(&self, student: &mut Student, slot: u8, resumed: bool, session: Session) {
        let lesson =
            Lesson { memory: &self.memory, slot, all: self.all, now_s: self.now_s(), timeout_s: self.of.remembers_s };
        let hello = |version, session_id, identity| ServerSays::Hello { version, session_id, identity };
        match self.of.kept {
            Kept::Tickets => {
                student.hear(hello(TLS13, SessionId::default(), resumed.then_some(0)), usize::MAX, &lesson);
            }
            Kept::Store(_) => {
                student.hear(hello(TLS12, id_of(session), None), usize::MAX, &lesson);
                student.hear(ServerSays::Encrypts, usize::MAX, &lesson);
            }
        }
    }

    /// Serves the handshake with its first request.
    fn open(&mut self, slot: u8, resumed: bool) {
        let machine = usize::from(slot);
        let work_ns = self.of.opening_s[usize::from(resumed)] * SECOND;
        let done_ns = self.serve(machine, work_ns);
        self.seen.connections += 1;
        self.seen.by_machine[machine] += 1;
        let interval = self.seen.at(self.now_ns);
        let count = if resumed { &mut interval.resumed_count } else { &mut interval.full };
        *count += 1;
        let is_usual = self.now_ns < self.storm_ns;
        self.seen.note_response(self.now_ns, done_ns - self.now_ns, !resumed, is_usual);
        self.active[machine] += 1;
        self.go_on(slot, self.of.requests - 1, done_ns);
    }

    /// Serves a further request of a connection.
    fn request(&mut self) {
        let Some(Due { machine: slot, left, .. }) = self.due.pop_front() else { return };
        let machine = usize::from(slot);
        if !self.machines[machine].works {
            self.seen.lost += u64::from(left);
            return;
        }
        let done_ns = self.serve(machine, self.of.request_s * SECOND);
        self.go_on(slot, left - 1, done_ns);
    }

    /// Notes that a connection has so many requests left.
    fn go_on(&mut self, slot: u8, left: u16, done_ns: u64) {
        self.seen.hits += 1;
        match left {
            0 => self.machines[usize::from(slot)].closings_ns.push_back(done_ns),
            _ => self.due.push_back(Due { at_ns: self.now_ns + ns(self.of.gap_s), machine: slot, left }),
        }
    }

    /// Work of a request, here and behind; when its response is there.
    fn serve(&mut self, machine: usize, work_ns: f64) -> u64 {
        self.seen.at(self.now_ns).work_s += work_ns / SECOND;
        let done_ns = self.machines[machine].serve(self.now_ns, work_ns);
        if self.behind.is_empty() {
            return done_ns;
        }
        self.next_behind = (self.next_behind + 1) % self.behind.len();
        // It comes there later, and not in that order; work that comes now stands for it.
        let behind_ns = self.behind[self.next_behind].serve(self.now_ns, self.of.behind_s * SECOND);
        done_ns + behind_ns - self.now_ns
    }

    /// A key that nobody has had.
    fn new_key(&mut self) -> u32 {
        self.last_key += 1;
        if self.of.shares_keys { SHARED } else { self.last_key }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Stop(at) => {
                self.machines[at].works = false;
                self.active[at] = 0;
            }
            Happening::Start(at) => {
                let key = self.new_key();
                self.machines[at].keys = [key, key];
                self.machines[at].start(self.now_ns);
            }
            // A store in shared memory outlives a reload.
            Happening::NewKeys(at) if self.of.kept == Kept::Tickets => {
                let key = self.new_key();
                self.machines[at].keys = [key, key];
            }
            Happening::NewKeys(_) => {}
            Happening::Rotate => {
                let shared = self.last_key + 1;
                for at in 0..self.machines.len() {
                    let key = if self.of.shares_keys { shared } else { self.last_key + 1 };
                    self.last_key = self.last_key.max(key);
                    let [before, _] = self.machines[at].keys;
                    self.machines[at].keys = [key, before];
                }
            }
            Happening::Others => self.others_come(),
        }
    }

    /// Users of a site like this one, with sessions of their last visits there.
    fn others_come(&mut self) {
        self.others_came = true;
        let pause_s = self.own_users as f64 * self.now_ns as f64 / SECOND / self.seen.connections.max(1) as f64;
        let now_s = self.now_s();
        let key = if self.of.shares_keys { self.machines[0].keys[0] } else { ELSEWHERE };
        for user in &mut self.users[self.own_users..] {
            let ago_s = -self.random.uniform().ln() * pause_s;
            let is_known = ago_s < f64::from(now_s);
            *user = Session { key, number: 0, at_s: now_s.saturating_sub(ago_s as u32) };
            if !is_known {
                *user = Session::default();
            }
        }
    }

    /// The dispatcher looks whether machines take connections.
    fn check(&mut self) {
        for (at, machine) in self.machines.iter().enumerate() {
            let slot = &self.slots[at];
            let is_down = self.verdicts[at].take(machine.works, slot.down.load(Relaxed), &self.of.check);
            slot.down.store(is_down, Relaxed);
            if machine.works {
                slot.connected();
            }
        }
        self.next_check_ns = self.now_ns + self.of.check.interval.ns();
    }
}

/// The ID of a session in a store.
fn id_of(session: Session) -> SessionId {
    let mut bytes = [1; 32];
    bytes[..4].copy_from_slice(&session.key.to_be_bytes());
    bytes[4..8].copy_from_slice(&session.number.to_be_bytes());
    SessionId::new(&bytes)
}
