//! Servers, and the dispatcher itself, that are reloaded under load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use rustix::process::Signal;
use tlsdyno::model::ServerName;

use super::bytes::Digest;
use super::cluster::{Cluster, Sessions};
use super::crowd::{Crowd, KeyName, Visit};
use super::support::{Dispatcher, control_path};
use crate::place::eventually;

const SERVERS: usize = 3;
/// Clients at a time.
const MEMBERS: usize = 6;

/// What became of the tickets of one key.
#[derive(Debug, Default)]
struct Key<'v> {
    visits: Vec<&'v Visit>,
    /// Who has the key: whoever took a ticket of it.
    holder: Option<Digest>,
}

impl Key<'_> {
    /// Sent to a server that does not have the key. Where nobody has ever shown to have it, every refusal counts.
    fn misrouted(&self) -> impl Iterator<Item = &Visit> {
        self.visits.iter().copied().filter(|visit| !visit.resumed && Some(visit.server) != self.holder)
    }

    /// Refused by the very server that has the key before it was known to have it: while its old worker still takes
    /// connections, which knows nothing of it.
    fn refused_by_holder(&self) -> usize {
        let known = self.known_since();
        let refused = self.visits.iter().filter(|visit| !visit.resumed && Some(visit.server) == self.holder);
        refused.filter(|visit| known.is_none_or(|known| visit.began < known)).count()
    }

    fn known_since(&self) -> Option<Instant> {
        self.visits.iter().filter(|visit| visit.resumed).map(|visit| visit.ended).min()
    }

    /// Misrouted to a server that had been asked before and had not answered yet: nobody could know that it does not
    /// have the key.
    fn misrouted_unknowing(&self) -> usize {
        let asked_at = |visit: &Visit, other: &Visit| {
            other.server == visit.server && other.began < visit.began && visit.began < other.ended
        };
        self.misrouted().filter(|visit| self.misrouted().any(|other| asked_at(visit, other))).count()
    }
}

fn keys(visits: &[Visit]) -> BTreeMap<KeyName, Key<'_>> {
    let mut keys: BTreeMap<KeyName, Key> = BTreeMap::new();
    for visit in visits {
        let Some(name) = visit.key else { continue };
        let key = keys.entry(name).or_default();
        key.visits.push(visit);
        if visit.resumed {
            assert!(key.holder.is_none_or(|holder| holder == visit.server), "one key, one server");
            key.holder = Some(visit.server);
        }
    }
    keys
}

#[test]
fn ticket_keys_that_change_under_load_cost_few_misroutes() {
    let mut cluster = Cluster::new(ServerName::Nginx, Sessions::Tickets13, SERVERS);
    let control = control_path();
    let dispatcher = Dispatcher::new(&cluster.addresses(), &["--policy", "session", "--control", &control]);
    let crowd = Crowd::start(dispatcher.address, MEMBERS);
    crowd.await_more(200);
    let before = dispatcher.holdings();
    for round in 0..2 * SERVERS {
        cluster.servers[round % SERVERS].reload().unwrap();
        crowd.await_more(200);
    }
    let tally = crowd.finish();
    assert!(tally.cut.is_empty(), "a reload loses no connection: {:?}", tally.cut);
    let keys = keys(&tally.visits);
    assert!(keys.len() >= 3 * SERVERS, "{} keys were met", keys.len());
    for key in keys.values() {
        let (misrouted, refused) = (key.misrouted().count(), key.refused_by_holder());
        let (offered, unknowing) = (key.visits.len(), key.misrouted_unknowing());
        println!(
            "offered {offered} times: {misrouted} misroutes, {unknowing} of them before the server had answered \
             another, {refused} refused by its own server before that was known"
        );
        let most = (SERVERS - 1) * (1 + refused) + unknowing;
        assert!(misrouted <= most, "{misrouted} misroutes, at most {most}");
        let late = key.misrouted().filter(|visit| key.known_since().is_some_and(|known| visit.began > known)).count();
        assert_eq!(late, 0, "once a server took a ticket of it, no other gets one");
    }
    dispatcher.assert_at_rest(&control, &before);
}

fn config(control: &str, policy: &str, backends: &[SocketAddr]) -> String {
    let mut text = format!("listen = [\"127.0.0.1:0\"]\npolicy = \"{policy}\"\ncontrol = \"{control}\"\n");
    backends.iter().for_each(|address| text += &format!("[[backend]]\naddress = \"{address}\"\n"));
    text
}

#[test]
fn backends_and_policy_that_change_under_load_cut_no_connection() {
    let cluster = Cluster::new(ServerName::Nginx, Sessions::Tickets13, SERVERS);
    let all = cluster.addresses();
    let control = control_path();
    let (dispatcher, file) = Dispatcher::from_file(&config(&control, "session", &all));
    let crowd = Crowd::start(dispatcher.address, MEMBERS);
    crowd.await_more(200);
    let before = dispatcher.holdings();
    for round in 0..12 {
        let left_out = round % (SERVERS + 1);
        let backends: Vec<_> = all.iter().copied().filter(|address| all.get(left_out) != Some(address)).collect();
        let policy = ["session", "session+address", "round-robin"][round % 3];
        std::fs::write(file.path(), config(&control, policy, &backends)).unwrap();
        dispatcher.signal(Signal::HUP);
        eventually("the new settings are in force", || {
            let status = dispatcher.status(&control);
            status["policy"] == policy && status["backends"].as_array().unwrap().len() == backends.len()
        });
        crowd.await_more(50);
    }
    let tally = crowd.finish();
    println!(
        "12 reloads, {} connections, {} of {} sessions taken",
        tally.visits.len(),
        tally.resumed(),
        tally.offered()
    );
    assert!(tally.cut.is_empty(), "a reload loses no connection: {:?}", tally.cut);
    dispatcher.assert_at_rest(&control, &before);
}
