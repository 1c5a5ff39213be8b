//! A relay of packets between two network namespaces, each with a TUN device: the kernel at either end speaks TCP over
//! it, so that delays reach the TCP handshake too, which a relay of streams would complete itself. Needs root.
//!
//! In the client's namespace 127.0.0.0/8 leads through the device, so that servers stay on loopback as everywhere.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tlsdyno::kinds::probe_weeks::network::{Fate, Network, Phase};
use tlsdyno::random::SplitMix64;

/// The largest packet: less than the device takes.
const PACKET_BYTES: usize = 65_535;

/// A namespace that lives as long as a process in it.
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// `None`: this user may have none.
    fn create() -> Option<Namespace> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.stderr(Stdio::null()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut()?).read_line(&mut line).ok()?;
        let namespace = Namespace { holder };
        (line == "\n").then_some(namespace)
    }

    /// One with a loopback of its own, where nobody else's packets are.
    pub fn with_loopback() -> Option<Namespace> {
        let namespace = Namespace::create()?;
        namespace.run("ip link set lo up");
        Some(namespace)
    }

    /// What `work` comes to in there.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// Has this thread, and whatever it starts, be there.
    pub fn enter(&self) {
        let file = File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Runs a script of the shell in there.
    pub fn run(&self, script: &str) {
        let holder = self.holder.id().to_string();
        let output = Command::new("nsenter").args(["-t", &holder, "-n", "sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Two namespaces and what carries packets between them.
pub struct Relay {
    pub client: Namespace,
    pub server: Namespace,
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

struct Shared {
    network: Mutex<Network>,
    state: Mutex<State>,
    changed: Condvar,
    over: AtomicBool,
    ends: [File; 2],
}

/// A packet under way: when it arrives, which one it was, at which end, and its bytes.
type Packet = (Instant, u64, usize, Vec<u8>);

struct State {
    packets: BinaryHeap<Reverse<Packet>>,
    count: u64,
    /// What is known of a connection, by its client's port.
    connections: HashMap<u16, Connection>,
    random: SplitMix64,
    /// Nothing overtakes what went before it the same way.
    last: [Instant; 2],
}

#[derive(Clone, Copy)]
struct Connection {
    phase: Phase,
    fate: Fate,
}

impl Relay {
    /// `None`: the tests may not make namespaces or devices.
    pub fn start(network: Network) -> Option<Relay> {
        let (client, server) = (Namespace::create()?, Namespace::create()?);
        let ends = [tun::open_in(&client)?, tun::open_in(&server)?];
        let common = "sysctl -qw net.ipv4.conf.tun0.route_localnet=1 net.ipv4.conf.all.rp_filter=0 \
                      net.ipv4.conf.tun0.rp_filter=0; ip link set tun0 up";
        server.run(&format!(
            "ip link set lo up; ip addr add 10.99.0.2/32 dev tun0; {common}; ip route add 10.99.0.1/32 dev tun0"
        ));
        client.run(&format!(
            "ip addr add 10.99.0.1/32 dev tun0; {common}; ip route add 127.0.0.0/8 dev tun0 src 10.99.0.1"
        ));
        let state = State {
            packets: BinaryHeap::new(),
            count: 0,
            connections: HashMap::new(),
            random: SplitMix64::new(1),
            last: [Instant::now(); 2],
        };
        let shared = Arc::new(Shared {
            network: Mutex::new(network),
            state: Mutex::new(state),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
            ends,
        });
        let mut threads = Vec::new();
        for end in 0..2 {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.read(end)));
        }
        let own = Arc::clone(&shared);
        threads.push(thread::spawn(move || own.deliver()));
        Some(Relay { client, server, shared, threads })
    }

    /// From now on another network.
    pub fn become_network(&self, network: Network) {
        *self.shared.network.lock().unwrap() = network;
        self.shared.state.lock().unwrap().connections.clear();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        // The readers wait for a packet: each device gets one.
        for namespace in [&self.client, &self.server] {
            let holder = namespace.holder.id().to_string();
            let _ = Command::new("nsenter").args(["-t", &holder, "-n", "ip", "link", "del", "tun0"]).status();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn read(&self, end: usize) {
        let mut buffer = vec![0; PACKET_BYTES];
        // Ends when the device is gone.
        while let Ok(bytes @ 1..) = (&self.ends[end]).read(&mut buffer) {
            if self.over.load(Ordering::Acquire) {
                return;
            }
            self.take(end, &buffer[..bytes], Instant::now());
        }
    }

    fn take(&self, from: usize, packet: &[u8], now: Instant) {
        let Some(segment) = Segment::of(packet) else { return };
        let network = self.network.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        let state = &mut *state;
        let port = if from == 0 { segment.source } else { segment.destination };
        if segment.is_syn && from == 0 {
            let fate = network.fate(Phase::Tcp, &mut state.random);
            state.connections.insert(port, Connection { phase: Phase::Tcp, fate });
        }
        let known = Connection { phase: Phase::Answer, fate: Fate::Good };
        let connection = state.connections.entry(port).or_insert(known);
        // The client's first bytes are its hello; its first record of application data holds Finished, or the request.
        let next = match (from, segment.first_byte) {
            (0, Some(23)) if connection.phase == Phase::Handshake => Some(Phase::Answer),
            (0, Some(_)) if connection.phase == Phase::Tcp => Some(Phase::Handshake),
            _ => None,
        };
        if let Some(phase) = next {
            connection.phase = phase;
            if connection.fate == Fate::Good {
                connection.fate = network.fate(phase, &mut state.random);
            }
        }
        let connection = *connection;
        let delay = Duration::from_nanos(network.delay_ns(connection.phase, 0, &mut state.random));
        match connection.fate {
            Fate::Blackhole => return,
            Fate::Reset if from == 0 && !segment.is_reset => {
                let arrives = now + delay + delay;
                return state.send(arrives, 0, segment.reset(packet), &self.changed);
            }
            Fate::Reset => return,
            Fate::Good => {}
        }
        if !network.is_lost(connection.phase, &mut state.random) {
            state.send(now + delay, 1 - from, packet.to_vec(), &self.changed);
        }
    }

    fn deliver(&self) {
        let mut state = self.state.lock().unwrap();
        while !self.over.load(Ordering::Acquire) {
            let now = Instant::now();
            match state.packets.peek() {
                Some(Reverse((arrives, ..))) if *arrives <= now => {
                    let Reverse((_, _, end, packet)) = state.packets.pop().unwrap();
                    // A device that is gone takes nothing more.
                    let _ = (&self.ends[end]).write(&packet);
                }
                Some(Reverse((arrives, ..))) => {
                    let wait = *arrives - now;
                    state = self.changed.wait_timeout(state, wait).unwrap().0;
                }
                None => state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0,
            }
        }
    }
}

impl State {
    fn send(&mut self, arrives: Instant, to: usize, packet: Vec<u8>, changed: &Condvar) {
        let arrives = arrives.max(self.last[to]);
        self.last[to] = arrives;
        self.count += 1;
        self.packets.push(Reverse((arrives, self.count, to, packet)));
        changed.notify_all();
    }
}

/// What the relay looks at in a packet.
struct Segment {
    source: u16,
    destination: u16,
    sequence: u32,
    bytes: u32,
    is_syn: bool,
    is_reset: bool,
    /// The first byte of its data.
    first_byte: Option<u8>,
}

impl Segment {
    /// `None`: no TCP over IPv4.
    fn of(packet: &[u8]) -> Option<Segment> {
        let head_bytes = usize::from(packet.first()? & 15) * 4;
        if packet[0] >> 4 != 4 || *packet.get(9)? != 6 {
            return None;
        }
        let tcp = packet.get(head_bytes..)?;
        let number = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let data = tcp.get(usize::from(*tcp.get(12)? >> 4) * 4..)?;
        let flags = *tcp.get(13)?;
        Some(Segment {
            source: number(0)?,
            destination: number(2)?,
            sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            bytes: data.len() as u32,
            is_syn: flags & 2 != 0,
            is_reset: flags & 4 != 0,
            first_byte: data.first().copied(),
        })
    }

    /// What refuses this packet: a RST that acknowledges it, back to its sender.
    fn reset(&self, packet: &[u8]) -> Vec<u8> {
        let (source, destination) = (&packet[16..20], &packet[12..16]);
        let mut tcp = Vec::with_capacity(20);
        tcp.extend(self.destination.to_be_bytes());
        tcp.extend(self.source.to_be_bytes());
        // What the sender acknowledged is what it expects next.
        let head_bytes = usize::from(packet[0] & 15) * 4;
        tcp.extend(&packet[head_bytes + 8..head_bytes + 12]);
        tcp.extend((self.sequence + self.bytes + u32::from(self.is_syn)).to_be_bytes());
        tcp.extend([5 << 4, 4 | 16, 0, 0, 0, 0, 0, 0]);
        let pseudo = [source, destination, &[0, 6, 0, 20]].concat();
        let sum = checksum(&[&pseudo[..], &tcp].concat());
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip.extend(source);
        ip.extend(destination);
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip.extend(tcp);
        ip
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

mod tun {
    //! The device.

    use std::ffi::c_void;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::thread;

    use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};

    use super::Namespace;

    /// `struct ifreq` as far as TUNSETIFF reads it.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }

    /// IFF_TUN and IFF_NO_PI: packets of IP and nothing before them.
    const FLAGS: u16 = 0x1001;
    /// TUNSETIFF (linux/if_tun.h).
    const TUNSETIFF: Opcode = 0x4004_54ca;

    // SAFETY: the kernel reads and writes a `struct ifreq`, which `Request` is, and nothing else.
    unsafe impl Ioctl for Request {
        type Output = ();
        const IS_MUTATING: bool = true;

        fn opcode(&self) -> Opcode {
            TUNSETIFF
        }

        fn as_ptr(&mut self) -> *mut c_void {
            std::ptr::from_mut(self).cast()
        }

        unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
            Ok(())
        }
    }

    /// Makes `tun0` there; `None`: the tests may not.
    pub fn open_in(namespace: &Namespace) -> Option<File> {
        let open = || -> io::Result<File> {
            namespace.enter();
            let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
            let mut name = [0; 16];
            name[..4].copy_from_slice(b"tun0");
            // SAFETY: see the implementation of `Ioctl`.
            unsafe { ioctl(&file, Request { name, flags: FLAGS, rest: [0; 22] })? };
            Ok(file)
        };
        // A thread of its own, for it stays where it went.
        thread::scope(|scope| scope.spawn(open).join().expect("no panic")).ok()
    }
}
