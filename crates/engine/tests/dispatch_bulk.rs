//! Bulk transfers through the dispatcher's loop: what gathers in the kernel to spare wake-ups arrives all the same,
//! whole and soon, whether or not the sender goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tlsdyno_engine::dispatch::limits::{BULK_AFTER_BYTES, BULK_WAKE_BYTES};
use tlsdyno_engine::dispatch::{
    Backend, Check, CheckKind, Limits, Loop, Phase, Policy, ProxyHeader, Settings, Shared, bind,
};

/// Nothing waits this long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// A loop before one backend, which ends when this is dropped.
struct Running {
    address: SocketAddr,
    shared: Arc<Shared>,
    wake: UnixStream,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn before(backend: SocketAddr) -> Running {
        let settings = Settings {
            backends: vec![Backend { name: "only".into(), address: backend }],
            policy: Policy::RoundRobin,
            proxy_header: ProxyHeader::None,
            limits: Limits::default(),
            session_timeout_s: 300,
            check: Check { kind: CheckKind::None, ..Check::default() },
        };
        let shared = Arc::new(Shared::new(settings, 1, 64).unwrap());
        let listener = bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let address = listener.local_addr().unwrap();
        let (wake, woken) = UnixStream::pair().unwrap();
        woken.set_nonblocking(true).unwrap();
        let of_loop = Arc::clone(&shared);
        let thread =
            thread::spawn(move || Loop::new(&of_loop, 0, vec![listener], woken.into()).unwrap().run().unwrap());
        Running { address, shared, wake, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.end(Phase::Stop);
        let _ = self.wake.write_all(b"!");
        let Some(thread) = self.thread.take() else { return };
        // A wake-up that is lost shows as a failure, not as a test that hangs.
        let began = Instant::now();
        while !thread.is_finished() && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(thread.is_finished() && thread.join().is_ok() || thread::panicking(), "the loop did not end well");
    }
}

/// Both ends of a connection through the dispatcher: a lost byte shows as a time-out, not as a test that hangs.
fn pair() -> (Running, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = Running::before(listener.local_addr().unwrap());
    let client = TcpStream::connect(running.address).unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_nodelay(true).unwrap();
    }
    (running, client, server)
}

/// Bytes that no two places share for long.
fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(step).collect()
}

/// Sends from another thread, because nobody takes so much without somebody reading.
fn pass(from: &TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| { from }.write_all(bytes).unwrap());
        let mut arrived = vec![0; bytes.len()];
        to.read_exact(&mut arrived).unwrap();
        assert!(arrived == bytes, "{} bytes arrive as they were sent", bytes.len());
    });
}

#[test]
fn the_rest_below_the_mark_arrives_though_nothing_follows() {
    let (_running, mut client, mut server) = pair();
    let mark = BULK_WAKE_BYTES as usize;
    for length in [1, mark - 1, mark, mark + 1, 3 * mark + 17, 16 * mark + 1] {
        // Long enough to become a bulk transfer, then a rest of any length, in both directions.
        let bytes = pattern(2 * BULK_AFTER_BYTES as usize + length);
        pass(&server, &mut client, &bytes);
        pass(&client, &mut server, &bytes);
        // What comes after a bulk transfer is answered as ever.
        for _ in 0..20 {
            pass(&client, &mut server, b"little");
            pass(&server, &mut client, b"and little back");
        }
    }
}

#[test]
fn bulk_in_drops_arrives_whole_and_ends() {
    let (_running, client, server) = pair();
    let bytes = pattern(8 << 20);
    for (mut from, mut to) in [(server.try_clone().unwrap(), client.try_clone().unwrap()), (client, server)] {
        thread::scope(|scope| {
            scope.spawn(|| {
                // Of all sizes about a record and a fragment.
                let (mut rest, mut size) = (&bytes[..], 1);
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(size));
                    from.write_all(now).unwrap();
                    (rest, size) = (later, size * 3 % 40_009 + 1);
                }
                from.shutdown(Shutdown::Write).unwrap();
            });
            let mut arrived = Vec::new();
            to.read_to_end(&mut arrived).unwrap();
            assert!(arrived == bytes, "{} of {} bytes", arrived.len(), bytes.len());
        });
    }
}

#[test]
fn a_receiver_that_does_not_read_holds_bulk_up_and_loses_none() {
    let (_running, mut client, mut server) = pair();
    let bytes = pattern(64 << 20);
    let (told, tell) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let bytes = &bytes;
        scope.spawn(move || {
            server.set_nonblocking(true).unwrap();
            let mut sent = 0;
            // Until neither the kernel's buffers nor the dispatcher take more: it must not hold what nobody reads.
            let mut refused = 0;
            while refused < 20 {
                match server.write(&bytes[sent..]) {
                    Ok(count) => (sent, refused) = (sent + count, 0),
                    Err(_) => {
                        refused += 1;
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            told.send(sent).unwrap();
            server.set_nonblocking(false).unwrap();
            server.write_all(&bytes[sent..]).unwrap();
        });
        let held = tell.recv().unwrap();
        assert!(held < bytes.len(), "{held} bytes are on their way though nobody reads");
        let mut arrived = Vec::new();
        client.read_to_end(&mut arrived).unwrap();
        assert!(arrived == *bytes);
    });
}
