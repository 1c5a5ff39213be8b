//! Who works on the connections: what listens at an address may only pass them on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_base::fault::Fault;
use tlsdyno_base::process_tree;
use tlsdyno_engine::sys::process_cpu_ns;

use crate::server::Server;

/// How long connections are made, and how long none, in turn.
const TURN: Duration = Duration::from_millis(60);
/// After a turn, until its last closes are in the clocks.
const PAUSE: Duration = Duration::from_millis(3);
/// Turns of each kind. A program that has work of its own uses more in all turns with connections once in 128 times.
const TURNS: usize = 7;
/// A process that uses more than so many times what the server's use is the one that works.
const WORKS_MORE: f64 = 1.5;

/// Refuses a server whose connections another program works on: a forwarder, or a proxy behind which TLS ends.
///
/// # Errors
/// Names that program; what `connection` says, which makes one.
pub(crate) fn refuse(server: &mut Server, mut connection: impl FnMut() -> Result<()>) -> Result<()> {
    let mut least: Option<BTreeMap<u32, f64>> = None;
    let mut server_ns = 0.0;
    for _ in 0..TURNS {
        let idle = Used::in_turn(server, || Ok(()))?;
        let busy = Used::in_turn(server, &mut connection)?;
        server_ns += (busy.server_ns - idle.server_ns) / TURNS as f64;
        let more = busy.others.into_iter().map(|(pid, ns)| (pid, ns - idle.others.get(&pid).copied().unwrap_or(0.0)));
        least = Some(match least {
            None => more.collect(),
            Some(least) => more.filter_map(|(pid, ns)| Some((pid, ns.min(*least.get(&pid)?)))).collect(),
        });
    }
    let Some(own) = server.pids_here() else { return Ok(()) };
    let others = least.unwrap_or_default().into_iter().filter(|(pid, _)| !own.contains(pid));
    let dearest = others.max_by(|one, other| one.1.total_cmp(&other.1));
    let Some((pid, _)) = dearest.filter(|(_, ns)| *ns > WORKS_MORE * server_ns.max(0.0)) else { return Ok(()) };
    let listens = server.about()?.1;
    let error = anyhow::anyhow!(
        "the handshakes with {} are the work of process {pid} ({}): what listens there ({listens}) passes them on. \
         Name the main process of the server that ends TLS with --pid",
        server.address,
        process_tree::command_line(pid),
    );
    Err(Fault::Environment.of(error))
}

/// CPU time in a turn, nanoseconds.
struct Used {
    server_ns: f64,
    others: BTreeMap<u32, f64>,
}

impl Used {
    fn in_turn(server: &mut Server, mut work: impl FnMut() -> Result<()>) -> Result<Used> {
        let own = std::process::id();
        let pids = process_tree::numbers_in("/proc").into_iter().filter(|pid| *pid != own);
        let before: Vec<(u32, u64)> = pids.filter_map(|pid| Some((pid, process_cpu_ns(pid)?))).collect();
        let (server_before_ns, began) = (server.read_ns()?, Instant::now());
        while began.elapsed() < TURN {
            work()?;
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(PAUSE);
        let since = |before_ns: u64, now_ns: u64| now_ns.saturating_sub(before_ns) as f64;
        let server_ns = since(server_before_ns, server.read_ns()?);
        let others = before.iter().filter_map(|(pid, ns)| Some((*pid, since(*ns, process_cpu_ns(*pid)?)))).collect();
        Ok(Used { server_ns, others })
    }
}
