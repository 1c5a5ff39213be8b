//! What `tlsdyno top` answers, as one JSON object (docs/FORMAT.md). Each question about a server has a section of its
//! own; the share of its CPU is the first.

use std::net::SocketAddr;

use serde::Serialize;
use tlsdyno_base::bootstrap::Estimate;

use crate::counters::Told;
use crate::kinds::Passed;
use crate::part::Part;
use crate::server::{Seen, Server};
use crate::what_if::WhatIfs;

/// Version of the form.
const FORMAT: u32 = 1;

/// What was seen of all servers.
#[derive(Debug, Serialize)]
pub struct Answer {
    format: u32,
    servers: Vec<OfServer>,
    #[serde(flatten)]
    counters: Told,
    own_cpu_ns: u64,
    /// Time since this program began.
    elapsed_ns: u64,
}

impl Answer {
    /// Of these servers; this program used so much CPU time since it began.
    pub fn of(servers: Vec<OfServer>, counters: Told, own_cpu_ns: u64, elapsed_ns: u64) -> Answer {
        Answer { format: FORMAT, servers, counters, own_cpu_ns, elapsed_ns }
    }
}

/// What was seen of a server.
#[derive(Debug, Serialize)]
pub struct OfServer {
    name: String,
    pid: u32,
    processes_count: usize,
    addresses: Vec<SocketAddr>,
    libraries: Vec<OfLibrary>,
    cpu: Cpu,
    /// Handshakes that passed; `null`: they are not seen.
    handshakes: Option<Passed>,
    /// Reason why handshakes are not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    handshakes_unseen: Option<String>,
    #[serde(flatten)]
    what_ifs: Option<WhatIfs>,
}

#[derive(Debug, Serialize)]
struct OfLibrary {
    library: &'static str,
    version: String,
    /// It is part of the program.
    is_static: bool,
}

/// The share of TLS in the server's CPU time.
#[derive(Debug, Serialize)]
struct Cpu {
    cpus_count: usize,
    /// The kernel's clocks of the processes.
    cpu_ns: u64,
    elapsed_ns: u64,
    /// CPU time between two samples of a thread.
    period_ns: u64,
    samples_count: u64,
    lost_count: u64,
    unknown_count: u64,
    /// Without it, time in the kernel is in no share.
    sees_kernel: bool,
    tls: Share,
    parts: Vec<OfPart>,
}

/// A share of the samples, percent, with its 95 % interval; `null`: unknown.
#[derive(Debug, Serialize)]
struct Share {
    samples_count: u64,
    percent: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OfPart {
    part: Part,
    #[serde(flatten)]
    share: Share,
}

impl Share {
    fn of(samples_count: u64, share: Estimate) -> Share {
        let finite = |number: f64| number.is_finite().then_some(number);
        Share { samples_count, percent: finite(share.value), low: finite(share.low), high: finite(share.high) }
    }
}

impl OfServer {
    /// What was seen of it.
    pub fn of(server: &Server, seen: &Seen, passed: Result<(Passed, WhatIfs), String>) -> OfServer {
        let (handshakes, what_ifs, handshakes_unseen) = match passed {
            Ok((passed, what_ifs)) => (Some(passed), Some(what_ifs), None),
            Err(why) => (None, None, Some(why)),
        };
        let Seen { shares, .. } = seen;
        let counts = &shares.counts;
        let part = |part: Part| OfPart { part, share: Share::of(counts.of(part), shares.part(part)) };
        let library = |found: &crate::libraries::Found| OfLibrary {
            library: found.library.id,
            version: found.version.clone(),
            is_static: found.program.is_some(),
        };
        OfServer {
            name: server.name.clone(),
            pid: server.root,
            processes_count: seen.processes_count,
            addresses: server.addresses.iter().copied().collect(),
            libraries: server.libraries.iter().map(library).collect(),
            cpu: Cpu {
                cpus_count: seen.cpus_count,
                cpu_ns: seen.cpu_ns,
                elapsed_ns: seen.elapsed.as_nanos() as u64,
                period_ns: seen.period_ns,
                samples_count: counts.total(),
                lost_count: counts.lost(),
                unknown_count: counts.unknown(),
                sees_kernel: seen.sees_kernel,
                tls: Share::of(counts.tls(), shares.tls()),
                parts: Part::ALL.map(part).into(),
            },
            handshakes,
            handshakes_unseen,
            what_ifs,
        }
    }
}
