//! The policy in virtual time: a simulated network with random delays, failures and closes, and the rules that must hold throughout.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::load::plan::{Object, Request, User};

/// A small generator, so that a simulation is reproduced by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

fn workload(users: &[Vec<(bool, bool, bool)>]) -> Workload {
    let mut workload = Workload::default();
    workload.objects.push(Object {
        method: "GET".into(),
        path: "/".into(),
        headers: String::new(),
        body_bytes: 0,
        expect: Default::default(),
    });
    for user in users {
        let from = workload.requests.len() as u32;
        for &(page_end, close_after, forget_session) in user {
            workload.requests.push(Request { object: 0, page_end, close_after, forget_session });
        }
        workload.users.push(User { requests: from..workload.requests.len() as u32 });
    }
    workload
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Ready(ConnectionId),
    Session(ConnectionId),
    Finished(ConnectionId),
    Closed(ConnectionId),
    ResumeOpening,
}

/// How the simulated network misbehaves, each in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    connect_fails: u64,
    no_resources: u64,
    stale: u64,
    response_fails: u64,
    server_closes: u64,
    redirects: u64,
}

struct Simulation<'w> {
    users: Users<'w>,
    workload: &'w Workload,
    limits: Connections,
    trouble: Trouble,
    dice: Dice,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, Happening)>>,
    owner: HashMap<ConnectionId, ActiveId>,
    busy: HashMap<ConnectionId, u32>,
    sent_on: HashMap<ConnectionId, u32>,
    handshaken: HashSet<ConnectionId>,
    /// Users one of whose handshakes completed since they last had no connection.
    widened: HashSet<ActiveId>,
    /// Requests in the order in which they were sent, with the user's place; those sent again appear again.
    sent: Vec<(ActiveId, u32)>,
    finished: Vec<u32>,
    /// Redirects of the requests that are not served yet.
    hops: HashMap<(ActiveId, u32), u32>,
    failed: u32,
    forgotten: u32,
    opened: u64,
    most_open: u32,
    most_active: u32,
    /// Of a replay: the window, and which places are served.
    window: Option<(u32, Vec<bool>)>,
}

impl<'w> Simulation<'w> {
    fn new(
        workload: &'w Workload,
        limits: Connections,
        until: Option<u64>,
        alone: bool,
        trouble: Trouble,
        seed: u64,
    ) -> Self {
        let everybody = 0..workload.users.len() as u32;
        Simulation {
            users: Users::new(workload, everybody, until.is_some(), limits, until, alone),
            workload,
            limits,
            trouble,
            dice: Dice(seed),
            now: 0,
            queue: BinaryHeap::new(),
            owner: HashMap::new(),
            busy: HashMap::new(),
            sent_on: HashMap::new(),
            handshaken: HashSet::new(),
            widened: HashSet::new(),
            sent: Vec::new(),
            finished: Vec::new(),
            hops: HashMap::new(),
            failed: 0,
            forgotten: 0,
            opened: 0,
            most_open: 0,
            most_active: 0,
            window: None,
        }
    }

    /// The workload's order is kept to within a window.
    fn within(self, window: u32) -> Self {
        let served = vec![false; self.workload.requests.len()];
        Simulation { users: self.users.within_window(Some(window)), window: Some((window, served)), ..self }
    }

    fn served(&mut self, request: u32) {
        if let Some((_, served)) = &mut self.window {
            served[self.workload.order[request as usize] as usize] = true;
        }
    }

    fn run(mut self) -> Self {
        self.users.start();
        loop {
            while let Some(action) = self.users.next_action() {
                self.carry_out(action);
            }
            self.most_open = self.most_open.max(self.users.open_connections());
            self.most_active = self.most_active.max(self.users.active_users());
            assert_eq!(self.users.open_connections() as usize, self.owner.len());
            let Some(Reverse((time, happening))) = self.queue.pop() else {
                break;
            };
            assert!(time >= self.now && self.sent.len() < 100_000, "no end in sight");
            self.now = time;
            self.happen(happening);
        }
        assert!(self.users.users.iter().all(|user| user.hops.is_empty()), "a redirect is left behind");
        assert!(self.users.is_done(), "nothing is under way, and yet it is not done");
        self
    }

