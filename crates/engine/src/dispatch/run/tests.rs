//! Time-outs of connections: real sockets, but a clock that only the test moves.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use socket2::{Domain, Type};

use super::*;
use crate::dispatch::{Backend, Check, Limits, Policy, ProxyHeader, Settings};
use crate::time::Time;

const SECOND_NS: u64 = 1_000_000_000;

const LIMITS: Limits = Limits {
    connections: 10,
    connections_per_address: 0,
    hello_bytes: 1000,
    hello_time: Time::seconds(10),
    connect_time: Time::seconds(4),
    idle_time: Time::seconds(300),
    half_closed_time: Time::seconds(60),
    pipes: 0,
};

/// Between two looks at the time-outs: an eighth of the shortest.
const LATE_NS: u64 = SECOND_NS / 2;

fn shared(policy: Policy, backends: &[SocketAddr]) -> Shared {
    let backends = backends.iter().map(|&address| Backend { name: String::new(), address }).collect();
    let settings = Settings {
        backends,
        policy,
        proxy_header: ProxyHeader::None,
        limits: LIMITS,
        session_timeout_s: 300,
        check: Check::default(),
    };
    Shared::new(settings, 1, 64).unwrap()
}

struct Bench<'s> {
    this: Loop<'s>,
    client: TcpStream,
}

impl Bench<'_> {
    fn new(shared: &Shared) -> Bench<'_> {
        let (wake, _) = UnixStream::pair().unwrap();
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(front.local_addr().unwrap()).unwrap();
        let (accepted, address) = front.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let mut this = Loop::new(shared, 0, Vec::new(), wake.into()).unwrap();
        assert!(this.take_room());
        this.admit(accepted.into(), address);
        Bench { this, client }
    }

    /// Carries out what the kernel tells of now; there is something.
    fn take_events(&mut self) {
        let events = self.this.reactor.wait(20 * SECOND_NS).unwrap();
        assert!(events > 0, "something has happened");
        self.this.handle(events);
    }

    /// Lets time pass as the loop would when nothing happens, from one look to the next, until something holds: how
    /// long that took.
    fn time_until(&mut self, holds: impl Fn(&Loop) -> bool) -> u64 {
        let began_ns = self.this.now_ns;
        while !holds(&self.this) {
            self.this.now_ns += self.this.wait_ns();
            self.this.handle(0);
            assert!(self.this.now_ns - began_ns < 1000 * SECOND_NS, "it takes for ever");
        }
        self.this.now_ns - began_ns
    }

    /// It closes after so long, and no sooner; the client sees the end.
    fn assert_closed_after(&mut self, limit_ns: u64) {
        assert_eq!(self.this.places.open(), 1);
        let took_ns = self.time_until(|this| this.places.open() == 0);
        assert!((limit_ns..=limit_ns + LATE_NS).contains(&took_ns), "{took_ns} ns in place of {limit_ns}");
        assert_eq!(self.client.read(&mut [0; 9]).unwrap_or(0), 0);
    }
}

/// A connection that stands, and its end at the backend.
fn relaying<'s>(shared: &'s Shared, backend: &TcpListener) -> (Bench<'s>, TcpStream) {
    let mut bench = Bench::new(shared);
    while bench.this.counts.backends[0].connections.get() == 0 {
        bench.take_events();
    }
    (bench, backend.accept().unwrap().0)
}

fn backend() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn a_client_has_its_time_for_the_hello_and_bytes_do_not_prolong_it() {
    let (_listener, address) = backend();
    for policy in [Policy::Session, Policy::Lard] {
        let shared = shared(policy, &[address]);
        let mut bench = Bench::new(&shared);
        let began_ns = bench.this.now_ns;
        for byte in if policy == Policy::Lard { b"GET /" } else { b"\x16\x03\x01\0\x50" } {
            bench.this.now_ns += SECOND_NS;
            bench.client.write_all(&[*byte]).unwrap();
            bench.take_events();
        }
        bench.assert_closed_after(LIMITS.hello_time.ns() - (bench.this.now_ns - began_ns));
        assert_eq!((bench.this.counts.all.timed_out_hello.get(), bench.this.counts.all.timed_out_idle.get()), (1, 0));
    }
}

#[test]
fn an_idle_connection_ends_after_the_last_byte_of_either_side() {
    let (listener, address) = backend();
    let shared = shared(Policy::RoundRobin, &[address]);
    let (mut bench, mut server) = relaying(&shared, &listener);
    for turn in 0..6 {
        bench.this.now_ns += LIMITS.idle_time.ns() - SECOND_NS;
        let (from, to) = match turn % 2 {
            0 => (&mut bench.client, &mut server),
            _ => (&mut server, &mut bench.client),
        };
        from.write_all(b"x").unwrap();
        let events = bench.this.reactor.wait(20 * SECOND_NS).unwrap();
        bench.this.handle(events);
        to.read_exact(&mut [0]).unwrap();
    }
    bench.assert_closed_after(LIMITS.idle_time.ns());
    assert_eq!(bench.this.counts.all.timed_out_idle.get(), 1);
    assert_eq!(shared.slots[0].active.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn a_half_closed_connection_has_a_time_of_its_own() {
    let (listener, address) = backend();
    let shared = shared(Policy::RoundRobin, &[address]);
    let (mut bench, mut server) = relaying(&shared, &listener);
    bench.client.shutdown(Shutdown::Write).unwrap();
    bench.take_events();
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "the end is passed on");
    // The other side goes on: its bytes count as ever.
    bench.this.now_ns += LIMITS.half_closed_time.ns() - SECOND_NS;
    server.write_all(b"x").unwrap();
    bench.take_events();
    bench.client.read_exact(&mut [0]).unwrap();
    bench.assert_closed_after(LIMITS.half_closed_time.ns());
    assert_eq!(bench.this.counts.all.timed_out_idle.get(), 1);
}

#[test]
fn a_backend_that_does_not_answer_makes_place_for_the_next() {
    // Its queue is full: the kernel drops what else comes.
    let full = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let deaf = full.local_addr().unwrap().as_socket().unwrap();
    let fill = |_| {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
        let _ = socket.connect(&deaf.into());
        socket
    };
    let _filled: Vec<_> = (0..4).map(fill).collect();
    let (_listener, address) = backend();
    let shared = shared(Policy::RoundRobin, &[deaf, address]);
    let mut bench = Bench::new(&shared);
    let took_ns = bench.time_until(|this| this.counts.all.retried.get() == 1);
    assert!((LIMITS.connect_time.ns()..=LIMITS.connect_time.ns() + LATE_NS).contains(&took_ns), "{took_ns}");
    while bench.this.counts.backends[1].connections.get() == 0 {
        bench.take_events();
    }
    assert_eq!(bench.this.counts.backends[0].connect_failures.get(), 1);
    assert_eq!(bench.this.places.open(), 1);
}
