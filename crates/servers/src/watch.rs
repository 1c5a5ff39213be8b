//! What is seen of the CPU time of a server that was not started for that: on this machine, and by a worker on another.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::until::until;
use tlsdyno_base::{listening, process_tree};
use tlsdyno_record::model::worker::{Look, Seen};
use tlsdyno_record::store::MemoryPoint;

use super::cgroup::GroupClock;
use super::cpu::{Clocks, ProcessClocks};
use super::memory;

/// A server rests when its clocks stand still for so long, and comes to rest so soon.
const REST: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(40)];

/// Maximum time until all processes that are listed live.
const LISTING: Duration = Duration::from_millis(500);

/// The processes whose CPU time is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOwner {
    /// This process and all its descendants.
    Process(u32),
    /// The processes that listen at this address, and all their descendants.
    Listener(SocketAddr),
}

impl FromStr for CpuOwner {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuOwner, String> {
        let listener = || text.parse().map(CpuOwner::Listener);
        let owner = text.parse().map(CpuOwner::Process).or_else(|_| listener());
        owner.map_err(|_| "a process number or an IP:PORT on which it listens".to_owned())
    }
}

impl CpuOwner {
    fn listed(self) -> Result<ProcessClocks> {
        Ok(match self {
            CpuOwner::Process(pid) => ProcessClocks::with_descendants([pid]),
            CpuOwner::Listener(address) => {
                let owners = listening::owner_numbers(&address).filter(|owners| !owners.is_empty());
                owners.map(ProcessClocks::with_descendants).with_context(|| {
                    format!(
                        "no process of yours on this machine listens on {address}, so that its CPU time cannot be \
                         read. Run as the server's user or as root, or name its main process with --pid"
                    )
                })?
            }
        })
    }

    fn clocks(self) -> Result<ProcessClocks> {
        // One that has served a connection may end while it is looked at.
        let is_alive = |clocks: &ProcessClocks| clocks.read_ns().is_some();
        let clocks = until(LISTING, Duration::ZERO, || self.listed(), is_alive)?;
        clocks.read_ns().with_context(|| match self {
            CpuOwner::Process(pid) => format!("there is no process {pid} that you may look into"),
            CpuOwner::Listener(address) => format!("the processes that listen on {address} have ended"),
        })?;
        Ok(clocks)
    }
}

pub struct Watch {
    find: Box<dyn Fn() -> Result<ProcessClocks>>,
    clocks: Clocks,
}

impl Watch {
    /// Watches a server that runs.
    pub fn new(owner: CpuOwner) -> Result<Watch> {
        let find = Box::new(move || owner.clocks());
        Ok(Watch { clocks: Clocks::Processes(find()?), find })
    }

    /// Watches the processes that `find` finds, or their control group.
    pub fn with_finder(find: impl Fn() -> Result<ProcessClocks> + 'static, group: Option<GroupClock>) -> Result<Watch> {
        let clocks = group.map_or_else(|| find().map(Clocks::Processes), |group| Ok(Clocks::Group(group)))?;
        Ok(Watch { find: Box::new(find), clocks })
    }

    pub fn pids(&self) -> Vec<u32> {
        self.clocks.pids()
    }

    /// Answers a question about them.
    ///
    /// # Errors
    /// None of them is left.
    pub fn observe(&mut self, look: Look) -> Result<Seen> {
        Ok(match look {
            Look::Clock => Seen::CpuNs(self.clocks.read_ns()),
            Look::AtRest => {
                let ns = self.clocks.at_rest_ns();
                if ns.is_none() {
                    self.has_changed()?;
                }
                Seen::CpuNs(ns)
            }
            Look::Rests => {
                let [quiet, limit] = REST;
                Seen::IsSo(ProcessClocks::new(self.pids()).rest_within(limit, quiet))
            }
            Look::Changed => Seen::IsSo(self.has_changed()?),
            Look::ForEach => {
                let pids = self.pids();
                let clocks = GroupClock::around(&pids).map(Clocks::Group).or_else(|| Clocks::waited(&pids));
                let can_be_read = clocks.is_some();
                self.clocks = clocks.unwrap_or_else(|| self.clocks.clone());
                Seen::IsSo(can_be_read)
            }
            Look::About => Seen::About {
                command: self.pids().first().copied().map(process_tree::command_line).unwrap_or_default(),
                accounting: self.clocks.name().to_owned(),
            },
        })
    }

    /// What the processes hold that serve now.
    pub fn memory(&mut self) -> Result<MemoryPoint> {
        self.has_changed()?;
        let pids = self.pids();
        let group = match &self.clocks {
            Clocks::Group(group) => Some(group.clone()),
            Clocks::Processes(_) | Clocks::Waited(_) => GroupClock::around(&pids),
        };
        let kernel_bytes = group.and_then(|group| group.kernel_bytes());
        Ok(MemoryPoint { kernel_bytes, ..memory::of_processes(&pids)? })
    }

    fn has_changed(&mut self) -> Result<bool> {
        if !matches!(self.clocks, Clocks::Processes(_)) {
            return Ok(false);
        }
        let now = Clocks::Processes((self.find)()?);
        let changed = now != self.clocks;
        self.clocks = now;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut watch = Watch::new(child.id().to_string().parse().unwrap()).unwrap();
        assert_eq!(watch.observe(Look::Rests).unwrap(), Seen::IsSo(true));
        assert!(matches!(watch.observe(Look::AtRest).unwrap(), Seen::CpuNs(Some(_))));
        let about = Seen::About { command: "sleep 60".to_owned(), accounting: "processes".to_owned() };
        assert_eq!(watch.observe(Look::About).unwrap(), about);
        assert_eq!(watch.observe(Look::Changed).unwrap(), Seen::IsSo(false));
        child.kill().unwrap();
        child.wait().unwrap();
        let error = watch.observe(Look::AtRest).unwrap_err().to_string();
        assert!(error.contains("there is no process"), "{error}");
        assert!("0.0.0.0".parse::<CpuOwner>().unwrap_err().contains("IP:PORT"));
    }
}
