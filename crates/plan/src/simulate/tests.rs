//! Simulations against closed forms, and of what only they can tell.

use tlsdyno_engine::dispatch::{Check, Policy};

use super::*;
use crate::queue::Queue;

/// Four machines at 0.6 of what they can do, 600 visits a second of users who mostly come back within 300 s.
fn usual() -> Scenario {
    Scenario {
        ends: 4,
        behind: 0,
        cpus: 1,
        opening_s: [8e-3, 2e-3],
        request_s: 1e-4,
        behind_s: 0.0,
        slow_times: 1.0,
        policy: Policy::Session,
        shares_keys: false,
        kept: Kept::Tickets,
        lifetime_s: 300,
        rotation_s: 0,
        table: 4096,
        remembers_s: 300,
        check: Check::default(),
        users: 60_000,
        visits: Visits::Process(vec![600.0]),
        requests: 1,
        gap_s: 1.0,
        length_s: 900.0,
        storm: None,
        seed: 1,
    }
}

/// Within 15 %: the formula's tail of the wait is exponential, which is too long where little waits.
#[test]
fn waits_are_those_of_the_formula() {
    for rate in [125.0, 175.0, 225.0] {
        // Nobody comes back: at random one visit in five finds a session.
        let one = Scenario {
            ends: 1,
            policy: Policy::RoundRobin,
            opening_s: [4e-3, 4e-3],
            visits: Visits::Process(vec![rate]),
            length_s: 4000.0,
            ..usual()
        };
        let seen = one.run(1);
        let queue = Queue::of(&[(rate, 4e-3)], 1, 1.0);
        let [simulated, formula] = [seen.latencies[0].quantile_s(0.99), 4e-3 + queue.wait_quantile_s(0.99)];
        assert!((formula / simulated - 1.0).abs() < 0.15, "at {rate}/s: {formula} by formula, {simulated} simulated");
        let used = seen.busy_s[0] / one.length_s;
        assert!((used / queue.used() - 1.0).abs() < 0.02, "{used} {}", queue.used());
    }
}

#[test]
fn policies_keep_what_chance_or_knowledge_lets_them() {
    let kept = |policy, shares_keys| {
        let seen = Scenario { policy, shares_keys, ..usual() }.run(1);
        assert!(seen.imbalance() < 1.05, "{policy:?}: {:?}", seen.by_machine);
        seen.kept_share()
    };
    assert!((kept(Policy::RoundRobin, false) - 0.25).abs() < 0.01);
    assert!((kept(Policy::LeastConnections, false) - 0.25).abs() < 0.01);
    assert_eq!(kept(Policy::RoundRobin, true), 1.0);
    assert!(kept(Policy::Session, false) > 0.999, "but those by which keys are learned");
    assert_eq!(kept(Policy::SourceAddress, false), 1.0);
}

#[test]
fn reuse_follows_from_users_and_lifetime() {
    // Pauses of 100 s by chance: 1 − e^−3 come back within 300 s. The first visits find nothing.
    let seen = Scenario { length_s: 3000.0, ..usual() }.run(1);
    let late: Vec<&Interval> = seen.intervals.iter().skip(240).collect();
    let [full, resumed] = [|of: &Interval| of.full, |of: &Interval| of.resumed_count]
        .map(|of| late.iter().map(|one| of(one)).sum::<u64>() as f64);
    assert!((resumed / (full + resumed) - (1.0 - (-3.0_f64).exp())).abs() < 0.005, "{full} {resumed}");
}

fn storm(storm: Storm, scenario: Scenario) -> Told {
    let seen = Scenario { storm: Some((storm, 600.0)), length_s: 1800.0, ..scenario }.run(1);
    Told::of(&seen, 600.0)
}

#[test]
fn a_restart_makes_all_handshakes_full_and_shared_keys_prevent_it() {
    let told = storm(Storm::Restart, usual());
    let [before, most] = told.full_per_s;
    assert!((before / (600.0 * (-3.0_f64).exp()) - 1.0).abs() < 0.2, "{told:?}");
    assert!(most > 500.0 && told.used_fraction[1] > 0.9, "all that come: {told:?}");
    assert!(told.over_after_s.is_some_and(|s| (100.0..600.0).contains(&s)), "after some pauses: {told:?}");
    let shared = storm(Storm::Restart, Scenario { shares_keys: true, ..usual() });
    assert!(shared.full_per_s[1] < 2.0 * before, "{shared:?}");
    assert!(told.sentence(Storm::Restart).starts_with("Restart is over after"));
}

