//! The loop itself, over sockets: whatever both sides send, in whatever pieces and however they end, arrives as it was
//! sent.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tlsdyno_engine::dispatch::{self, Backend, Check, Limits, Loop, Policy, ProxyHeader, Settings, Shared};

/// Kinds of steps; of the others, the even ones move bytes and the odd ones do nothing.
pub const CLIENT_SENDS: u8 = 0;
pub const SERVER_SENDS: u8 = 1;
pub const CLIENT_ENDS: u8 = 2;
pub const SERVER_ENDS: u8 = 3;
pub const CLIENT_RESETS: u8 = 4;
pub const SERVER_RESETS: u8 = 5;
/// As many times 64 bytes as the length says.
pub const CLIENT_SENDS_MUCH: u8 = 6;
pub const SERVER_SENDS_MUCH: u8 = 7;

/// Nothing here takes this long unless it is stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// A dispatcher that runs as long as the process, with one backend, which is the caller.
struct Site {
    address: SocketAddr,
    /// And how many connections have been made.
    backend: Mutex<(TcpListener, u64)>,
    shared: &'static Shared,
}

static SITE: OnceLock<Site> = OnceLock::new();

fn site() -> &'static Site {
    SITE.get_or_init(|| {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
        backend.set_nonblocking(true).expect("a socket");
        let address = backend.local_addr().expect("an address");
        let settings = Settings {
            backends: vec![Backend { name: "it".to_owned(), address }],
            policy: Policy::Session,
            proxy_header: ProxyHeader::None,
            limits: Limits::default(),
            session_timeout_s: 300,
            check: Check::default(),
        };
        let shared: &'static Shared = Box::leak(Box::new(Shared::new(settings, 1, 1024).expect("valid settings")));
        let listener = dispatch::bind(([127, 0, 0, 1], 0).into(), true).expect("a port");
        let address = listener.local_addr().expect("an address");
        // Nobody ever wakes it: the one end only has to stay open.
        let (wake, woken) = UnixStream::pair().expect("two sockets");
        std::thread::spawn(move || {
            let _wake = wake;
            let dispatcher = Loop::new(shared, 0, vec![listener], woken.into()).expect("an epoll instance");
            dispatcher.run().expect("the loop goes on");
        });
        Site { address, backend: Mutex::new((backend, 0)), shared }
    })
}

/// One end of the connection through the dispatcher.
#[derive(Default)]
struct End {
    stream: Option<TcpStream>,
    /// To be sent, and how much of it was.
    outgoing: Vec<u8>,
    sent: usize,
    /// No more is added to `outgoing`.
    ends: bool,
    end_was_sent: bool,
    resets: bool,
    received: Vec<u8>,
    /// The other side's end was seen.
    ended: bool,
}

impl End {
    /// Sends and takes what can be without waiting; whether anything moved.
    fn pump(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let mut moved = false;
        while self.sent < self.outgoing.len() {
            match stream.write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.ended = true;
                    return true;
                }
            }
            moved = true;
        }
        if self.ends && !self.end_was_sent && self.sent == self.outgoing.len() {
            self.end_was_sent = true;
            moved |= stream.shutdown(Shutdown::Write).is_ok();
        }
        let mut bytes = [0; 16 * 1024];
        while !self.ended {
            match stream.read(&mut bytes) {
                Ok(0) => self.ended = true,
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.ended = true,
            }
            moved = true;
        }
        moved
    }

    fn reset(&mut self) {
        (self.resets, self.ended) = (true, true);
        if let Some(stream) = self.stream.take() {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Makes one connection, does what the script says, ends both sides, and compares.
pub fn dispatch_relay(script: &[u8]) {
    let site = site();
    let (backend, connections) = &mut *site.backend.lock().expect("nobody failed before");
    *connections += 1;
    let stream = TcpStream::connect(site.address).expect("the dispatcher listens");
    stream.set_nonblocking(true).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    let mut client = End { stream: Some(stream), ..End::default() };
    let mut server = End::default();
    for step in super::steps(script.get(1..).unwrap_or_default()) {
        let much = || step.bytes.repeat(64);
        match step.kind {
            CLIENT_SENDS if !client.ends => client.outgoing.extend_from_slice(step.bytes),
            SERVER_SENDS if !server.ends => server.outgoing.extend_from_slice(step.bytes),
            CLIENT_SENDS_MUCH if !client.ends => client.outgoing.extend_from_slice(&much()),
            SERVER_SENDS_MUCH if !server.ends => server.outgoing.extend_from_slice(&much()),
            CLIENT_ENDS => client.ends = true,
            SERVER_ENDS => server.ends = true,
            CLIENT_RESETS => client.reset(),
            SERVER_RESETS if server.stream.is_some() => server.reset(),
            _ => {}
        }
        if step.kind & 1 == 0 || step.kind <= SERVER_SENDS_MUCH {
            move_bytes(backend, &mut client, &mut server);
        }
    }
    (client.ends, server.ends) = (true, true);
    let began = Instant::now();
    while !(client.ended && (server.ended || server.stream.is_none() && !server.resets))
        || !is_at_rest(site.shared, *connections)
    {
        if !move_bytes(backend, &mut client, &mut server) {
            std::thread::yield_now();
        }
        let state = |end: &End| {
            (end.sent, end.outgoing.len(), end.received.len(), end.ended, end.end_was_sent, end.stream.is_some())
        };
        assert!(
            began.elapsed() < PATIENCE,
            "it is stuck: {:?} {:?}, {} open",
            state(&client),
            state(&server),
            site.shared.open_connections()
        );
    }
    compare(&client, &server);
    // A connection made for a client that had already reset is nobody's: it must not be taken for the next one's.
    while backend.accept().is_ok() {}
}

/// It has taken so many connections and closed them all.
fn is_at_rest(shared: &Shared, connections: u64) -> bool {
    shared.counts[0].all.accepted.get() == connections && shared.open_connections() == 0
}

/// Takes the backend's connection when it comes; whether anything moved.
fn move_bytes(backend: &TcpListener, client: &mut End, server: &mut End) -> bool {
    let mut accepted = false;
    if server.stream.is_none()
        && !server.resets
        && let Ok((stream, _)) = backend.accept()
    {
        stream.set_nonblocking(true).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        server.stream = Some(stream);
        accepted = true;
    }
    client.pump() | server.pump() | accepted
}

fn compare(client: &End, server: &End) {
    let is_prefix = |received: &[u8], sent: &[u8]| received.len() <= sent.len() && received == &sent[..received.len()];
    assert!(is_prefix(&server.received, &client.outgoing), "from client to server nothing is changed or made up");
    assert!(is_prefix(&client.received, &server.outgoing), "from server to client nothing is changed or made up");
    if !client.resets && !server.resets {
        assert_eq!(server.received.len(), client.outgoing.len(), "all of it arrives");
        if server.stream.is_some() {
            assert_eq!(client.received.len(), server.outgoing.len(), "all of it arrives");
        }
    }
}