    fn later(&mut self, happening: Happening) {
        let delay = 1 + self.dice.roll(50);
        self.queue.push(Reverse((self.now + delay, happening)));
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.dice.roll(100) < percent
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Open { connection, user } => {
                self.opened += 1;
                assert!(self.owner.insert(connection, user).is_none(), "a place used twice");
                let siblings = self.owner.values().filter(|owner| **owner == user).count() - 1;
                assert!(siblings < self.limits.per_user as usize);
                if siblings == 0 {
                    self.widened.remove(&user);
                } else if self.limits.first_alone {
                    assert!(self.widened.contains(&user), "the first handshake was not awaited");
                }
                self.sent_on.insert(connection, 0);
                if self.percent(self.trouble.no_resources) {
                    self.owner.remove(&connection);
                    self.users.lost(connection, Loss::NoResources);
                    self.later(Happening::ResumeOpening);
                } else {
                    self.later(Happening::Ready(connection));
                }
            }
            Action::Send { connection, request, last } => {
                assert!(self.busy.insert(connection, request).is_none(), "two requests on one connection");
                assert!(self.handshaken.contains(&connection));
                let count = self.sent_on.get_mut(&connection).unwrap();
                *count += 1;
                if let Some(each) = self.limits.requests_each {
                    assert!(*count <= each);
                    assert!(last || *count < each);
                }
                if let Some((window, served)) = &self.window {
                    let oldest = served.iter().position(|served| !served).unwrap() as u32;
                    let place = self.workload.order[request as usize];
                    assert!(
                        place < oldest.saturating_add(*window),
                        "{place} was presented while {oldest} was not served"
                    );
                }
                let user = self.owner[&connection];
                let hop = self.users.hop(connection).map_or(0, |hop| hop.count);
                assert_eq!(
                    hop,
                    self.hops.get(&(user, request)).copied().unwrap_or(0),
                    "the redirect is lost or another's"
                );
                self.sent.push((user, request));
                self.later(Happening::Finished(connection));
            }
            Action::Close { connection, server_first } => {
                assert!(!self.busy.contains_key(&connection));
                if server_first {
                    self.later(Happening::Closed(connection));
                } else {
                    self.happen(Happening::Closed(connection));
                }
            }
            Action::Forget { .. } => self.forgotten += 1,
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Ready(id) if self.percent(self.trouble.connect_fails) => {
                let user = self.owner.remove(&id).unwrap();
                self.failed += u32::from(self.users.lost(id, Loss::Failed));
                // Which of the user's requests failed with it is the policy's choice.
                let left: HashSet<u32> =
                    self.users.users[user as usize].hops.iter().map(|(request, _)| *request).collect();
                self.hops.retain(|(of, request), _| *of != user || left.contains(request));
                self.users.end_of_alone();
            }
            Happening::Ready(id) => {
                self.handshaken.insert(id);
                self.widened.insert(self.owner[&id]);
                self.users.ready(id, false);
                self.later(Happening::Session(id));
            }
            Happening::Session(id) => {
                // It may be closed by now, and even its place used again; the engine sees to that by itself.
                if self.handshaken.contains(&id) {
                    self.users.session_arrived(id);
                    self.users.end_of_alone();
                }
            }
            Happening::Finished(id) => {
                let request = self.busy.remove(&id).unwrap();
                if self.sent_on[&id] > 1 && self.percent(self.trouble.stale) {
                    self.gone(id);
                    self.users.lost(id, Loss::Stale);
                } else if self.percent(self.trouble.redirects) {
                    let count = self.hops.entry((self.owner[&id], request)).or_default();
                    *count += 1;
                    let hop = Hop { target: Vec::new(), to_get: false, count: *count, began_ns: 0 };
                    let persists = !self.percent(self.trouble.server_closes);
                    assert!(self.users.redirected(id, persists, hop), "nobody drains");
                    self.users.end_of_alone();
                } else if self.percent(self.trouble.response_fails) {
                    self.hops.remove(&(self.owner[&id], request));
                    self.gone(id);
                    self.served(request);
                    self.failed += u32::from(self.users.lost(id, Loss::Failed));
                    self.users.end_of_alone();
                } else {
                    self.hops.remove(&(self.owner[&id], request));
                    self.served(request);
                    self.finished.push(request);
                    let persists = !self.percent(self.trouble.server_closes);
                    self.users.finished(id, persists);
                    self.users.end_of_alone();
                }
            }
            Happening::Closed(id) => {
                self.gone(id);
                self.users.closed(id);
            }
            Happening::ResumeOpening => self.users.resume_opening(),
        }
    }

    fn gone(&mut self, id: ConnectionId) {
        self.owner.remove(&id);
        self.handshaken.remove(&id);
    }

    /// Every request was made once (or failed), and no page began before the one before it was done.
    fn assert_complete(&self) {
        assert_eq!(self.finished.len() as u32 + self.failed, self.workload.requests.len() as u32);
        let distinct: HashSet<_> = self.finished.iter().collect();
        assert_eq!(distinct.len(), self.finished.len(), "a request was made twice");
        for user in &self.workload.users {
            let page = |request: u32| {
                let before = &self.workload.requests[user.requests.start as usize..request as usize];
                before.iter().filter(|request| request.page_end).count()
            };
            let pages: Vec<_> = self
                .sent
                .iter()
                .map(|sent| sent.1)
                .filter(|request| user.requests.contains(request))
                .map(page)
                .collect();
            assert!(pages.is_sorted(), "pages out of order: {pages:?}");
        }
    }
}

