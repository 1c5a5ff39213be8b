//! The policy's schedule and session limits in virtual time, against a server that is a formula.

use std::collections::BTreeSet;

use super::*;
use crate::load::pacing::Pacer;
use crate::load::plan::{Arrivals, Object, Rate, Request, User};

const MS: u64 = 1_000_000;

/// So many users with pages of one request each.
fn workload(users: u32, requests: u32) -> Workload {
    let object = Object {
        method: "GET".into(),
        path: "/".into(),
        headers: String::new(),
        body_bytes: 0,
        expect: Default::default(),
    };
    let request = Request { object: 0, page_end: true, close_after: false, forget_session: false };
    Workload {
        objects: vec![object],
        requests: vec![request; requests as usize],
        users: vec![User { requests: 0..requests }; users as usize],
        order: Vec::new(),
        at_ms: Vec::new(),
    }
}

fn limits(total: u32, requests_each: Option<u32>) -> Connections {
    Connections { total, per_user: 1, first_alone: true, requests_each, timeout_ns: 1, batch_ns: 0 }
}

#[derive(Debug, Default)]
struct Timeline {
    /// Intended, sent and finished, nanoseconds.
    requests: Vec<(u64, u64, u64)>,
    opened: u32,
    /// Requests sent when a session was forgotten.
    forgotten_at: Vec<usize>,
    unserved: u64,
    /// Nothing was under way when nothing more was to come.
    done: bool,
}

/// Runs the users until `end_ns`; `done_ns` tells when a request that is sent now is answered.
fn simulate(users: Users, end_ns: u64, done_ns: impl Fn(u64) -> u64) -> Timeline {
    simulate_requests(users, end_ns, |now, _| done_ns(now))
}

/// The same where it depends on the request too.
fn simulate_requests(users: Users, end_ns: u64, done_ns: impl Fn(u64, u32) -> u64) -> Timeline {
    simulate_streams(users, 1, end_ns, done_ns)
}

/// The same where a connection carries so many requests at once.
fn simulate_streams(mut users: Users, streams: u32, end_ns: u64, done_ns: impl Fn(u64, u32) -> u64) -> Timeline {
    let mut timeline = Timeline::default();
    let mut under_way: BTreeSet<(u64, ConnectionId, u32, bool)> = BTreeSet::new();
    let mut now = 0;
    users.start();
    loop {
        users.pace(now);
        while let Some(action) = users.next_action() {
            match action {
                Action::Open { connection, .. } => {
                    timeline.opened += 1;
                    users.ready(connection, true, streams);
                }
                Action::Send { connection, request, last } => {
                    let done = done_ns(now, request);
                    timeline.requests.push((users.intended_ns(connection, request).unwrap_or(now), now, done));
                    under_way.insert((done, connection, request, last));
                }
                Action::Close { connection, .. } => users.closed(connection),
                Action::Forget { .. } => timeline.forgotten_at.push(timeline.requests.len()),
            }
        }
        let next_done = under_way.first().map(|event| event.0);
        let next = [next_done, users.next_due_ns(now)].into_iter().flatten().min();
        let Some(next) = next.filter(|&next| next < end_ns) else {
            timeline.unserved = users.take_unserved(end_ns);
            timeline.done = users.is_done();
            return timeline;
        };
        now = now.max(next);
        if let Some(&event) = under_way.first().filter(|event| event.0 <= now) {
            under_way.remove(&event);
            users.tell_time(now);
            users.finished(event.1, event.2, !event.3);
        }
    }
}

fn open_loop(workload: &Workload, per_second: f64, connections: Connections) -> Users<'_> {
    let rate = Rate { per_second, arrivals: Arrivals::Constant, seed: 0 };
    let everybody = 0..workload.users.len() as u32;
    Users::new(workload, everybody, u64::MAX, connections, None, false).with_pacer(Some(Pacer::new(
        rate,
        Some(4000 * MS),
        Share::default(),
    )))
}

#[test]
fn each_stream_counts_from_its_own_intended_time() {
    let workload = workload(1, 4000);
    // 1,000 requests a second that take 5 ms each: one connection carries them only with five streams or more.
    for (streams, on_time) in [(1, false), (4, false), (6, true), (100, true)] {
        let users = open_loop(&workload, 1000.0, limits(1, None)).with_pages_at_once(streams);
        let timeline = simulate_streams(users, streams, 4000 * MS, |now, _| now + 5 * MS);
        let late = timeline.requests.iter().filter(|(intended, sent, _)| sent > intended).count();
        assert_eq!((late <= 1, timeline.opened), (on_time, 1), "{streams} streams: {late} late");
        let intended: Vec<u64> = timeline.requests.iter().map(|request| request.0).collect();
        assert!(intended.windows(2).all(|two| two[1] - two[0] == MS), "{streams} streams: each has a time of its own");
    }
}

