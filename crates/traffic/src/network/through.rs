//! A load through a network.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_base::affinity;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::load::{Outcome, Plan, Watched};
use tlsdyno_record::model::Network;

use super::Namespace;
use super::link::Wide;
use super::relay::Relay;
use crate::load::threads::{Crew, Loops};

/// How long the relay's limit is measured.
const MEASURED: Duration = Duration::from_millis(100);
/// Pause between two checks whether all of that has arrived.
const LOOKED: Duration = Duration::from_millis(5);
/// Bytes of data in a packet of the measurement: a full one.
const FULL_BYTES: usize = 1472;

/// Opens a network between a new namespace, where clients are, and this thread's, and measures what its relay can carry
/// on this CPU.
pub fn open(network: &Network, cpu: usize) -> Result<Relay> {
    let client = Namespace::create().map_err(remedy)?;
    let server = Namespace::current().map_err(remedy)?;
    let link = Box::new(Wide::new(*network));
    let mut relay = Relay::start(client, server, link, Some(cpu)).or_fault(Fault::Environment)?;
    relay.limit_per_second = limit_per_second(&relay, cpu).context("measure the relay").or_fault(Fault::Environment)?;
    Ok(relay)
}

fn remedy(error: io::Error) -> anyhow::Error {
    Fault::Environment.wrap(anyhow!(
        "a network between clients and server is a relay between network namespaces, which only root may make \
         ({error}); run this command as root, or leave out the network"
    ))
}

pub fn check_address(address: SocketAddr) -> Result<()> {
    ensure!(
        matches!(address, SocketAddr::V4(address) if address.ip().is_loopback()),
        "a network leads to servers on this machine's loopback, and {} is not there: have the server listen on \
         127.0.0.1, and name that in the URL",
        address.ip()
    );
    Ok(())
}

/// Full packets that arrive in a second when there are always more, from another CPU if there is one.
fn limit_per_second(relay: &Relay, cpu: usize) -> Result<u64> {
    relay.is_direct(true);
    let [near, far] = relay.addresses();
    let before = relay.counts();
    let send = || -> io::Result<Duration> {
        let other = affinity::allowed().into_iter().find(|other| *other != cpu);
        other.map_or(Ok(()), affinity::stay_on)?;
        let socket = UdpSocket::bind((near, 0))?;
        // The port of the service `discard`: what nobody reads there is refused now and then, which does no harm.
        socket.connect((far, 9))?;
        let since = Instant::now();
        while since.elapsed() < MEASURED {
            let _ = socket.send(&[0; FULL_BYTES]);
        }
        Ok(since.elapsed())
    };
    let elapsed = relay.client.within(send)??;
    let arrived = relay.since(before).packets;
    let mut all = arrived;
    loop {
        std::thread::sleep(LOOKED);
        let now = relay.since(before).packets;
        if std::mem::replace(&mut all, now) == now {
            break;
        }
    }
    relay.is_direct(false);
    ensure!(arrived > 0, "not one packet arrived; does a firewall of this machine refuse devices named tlsdyno*?");
    Ok((arrived as f64 / elapsed.as_secs_f64()) as u64)
}

#[derive(Debug)]
pub struct Through {
    relay: Relay,
    loops: Loops,
}

impl Through {
    /// Opens the network for these loops, whose CPU its relay shares: that of the first.
    pub fn open(network: &Network, loops: Loops) -> Result<Through> {
        let cpu = loops.cpus[0].or_else(|| affinity::allowed().last().copied()).unwrap_or(0);
        Ok(Through { relay: open(network, cpu)?, loops })
    }
}

impl Crew for Through {
    fn count(&self) -> usize {
        self.loops.count()
    }

    fn run(&self, plan: &Plan, stop: &AtomicBool, watched: Vec<Watched>) -> Result<Outcome> {
        let before = self.relay.counts();
        let outcome = self.relay.client.within(|| self.loops.run(plan, stop, watched))??;
        Ok(Outcome { relayed: Some(self.relay.since(before)), ..outcome })
    }
}