fn limits(total: u32, per_user: u32, first_alone: bool, requests_each: Option<u32>) -> Connections {
    Connections { total, per_user, first_alone, requests_each, timeout_ns: 1, batch_ns: 0 }
}

fn any_users() -> impl Strategy<Value = Vec<Vec<(bool, bool, bool)>>> {
    let request = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    // A page begins behind a page end; only there a session may be forgotten, and only at its end connections close.
    let user = proptest::collection::vec(request, 0..12).prop_map(|mut requests| {
        let mut begins = true;
        for (page_end, close_after, forget_session) in &mut requests {
            *close_after &= *page_end;
            *forget_session &= begins;
            begins = *page_end;
        }
        requests
    });
    proptest::collection::vec(user, 1..30)
}

fn any_limits() -> impl Strategy<Value = Connections> {
    (1u32..12, 1u32..6, any::<bool>(), proptest::option::of(1u32..4))
        .prop_map(|(total, per_user, first_alone, each)| limits(total, per_user, first_alone, each))
}

fn any_trouble() -> impl Strategy<Value = Trouble> {
    (0u64..30, 0u64..30, 0u64..30, 0u64..30, 0u64..30, 0u64..30).prop_map(
        |(connect_fails, no_resources, stale, response_fails, server_closes, redirects)| Trouble {
            connect_fails,
            no_resources,
            stale,
            response_fails,
            server_closes,
            redirects,
        },
    )
}

