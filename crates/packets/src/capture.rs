//! Packets of this machine, as they pass.

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tlsdyno_sys::{PacketRing, open_packet_socket};

use crate::counts::Counts;
use crate::filter::{self, MOST_PORTS, MOST_SAMPLED};
use crate::packet::Packet;
use crate::watch::{PATIENCE, Watch};

/// How packets are captured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Of so many clients, by address and port, one is followed: a power of two. All numbers are of those alone.
    pub one_client_in_count: u32,
    /// How long either end may take for a step of a handshake before that counts as broken off.
    pub patience: Duration,
    /// Memory that the kernel shares for packets on their way here, bytes.
    pub ring_bytes: usize,
    /// Names of servers that clients ask for are counted.
    pub keeps_names: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { one_client_in_count: 1, patience: PATIENCE, ring_bytes: 16 << 20, keeps_names: false }
    }
}

/// What was captured since the last time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Captured {
    /// What was counted, for each listener in the order in which they were told.
    pub listeners: Vec<Counts>,
    /// Of so many clients one was followed: all numbers are of those alone.
    pub one_client_in_count: u32,
    /// Packets that were wanted.
    pub packets: u64,
    /// Those of them for which there was no room: whatever they carried is missing or broken in the counts.
    pub dropped_packets: u64,
}

/// Opens a socket that gets the packets of these listeners in the network namespace of this thread, for
/// [`Capture::of`]. An unspecified IP address stands for any.
///
/// # Errors
/// Without CAP_NET_RAW nobody may.
pub fn open_socket(listeners: &[SocketAddr], settings: Settings) -> Result<OwnedFd> {
    let ports: BTreeSet<u16> = listeners.iter().map(SocketAddr::port).collect();
    let ports: Vec<u16> = ports.into_iter().collect();
    ensure!(
        (1..=MOST_PORTS).contains(&ports.len()),
        "{} ports to watch; name between one and {MOST_PORTS}",
        ports.len()
    );
    ensure!(
        settings.one_client_in_count.is_power_of_two() && settings.one_client_in_count <= MOST_SAMPLED,
        "one client in {} cannot be followed; choose a power of two, at most {MOST_SAMPLED}",
        settings.one_client_in_count
    );
    let program = filter::program(&ports, settings.one_client_in_count);
    let socket = open_packet_socket(&program, settings.ring_bytes).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => Error::new(
            ErrorKind::PermissionDenied,
            "this user may not see packets; run as root or with the capability CAP_NET_RAW",
        ),
        _ => error,
    });
    socket.context("failed to open a packet socket")
}

/// Counts the handshakes that the listeners of a network namespace have, by copies of packets. Opening the socket
/// takes the privilege, which can be given up before any packet is read.
///
/// ```no_run
/// # use std::time::{Duration, Instant};
/// # fn main() -> anyhow::Result<()> {
/// let listeners = ["0.0.0.0:443".parse()?];
/// let mut capture = tlsdyno_packets::Capture::open(&listeners, tlsdyno_packets::Settings::default())?;
/// capture.read(Instant::now() + Duration::from_secs(1))?;
/// let captured = capture.take()?;
/// println!("{} of {} were full", captured.listeners[0].connections.full_handshakes, captured.listeners[0].complete());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Capture {
    ring: PacketRing,
    watch: Watch,
    one_client_in_count: u32,
}

impl Capture {
    /// Begins to capture in the network namespace of this thread. An unspecified IP address stands for any.
    ///
    /// # Errors
    /// Without CAP_NET_RAW nobody may.
    pub fn open(listeners: &[SocketAddr], settings: Settings) -> Result<Capture> {
        Capture::of(open_socket(listeners, settings)?, listeners, settings)
    }

    /// Reads what a socket gets that [`open_socket`] has opened for these listeners with these settings. That takes no
    /// privilege.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn of(socket: OwnedFd, listeners: &[SocketAddr], settings: Settings) -> Result<Capture> {
        let ring = PacketRing::of(socket, settings.ring_bytes).context("failed to share memory for packets")?;
        let mut watch = Watch::new(listeners, settings.patience);
        watch.keeps_names = settings.keeps_names;
        Ok(Capture { ring, watch, one_client_in_count: settings.one_client_in_count })
    }

    /// Reads what comes until then. Packets come up to a tenth of a second after they passed.
    pub fn read(&mut self, until: Instant) -> Result<()> {
        loop {
            self.read_waiting();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.ring, PollFlags::IN)], Some(&left)) {
                Ok(_) => {}
                // Whoever is interrupted decides whether to go on.
                Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(error).context("failed to wait for packets"),
            }
        }
    }

    /// What was captured since the last call.
    pub fn take(&mut self) -> Result<Captured> {
        let losses = self.ring.losses().context("failed to ask how many packets were lost")?;
        let listeners = self.watch.take_counts();
        let one_client_in_count = self.one_client_in_count;
        Ok(Captured { listeners, one_client_in_count, packets: losses.packets, dropped_packets: losses.dropped })
    }

    /// Reads what waits.
    pub fn read_waiting(&mut self) {
        // What has been read shows everything until a moment before it was asked for.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let watch = &mut self.watch;
        self.ring.read(|time_ns, bytes, length| watch.take(&Packet { time_ns, bytes, length }));
        let shown = now.saturating_sub(Duration::from_secs(1));
        watch.advance(u64::try_from(shown.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Readable when packets wait.
impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