#[test]
fn a_stall_is_charged_to_every_request_that_fell_due_in_it() {
    let workload = workload(4, 2000);
    // 1 ms for a request, and nothing between 1 s and 2 s.
    let stalled = |now: u64| if (999 * MS..2000 * MS).contains(&now) { 2000 * MS } else { now + MS };
    let timeline = simulate(open_loop(&workload, 1000.0, limits(4, None)), 4000 * MS, stalled);
    assert_eq!(timeline.unserved, 0);
    assert_eq!(timeline.opened, 4, "connections are kept");
    let latencies: Vec<u64> = timeline.requests.iter().map(|(intended, _, done)| done - intended).collect();
    // Only four requests were ever in the server's hands at once, but a quarter of all were late.
    let late = latencies.iter().filter(|latency| **latency > 100 * MS).count();
    assert!((900..1400).contains(&late), "{late}");
    assert!((999 * MS..=1001 * MS).contains(latencies.iter().max().unwrap()));
    let served: Vec<u64> = timeline.requests.iter().map(|(_, sent, done)| done - sent).collect();
    assert!(served.iter().filter(|latency| **latency > 100 * MS).count() <= 4, "what a closed loop would have seen");
    for pair in timeline.requests.windows(2) {
        assert!(pair[0].0 < pair[1].0 && pair[1].1 >= pair[1].0, "in the order of the schedule, never ahead of it");
    }
}

/// A number that looks random and depends on these two only.
fn hash(a: u64, b: u64) -> u64 {
    let mut random = crate::load::pacing::Random::new(a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (random.uniform() * 1e9) as u64
}

/// Histograms of what `count` loops did with their parts of this load, merged.
fn merged(
    workload: &Workload,
    count: u32,
    pacer: impl Fn(Share) -> Option<Pacer>,
    end_ns: u64,
    done_ns: impl Fn(u64, u32) -> u64 + Copy,
) -> crate::load::Outcome {
    let loops = (0..count).map(|index| {
        let share = Share { index, count };
        let total = share.portion(workload.users.len() as u64) as u32;
        let everybody = 0..workload.users.len() as u32;
        let users = Users::new(workload, everybody, u64::MAX, limits(total, None), None, false);
        let timeline = simulate_requests(users.with_share(share).with_pacer(pacer(share)), end_ns, done_ns);
        assert_eq!((timeline.opened, timeline.unserved), (total, 0));
        let mut recorder = crate::load::recorder::Recorder::new(None, true, None);
        for (intended, sent, done) in timeline.requests {
            recorder.hit(done - sent, Some(done - intended));
        }
        (format!("loop {index}"), recorder.finish())
    });
    crate::load::merge(loops).unwrap()
}

#[test]
fn many_loops_do_bit_for_bit_what_one_does() {
    const USERS: u32 = 96;
    // More than a user makes in the time: which user follows one that is done depends on who is done first.
    const EACH: u32 = 200;
    let mut workload = workload(USERS, EACH * USERS);
    for (user, number) in workload.users.iter_mut().zip(0..) {
        user.requests = number * EACH..(number + 1) * EACH;
    }
    let bytes = |histogram: &hdrhistogram::Histogram<u64>| {
        use hdrhistogram::serialization::{Serializer, V2Serializer};
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(histogram, &mut bytes).unwrap();
        bytes
    };
    // A closed loop that ends by time: who is how far by then depends on all that came before. And open ones.
    let closed =
        |count| merged(&workload, count, |_| None, 4000 * MS, |now, request| now + 1 + hash(0, request.into()) / 9);
    let open = |count, arrivals| {
        let rate = Rate { per_second: 200.0, arrivals, seed: 5 };
        let pacer = |share| Some(Pacer::new(rate, Some(4000 * MS), share));
        merged(&workload, count, pacer, 4000 * MS, |now, _| now + 1 + hash(now, 1) / 100)
    };
    for load in [&closed as &dyn Fn(u32) -> crate::load::Outcome, &|count| open(count, Arrivals::Poisson), &|count| {
        open(count, Arrivals::Constant)
    }] {
        let one = load(1);
        assert!(one.hits > 700, "{}", one.hits);
        for count in [2, 3, 8, USERS] {
            let many = load(count);
            assert_eq!((many.hits, many.parts.len()), (one.hits, count as usize));
            for (phase, histogram) in &one.phases {
                assert_eq!(bytes(&many.phases[phase]), bytes(histogram), "{phase:?} of {count} loops");
            }
        }
    }
}

#[test]
fn what_nobody_was_free_for_is_counted() {
    let workload = workload(2, 1000);
    let timeline = simulate(open_loop(&workload, 1000.0, limits(2, Some(1))), 4000 * MS, |now| now + 4 * MS);
    assert_eq!(timeline.requests.len() as u64 + timeline.unserved, 4000);
    assert!((1990..2010).contains(&timeline.requests.len()), "two users of 4 ms each: {}", timeline.requests.len());
    assert_eq!(timeline.opened as usize, timeline.requests.len(), "a connection for each request");
}

fn closed_loop(workload: &Workload, session: SessionLimits, connections: Connections) -> Users<'_> {
    let everybody = 0..workload.users.len() as u32;
    Users::new(workload, everybody, u64::MAX, connections, None, false).with_session_limits(session)
}