proptest! {
    #[test]
    fn equal_work_is_done_exactly_once(users in any_users(), limits in any_limits(), trouble in any_trouble(), alone in any::<bool>(), seed: u64) {
        let workload = workload(&users);
        let end = Simulation::new(&workload, limits, None, alone, trouble, seed).run();
        end.assert_complete();
        prop_assert!(end.most_open <= limits.total);
        prop_assert!(end.most_active <= limits.total);
    }

    /// Two configurations given the same users must make the same handshakes, however fast each is.
    #[test]
    fn equal_work_makes_equally_many_connections(users in any_users(), first_alone: bool, one_each: bool, seeds: (u64, u64)) {
        let workload = workload(&users);
        let limits = limits(16, 4, first_alone, one_each.then_some(1));
        let opened = |seed| Simulation::new(&workload, limits, None, false, Trouble::default(), seed).run().opened;
        prop_assert_eq!(opened(seeds.0), opened(seeds.1));
    }

    #[test]
    fn a_number_of_connections_is_kept_exactly(limits in any_limits(), trouble in any_trouble(), number in 1u64..200, seed: u64) {
        let trouble = Trouble { no_resources: 0, redirects: 0, ..trouble };
        let workload = workload(&[vec![(true, false, false); 3], vec![], vec![(false, false, false), (true, true, false)]]);
        let end = Simulation::new(&workload, limits, Some(number), false, trouble, seed).run();
        prop_assert_eq!(end.opened, number);
        prop_assert!(end.most_open <= limits.total);
    }
}

#[test]
fn without_trouble_every_connection_of_one_request_makes_it() {
    let workload = workload(&[vec![(true, false, false); 1]]);
    for number in [1, 2, 255, 256, 257, 1000] {
        let end =
            Simulation::new(&workload, limits(16, 1, true, Some(1)), Some(number), false, Trouble::default(), number)
                .run();
        assert_eq!((end.opened, end.finished.len() as u64), (number, number));
    }
}

#[test]
fn all_connections_are_used_and_ten_thousand_users_leave_no_trace() {
    let users = vec![vec![(true, false, false); 2]; 10_000];
    let workload = workload(&users);
    let end = Simulation::new(&workload, limits(64, 1, true, None), None, false, Trouble::default(), 1).run();
    end.assert_complete();
    assert_eq!((end.most_open, end.most_active), (64, 64));
    assert_eq!(end.users.users.len(), 64, "places of users are used again");
    assert_eq!(end.users.connections.len(), 64, "places of connections are used again");
    assert_eq!(end.opened, 10_000);
}

#[test]
fn a_page_spreads_over_the_connections_of_its_user() {
    let mut page = vec![(false, false, false); 8];
    page[7].0 = true;
    let workload = workload(&[page]);
    for (per_user, first_alone) in [(1, true), (4, true), (4, false)] {
        let end =
            Simulation::new(&workload, limits(100, per_user, first_alone, None), None, false, Trouble::default(), 3)
                .run();
        assert_eq!((end.most_open, end.opened), (per_user, u64::from(per_user)));
    }
}

#[test]
fn connections_close_between_pages_where_the_workload_says_so() {
    let workload =
        workload(&[vec![(true, true, false), (true, false, false), (true, false, false), (true, false, true)]]);
    let end = Simulation::new(&workload, limits(9, 4, true, None), None, false, Trouble::default(), 1).run();
    // After page 1 as asked, and before page 4 because the session is forgotten.
    assert_eq!(end.opened, 3);
    assert_eq!(end.forgotten, 2, "once before page 4, once when the user is done");
}

#[test]
fn draining_finishes_what_is_under_way_and_begins_nothing() {
    let workload = workload(&[vec![(true, false, false); 100]]);
    let mut simulation = Simulation::new(&workload, limits(4, 1, true, None), Some(1000), false, Trouble::default(), 5);
    simulation.users.start();
    for _ in 0..50 {
        while let Some(action) = simulation.users.next_action() {
            simulation.carry_out(action);
        }
        let Reverse((time, happening)) = simulation.queue.pop().unwrap();
        simulation.now = time;
        simulation.happen(happening);
    }
    let (opened, sent) = (simulation.opened, simulation.sent.len());
    simulation.users.drain();
    let end = simulation.run();
    assert_eq!(end.opened, opened, "no connection was opened while draining");
    assert!(end.sent.len() <= sent + 4);
    assert_eq!(end.finished.len(), end.sent.len());
}

