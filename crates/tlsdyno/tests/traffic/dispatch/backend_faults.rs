//! Real servers that are killed, frozen, slow or full: what is not affected completes, what is affected ends or moves,
//! and every byte that arrives is the one that was sent.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tlsdyno::model::ServerName;

use super::cluster::{Cluster, Sessions};
use super::crowd::Crowd;
use super::support::{ControlPath, Dispatcher, control_path, many_descriptors};
use crate::place::eventually;

const MEMBERS: usize = 6;

/// Three nginx, a dispatcher that checks them closely, and clients that have begun.
struct Scene {
    cluster: Cluster,
    dispatcher: Dispatcher,
    control: ControlPath,
    crowd: Crowd,
    _file: tempfile::NamedTempFile,
}

impl Scene {
    fn new(check: &str, limits: &str) -> Scene {
        let cluster = Cluster::new(ServerName::Nginx, Sessions::Tickets13, 3);
        let control = control_path();
        let mut config = format!("listen = [\"127.0.0.1:0\"]\npolicy = \"session\"\ncontrol = \"{}\"\n", &*control);
        config += &format!("[limits]\n{limits}\n[check]\n{check}\n");
        for address in cluster.addresses() {
            config += &format!("[[backend]]\naddress = \"{address}\"\n");
        }
        let (dispatcher, _file) = Dispatcher::from_file(&config);
        let crowd = Crowd::start(dispatcher.address, MEMBERS);
        crowd.await_more(100);
        Scene { cluster, dispatcher, control, crowd, _file }
    }

    fn is_up(&self, backend: usize) -> bool {
        self.dispatcher.is_up(&self.control, backend)
    }

    fn connections_to(&self, backend: usize) -> u64 {
        self.dispatcher.spread(&self.control)[backend]
    }
}

const HELLO_CHECKS: &str = "kind = \"hello\"\ninterval = \"50ms\"\ntimeout = \"400ms\"\nfall = 2";

#[test]
fn a_frozen_server_is_found_by_its_silence_and_comes_back() {
    let scene = Scene::new(HELLO_CHECKS, "idle_time = \"2s\"");
    let before = scene.dispatcher.holdings();
    let frozen = scene.cluster.freeze(0);
    eventually("its silence is noticed", || !scene.is_up(0));
    eventually("the others are up", || scene.is_up(1) && scene.is_up(2));
    scene.crowd.await_more(100);
    // Whoever was on it is let go, and moves.
    eventually("connections to it time out", || {
        let status = scene.dispatcher.status(&scene.control);
        scene.dispatcher.count(&scene.control, "timed_out_idle") > 0 && status["backends"][0]["open"] == 0
    });
    drop(frozen);
    eventually("it is up again", || scene.is_up(0));
    let so_far = scene.connections_to(0);
    eventually("it gets connections", || scene.connections_to(0) > so_far + 50);
    let tally = scene.crowd.finish();
    println!("frozen: {} served, {} cut", tally.visits.len(), tally.cut.len());
    assert!((1..=MEMBERS).contains(&tally.cut.len()), "only those that were on it: {:?}", tally.cut);
    scene.dispatcher.assert_at_rest(&scene.control, &before);
}

#[test]
fn a_killed_server_costs_only_its_own_connections() {
    let scene = Scene::new("interval = \"50ms\"", "");
    let before = scene.dispatcher.holdings();
    scene.cluster.kill(0);
    eventually("it is known to be down", || !scene.is_up(0));
    scene.crowd.await_more(200);
    let tally = scene.crowd.finish();
    println!("killed: {} served, {} cut", tally.visits.len(), tally.cut.len());
    // Its processes end one after the other, and until the last one has, the kernel accepts connections for them:
    // whoever was cut may be cut once more.
    assert!(tally.cut.len() <= 2 * MEMBERS, "only those that were on it: {:?}", tally.cut);
    scene.dispatcher.assert_at_rest(&scene.control, &before);
}

#[test]
fn a_slow_server_holds_up_only_its_own_connections() {
    // The checks find nothing: it is slow, not dead.
    let scene = Scene::new("kind = \"none\"", "");
    let before = scene.dispatcher.holdings();
    for _ in 0..10 {
        let frozen = scene.cluster.freeze(0);
        // Members whose session it holds wait for it; the others do not.
        let others = || scene.connections_to(1) + scene.connections_to(2);
        let goal = others() + 20;
        eventually("the others are served or wait for the slow one", || {
            let waiting = scene.dispatcher.status(&scene.control)["backends"][0]["open"].as_u64().unwrap();
            // One that is done with it may still be open: only the slow one can close it.
            others() >= goal || waiting >= MEMBERS as u64
        });
        drop(frozen);
        let goal = scene.connections_to(0) + 1;
        eventually("it does a little", || scene.connections_to(0) >= goal);
    }
    let tally = scene.crowd.finish();
    println!("slow: {} served, {} of {} sessions taken", tally.visits.len(), tally.resumed(), tally.offered());
    assert!(tally.cut.is_empty(), "slow is not dead: {:?}", tally.cut);
    scene.dispatcher.assert_at_rest(&scene.control, &before);
}

/// Connects until nobody can any more.
fn fill_accept_queue(address: SocketAddr) -> Vec<TcpStream> {
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
    std::iter::from_fn(connect).collect()
}

#[test]
fn a_server_whose_accept_queue_is_full_is_passed_over() {
    let _turn = many_descriptors();
    let scene = Scene::new("kind = \"none\"\nfall = 3", "connect_time = \"100ms\"\nidle_time = \"2s\"");
    let before = scene.dispatcher.holdings();
    let frozen = scene.cluster.freeze(0);
    let waiting = fill_accept_queue(scene.cluster.addresses()[0]);
    println!("{} connections fill the queue", waiting.len());
    eventually("it is taken for down", || !scene.is_up(0));
    assert!(scene.dispatcher.count(&scene.control, "retried") > 0);
    scene.crowd.await_more(100);
    drop(waiting);
    drop(frozen);
    eventually("it is up again", || scene.is_up(0));
    scene.crowd.await_more(100);
    let tally = scene.crowd.finish();
    println!("full: {} served, {} cut", tally.visits.len(), tally.cut.len());
    // Those that it had accepted before it froze, or that were in its queue, waited until it went on or were let go.
    assert!(tally.cut.len() <= MEMBERS, "{:?}", tally.cut);
    scene.dispatcher.assert_at_rest(&scene.control, &before);
}
