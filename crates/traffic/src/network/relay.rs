//! A relay of packets between two network namespaces, each with a TUN device: the kernel at either end speaks TCP over
//! it, so that delays reach the TCP handshake too, which a relay of streams would complete itself.
//!
//! In the client's namespace 127.0.0.0/8 leads through the device, so that servers stay on loopback as everywhere. The
//! devices have addresses of 198.18.0.0/15, which are for benchmarks (RFC 2544 appendix C.2.2).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::pipe;
use tlsdyno_base::affinity;
use tlsdyno_engine::load::Relayed;
use tlsdyno_engine::sys::{set_time_slice, timespec};
use tlsdyno_sys::{monotonic_ns, open_tun, thread_cpu_ns};

use super::Namespace;

/// The largest packet: less than the device takes.
const PACKET_BYTES: usize = 65_535;
/// Packets that are read from an end before those that are due are delivered.
const BATCH: usize = 64;
/// Later than its time by more than this a packet counts as late, in nanoseconds.
const LATE_NS: u64 = 1_000_000;
/// The relay works for so short a time that the scheduler need not make it wait, in nanoseconds.
const TIME_SLICE_NS: u64 = 100_000;
/// The lowest nice value that a thread may have.
const FIRST: i32 = -20;
/// Networks at once: as many as 198.18.0.0/16 has third bytes.
const NETWORKS_MAX: u32 = 256;

/// By which rule packets travel. End 0 is the client's, end 1 the server's.
pub trait Link: Send {
    /// What becomes of a packet that this end sends at this time of the monotonic clock, in nanoseconds. Of packets
    /// that arrive at one time the first one sent comes first.
    fn travel(&mut self, from: usize, packet: &[u8], now_ns: u64) -> Travel;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Travel {
    Lost,
    /// The queue of its line is full.
    Dropped,
    /// It arrives at the other end at this time, in nanoseconds.
    Arrives(u64),
    /// It does not, and its sender gets this packet at this time, in nanoseconds.
    Answered(u64, Vec<u8>),
}

#[derive(Debug)]
pub struct Relay {
    pub client: Namespace,
    pub server: Namespace,
    /// What it measured of itself before, packets a second; 0: nothing.
    pub limit_per_second: u64,
    number: u32,
    shared: Arc<Shared>,
    /// Closing it ends the relay.
    running: Option<OwnedFd>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<Relayed>,
    /// Everything arrives at once: the relay is being measured.
    is_direct: AtomicBool,
}

impl Relay {
    /// Begins to carry packets between two namespaces, on this CPU if one is named. Nothing is sent through a firewall
    /// of the client's namespace, which is nobody else's.
    pub fn start(client: Namespace, server: Namespace, link: Box<dyn Link>, cpu: Option<usize>) -> Result<Relay> {
        let open = || open_tun("tlsdyno%d").context("open /dev/net/tun");
        let (of_server, name) = server.within(open)??;
        let number: u32 = name.trim_start_matches("tlsdyno").parse().context("the name of a TUN device")?;
        ensure!(number < NETWORKS_MAX, "{NETWORKS_MAX} networks are there already; end some of them");
        let (of_client, _) = client.within(|| open_tun(&name).context("open /dev/net/tun"))??;
        // Packets of IPv6 that nobody asked for would travel too; where it is missing there are none.
        let common = format!(
            "echo 1 > /proc/sys/net/ipv4/conf/{name}/route_localnet\n\
             echo 1 2>/dev/null > /proc/sys/net/ipv6/conf/{name}/disable_ipv6 || true\n\
             ip link set {name} txqueuelen 10000 up\n"
        );
        let [near, far] = [1, 2].map(|end| format!("198.18.{number}.{end}"));
        server.run(&format!("{common}ip addr add {far} peer {near} dev {name}"))?;
        client.run(&format!(
            "{common}ip addr add {near} peer {far} dev {name}\n\
             ip route add 127.0.0.0/8 dev {name} src {near}\n\
             echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range"
        ))?;
        let (stop, running) = pipe().context("make a pipe")?;
        let shared = Arc::new(Shared::default());
        let mut carrier = Carrier {
            ends: [of_client, of_server],
            stop,
            link,
            under_way: BinaryHeap::new(),
            count: 0,
            counts: Relayed::default(),
            shared: Arc::clone(&shared),
        };
        let carry = move || {
            // It was allowed a moment ago; where it no longer is, the relay runs wherever it may.
            cpu.map_or(Ok(()), affinity::stay_on).unwrap_or(());
            set_time_slice(TIME_SLICE_NS);
            // A network does not wait until clients have done their work.
            rustix::process::nice(FIRST).map(drop).unwrap_or(());
            carrier.carry();
        };
        let thread = thread::Builder::new().name("relay".to_owned()).spawn(carry).context("start the relay")?;
        let (running, thread) = (Some(running), Some(thread));
        Ok(Relay { client, server, limit_per_second: 0, number, shared, running, thread })
    }

