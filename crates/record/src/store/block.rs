//! A block, the unit of statistics, and what it may be made of: slices, intervals under somebody else's traffic, the
//! work of each machine of a cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tlsdyno_base::histogram;
use tlsdyno_engine::load::Outcome;

use super::locks::LockSite;
use super::profile::ProfileBlock;
use super::reference::Reference;
use super::warning::Warning;

/// One uninterrupted measuring interval of one configuration: the unit of statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The round; one round holds one block of each configuration, all of equal work.
    pub round: u32,
    /// Index into [`Record::configurations`](super::Record::configurations).
    pub configuration: usize,
    /// Place in the random order of the round, from 0.
    pub position_in_round: u32,
    /// Start, nanoseconds after the start of the experiment.
    pub started_ns: u64,
    /// Duration, nanoseconds. Of a server with a quota of CPU time no less than the quota needs for `server_cpu_ns`.
    pub elapsed_ns: u64,
    /// Completed requests whose whole response was as expected.
    pub hits: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// CPU time of all server processes, nanoseconds.
    pub server_cpu_ns: u64,
    /// CPU time of the load process, nanoseconds.
    pub client_cpu_ns: u64,
    /// CPU time of servers that the server needs beside it (HAProxy's backend, memcached, redis), nanoseconds: no part
    /// of `server_cpu_ns`.
    pub companion_cpu_ns: u64,
    /// Connections opened.
    pub connections: u64,
    /// Full handshakes completed.
    pub handshakes_full: u64,
    /// Connections that the plan wanted to resume.
    pub resumed_intended: u64,
    /// Connections whose ClientHello carried a session.
    pub resumed_offered: u64,
    /// Connections on which the server took the session.
    pub resumed_accepted: u64,
    /// Failed requests and connections by kind.
    pub errors: BTreeMap<String, u64>,
    /// CPU time that the hypervisor took from this machine, nanoseconds, summed over its CPUs.
    pub steal_ns: u64,
    /// Mean time of a step of fixed work that was done now and then on the server's CPUs, picoseconds; 0: not sampled.
    pub pace_ps: u64,
    /// What fixed work cost just before the block; `None`: the last time is not long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// The client, not the server, was the bottleneck: hits per second are a lower bound. CPU per hit stays valid.
    pub client_bound: bool,
    /// The client was no bottleneck either: requests waited for each other, or somebody else had the server's CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsaturated: bool,
    /// Whether the block may be used.
    pub valid: bool,
    /// What the reader must know about the block.
    pub warnings: Vec<Warning>,
    /// Phase name to histogram of nanoseconds (V2 serialisation of HdrHistogram, base64).
    pub phases: BTreeMap<String, String>,
    /// In a cluster: who did how much of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterBlock>,
    /// Instructions that the server's processes executed in user space, where they were counted: such a block tells
    /// nothing else than that, as it ran under valgrind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Where locks were counted: what these processes did with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockSite>,
    /// Under somebody else's traffic: the intervals of this mode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// Where the block is made of slices: these, in the order that they ran, all of equal work within a sweep. The
    /// block's times and counts are their sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// Of a rising series: what the server held at each number of open connections, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryPoint>,
    /// In a profile: what was seen of the server's inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileBlock>,
}

/// What is counted of an interval of somebody else's traffic: places of the kinds of calls in [`Interval::counts`].
pub mod of_interval {
    use tlsdyno_tls::Stage;

    /// Place of the bytes in records.
    pub const BYTES: usize = Stage::Cipher as usize + 1;
    /// Kinds of calls. Behind the counts of all stand the counts of those that were computed twice.
    pub const CALLS: usize = Stage::PROVIDER.len() + 1;
    /// Place of the records that were copied only.
    pub const COPIES: usize = 2 * CALLS;
    /// Number of all places.
    pub const LENGTH: usize = COPIES + 1;

    /// Calls of a stage of the provider: of `authentication` full handshakes, of `cipher` records.
    pub const fn of(stage: Stage) -> usize {
        let place = stage as usize;
        if place < BYTES { place } else { place + 1 }
    }
}

/// Some milliseconds of somebody else's traffic in one mode. On disk an array: its times, then the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Interval {
    /// Start, microseconds after the start of the experiment.
    pub started_us: u64,
    /// Duration, microseconds.
    pub elapsed_us: u32,
    /// CPU time of all server processes, nanoseconds.
    pub server_cpu_ns: u64,
    /// What the server did ([`of_interval`]).
    pub counts: [u64; of_interval::LENGTH],
}

impl Interval {
    /// Whether anything was computed twice, or copied for that.
    pub fn is_doubled(&self) -> bool {
        self.counts[of_interval::CALLS..].iter().any(|count| *count > 0)
    }
}

impl From<Interval> for Vec<u64> {
    fn from(interval: Interval) -> Vec<u64> {
        let Interval { started_us, elapsed_us, server_cpu_ns, counts } = interval;
        [started_us, elapsed_us.into(), server_cpu_ns].into_iter().chain(counts).collect()
    }
}

impl TryFrom<Vec<u64>> for Interval {
    type Error = String;

    fn try_from(numbers: Vec<u64>) -> Result<Interval, String> {
        let of = |numbers: &[u64]| format!("an interval of {} numbers", numbers.len());
        let [started_us, elapsed_us, server_cpu_ns, known @ .., copies] = &numbers[..] else {
            return Err(of(&numbers));
        };
        // Older records have fewer kinds of calls.
        let calls = known.len() / 2;
        if known.len() % 2 != 0 || calls > of_interval::CALLS {
            return Err(of(&numbers));
        }
        let mut counts = [0; of_interval::LENGTH];
        counts[..calls].copy_from_slice(&known[..calls]);
        counts[of_interval::CALLS..][..calls].copy_from_slice(&known[calls..]);
        counts[of_interval::COPIES] = *copies;
        Ok(Interval { started_us: *started_us, elapsed_us: *elapsed_us as u32, server_cpu_ns: *server_cpu_ns, counts })
    }
}

