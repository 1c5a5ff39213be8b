//! What is seen of the CPU time of a server that was not started for that: on this machine, and by a worker on another.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::{listening, process_tree};
use tlsdyno_record::model::worker::{Look, Seen};

use super::cgroup::GroupClock;
use super::cpu::{Clocks, ProcessClocks};

/// A server rests when its clocks stand still for so long, and comes to rest so soon.
const REST: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(40)];

/// Whose CPU time is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of this process and all below it.
    Process(u32),
    /// That of the processes that listen there, and all below them.
    Listener(SocketAddr),
}

impl FromStr for Whose {
    type Err = String;

    fn from_str(text: &str) -> Result<Whose, String> {
        let listener = || text.parse().map(Whose::Listener);
        let of = text.parse().map(Whose::Process).or_else(|_| listener());
        of.map_err(|_| "a process number or an IP:PORT on which it listens".to_owned())
    }
}

impl Whose {
    /// Their processes now.
    fn clocks(self) -> Result<ProcessClocks> {
        let clocks = match self {
            Whose::Process(pid) => ProcessClocks::with_descendants([pid]),
            Whose::Listener(address) => {
                let owners = listening::owner_numbers(&address).filter(|owners| !owners.is_empty());
                owners.map(ProcessClocks::with_descendants).with_context(|| {
                    format!(
                        "no process of yours on this machine listens on {address}, so that its CPU time cannot be \
                         read. Run as the server's user or as root, or name its main process with --pid"
                    )
                })?
            }
        };
        clocks.read_ns().with_context(|| match self {
            Whose::Process(pid) => format!("there is no process {pid} that you may look into"),
            Whose::Listener(address) => format!("the processes that listen on {address} have ended"),
        })?;
        Ok(clocks)
    }
}

/// The processes of a server, and how their CPU time is read.
pub struct Watch {
    find: Box<dyn Fn() -> Result<ProcessClocks>>,
    clocks: Clocks,
}

impl Watch {
    /// Of a server that runs.
    ///
    /// # Errors
    /// There is none, or it is another user's.
    pub fn of(whose: Whose) -> Result<Watch> {
        let find = Box::new(move || whose.clocks());
        Ok(Watch { clocks: Clocks::Processes(find()?), find })
    }

    /// Of processes that `find` knows, or of their control group.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn of_found(find: impl Fn() -> Result<ProcessClocks> + 'static, group: Option<GroupClock>) -> Result<Watch> {
        let clocks = group.map_or_else(|| find().map(Clocks::Processes), |group| Ok(Clocks::Group(group)))?;
        Ok(Watch { find: Box::new(find), clocks })
    }

    /// Their numbers.
    pub fn pids(&self) -> Vec<u32> {
        match &self.clocks {
            Clocks::Processes(clocks) => clocks.pids().to_vec(),
            Clocks::Group(clock) => clock.pids(),
        }
    }

    /// Answers a question about them.
    ///
    /// # Errors
    /// None of them is left.
    pub fn look(&mut self, look: Look) -> Result<Seen> {
        let mut seen = Seen::default();
        match look {
            Look::Clock => seen.ns = self.clocks.read_ns(),
            Look::AtRest => {
                seen.ns = self.clocks.at_rest_ns();
                if seen.ns.is_none() {
                    self.has_changed()?;
                }
            }
            Look::Rests => {
                let [quiet, limit] = REST;
                seen.is_so = ProcessClocks::of(self.pids()).rest_within(limit, quiet);
            }
            Look::Changed => seen.is_so = self.has_changed()?,
            Look::OwnGroup => {
                let group = GroupClock::around(&self.pids());
                seen.is_so = group.is_some();
                self.clocks = group.map_or_else(|| self.clocks.clone(), Clocks::Group);
            }
            Look::About => {
                seen.is_so = matches!(self.clocks, Clocks::Group(_));
                seen.text = self.pids().first().copied().map(process_tree::command_line).unwrap_or_default();
            }
        }
        Ok(seen)
    }

    fn has_changed(&mut self) -> Result<bool> {
        if matches!(self.clocks, Clocks::Group(_)) {
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
        let mut watch = Watch::of(child.id().to_string().parse().unwrap()).unwrap();
        assert!(watch.look(Look::Rests).unwrap().is_so);
        assert!(watch.look(Look::AtRest).unwrap().ns.is_some());
        assert_eq!(watch.look(Look::About).unwrap().text, "sleep 60");
        assert!(!watch.look(Look::Changed).unwrap().is_so);
        child.kill().unwrap();
        child.wait().unwrap();
        let error = watch.look(Look::AtRest).unwrap_err().to_string();
        assert!(error.contains("there is no process"), "{error}");
        assert!("0.0.0.0".parse::<Whose>().unwrap_err().contains("IP:PORT"));
    }
}
