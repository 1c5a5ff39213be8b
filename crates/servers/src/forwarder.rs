//! Who works on the connections: what listens at an address may only pass them on.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_base::fault::Fault;
use tlsdyno_base::process_tree;
use tlsdyno_sys::process_cpu_ns;

/// How long connections are made, and how long none, in turn: longer where a busy machine makes few in that time.
const TURN: Duration = Duration::from_millis(60);
/// Least number of connections of a turn.
const CONNECTIONS_MIN: u32 = 8;
/// Pause after a turn, until its last closes are in the clocks.
const PAUSE: Duration = Duration::from_millis(3);
/// Turns of each kind. A program that has work of its own uses more in all turns with connections once in 128 times.
const TURNS: usize = 7;
/// A process that uses more than so many times what the server's use is the one that works.
const WORKS_MORE: f64 = 1.5;

/// Refuses a server whose connections another program works on: a forwarder, or a proxy behind which TLS ends. A
/// program that only happened to have work in the same turns is not found in as many others.
///
/// `own`: the processes of the server; `read_ns`: their CPU time, nanoseconds; `connection` makes one.
pub fn refuse(
    address: SocketAddr,
    own: &[u32],
    mut read_ns: impl FnMut() -> Result<u64>,
    mut connection: impl FnMut() -> Result<()>,
) -> Result<()> {
    let Some(pid) = who_works(own, &mut read_ns, &mut connection)? else { return Ok(()) };
    if who_works(own, &mut read_ns, &mut connection)? != Some(pid) {
        return Ok(());
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim();
    Err(Fault::Environment.wrap(anyhow::anyhow!(
        "the handshakes with {address} seem to be the work of process {pid} ({name}), which has more to do at each of \
         them than what listens there, which passes them on. Name the main process of who ends TLS with --pid"
    )))
}

/// The process, not of the server, that uses more than it in all turns with connections.
fn who_works(
    own: &[u32],
    read_ns: &mut impl FnMut() -> Result<u64>,
    connection: &mut impl FnMut() -> Result<()>,
) -> Result<Option<u32>> {
    let mut least: Option<BTreeMap<u32, f64>> = None;
    let mut server_ns = 0.0;
    for _ in 0..TURNS {
        let idle = Used::in_turn(read_ns, &mut || Ok(()))?;
        let busy = Used::in_turn(read_ns, connection)?;
        // What a program does by itself goes with time.
        let longer = busy.elapsed_s / idle.elapsed_s;
        server_ns += (busy.server_ns - longer * idle.server_ns) / TURNS as f64;
        let by_itself = |pid: u32| longer * idle.others.get(&pid).copied().unwrap_or(0.0);
        let more = busy.others.into_iter().map(|(pid, ns)| (pid, ns - by_itself(pid)));
        least = Some(match least {
            None => more.collect(),
            Some(least) => more.filter_map(|(pid, ns)| Some((pid, ns.min(*least.get(&pid)?)))).collect(),
        });
    }
    let others = least.unwrap_or_default().into_iter().filter(|(pid, _)| !own.contains(pid) && may_have_sockets(*pid));
    let dearest = others.max_by(|one, other| one.1.total_cmp(&other.1));
    Ok(dearest.filter(|(_, ns)| *ns > WORKS_MORE * server_ns.max(0.0)).map(|(pid, _)| pid))
}

/// Whether a process has a socket, as far as that is to be seen: a compiler has none.
fn may_have_sockets(pid: u32) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
    let is_socket = |path: PathBuf| path.as_os_str().as_encoded_bytes().starts_with(b"socket:");
    files.flatten().filter_map(|file| fs::read_link(file.path()).ok()).any(is_socket)
}

struct Used {
    elapsed_s: f64,
    server_ns: f64,
    others: BTreeMap<u32, f64>,
}

impl Used {
    fn in_turn(read_ns: &mut impl FnMut() -> Result<u64>, work: &mut impl FnMut() -> Result<()>) -> Result<Used> {
        let own = std::process::id();
        let pids = process_tree::numbers_in("/proc").into_iter().filter(|pid| *pid != own);
        let before: Vec<(u32, u64)> = pids.filter_map(|pid| Some((pid, process_cpu_ns(pid)?))).collect();
        let (server_before_ns, began) = (read_ns()?, Instant::now());
        let mut made_count = 0;
        while began.elapsed() < TURN || made_count < CONNECTIONS_MIN {
            work()?;
            made_count += 1;
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(PAUSE);
        let since = |before_ns: u64, now_ns: u64| now_ns.saturating_sub(before_ns) as f64;
        let server_ns = since(server_before_ns, read_ns()?);
        let others = before.iter().filter_map(|(pid, ns)| Some((*pid, since(*ns, process_cpu_ns(*pid)?)))).collect();
        Ok(Used { elapsed_s: began.elapsed().as_secs_f64(), server_ns, others })
    }
}