#[test]
fn stores_outlive_reloads_and_keys_do_not() {
    assert!(storm(Storm::Reload, usual()).full_per_s[1] > 500.0);
    let store = Scenario { kept: Kept::Store(100_000), table: 1 << 18, ..usual() };
    // The lifetime counts from the full handshake: 100 s of 400 a session is looked for in vain.
    let [before, most] = storm(Storm::Reload, store.clone()).full_per_s;
    assert!((before / 150.0 - 1.0).abs() < 0.2 && most < 1.5 * before, "{before} {most}");
    assert!(storm(Storm::Restart, store).full_per_s[1] > 500.0);
}

#[test]
fn a_rolling_deploy_loses_no_visit_and_a_failover_doubles_the_work() {
    // Sixteen machines take four minutes, and users come back after 100 s.
    let told = storm(Storm::Deploy, Scenario { ends: 16, ..usual() });
    assert_eq!(told.given_up_count, 0, "the dispatcher tries the next machine: {told:?}");
    let [before, most] = told.full_per_s;
    assert!(most > 3.0 * before && most < 350.0, "a machine's sessions at a time: {told:?}");
    let told = storm(Storm::Failover, usual());
    assert!(told.full_per_s[1] > 600.0 && told.used_fraction[1] > 1.2, "{told:?}");
}

#[test]
fn a_store_or_a_table_that_is_too_small_loses_sessions() {
    let store = |holds, table| Scenario { kept: Kept::Store(holds), table, ..usual() }.run(1).kept_share();
    assert!(store(100_000, 1 << 18) > 0.99);
    assert!(store(1000, 1 << 18) < 0.2, "a machine gives out more within a pause");
    assert!(store(100_000, 1 << 12) < 0.6, "the dispatcher forgets where they are");
}

#[test]
fn a_slow_machine_gets_less() {
    let slow = Scenario { slow_times: 4.0, requests: 3, ..usual() };
    let [session, blind] =
        [Policy::Session, Policy::RoundRobin].map(|policy| Scenario { policy, ..slow.clone() }.run(1).by_machine);
    assert!(session[0] * 10 < session[1] * 9 && blind[0] * 10 > blind[1] * 9, "{session:?} {blind:?}");
}

#[test]
fn groups_are_the_same_on_any_number_of_threads() {
    let many = Scenario { ends: 200, users: 100_000, length_s: 60.0, ..usual() };
    let [one, three] = [1, 3].map(|threads| many.run(threads));
    assert_eq!((one.connections, one.kept, one.hits), (three.connections, three.kept, three.hits));
    assert_eq!(one.by_machine.len(), 200);
    assert!((one.connections as f64 / 36_000.0 - 1.0).abs() < 0.03 && one.events >= one.connections);
}

#[test]
fn a_plan_of_visits_is_followed() {
    // One user, round robin over two: never where the session is. Two users in turns: always there.
    let plan = |users: u32| Visits::Plan((0..40).map(|number| (f64::from(number), number % users)).collect());
    let kept = |users| {
        let two = Scenario { ends: 2, policy: Policy::RoundRobin, visits: plan(users), users: 2, ..usual() };
        let seen = two.run(1);
        (seen.connections, seen.offered, seen.kept)
    };
    assert_eq!(kept(1), (40, 39, 0));
    assert_eq!(kept(2), (40, 38, 38));
}

/// `cargo test --release -p tlsdyno-plan -- --ignored a_day` (docs/PLAN.md): a thousand machines, ten million users,
/// ten visits of ten requests each in a day.
#[test]
#[ignore = "takes minutes, and says what it took"]
fn a_day_of_ten_million_users() {
    for part in [64.0, 16.0, 1.0] {
        let day = Scenario {
            ends: 1000,
            users: 10_000_000,
            visits: Visits::Process(vec![100e6 / 86_400.0]),
            requests: 10,
            lifetime_s: 86_400,
            remembers_s: 86_400,
            length_s: 86_400.0 / part,
            ..usual()
        };
        let began = std::time::Instant::now();
        let seen = day.run(2);
        let took_s = began.elapsed().as_secs_f64();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let most = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        println!(
            "1/{part} of a day: {} connections, {} hits, {} things in {took_s:.1} s, {:.0} ns each, {most}",
            seen.connections,
            seen.hits,
            seen.events,
            took_s * 1e9 / seen.events as f64
        );
        assert!((seen.hits as f64 / (10.0 * seen.connections as f64) - 1.0).abs() < 0.05);
    }
}
