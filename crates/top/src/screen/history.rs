//! An hour's history of the servers that are watched.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::kinds::Kinds;
use crate::server::Server;

/// A value is kept for each so much time, and so many of them.
const STEP: Duration = Duration::from_secs(10);
const STEPS: usize = 360;

/// The past of each server, by its first process.
#[derive(Default)]
pub struct History(pub(super) BTreeMap<u32, Past>);

/// The past of a server, oldest first.
#[derive(Clone, Debug)]
pub struct Past {
    read: Instant,
    before: [u64; 3],
    /// The share of TLS in its CPU time, percent; 0 where it was idle.
    pub shares: VecDeque<f64>,
    /// Handshakes a second.
    pub rates: VecDeque<f64>,
}

impl History {
    /// Notes what happened since the last step, once it is over.
    pub fn note(&mut self, servers: &[Server], kinds: &Kinds) {
        self.0.retain(|root, _| servers.iter().any(|server| server.root == *root));
        for server in servers {
            let now = || {
                let (samples, _) = server.since_begin();
                let counts = kinds.since_begin(server).unwrap_or_default();
                [samples.tls(), samples.total(), counts.complete() + counts.broken_off()]
            };
            let past = self.0.entry(server.root).or_insert_with(|| Past::since(now()));
            if past.read.elapsed() >= STEP {
                past.add(now(), past.read.elapsed());
            }
        }
    }

    /// That of the server with this first process.
    pub fn of(&self, root: u32) -> Option<&Past> {
        self.0.get(&root)
    }
}

impl Past {
    fn since(before: [u64; 3]) -> Past {
        Past { read: Instant::now(), before, shares: VecDeque::new(), rates: VecDeque::new() }
    }

    /// `now`: samples in TLS, all samples, handshakes since it is watched.
    fn add(&mut self, now: [u64; 3], elapsed: Duration) {
        let [tls, all, handshakes] = [0, 1, 2].map(|at| now[at].saturating_sub(self.before[at]) as f64);
        (self.read, self.before) = (Instant::now(), now);
        for (values, value) in
            [(&mut self.shares, 100.0 * tls / all.max(1.0)), (&mut self.rates, handshakes / elapsed.as_secs_f64())]
        {
            values.push_back(value);
            values.drain(..values.len().saturating_sub(STEPS));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A past with these samples and handshakes in steps of 10 s.
    pub fn past(steps: &[[u64; 3]]) -> Past {
        let mut past = Past::since([0; 3]);
        let mut sum = [0; 3];
        for step in steps {
            sum = [0, 1, 2].map(|at| sum[at] + step[at]);
            past.add(sum, STEP);
        }
        past
    }

    #[test]
    fn an_hour_is_kept_of_shares_and_rates() {
        let kept = past(&[[5, 10, 100], [0, 0, 0]]);
        assert_eq!((kept.shares, kept.rates), ([50.0, 0.0].into(), [10.0, 0.0].into()));
        let long = past(&[[1, 1, 1]; 400]);
        assert_eq!((long.shares.len(), long.rates.len()), (STEPS, STEPS));
    }
}
