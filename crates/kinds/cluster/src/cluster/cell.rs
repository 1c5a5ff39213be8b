//! One cell of a cluster experiment: a policy under one traffic.
//! Circle: a cluster experiment lists its cells, and a cell holds one of the cluster's settings.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use tlsdyno_engine::load::{Arrivals, Connections, Pacing, Plan, Rate, Resumption, Route};
use tlsdyno_record::model::Policy;
use tlsdyno_runner::run::load_process::Sessions;

use crate::cluster::file::Sharing;
use crate::cluster::front::{self, Front, Way};

pub const PLAIN_HTTP: &str = "plain HTTP";

/// What a cell is measured for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Point,
    /// A closed loop of all clients: what an open loop that saturates must agree with.
    Capacity,
    /// One client at the smallest rate: what light load must agree with.
    Alone,
}

impl Role {
    fn is_point(&self) -> bool {
        *self == Role::Point
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    pub sharing: Sharing,
    /// How connections are dispatched, or the requests that front ends pass on.
    pub policy: Policy,
    /// What ends TLS before the servers; `None`: they do, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<Front>,
    /// Part of the clients that have one address together, per cent.
    pub behind_one_address_percent: f64,
    /// Connections that offer a session again, per cent.
    pub reuse_percent: f64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// How long the dispatcher remembers which backend holds a session, seconds; `None`: an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatcher_timeout_s: Option<u32>,
    pub clients: u32,
    /// Connections a second; `None`: closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Role::is_point")]
    pub role: Role,
}

impl Cell {
    /// The name in tables: whatever distinguishes it among `all`.
    pub fn name(&self, all: &[Cell]) -> String {
        format!("{}, {}", self.way_name(), self.traffic(all))
    }

    /// Its way and reuse, by which files name it.
    pub fn short_name(&self) -> String {
        format!("{}, {}", self.way_name(), self.reuse_name())
    }

    pub fn way_name(&self) -> String {
        front::name(&self.way())
    }

    /// The way of its requests: ways are what is compared under one traffic.
    pub fn way(&self) -> Way {
        (self.policy, self.front)
    }

    pub fn traffic(&self, all: &[Cell]) -> String {
        let mut parts = vec![self.reuse_name()];
        parts.extend(self.besides_reuse(all));
        parts.join(", ")
    }

    pub fn reuse_name(&self) -> String {
        if self.plain { PLAIN_HTTP.to_owned() } else { format!("{} % reuse", self.reuse_percent) }
    }

    /// What distinguishes it among `all` besides way and reuse.
    pub fn besides_reuse(&self, all: &[Cell]) -> Vec<String> {
        let several = |differs: &dyn Fn(&Cell) -> bool| all.iter().any(differs);
        let mut parts = Vec::new();
        if several(&|other| other.sharing != self.sharing) {
            parts.push(format!("{} sessions", self.sharing.name()));
        }
        if several(&|other| other.behind_one_address_percent != self.behind_one_address_percent) {
            parts.push(format!("{} % behind one address", self.behind_one_address_percent));
        }
        parts.extend(self.dispatcher_timeout_s.map(|seconds| format!("remembered for {seconds} s")));
        match self.rate_per_s {
            Some(rate) if self.role == Role::Alone => parts.push(format!("{rate}/s by one client")),
            Some(rate) => parts.push(format!("{rate}/s")),
            None if self.role == Role::Capacity => parts.push("closed loop".to_owned()),
            None if several(&|other| other.clients != self.clients) => parts.push(format!("{} clients", self.clients)),
            None => {}
        }
        parts
    }

    /// Whether it differs from `other` in its way only.
    pub fn has_traffic_of(&self, other: &Cell) -> bool {
        Cell { policy: other.policy, front: other.front, ..self.clone() } == *other
    }

    pub fn reuse(&self) -> Resumption {
        if self.reuse_percent == 0.0 { Resumption::Never } else { Resumption::ShareOfEach(self.reuse_percent / 100.0) }
    }

    /// How it is loaded. `has_addresses`: each client can have an address of its own.
    pub fn loaded(&self, plan: Plan, has_addresses: bool) -> Plan {
        let sources = if has_addresses { self.sources() } else { Vec::new() };
        let poisson = |per_second| Pacing::Open(Rate { per_second, arrivals: Arrivals::Poisson, seed: 0 });
        Plan {
            route: Route { sources, source_of_client: true, ..Route::default() },
            connections: Connections { total: self.clients, ..plan.connections },
            resumption: self.reuse(),
            pacing: self.rate_per_s.map_or(plan.pacing, poisson),
            ..plan
        }
    }

    /// At low rates a block has fewer connections than clients: their first ones would be all there is. So these keep
    /// their sessions from block to block, and what an open loop is checked with begins as it does.
    pub fn sessions(&self) -> Sessions {
        if self.rate_per_s.is_some() || !self.role.is_point() { Sessions::Kept } else { Sessions::New }
    }

    /// The address of each client, all on loopback: those behind the proxy share the first one, the others have each
    /// their own.
    fn sources(&self) -> Vec<IpAddr> {
        let behind = (f64::from(self.clients) * self.behind_one_address_percent / 100.0).round() as u32;
        let own = |client: u32| {
            let [_, _, high, low] = client.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(127, 1 + high, low, 1))
        };
        (0..self.clients).map(|client| if client < behind { own(0) } else { own(client + 1) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tlsdyno_engine::dispatch;

    use super::*;

    fn cell() -> Cell {
        Cell {
            sharing: Sharing::Own,
            policy: Policy::Own(dispatch::Policy::Session),
            front: None,
            behind_one_address_percent: 0.0,
            reuse_percent: 80.0,
            plain: false,
            dispatcher_timeout_s: None,
            clients: 8,
            rate_per_s: None,
            role: Role::Point,
        }
    }

    #[test]
    fn names_hold_what_distinguishes() {
        let all = [cell(), Cell { clients: 16, ..cell() }];
        assert_eq!(all[1].name(&all), "session, 80 % reuse, 16 clients");
        assert_eq!(all[1].name(&all[1..]), "session, 80 % reuse");
        let all = [cell(), Cell { behind_one_address_percent: 50.0, rate_per_s: Some(10.0), ..cell() }];
        assert_eq!(all[1].name(&all), "session, 80 % reuse, 50 % behind one address, 10/s");
    }

    #[test]
    fn a_share_of_the_clients_has_one_address() {
        for (percent, different) in [(0.0, 8), (50.0, 5), (100.0, 1)] {
            let sources = Cell { behind_one_address_percent: percent, ..cell() }.sources();
            assert_eq!(sources.len(), 8);
            assert!(sources.iter().all(IpAddr::is_loopback));
            assert_eq!(sources.iter().collect::<BTreeSet<_>>().len(), different);
        }
        let many = Cell { clients: 4096, ..cell() }.sources();
        assert_eq!(many.iter().collect::<BTreeSet<_>>().len(), 4096);
    }
}
