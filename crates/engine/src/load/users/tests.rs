//! The policy in virtual time, over the network of `simulation`.

use proptest::prelude::*;

use super::simulation::{Dice, Simulation, Trouble, limits, workload};
use super::*;

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
    (0u64..30, 0u64..30, 0u64..30, 0u64..30, 0u64..30, 0u64..30, 0u64..30, 0u64..60).prop_map(
        |(connect_fails, no_resources, stale, response_fails, server_closes, redirects, refused, goes_away)| Trouble {
            connect_fails,
            no_resources,
            stale,
            response_fails,
            server_closes,
            redirects,
            refused,
            goes_away,
        },
    )
}

fn any_streams() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1u32), 2u32..12]
}

proptest! {
    #[test]
    fn equal_work_is_done_exactly_once(
        users in any_users(), limits in any_limits(), trouble in any_trouble(), alone in any::<bool>(),
        streams in any_streams(), seed: u64
    ) {
        let workload = workload(&users);
        let end = Simulation::new(&workload, limits, None, alone, trouble, seed).with_streams(streams).run();
        end.assert_complete();
        prop_assert!(end.most_open <= limits.total);
        prop_assert!(end.most_active <= limits.total);
    }

    /// However far the run is, and however long what is under way may go on, the end is an end.
    #[test]
    fn what_is_under_way_at_the_end_is_cut(
        users in any_users(), limits in any_limits(), trouble in any_trouble(),
        streams in any_streams(), steps in 0usize..100, grace in 0usize..20, seed: u64
    ) {
        let workload = workload(&users);
        // The simulation follows no redirect while it drains, and cannot tell which request a stale connection had.
        let trouble = Trouble { redirects: 0, stale: 0, refused: 0, goes_away: 0, ..trouble };
        let mut simulation = Simulation::new(&workload, limits, None, false, trouble, seed).with_streams(streams);
        simulation.users.start();
        let _ = (0..steps).take_while(|_| simulation.step()).count();
        simulation.users.drain();
        let _ = (0..grace).take_while(|_| simulation.step()).count();
        simulation.cut_off();
    }

    /// Two configurations given the same users must make the same handshakes, however fast each is.
    #[test]
    fn equal_work_makes_equally_many_connections(
        users in any_users(), first_alone: bool, one_each: bool, seeds: (u64, u64)
    ) {
        let workload = workload(&users);
        let limits = limits(16, 4, first_alone, one_each.then_some(1));
        let opened = |seed| Simulation::new(&workload, limits, None, false, Trouble::default(), seed).run().opened;
        prop_assert_eq!(opened(seeds.0), opened(seeds.1));
    }

    /// Each request comes to its end once, as a response or a failure, however pages and connections are cut.
    #[test]
    fn a_number_of_requests_is_kept_exactly(
        users in any_users(), limits in any_limits(), trouble in any_trouble(), number in 1u64..200,
        streams in any_streams(), pages_at_once in 1u32..9, seed: u64
    ) {
        let mut users = users;
        users.push(vec![(true, false, false)]);
        let workload = workload(&users);
        // The network of the simulation tells redirects apart by their request, which is made many times here.
        let trouble = Trouble { redirects: 0, ..trouble };
        let mut simulation =
            Simulation::new(&workload, limits, Some(u64::MAX), false, trouble, seed).with_streams(streams);
        simulation.users = simulation.users.with_requests(Some(number)).with_pages_at_once(pages_at_once);
        let end = simulation.run();
        prop_assert_eq!(end.finished.len() as u64 + u64::from(end.failed), number);
        prop_assert!(end.most_open <= limits.total);
    }

    #[test]
    fn a_number_of_connections_is_kept_exactly(
        limits in any_limits(), trouble in any_trouble(), number in 1u64..200, seed: u64
    ) {
        let trouble = Trouble { no_resources: 0, redirects: 0, ..trouble };
        let users = [vec![(true, false, false); 3], vec![], vec![(false, false, false), (true, true, false)]];
        let workload = workload(&users);
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
        assert!(simulation.step());
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
        let end = simulation.within_unwatched(window).run();
        prop_assert_eq!(end.finished.len() as u32 + end.failed, workload.requests.len() as u32);
    }

    #[test]
    fn a_replay_over_and_over_goes_on(window in 1u32..40, number in 1u64..200, seed: u64) {
        let users = [vec![(true, true, false); 3], vec![(true, false, false); 5], vec![(true, true, false); 2]];
        let mut workload = workload(&users);
        merge(&mut workload, seed);
        let limits = limits(3, 1, true, None);
        let simulation = Simulation::new(&workload, limits, Some(number), false, Trouble::default(), seed);
        let end = simulation.within_unwatched(window).run();
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

/// Another connection may have its place by then.
#[test]
fn what_was_still_to_be_done_on_a_lost_connection_is_not() {
    let workload = workload(&[vec![(false, false, false), (true, false, false)]]);
    let mut users = Users::new(&workload, 0..1, 1, limits(1, 1, false, None), None, false);
    users.start();
    let Some(Action::Open { connection, .. }) = users.next_action() else { panic!("nothing is opened") };
    users.ready(connection, true, 2);
    assert!(users.has_actions(), "a request is to be sent");
    users.lost(connection, Loss::Stale);
    let of_it = |action: &Action| matches!(action, Action::Send { .. } | Action::Close { .. });
    let actions: Vec<Action> = std::iter::from_fn(|| users.next_action()).collect();
    assert!(!actions.iter().any(of_it), "{actions:?}");
    assert!(actions.iter().any(|action| matches!(action, Action::Open { .. })), "the request is made again");
}