/// Some milliseconds of one configuration's work, between two moments at which its server had nothing to do. On disk an
/// array of its fields in this order: a record holds thousands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 6]", into = "[u64; 6]")]
pub struct Slice {
    /// Number of the sweep; in one sweep each configuration has at least one slice, all of the same users.
    pub sweep_number: u32,
    /// Start, microseconds after the start of the experiment.
    pub started_us: u64,
    /// Duration, microseconds.
    pub elapsed_us: u32,
    /// CPU time of all server processes, nanoseconds.
    pub server_cpu_ns: u64,
    /// Completed requests.
    pub hits: u32,
    /// Full handshakes.
    pub handshakes_full: u32,
}

impl From<Slice> for [u64; 6] {
    fn from(slice: Slice) -> [u64; 6] {
        let Slice { sweep_number, started_us, elapsed_us, server_cpu_ns, hits, handshakes_full } = slice;
        [sweep_number.into(), started_us, elapsed_us.into(), server_cpu_ns, hits.into(), handshakes_full.into()]
    }
}

impl From<[u64; 6]> for Slice {
    fn from([sweep_number, started_us, elapsed_us, server_cpu_ns, hits, full]: [u64; 6]) -> Slice {
        let [sweep_number, elapsed_us, hits, handshakes_full] =
            [sweep_number, elapsed_us, hits, full].map(|value| value as u32);
        Slice { sweep_number, started_us, elapsed_us, server_cpu_ns, hits, handshakes_full }
    }
}

/// What the processes of a server hold while so many connections of ours are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPoint {
    /// Of ours, that are open.
    pub connections: u32,
    /// Memory, with each process's part of what several share, and without pages of files where the kernel tells them.
    pub pss_bytes: u64,
    /// Open files and sockets.
    pub descriptors: u64,
    /// Of the kernel, for the sockets and files of their control group; `None`: nobody accounts for it.
    pub kernel_bytes: Option<u64>,
}

impl Block {
    /// Adds a slice that counts, with what the client knows of it.
    pub fn add_slice(&mut self, slice: Slice, outcome: &Outcome) {
        if self.slices.is_empty() {
            self.started_ns = slice.started_us * 1_000;
        }
        self.valid = true;
        self.elapsed_ns += u64::from(slice.elapsed_us) * 1_000;
        self.server_cpu_ns += slice.server_cpu_ns;
        self.client_cpu_ns += outcome.client_cpu_ns;
        self.hits += outcome.hits;
        self.body_bytes += outcome.body_bytes;
        self.connections += outcome.connections;
        self.handshakes_full += outcome.handshakes.full;
        self.resumed_intended += outcome.handshakes.resumed_intended;
        self.resumed_offered += outcome.handshakes.resumed_offered;
        self.resumed_accepted += outcome.handshakes.resumed_accepted;
        self.slices.push(slice);
    }
}

impl From<&Outcome> for Block {
    /// What the client alone knows of a block; the rest is as by default.
    fn from(outcome: &Outcome) -> Block {
        Block {
            elapsed_ns: outcome.elapsed_ns,
            hits: outcome.hits,
            body_bytes: outcome.body_bytes,
            client_cpu_ns: outcome.client_cpu_ns,
            connections: outcome.connections,
            handshakes_full: outcome.handshakes.full,
            resumed_intended: outcome.handshakes.resumed_intended,
            resumed_offered: outcome.handshakes.resumed_offered,
            resumed_accepted: outcome.handshakes.resumed_accepted,
            errors: outcome.errors.iter().map(|(kind, count)| (kind.name().to_owned(), *count)).collect(),
            phases: outcome.phases.iter().map(|(phase, of)| (phase.name().to_owned(), histogram::encode(of))).collect(),
            ..Block::default()
        }
    }
}

/// Who did how much of a block's work in a cluster, or in an array, whose backends are the machines that end TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterBlock {
    /// CPU time of the dispatchers, nanoseconds: no part of `server_cpu_ns`, which is the sum over the backends and
    /// front ends.
    pub dispatcher_cpu_ns: u64,
    /// What ends TLS before the backends, where these do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub front_ends: Vec<BackendUse>,
    /// The backends, in their order.
    pub backends: Vec<BackendUse>,
    /// Requests of an open loop that were due and that no client was free for.
    pub unserved: u64,
}

/// What one backend did in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendUse {
    /// CPU time of all its processes, nanoseconds.
    pub cpu_ns: u64,
    /// Connections that the dispatcher passed to it, by the dispatcher's own count; requests by its own access log,
    /// where front ends choose it; 0 where nobody counts them, as in an array.
    pub connections: u64,
    /// What it was asked for, where it logs that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
}

/// What one backend was asked for in a block, by its own access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locality {
    /// Requests that the backend logged.
    pub requests: u64,
    /// Different objects that were requested.
    pub objects: u64,
    /// Bytes of these different objects.
    pub object_bytes: u64,
    /// Requests that an LRU cache of `cache_bytes` would miss: computed, and warm from the blocks of the same
    /// configuration before.
    pub misses: u64,
    /// Size of the computed cache, bytes.
    pub cache_bytes: u64,
}