    /// The addresses of its ends, the client's first.
    pub fn addresses(&self) -> [std::net::Ipv4Addr; 2] {
        [1, 2].map(|end| std::net::Ipv4Addr::new(198, 18, self.number as u8, end))
    }

    /// Whether everything arrives at once, whatever the link says.
    pub fn is_direct(&self, is_direct: bool) {
        self.shared.is_direct.store(is_direct, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Relayed {
        let counts = *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let missed = [&self.client, &self.server].map(|end| end.within(|| missed(self.number)).unwrap_or(0));
        Relayed { missed_count: missed.iter().sum(), limit_per_second: self.limit_per_second, ..counts }
    }

    /// What it has done since it had done that.
    pub fn since(&self, before: Relayed) -> Relayed {
        let now = self.counts();
        Relayed {
            packets: now.packets - before.packets,
            lost_count: now.lost_count - before.lost_count,
            dropped_count: now.dropped_count - before.dropped_count,
            late_count: now.late_count - before.late_count,
            missed_count: now.missed_count - before.missed_count,
            cpu_ns: now.cpu_ns - before.cpu_ns,
            limit_per_second: self.limit_per_second,
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Packets that found the device's own queue full, in this namespace.
fn missed(number: u32) -> u64 {
    // The columns after the name are eight of what was received, then bytes, packets, errors and drops of the rest.
    const SENT_DROPS: usize = 11;
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("tlsdyno{number}:")));
    line.and_then(|line| line.split_whitespace().nth(SENT_DROPS)?.parse().ok()).unwrap_or(0)
}

/// A packet under way: when it arrives, which one it was, at which end, and its bytes.
type Packet = (u64, u64, usize, Vec<u8>);

struct Carrier {
    ends: [File; 2],
    /// Hangs up when all is over.
    stop: OwnedFd,
    link: Box<dyn Link>,
    under_way: BinaryHeap<Reverse<Packet>>,
    count: u64,
    counts: Relayed,
    shared: Arc<Shared>,
}

impl Carrier {
    fn carry(&mut self) {
        let mut buffer = vec![0; PACKET_BYTES];
        loop {
            let mut is_busy = false;
            for from in 0..2 {
                for _ in 0..BATCH {
                    match rustix::io::read(&self.ends[from], &mut buffer[..]) {
                        Ok(bytes) => self.take(from, &buffer[..bytes]),
                        Err(Errno::AGAIN | Errno::INTR) => break,
                        // The device is gone.
                        Err(_) => return,
                    }
                    is_busy = true;
                }
            }
            self.deliver();
            self.counts.cpu_ns = thread_cpu_ns();
            *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner) = self.counts;
            if self.is_over(is_busy) {
                return;
            }
        }
    }

    fn take(&mut self, from: usize, packet: &[u8]) {
        // All else is the kernel's own, of IPv6.
        if packet.first().is_none_or(|byte| byte >> 4 != 4) {
            return;
        }
        let now_ns = monotonic_ns();
        let travel = match self.shared.is_direct.load(Ordering::Relaxed) {
            true => Travel::Arrives(now_ns),
            false => self.link.travel(from, packet, now_ns),
        };
        let (arrives_ns, to, packet) = match travel {
            Travel::Lost => return self.counts.lost_count += 1,
            Travel::Dropped => return self.counts.dropped_count += 1,
            Travel::Arrives(at_ns) => (at_ns, 1 - from, packet.to_vec()),
            Travel::Answered(at_ns, answer) => (at_ns, from, answer),
        };
        self.count += 1;
        self.under_way.push(Reverse((arrives_ns, self.count, to, packet)));
    }

    fn deliver(&mut self) {
        let now_ns = monotonic_ns();
        while self.under_way.peek().is_some_and(|Reverse((arrives_ns, ..))| *arrives_ns <= now_ns) {
            let Some(Reverse((arrives_ns, _, to, packet))) = self.under_way.pop() else { return };
            if now_ns - arrives_ns > LATE_NS {
                self.counts.late_count += 1;
            }
            // A device that is gone takes nothing more, and the next look at it says so.
            if rustix::io::write(&self.ends[to], &packet).is_ok() {
                self.counts.packets += 1;
            }
        }
    }

    /// Waits for the next packet, or until one arrives, and says whether all is over.
    fn is_over(&self, is_busy: bool) -> bool {
        let next_ns = self.under_way.peek().map(|Reverse((arrives_ns, ..))| arrives_ns.saturating_sub(monotonic_ns()));
        let wait = if is_busy { Some(0) } else { next_ns }.map(timespec);
        let [client, server] = &self.ends;
        let mut all = [
            PollFd::new(client, PollFlags::IN),
            PollFd::new(server, PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::IN),
        ];
        poll(&mut all, wait.as_ref()).is_ok() && all[2].revents().contains(PollFlags::HUP)
    }
}
