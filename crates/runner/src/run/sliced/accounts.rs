//! What servers use of the CPU, read when they rest, and whether their processes stay the same meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_servers::cpu::{Clocks, ProcessClocks};
use tlsdyno_servers::{Instance, Vigil};

use super::SlicedPart;
use crate::run::testbed::{Testbed, log_tail};

/// Maximum number of processes that may end while a server is looked at.
const ENDINGS_MAX: u32 = 20;
/// Maximum excess of a server's account over its clocks, nanoseconds: where the account is exact, and where it counts
/// ended processes in ticks.
const SLACK_NS: u64 = 500_000;
const SLACK_OF_TICKS_NS: u64 = 50_000_000;
const COME_AND_GO: &str = "it has processes that come and go, as one for each connection";
const WITHOUT_GROUP: &str = "only a control group tells what those use within milliseconds, and none can be made \
                             here: run tlsdyno as root, or compare in blocks (--slice 0)";

/// A running server, with its name in messages.
pub(super) struct Running<'a> {
    /// Its configuration in the testbed.
    pub(super) host: usize,
    pub(super) name: &'a str,
    pub(super) instance: &'a mut Instance,
}

impl<'a> Running<'a> {
    pub(super) fn of(testbed: &'a mut Testbed, part: &'a SlicedPart) -> Result<Running<'a>> {
        let (host, name) = (testbed.host(part.server), part.name.as_str());
        let instance = testbed.instance(part.server);
        let instance = instance.with_context(|| format!("the server of \"{name}\" does not run"));
        Ok(Running { host, name, instance: instance.or_fault(Fault::Server)? })
    }

    /// CPU time of the server since its start, nanoseconds. Fails where all of it has died.
    pub(super) fn account_ns(&mut self) -> Result<u64> {
        let died = |_: &Instance, obituary: &str| format!("configuration \"{}\": {obituary}", self.name);
        self.instance.living_cpu_ns(died)
    }
}

/// A server at the moment of its last rest.
struct Resting {
    clocks: Clocks,
    cpu_ns: u64,
    /// First reading of these clocks, and of the account of the whole server, which also includes ended processes.
    begun_ns: [u64; 2],
    /// No slice was measured by these clocks yet.
    is_new: bool,
    vigil: Vigil,
}

/// Reads the CPU time of servers.
#[derive(Default)]
pub(super) struct Accounts {
    resting: BTreeMap<usize, Resting>,
    /// Servers whose processes come and go: the accounts of their control groups tell their CPU time.
    by_group: BTreeSet<usize>,
    /// CPU time between slices, nanoseconds.
    pub(super) late_ns: u64,
}

impl Accounts {
    /// Source of a server's CPU time.
    fn clocks(&self, server: &Running) -> Clocks {
        let by_group = self.by_group.contains(&server.host);
        let group = if by_group { server.instance.group_clock() } else { None };
        group.map_or_else(|| Clocks::Processes(ProcessClocks::new(server.instance.pids())), Clocks::Group)
    }

    /// Reads the clocks of the processes that a server has now, once it rests.
    pub(super) fn rest_anew(&mut self, server: &mut Running) -> Result<u64> {
        for _ in 0..ENDINGS_MAX {
            let vigil = server.instance.watch();
            let clocks = self.clocks(server);
            let Some(cpu_ns) = clocks.at_rest_ns() else { continue };
            let begun_ns = [cpu_ns, server.account_ns()?];
            self.resting.insert(server.host, Resting { clocks, cpu_ns, begun_ns, is_new: true, vigil });
            return Ok(cpu_ns);
        }
        server.account_ns()?;
        let (name, log) = (server.name, log_tail(server.instance));
        Err(Fault::Server.wrap(anyhow!("processes of the server of \"{name}\" end one after the other{log}")))
    }

    /// CPU time of a server that has rested since the last slice; the increase of its clocks since then is late work.
    pub(super) fn before_slice(&mut self, server: &mut Running) -> Result<u64> {
        let resting = &self.resting[&server.host];
        let Some(now_ns) = resting.clocks.read_ns() else { return self.after_an_ending(server) };
        self.late_ns += now_ns.saturating_sub(resting.cpu_ns);
        Ok(now_ns)
    }

    /// CPU time of a server once it rests after a slice; and the reason why that is incomplete, if it is.
    pub(super) fn after_slice(&mut self, server: &mut Running) -> Result<(u64, Option<String>)> {
        let Some(cpu_ns) = self.resting[&server.host].clocks.at_rest_ns() else {
            let fault = "a process of the server ended in a slice".to_owned();
            return Ok((self.after_an_ending(server)?, Some(fault)));
        };
        let mut is_new = false;
        if let Some(resting) = self.resting.get_mut(&server.host) {
            resting.cpu_ns = cpu_ns;
            is_new = std::mem::take(&mut resting.is_new);
        }
        if is_new && server.instance.group_clock().is_some() && self.misses_processes(server)? {
            self.by_group.insert(server.host);
            return Ok((self.rest_anew(server)?, Some(COME_AND_GO.to_owned())));
        }
        Ok((cpu_ns, None))
    }

    /// A process has ended: that is no death if its work is done.
    fn after_an_ending(&mut self, server: &mut Running) -> Result<u64> {
        server.account_ns()?;
        if let Some(mut before) = self.resting.remove(&server.host)
            && let Some(death) = server.instance.awaited_death(&mut before.vigil)
        {
            let (name, log) = (server.name, log_tail(server.instance));
            return Err(Fault::Server.wrap(anyhow!("the server of \"{name}\": {death}{log}")));
        }
        self.rest_anew(server)
    }

    /// Processes that its clocks do not include have worked since the first reading.
    fn misses_processes(&self, server: &mut Running) -> Result<bool> {
        let Some(Resting { clocks, begun_ns: [clocks_ns, all_ns], .. }) = self.resting.get(&server.host) else {
            return Ok(false);
        };
        if matches!(clocks, Clocks::Group(_)) {
            return Ok(false);
        }
        // Both now: the last slice may have been cut.
        let Some(now_ns) = clocks.at_rest_ns() else { return Ok(true) };
        let (seen, all) = (now_ns.saturating_sub(*clocks_ns), server.account_ns()?.saturating_sub(*all_ns));
        let slack_ns = if server.instance.group_clock().is_some() { SLACK_NS } else { SLACK_OF_TICKS_NS };
        Ok(all > seen + seen / 10 + slack_ns)
    }

    /// Processes of a server came or went since the last new reading, whose work its clocks lack. Fails where they keep
    /// coming and going, and nothing tells their CPU time.
    pub(super) fn has_changed(&mut self, server: &mut Running) -> Result<bool> {
        if self.clocks(server) != self.resting[&server.host].clocks {
            return Ok(true);
        }
        if !self.misses_processes(server)? {
            return Ok(false);
        }
        let name = server.name;
        ensure_fault!(
            Environment,
            server.instance.group_clock().is_some(),
            "the server of \"{name}\": {COME_AND_GO}; {WITHOUT_GROUP}"
        );
        self.by_group.insert(server.host);
        Ok(true)
    }
}