/// Gives the requests places in a trace: users' requests merged at random, each user's in their order.
fn merge(workload: &mut Workload, seed: u64) {
    let mut dice = Dice(seed);
    let mut next: Vec<u32> = workload.users.iter().map(|user| user.requests.start).collect();
    workload.order = vec![0; workload.requests.len()];
    for place in 0..workload.requests.len() as u32 {
        let left: Vec<usize> =
            (0..next.len()).filter(|user| next[*user] < workload.users[*user].requests.end).collect();
        let user = left[dice.roll(left.len() as u64) as usize];
        workload.order[next[user] as usize] = place;
        next[user] += 1;
    }
    // Users are in order of their first appearance.
    let order = workload.order.clone();
    workload
        .users
        .sort_by_key(|user| order.get(user.requests.start as usize).filter(|_| !user.requests.is_empty()).copied());
}

proptest! {
    /// The simulation asserts of every request that it is in the window, and at the end that nothing is left over.
    #[test]
    fn a_replay_keeps_to_its_window_and_comes_to_an_end(
        users in any_users(), limits in any_limits(), trouble in any_trouble(), window in 1u32..40, seed: u64
    ) {
        let mut workload = workload(&users);
        merge(&mut workload, seed);
        // A connection that never opened takes a request with it of which the simulation does not know which it was.
        let trouble = Trouble { connect_fails: 0, ..trouble };
        let end = Simulation::new(&workload, limits, None, false, trouble, seed).within(window).run();
        end.assert_complete();
        let used = end.users.window_use().unwrap();
        prop_assert!(used.largest_distance < u64::from(window));
        prop_assert!(end.most_open <= limits.total);
        let without_bound = Simulation::new(&workload, limits, None, false, trouble, seed).within(u32::MAX).run();
        prop_assert_eq!(without_bound.users.window_use().unwrap().stalls, 0);
    }

    #[test]
    fn a_replay_comes_to_an_end_whatever_fails(
        users in any_users(), limits in any_limits(), trouble in any_trouble(), window in 1u32..40, seed: u64
    ) {
        let mut workload = workload(&users);
        merge(&mut workload, seed);
        let simulation = Simulation::new(&workload, limits, None, false, trouble, seed);
        let end = Simulation { users: simulation.users.within_window(Some(window)), ..simulation }.run();
        prop_assert_eq!(end.finished.len() as u32 + end.failed, workload.requests.len() as u32);
    }

    #[test]
    fn a_replay_over_and_over_goes_on(window in 1u32..40, number in 1u64..200, seed: u64) {
        let mut workload = workload(&[vec![(true, true, false); 3], vec![(true, false, false); 5], vec![(true, true, false); 2]]);
        merge(&mut workload, seed);
        let simulation = Simulation::new(&workload, limits(3, 1, true, None), Some(number), false, Trouble::default(), seed);
        let end = Simulation { users: simulation.users.within_window(Some(window)), ..simulation }.run();
        prop_assert_eq!(end.opened, number);
    }
}

#[test]
fn a_window_of_one_is_the_order_of_the_trace() {
    let mut workload = workload(&vec![vec![(true, false, false); 4]; 5]);
    merge(&mut workload, 11);
    let end = Simulation::new(&workload, limits(8, 1, true, None), None, false, Trouble::default(), 1).within(1).run();
    let places: Vec<u32> = end.sent.iter().map(|(_, request)| workload.order[*request as usize]).collect();
    assert_eq!(places, (0..20).collect::<Vec<_>>());
    assert!(end.users.window_use().unwrap().stalls > 0);
}

#[test]
fn users_outside_the_window_give_up_connections_that_others_need() {
    // User 0 asks first and last; on one connection, all others must come between.
    let mut workload =
        workload(&[vec![(true, false, false); 2], vec![(true, false, false); 1], vec![(true, false, false); 1]]);
    workload.order = vec![0, 3, 1, 2];
    let end = Simulation::new(&workload, limits(1, 1, true, None), None, false, Trouble::default(), 1).within(2).run();
    let sent: Vec<u32> = end.sent.iter().map(|(_, request)| *request).collect();
    assert_eq!(sent, [0, 2, 3, 1]);
    assert_eq!(end.opened, 4);
}
