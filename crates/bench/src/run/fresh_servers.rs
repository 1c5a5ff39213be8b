//! Servers that take the place of those that were measured: one start differs from the next by more than its blocks or
//! slices do from each other, so that an interval needs several.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_record::model::ServerName;
use tlsdyno_servers::driver_of;

use super::testbed::Testbed;

/// Most servers of one configuration that are started at a time.
const POOL_MAX: u32 = 16;
/// The same of servers with a process for each connection: every look at who runs walks over all of them.
const POOL_MAX_OF_MANY_PROCESSES: u32 = 4;

/// How they are started: several at a time, in advance.
#[derive(Clone, Copy, Debug)]
pub struct FreshServers {
    /// Servers of one configuration that are started at a time.
    pub pool_size: u32,
    /// Time to start one.
    pub time_to_start: Duration,
}

impl FreshServers {
    /// For servers of this kind that are measured in so many rounds; `None`: in as many as there is time for.
    pub fn new(kind: ServerName, rounds: Option<u32>) -> FreshServers {
        let many_processes = driver_of(kind).capabilities.is_some_and(|can| can.process_per_connection);
        let most = if many_processes { POOL_MAX_OF_MANY_PROCESSES } else { POOL_MAX };
        FreshServers { pool_size: rounds.unwrap_or(most).min(most), time_to_start: Duration::ZERO }
    }

    /// Fills the pools of these configurations with new servers. After `until` one of each is the last, and
    /// the pools are that much smaller.
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

    /// Time that filling them will take; nothing while each has as many as are `wanted`.
    pub fn time(&self, testbed: &Testbed, indices: &BTreeSet<usize>, wanted: impl Fn(usize) -> usize) -> Duration {
        match indices.iter().any(|&index| testbed.servers[index].pool.unmeasured() < wanted(index)) {
            true => self.time_to_start * self.pool_size * indices.len() as u32,
            false => Duration::ZERO,
        }
    }
}
