//! The simulator of `tlsdyno plan` against the real dispatcher before real servers, under the same plan of visits.

use std::sync::Arc;

use tlsdyno::exchange::{Exchange, TIME_LIMIT, get};
use tlsdyno::random::SplitMix64;
use tlsdyno_engine::dispatch::{Check, Policy};
use tlsdyno_plan::simulate::{Kept, Scenario, Visits};
use tlsdyno_tls::{Config, Effort, Session, Settings};

use crate::dispatch::crowd::SMALL;
use crate::dispatch::support::{Dispatcher, control_path};
use crate::stacks::rustls_server;

const SERVERS: u32 = 3;
const USERS: u32 = 40;
const VISITS: u32 = 600;

/// Who comes, one after the other.
fn plan() -> Vec<(f64, u32)> {
    let mut random = SplitMix64::new(41);
    (0..VISITS).map(|number| (f64::from(number), random.below(USERS as usize) as u32)).collect()
}

/// What each of the visits comes to: sessions offered and taken, connections of each server.
#[derive(Debug)]
struct Outcome {
    offered: u64,
    kept: u64,
    by_machine: Vec<u64>,
}

fn real(policy: Policy) -> Outcome {
    let start = |_| {
        let config = rustls_server::config(true, &[&rustls::version::TLS13]);
        rustls_server::start(config, &SMALL.content, None)
    };
    let servers: Vec<_> = (0..SERVERS).map(start).collect();
    let control = control_path();
    let arguments = ["--policy", policy.name(), "--loops", "1", "--control", &control];
    let dispatcher = Dispatcher::new(&servers, &arguments);
    let settings = Settings { server_name: Some("localhost".to_owned()), effort: Effort::Lean, ..Settings::default() };
    let config = Arc::new(Config::new(settings).unwrap());
    let request = get(SMALL.path, "", "localhost");
    let mut sessions: Vec<Option<Session>> = vec![None; USERS as usize];
    let (mut offered, mut kept) = (0, 0);
    for (_, user) in plan() {
        let session = sessions[user as usize].take();
        offered += u64::from(session.is_some());
        let connected = Exchange::connect(dispatcher.address, TIME_LIMIT).unwrap();
        let answer = connected.asking(Some(&config), session, &request, b"").unwrap().whole().unwrap();
        kept += u64::from(answer.handshake.is_some_and(|handshake| handshake.resumed.is_some()));
        sessions[user as usize] = answer.sessions.into_iter().next_back();
        assert!(sessions[user as usize].is_some(), "each connection brings a ticket");
    }
    Outcome { offered, kept, by_machine: dispatcher.spread(&control) }
}

fn simulated(policy: Policy) -> Outcome {
    let scenario = Scenario {
        ends: SERVERS,
        behind: 0,
        cpus: 1,
        opening_s: [1e-3, 1e-3],
        request_s: 1e-4,
        behind_s: 0.0,
        slow_times: 1.0,
        policy,
        shares_keys: false,
        kept: Kept::Tickets,
        lifetime_s: 3600,
        rotation_s: 0,
        table: 1 << 14,
        remembers_s: 3600,
        check: Check::default(),
        users: USERS.into(),
        visits: Visits::Plan(plan()),
        requests: 1,
        gap_s: 1.0,
        length_s: f64::from(VISITS),
        storm: None,
        seed: 1,
    };
    let seen = scenario.run(1);
    Outcome { offered: seen.offered, kept: seen.kept, by_machine: seen.by_machine }
}

#[test]
fn the_simulator_keeps_the_sessions_that_the_dispatcher_keeps() {
    // All these users have one address, by which the other policies decide.
    for policy in [Policy::RoundRobin, Policy::LeastConnections, Policy::Session] {
        let (real, simulated) = (real(policy), simulated(policy));
        println!("{}: {real:?} {simulated:?}", policy.name());
        // Within 1 % of all visits: full handshakes and their share are what is left of them.
        let near = |one: u64, two: u64| one.abs_diff(two) * 100 <= u64::from(VISITS);
        assert_eq!(real.offered, simulated.offered);
        assert!(near(real.kept, simulated.kept), "{policy:?}: {real:?} {simulated:?}");
        let [mut one, mut two] = [real.by_machine, simulated.by_machine];
        one.sort_unstable();
        two.sort_unstable();
        assert!(one.iter().zip(&two).all(|(one, two)| near(*one, *two)), "{policy:?}: {one:?} {two:?}");
    }
}