#[test]
fn a_session_ends_after_its_requests_and_the_next_begins_on_a_new_connection() {
    let workload = workload(1, 1000);
    let session = SessionLimits { lifetime_ns: None, requests: Some(5), ..SessionLimits::default() };
    for (each, connections_per_session) in [(None, 1), (Some(2), 3), (Some(1), 5)] {
        let timeline = simulate(closed_loop(&workload, session, limits(1, each)), 100 * MS, |now| now + MS);
        let expected: Vec<usize> = (1..20).map(|session| session * 5).collect();
        assert_eq!(timeline.forgotten_at[..19], expected, "{each:?}");
        assert!(timeline.opened.abs_diff(connections_per_session * 20) <= 2, "{each:?}: {}", timeline.opened);
    }
}

/// Four clients at one pace: aligned they renew together, staggered one after the other.
#[test]
fn staggered_sessions_renew_at_different_times() {
    let workload = workload(4, 10_000);
    for session in [
        SessionLimits { requests: Some(8), ..SessionLimits::default() },
        SessionLimits { lifetime_ns: Some(8 * MS), ..SessionLimits::default() },
    ] {
        let at = |staggered| {
            let users = closed_loop(&workload, SessionLimits { staggered, ..session }, limits(4, None));
            simulate(users, 100 * MS, |now| now + MS).forgotten_at
        };
        // Of each 32 requests four end a session.
        let (aligned, staggered) = (at(false), at(true));
        assert!(aligned[..4].iter().all(|at| at.abs_diff(32) <= 4), "{session:?}: {aligned:?}");
        let apart: Vec<usize> = staggered[..8].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(apart.iter().all(|apart| (5..=11).contains(apart)), "{session:?}: {staggered:?}");
        assert!(staggered.len().abs_diff(aligned.len()) <= 4, "as many in all");
    }
}

/// Two parts of four clients: those of the one renew between those of the other.
#[test]
fn staggered_sessions_of_parts_renew_at_different_times() {
    let workload = workload(4, 10_000);
    let session = SessionLimits { requests: Some(8), staggered: true, ..SessionLimits::default() };
    let first = |index| {
        let users = closed_loop(&workload, session, limits(2, None)).with_share(Share { index, count: 2 });
        simulate(users, 100 * MS, |now| now + MS).forgotten_at[0]
    };
    // The second client of the first part has used half of its session when it begins, that of the other three
    // quarters: two requests of each of its clients less.
    assert_eq!(first(0) - first(1), 4);
}

#[test]
fn a_session_ends_with_its_lifetime() {
    let workload = workload(1, 1000);
    let session = SessionLimits { lifetime_ns: Some(10 * MS), requests: None, ..SessionLimits::default() };
    for each in [None, Some(1)] {
        let timeline = simulate(closed_loop(&workload, session, limits(1, each)), 100 * MS, |now| now + MS);
        assert_eq!(timeline.forgotten_at, [10, 20, 30, 40, 50, 60, 70, 80, 90], "{each:?}");
    }
}

