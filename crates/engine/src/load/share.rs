//! Which part of a load one of several loops makes, so that all parts together are exactly the load.

use std::net::SocketAddr;
use std::sync::Arc;

use tlsdyno_tls::Config;

use super::plan::{Pacing, Pause, Plan, Until};
use super::route::Route;

/// One part of a load that is cut into `count`: of what is numbered (users, arrivals of an open loop, source addresses)
/// it has what leaves the remainder `index`, of what is counted (connections, requests) an equal share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which part, from 0.
    pub index: u32,
    /// Number of parts.
    pub count: u32,
}

impl Default for Share {
    fn default() -> Share {
        Share { index: 0, count: 1 }
    }
}

impl Share {
    /// Its part of so many things that are all alike; the parts differ by one at most.
    pub fn portion(self, total: u64) -> u64 {
        let (index, count) = (u64::from(self.index), u64::from(self.count));
        total / count + u64::from(index < total % count)
    }

    /// How many of so many things the parts before it have.
    fn before(self, total: u64) -> u64 {
        let (index, count) = (u64::from(self.index), u64::from(self.count));
        index * (total / count) + index.min(total % count)
    }

    /// Whether what has this number is its.
    pub fn has(self, number: usize) -> bool {
        number as u64 % u64::from(self.count) == u64::from(self.index)
    }
}

impl Plan {
    /// The part of this plan that one of several loops carries out. It shares the workload with the others, and nothing
    /// that a loop writes to: a connection counts references to its TLS settings, so that these are the part's own.
    pub fn part(&self, share: Share) -> Result<Plan, &'static str> {
        if share.index >= share.count {
            return Err("it is cut into parts, and this is none of them");
        }
        if share.count == 1 {
            return Ok(self.clone());
        }
        if self.window.is_some() {
            return Err("the window over the order of a trace holds all requests together, and cannot be cut into \
                        parts; replay the log in one loop, or at its own times (--timing)");
        }
        let least = match self.until {
            Until::ConnectionsMade(count) | Until::Requests(count) => count,
            Until::Laps(_) | Until::Elapsed(_) => u64::MAX,
        };
        let least = least.min(u64::from(self.connections.total)).min(self.users.len() as u64);
        if least < u64::from(share.count) {
            return Err(
                "it has fewer connections, users or requests than loops, and each needs one; raise --connections \
                        (and --users or -n, if given), or use fewer --threads or --workers",
            );
        }
        let mut plan = self.clone();
        plan.share = share;
        plan.connections.total = share.portion(u64::from(self.connections.total)) as u32;
        if let Until::ConnectionsMade(count) | Until::Requests(count) = &mut plan.until {
            *count = share.portion(*count);
        }
        if let Pacing::Pauses(Pause { seed, .. }) = &mut plan.pacing {
            *seed = seed.wrapping_add(u64::from(share.index));
        }
        plan.route = self.route.part(share, self.connections.total);
        if let Some(tls) = &self.target.tls {
            let own = Config::new(tls.settings().clone()).map_err(|_| "its TLS settings cannot be made twice")?;
            plan.target.tls = Some(Arc::new(own));
        }
        Ok(plan)
    }
}

impl Route {
    /// The same with a part's share of the source addresses; where they are fewer than the parts, each has them all.
    /// Of several servers each part uses all in turn. It begins where the part before it ends: so clients, of which
    /// the load has so many, are spread over the servers as in one loop. Of connections nobody knows how many a part
    /// will make; each begins with another server.
    fn part(&self, share: Share, clients: u32) -> Route {
        let mut sources = self.sources.clone();
        if sources.len() >= share.count as usize {
            let mut number = 0;
            sources.retain(|_| {
                number += 1;
                share.has(number - 1)
            });
        }
        let first = if self.server_of_client { share.before(clients.into()) } else { share.index.into() };
        Route { sources, servers: rotated(&self.servers, first), ..self.clone() }
    }
}

/// The same servers in the same turn, from this one on.
fn rotated(servers: &[SocketAddr], first: u64) -> Vec<SocketAddr> {
    let mut servers = servers.to_vec();
    let places = first.checked_rem(servers.len() as u64).unwrap_or(0);
    servers.rotate_left(places as usize);
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_whole() {
        for (total, count) in [(64, 4), (65, 4), (67, 4), (3, 3), (2, 3), (0, 5)] {
            let parts: Vec<u64> = (0..count).map(|index| Share { index, count }.portion(total)).collect();
            assert_eq!(parts.iter().sum::<u64>(), total);
            assert!(parts[0] - parts[parts.len() - 1] <= 1, "{parts:?}");
        }
        let route = |count: u8| Route {
            sources: (1..=count).map(|last| [127, 0, 0, last].into()).collect(),
            ..Route::default()
        };
        let sources_of = |sources: u8, index| route(sources).part(Share { index, count: 3 }, 8).sources;
        assert_eq!([sources_of(8, 0).len(), sources_of(8, 1).len(), sources_of(8, 2).len()], [3, 3, 2]);
        assert_eq!(sources_of(8, 1)[1], "127.0.0.5".parse::<std::net::IpAddr>().unwrap());
        assert_eq!(sources_of(2, 1), route(2).sources, "too few for one each");
    }

    /// However a load is cut, each server has as many clients as in one loop, and each part uses all servers.
    #[test]
    fn parts_spread_clients_over_servers_as_one_loop_does() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        for (clients, servers, count) in [(16, 3, 2), (16, 2, 2), (17, 4, 3), (5, 5, 5), (9, 2, 4)] {
            let route = Route {
                servers: (1..=servers).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect(),
                server_of_client: true,
                ..Route::default()
            };
            let of_loop = |route: &Route, clients| -> Vec<u16> {
                (0..clients).map(|client| route.server(address, client, 0).port()).collect()
            };
            let part = |index| {
                let share = Share { index, count };
                of_loop(&route.part(share, clients), share.portion(clients.into()) as u32)
            };
            let whole: Vec<u16> = (0..count).flat_map(part).collect();
            assert_eq!(whole, of_loop(&route, clients), "{clients} clients, {servers} servers, {count} loops");
            let by_connection = Route { server_of_client: false, ..route };
            let first = |index| by_connection.part(Share { index, count }, clients).server(address, 0, 0).port();
            assert_eq!((first(0), first(1)), (1, 2));
        }
        assert!(Route::default().part(Share { index: 1, count: 2 }, 4).servers.is_empty());
    }
}
