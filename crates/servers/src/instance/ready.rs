//! Waiting until a server that was started serves where it should, and saying why it does not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use tlsdyno_base::fault::Fault;
use tlsdyno_base::{interrupt, listening};

use super::{Addresses, Instance};
use crate::ServerSpec;

/// How long a server may take until it listens. A server that fails to start ends, and that is noticed at once; on a
/// machine that other programs keep busy a sound one may take long.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The same under another program, such as valgrind.
const READY_UNDER_WITHIN: Duration = Duration::from_secs(300);
/// A server that is not ready after that and says that descriptors are closed will never be.
const REFUSED_AFTER: Duration = Duration::from_secs(3);
/// What the libraries say that find no memory of tlsdyno behind their descriptor (`native`).
const NO_AREA: &str = "is not an area of tlsdyno";
/// Looks after which somebody who listens beside a server is none of its processes.
const SHARED_LOOKS: u32 = 20;
const READY_POLL: Duration = Duration::from_millis(5);

impl Instance {
    pub(super) fn await_ready(&mut self, spec: &ServerSpec) -> Result<()> {
        let within = if spec.under.is_empty() { READY_WITHIN } else { READY_UNDER_WITHIN };
        let (limit, refused) = (Instant::now() + within, Instant::now() + REFUSED_AFTER);
        let mut looks_shared = 0;
        loop {
            interrupt::check_this_process().context("stopped while the server was starting")?;
            let ended = self.supervised.ended().map(str::to_owned);
            if let Some(status) = ended {
                self.refuse_closed_descriptors()?;
                let what = anyhow!("the server did not start ({status}); it said:\n{}", self.last_words());
                return Err(self.with_fault(what));
            }
            let ready = self.is_ready();
            // In every turn: a server that is not ready yet, or never will be, is open to the network all the same.
            self.refuse_open_listeners()?;
            let shared = if ready { self.shared_address() } else { None };
            if ready && shared.is_none() {
                return Ok(());
            }
            // A worker that has begun since its processes were looked for listens, too: one look is not enough.
            looks_shared += u32::from(shared.is_some());
            if let Some(wanted) = shared.filter(|_| looks_shared == SHARED_LOOKS) {
                return Err(Fault::PortTaken.wrap(anyhow!("address already in use: others listen at {wanted}, too")));
            }
            // nginx tries the same port five times before it gives up; that is too late for us.
            if self.says_port_is_taken() {
                let what = anyhow!("the server did not start; it said:\n{}", self.log_tail());
                return Err(self.with_fault(what));
            }
            // Not at once: a program that the server has started beside its workers may have closed them.
            if Instant::now() > refused {
                self.refuse_closed_descriptors()?;
            }
            // On a busy machine a look takes long: it may have become ready since the last one.
            if Instant::now() > limit && !self.is_ready() {
                return Err(self.why_not_ready(within, spec.is_users_own()));
            }
            std::thread::sleep(READY_POLL);
        }
    }

    fn is_ready(&self) -> bool {
        let pids = self.pids();
        if pids.len() < self.prepared.processes {
            return false;
        }
        let listening = listening::listening_addresses(&pids);
        let serves = |wanted: &SocketAddr| listening.iter().any(|listener| listening::serves(listener, wanted));
        serves(&self.addresses.address) && self.addresses.plain.as_ref().is_none_or(serves)
    }

    /// Where another program listens, too, and gets a part of the connections: both found the port free.
    fn shared_address(&self) -> Option<SocketAddr> {
        let (Addresses { address, plain }, pids) = (self.addresses, self.pids());
        [Some(address), plain].into_iter().flatten().find(|wanted| listening::is_shared(wanted, &pids))
    }

    /// The server's own words for EADDRINUSE, which all C libraries put alike.
    fn says_port_is_taken(&self) -> bool {
        self.log_tail().to_ascii_lowercase().contains("address already in use")
    }

    /// Fails if a library of ours has refused to act, because its process has none of the descriptors that the server
    /// was started with: no configuration of such a server can pass.
    pub fn refuse_closed_descriptors(&self) -> Result<()> {
        if !self.log_tail().contains(NO_AREA) {
            return Ok(());
        }
        let what = anyhow!(
            "the server command closes inherited descriptors, or starts its workers without them, and by one of them a \
             worker knows that stages may be off. Measure it with one process (uvicorn without --workers), with \
             workers that are forked (gunicorn), or without the program between that closes them (sudo, a service \
             manager)"
        );
        Err(Fault::Environment.wrap(what))
    }

    fn with_fault(&self, error: Error) -> Error {
        match self.says_port_is_taken() {
            true => Fault::PortTaken.wrap(error),
            false => error,
        }
    }

    fn why_not_ready(&self, within: Duration, is_users_own: bool) -> Error {
        let seconds = within.as_secs();
        let Addresses { address, plain } = self.addresses;
        let wanted = plain.map_or_else(|| address.to_string(), |plain| format!("{address} and {plain}"));
        let owners = listening::owners(&address);
        if !owners.is_empty() {
            let what = anyhow!(
                "{wanted} is served by process {}, which was not started by the server command; tlsdyno must start the \
                 server itself (not through a service manager or container daemon) to account for its CPU time",
                owners.join(" and ")
            );
            // Servers that we start ourselves have no service manager behind them: another program was faster.
            return if is_users_own { what } else { Fault::PortTaken.wrap(what.context("address already in use")) };
        }
        let listening: Vec<String> = self.listening_addresses().iter().map(ToString::to_string).collect();
        let instead = if listening.is_empty() { "nothing".to_owned() } else { listening.join(", ") };
        anyhow!(
            "the server is not ready after {seconds} s: it should listen on {wanted}, but listens on {instead}; it \
             said:\n{}",
            self.last_words()
        )
    }

    fn last_words(&self) -> String {
        let said = self.log_tail();
        if said.is_empty() { "(nothing)".to_owned() } else { said }
    }
}