/// Users whose requests are due in turns: with a single connection it goes from one to the other, and nobody is late by
/// more than the others take.
#[test]
fn recorded_times_are_kept_by_every_user_at_any_speed() {
    let at_ms = [[50, 100, 200], [0, 10, 400], [100, 100, 100]];
    let mut workload = workload(3, 9);
    workload.at_ms = at_ms.concat();
    for (user, first) in workload.users.iter_mut().zip([0, 3, 6]) {
        user.requests = first..first + 3;
    }
    for (speed, total) in [(1.0, 1), (2.0, 1), (0.5, 2), (1.0, 3)] {
        let users = Users::new(&workload, 0..3, 1, limits(total, None), None, false).at_recorded_times(Some(speed));
        let timeline = simulate(users, 4000 * MS, |now| now + MS);
        let due = |at_ms: u64| (at_ms as f64 * 1e6 / speed) as u64;
        let mut expected: Vec<u64> = at_ms.concat().into_iter().map(due).collect();
        let mut intended: Vec<u64> = timeline.requests.iter().map(|request| request.0).collect();
        expected.sort_unstable();
        intended.sort_unstable();
        assert_eq!(intended, expected, "speed {speed}");
        for (intended, sent, _) in &timeline.requests {
            assert!((*intended..=*intended + 4 * MS).contains(sent), "due {intended}, sent {sent}, speed {speed}");
        }
        assert_eq!(timeline.unserved, 0);
    }
    let users = Users::new(&workload, 0..3, 1, limits(1, None), None, false).at_recorded_times(Some(1.0));
    let stuck = simulate(users, 150 * MS, |_| u64::MAX);
    assert_eq!((stuck.requests.len(), stuck.unserved), (1, 6), "also the next one of the user that is stuck");
}

#[test]
fn users_pause_between_their_connections() {
    use crate::load::plan::{Pause, Spread};
    let workload = workload(2, 1_000);
    let users = |spread, requests_each, session_limits| {
        Users::new(&workload, 0..2, u64::MAX, limits(2, requests_each), None, false)
            .with_session_limits(session_limits)
            .with_pauses(Some(Pause { mean_ns: 50 * MS, spread, seed: 3 }))
    };
    let none = SessionLimits::default();
    // A request takes 10 ms, and each its connection: one every 60 ms from each of two users.
    let timeline = simulate(users(Spread::Constant, Some(1), none), 600 * MS, |now| now + 10 * MS);
    let sent: Vec<u64> = timeline.requests.iter().map(|request| request.1 / MS).collect();
    assert_eq!(sent, (0..10).flat_map(|turn| [60 * turn; 2]).collect::<Vec<_>>());
    assert_eq!(timeline.opened, 20);
    // Kept connections have no pause but where their session is up: after three requests each.
    let three = SessionLimits { requests: Some(3), ..none };
    let timeline = simulate(users(Spread::Constant, None, three), 160 * MS, |now| now + 10 * MS);
    let sent: Vec<u64> = timeline.requests.iter().map(|request| request.1 / MS).collect();
    let turn = [0, 10, 20, 80, 90, 100];
    assert_eq!(sent, turn.into_iter().flat_map(|at| [at; 2]).collect::<Vec<_>>());
    assert_eq!((timeline.opened, timeline.forgotten_at.len()), (4, 2));
    // Random pauses have their mean.
    let timeline = simulate(users(Spread::Exponential, Some(1), none), 60_000 * MS, |now| now + 10 * MS);
    assert!((1_850..2_150).contains(&timeline.requests.len()), "{}", timeline.requests.len());
}

/// Those who wait for the schedule or pause when the last request is begun wait no longer.
#[test]
fn a_number_of_requests_ends_schedules_and_pauses() {
    use crate::load::plan::{Pause, Spread};
    let workload = workload(4, 2000);
    let ten = |users: Users| {
        let timeline = simulate(users.with_requests(Some(10)), 4000 * MS, |now| now + MS);
        assert_eq!((timeline.requests.len(), timeline.done), (10, true));
    };
    ten(open_loop(&workload, 1000.0, limits(4, None)));
    let pause = Some(Pause { mean_ns: 50 * MS, spread: Spread::Constant, seed: 0 });
    ten(Users::new(&workload, 0..4, u64::MAX, limits(4, Some(1)), None, false).with_pauses(pause));
    ten(Users::new(&workload, 0..4, u64::MAX, limits(4, None), None, false));
}
