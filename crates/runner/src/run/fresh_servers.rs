//! Servers that take the place of those that were measured: one start differs from the next by more than its blocks or
//! slices do from each other, so that an interval needs several.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_record::model::ServerName;
use tlsdyno_servers::driver_of;

use super::testbed::Testbed;

/// Maximum number of servers of one configuration that are started in advance.
const POOL_MAX: u32 = 16;
/// `POOL_MAX` of servers with a process for each connection: every look at running processes visits all of them.
const POOL_MAX_OF_MANY_PROCESSES: u32 = 4;

/// Starts several servers in advance, to replace measured ones.
#[derive(Clone, Copy, Debug)]
pub struct FreshServers {
    /// Servers of one configuration that are started in advance.
    pub pool_size: u32,
    /// Time to start one server.
    pub time_to_start: Duration,
}

impl FreshServers {
    /// `rounds`: planned rounds; `None`: as many as fit into the time.
    pub fn new(kind: ServerName, rounds: Option<u32>) -> FreshServers {
        let many_processes = driver_of(kind).capabilities.is_some_and(|can| can.process_per_connection);
        let most = if many_processes { POOL_MAX_OF_MANY_PROCESSES } else { POOL_MAX };
        FreshServers { pool_size: rounds.unwrap_or(most).min(most), time_to_start: Duration::ZERO }
    }

    /// Fills the pools of these configurations. Starts at most one more server of each after `until`, and reduces the
    /// pool size to that.
    pub fn start(&mut self, testbed: &mut Testbed, indices: &BTreeSet<usize>, until: Option<Instant>) -> Result<()> {
        let began = Instant::now();
        let mut started = 0;
        while started < self.pool_size && (started == 0 || until.is_none_or(|until| Instant::now() < until)) {
            testbed.fill_pools(indices, 1)?;
            started += 1;
        }
        self.pool_size = started;
        let count = started * indices.len().max(1) as u32;
        self.time_to_start = self.time_to_start.max(began.elapsed() / count.max(1));
        Ok(())
    }

    /// Predicted time to fill the pools; 0 while each has the `wanted` number.
    pub fn time(&self, testbed: &Testbed, indices: &BTreeSet<usize>, wanted: impl Fn(usize) -> usize) -> Duration {
        match indices.iter().any(|&index| testbed.servers[index].pool.unmeasured() < wanted(index)) {
            true => self.time_to_start * self.pool_size * indices.len() as u32,
            false => Duration::ZERO,
        }
    }
}
