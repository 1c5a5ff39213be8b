//! Backends and clients that misbehave: what is not affected completes, what is affected ends, and nothing is lost or
//! made up.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustls::ServerConnection;

use super::bytes::{assert_echoed, client_hello, digest, echo, exchange, nobody};
use super::client_faults::garbled;
use super::crowd::Member;
use super::support::{Dispatcher, PATIENCE, backend, control_path, many_descriptors, noise};
use crate::place::eventually;
use crate::stacks::rustls_server;

#[test]
fn a_dead_backend_is_passed_over_and_comes_back() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, control) = (dead.local_addr().unwrap(), control_path());
    drop(dead);
    let alive = echo(b"alive ");
    let arguments = ["--policy", "round-robin", "--check-interval", "20ms", "--control", &control];
    let dispatcher = Dispatcher::new(&[address, alive], &arguments);
    for _ in 0..20 {
        assert_eq!(exchange(&dispatcher, b"hello"), b"alive hello");
    }
    let up = || dispatcher.status(&control)["backends"][0]["up"].as_bool().unwrap();
    eventually("the dead one is taken for down", || !up());
    let _back = TcpListener::bind(address).unwrap();
    eventually("it is up again", up);
}

#[test]
fn without_a_backend_the_client_is_told_at_once_and_the_dispatcher_goes_on() {
    let control = control_path();
    let dispatcher = Dispatcher::new(&[nobody(), nobody()], &["--control", &control, "--policy", "session"]);
    for _ in 0..3 {
        let mut client = dispatcher.connect();
        client.write_all(&client_hello()).unwrap();
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    }
    eventually("it counted them", || dispatcher.count(&control, "no_backend") == 3);
    assert_eq!(dispatcher.count(&control, "retried"), 3, "both were tried each time");
}

#[test]
fn a_full_accept_queue_makes_the_next_backend_be_tried() {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let filling: Vec<_> = (0..2).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200))).collect();
    let alive = echo(b"");
    let arguments = ["--policy", "round-robin", "--loops", "1", "--connect-time", "50ms", "--check", "none"];
    let dispatcher = Dispatcher::new(&[address, alive], &arguments);
    for length in [1, 1_000, 100_000, 1_000_000] {
        assert_echoed(&dispatcher, &noise(length as u64, length));
    }
    drop(filling);
}

#[test]
fn a_frozen_backend_is_found_by_its_silence() {
    // It accepts, or its kernel does, and never says a word.
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    let control = control_path();
    let (alive, _seen) = backend(|mut stream: TcpStream| {
        let mut bytes = [0; 512];
        let _ = stream.read(&mut bytes);
        let _ = stream.write_all(b"\x15\x03\x03\x00\x02\x02\x28");
    });
    let mut config = format!(
        "listen = [\"127.0.0.1:0\"]\npolicy = \"round-robin\"\ncontrol = \"{}\"\n\
         [check]\nkind = \"hello\"\ninterval = \"20ms\"\ntimeout = \"50ms\"\nfall = 2\n",
        &*control
    );
    for address in [frozen.local_addr().unwrap(), alive] {
        config += &format!("[[backend]]\naddress = \"{address}\"\n");
    }
    let (dispatcher, _file) = Dispatcher::from_file(&config);
    eventually("it is taken for down", || {
        let status = dispatcher.status(&control);
        let up = |backend: usize| status["backends"][backend]["up"].as_bool().unwrap();
        !up(0) && up(1)
    });
    for _ in 0..4 {
        assert_eq!(exchange(&dispatcher, &client_hello()).len(), 7, "the other one answers");
    }
}

#[test]
fn a_reset_in_mid_handshake_reaches_the_client_behind_what_was_sent_and_nobody_else() {
    let config = rustls_server::config(true, rustls::ALL_VERSIONS);
    // Its first flight, then, when the client has it, a reset.
    let (address, sent) = backend(move |mut stream: TcpStream| {
        let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        while !tls.wants_write() {
            tls.read_tls(&mut stream).unwrap();
            tls.process_new_packets().unwrap();
        }
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).unwrap();
        }
        stream.write_all(&flight).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        flight
    });
    let alive = echo(b"");
    let control = control_path();
    let arguments = ["--policy", "session", "--loops", "1", "--check", "none", "--control", &control];
    let dispatcher = Dispatcher::new(&[address, alive], &arguments);
    let before = dispatcher.holdings();
    let member = Member::new(dispatcher.address, std::net::Ipv4Addr::LOCALHOST);
    let (mut reset, mut echoed) = (0, 0);
    for _ in 0..10 {
        let (_, hello) = member.hello();
        let mut client = dispatcher.connect();
        client.write_all(&hello).unwrap();
        let mut first = vec![0; 5];
        client.read_exact(&mut first).unwrap();
        if first == hello[..5] {
            echoed += 1;
            client.shutdown(Shutdown::Write).unwrap();
            client.read_to_end(&mut first).unwrap();
            assert_eq!(digest(&first), digest(&hello));
            continue;
        }
        reset += 1;
        // The flight is there; how long it is, the server says only afterwards.
        client.write_all(b"x").unwrap();
        assert_eq!(client.read_to_end(&mut first).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let flight = sent.recv().unwrap();
        assert_eq!(digest(&first), digest(&flight[..first.len()]));
    }
    assert_eq!((reset, echoed), (5, 5));
    assert_eq!(dispatcher.count(&control, "reset_by_backend"), 5);
    dispatcher.assert_at_rest(&control, &before);
}

#[test]
fn a_client_that_sends_a_byte_and_waits_for_it_loses_none() {
    let control = control_path();
    let dispatcher = Dispatcher::new(&[echo(b"")], &["--policy", "session", "--control", &control]);
    let hello = client_hello();
    let mut client = dispatcher.connect();
    client.set_nodelay(true).unwrap();
    // The hello comes back once it is whole; from then on each byte by itself.
    hello.iter().for_each(|byte| client.write_all(&[*byte]).unwrap());
    let mut back = vec![0; hello.len()];
    client.read_exact(&mut back).unwrap();
    assert_eq!(digest(&back), digest(&hello));
    for byte in noise(1, 500) {
        let mut back = [0];
        client.write_all(&[byte]).unwrap();
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
    }
}

#[test]
fn a_client_that_does_not_finish_its_hello_in_time_is_let_go() {
    let control = control_path();
    let dispatcher =
        Dispatcher::new(&[echo(b"")], &["--policy", "session", "--hello-time", "150ms", "--control", &control]);
    let mut slow = dispatcher.connect();
    let hello = client_hello();
    let mut sent = 0;
    // One byte at a time; the dispatcher ends it long before the hello is whole.
    eventually("it is let go", || {
        let gone = slow.write_all(&hello[sent % hello.len()..][..1]).is_err();
        sent += 1;
        thread::sleep(Duration::from_millis(3));
        gone || dispatcher.count(&control, "timed_out_hello") == 1
    });
    assert_eq!(exchange(&dispatcher, &hello), hello, "others are served meanwhile");
}

#[test]
fn malformed_and_truncated_hellos_arrive_as_they_were_sent() {
    let (address, _seen) = backend(|mut stream: TcpStream| {
        let mut bytes = Vec::new();
        if stream.read_to_end(&mut bytes).is_ok() {
            let _ = stream.write_all(&bytes);
        }
    });
    let control = control_path();
    let dispatcher = Dispatcher::new(&[address], &["--policy", "session", "--control", &control]);
    let hello = client_hello();
    let before = dispatcher.holdings();
    thread::scope(|scope| {
        for part in 0..4 {
            let (dispatcher, hello) = (&dispatcher, &hello);
            scope.spawn(move || {
                for number in (part..10_000).step_by(4) {
                    let bytes = garbled(hello, number);
                    // The half-close tells a truncated hello; reading to the end tells that nothing is stuck.
                    assert_eq!(digest(&exchange(dispatcher, &bytes)), digest(&bytes));
                }
            });
        }
    });
    assert!(dispatcher.count(&control, "hellos_malformed") > 100 && dispatcher.count(&control, "not_tls") > 100);
    dispatcher.assert_at_rest(&control, &before);
}

/// Lets the dispatcher open no descriptor above this number.
fn limit_descriptors(dispatcher: &Dispatcher, most: u64) {
    let limit = Rlimit { current: Some(most), maximum: Some(20_000) };
    prlimit(Pid::from_raw(dispatcher.pid() as i32), Resource::Nofile, limit).unwrap();
}

#[test]
fn descriptors_may_run_out_and_come_back() {
    let control = control_path();
    let dispatcher = Dispatcher::new(&[echo(b"")], &["--policy", "round-robin", "--control", &control]);
    let before = dispatcher.holdings();
    limit_descriptors(&dispatcher, 60);
    let mut clients: Vec<_> = (0..60).map(|_| dispatcher.connect()).collect();
    eventually("accepting pauses", || dispatcher.count(&control, "accept_pauses") > 0);
    // Those that were let in are served, and when they leave, the others are let in or told.
    let sent = noise(60, 10_000);
    for client in &mut clients {
        let _ = client.write_all(&sent).and_then(|()| client.shutdown(Shutdown::Write));
    }
    let mut served = 0;
    for mut client in clients {
        let mut answer = Vec::new();
        match client.read_to_end(&mut answer) {
            Ok(_) => served += u32::from(!answer.is_empty()),
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it is stuck"),
        }
        assert_eq!(digest(&answer), digest(&sent[..answer.len()]));
    }
    assert!(served > 10, "{served} of 60 were served with 60 descriptors");
    limit_descriptors(&dispatcher, 20_000);
    for _ in 0..60 {
        assert_echoed(&dispatcher, &sent);
    }
    dispatcher.assert_at_rest(&control, &before);
}

#[test]
fn without_descriptors_nothing_spins() {
    let control = control_path();
    let arguments = ["--policy", "round-robin", "--loops", "1", "--control", &control];
    let dispatcher = Dispatcher::new(&[echo(b"e")], &arguments);
    assert_eq!(exchange(&dispatcher, b"cho"), b"echo");
    assert_eq!(dispatcher.status(&control)["phase"], "running");
    limit_descriptors(&dispatcher, 3);
    // Both ways in are used up: the control socket's and the listener's.
    let _ = std::os::unix::net::UnixStream::connect(&*control).unwrap().write_all(b"GET /status HTTP/1.0\r\n\r\n");
    let mut client = dispatcher.connect();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let before = dispatcher.cpu_time();
    let early = client.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(ErrorKind::WouldBlock), "nobody can serve it yet");
    let used = dispatcher.cpu_time() - before;
    assert!(used < Duration::from_millis(100), "{used:?} of 500 ms");
    limit_descriptors(&dispatcher, 20_000);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_exact(&mut [0]).unwrap();
}

#[test]
fn without_descriptors_for_pipes_bytes_are_copied() {
    let control = control_path();
    let dispatcher = Dispatcher::new(&[echo(b"e")], &["--policy", "round-robin", "--control", &control]);
    let before = dispatcher.holdings();
    let mut client = dispatcher.connect();
    client.read_exact(&mut [0]).unwrap();
    limit_descriptors(&dispatcher, 3);
    let sent = noise(3, 8 << 20);
    let mut sender = client.try_clone().unwrap();
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| sender.write_all(&sent).and_then(|()| sender.shutdown(Shutdown::Write)).unwrap());
        client.read_to_end(&mut back).unwrap();
    });
    assert_eq!(digest(&back), digest(&sent));
    limit_descriptors(&dispatcher, 20_000);
    assert!(dispatcher.count(&control, "pipes_missing") > 0);
    dispatcher.assert_at_rest(&control, &before);
}

#[test]
fn an_address_gets_no_more_connections_than_allowed() {
    let control = control_path();
    let arguments = ["--policy", "round-robin", "--max-per-address", "3", "--control", &control];
    let dispatcher = Dispatcher::new(&[echo(b"n")], &arguments);
    let hold = || {
        let mut client = dispatcher.connect();
        let mut byte = [0];
        matches!(client.read(&mut byte), Ok(1)).then_some(client)
    };
    let mut held: Vec<_> = (0..3).map(|_| hold().expect("three are allowed")).collect();
    assert!(hold().is_none());
    assert_eq!(dispatcher.count(&control, "refused_address"), 1);
    held.pop();
    eventually("the next may come", || hold().is_some());
}

/// The kernel spreads clients over the loops at random, and one loop gets more of them than another.
#[test]
fn clients_below_the_limit_are_served_whichever_loop_they_come_to_and_the_others_wait() {
    const MOST: usize = 100;
    let (address, _done) = backend(|mut stream: TcpStream| {
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    let control = control_path();
    let most = MOST.to_string();
    let limits = ["--loops", "4", "--max-connections", &most, "--policy", "round-robin", "--check", "none"];
    let dispatcher = Dispatcher::new(&[address], &[&limits[..], &["--control", &control]].concat());
    let ask = || {
        let mut client = dispatcher.connect();
        client.write_all(b"x").unwrap();
        client
    };
    let answered = |client: &mut TcpStream| client.read_exact(&mut [0]);
    let mut served: Vec<TcpStream> = (0..MOST).map(|_| ask()).collect();
    for (number, client) in served.iter_mut().enumerate() {
        answered(client).unwrap_or_else(|error| panic!("client {number} below the limit: {error}"));
    }
    let mut waiting: Vec<TcpStream> = (0..20).map(|_| ask()).collect();
    for client in &mut waiting {
        client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert_eq!(answered(client).unwrap_err().kind(), ErrorKind::WouldBlock, "it is above the limit");
        client.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    assert_eq!((dispatcher.status(&control)["open"].as_u64(), MOST), (Some(MOST as u64), served.len()));
    // Places of whichever loop go to those who wait, at whichever other.
    served.drain(..waiting.len());
    waiting.iter_mut().for_each(|client| answered(client).expect("there is room now"));
    assert_eq!(dispatcher.count(&control, "accepted"), (MOST + waiting.len()) as u64);
}

#[test]
fn proxy_headers_tell_the_client_and_the_bytes_follow() {
    for (version, start) in
        [("v1", &b"PROXY TCP4 127.0.0.1 127.0.0.1 "[..]), ("v2", &b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..])]
    {
        let (address, seen) = backend(|mut stream: TcpStream| {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).map(|_| bytes)
        });
        let arguments = ["--policy", "session", "--proxy-protocol", version, "--check", "none"];
        let dispatcher = Dispatcher::new(&[address], &arguments);
        exchange(&dispatcher, &client_hello());
        let bytes = seen.recv().unwrap().unwrap();
        assert!(bytes.starts_with(start) && bytes.ends_with(&client_hello()), "{}", bytes.escape_ascii());
    }
}

#[test]
fn idle_connections_are_small() {
    const CONNECTIONS: usize = 9_000;
    let _turn = many_descriptors();
    // Both ends are in this process: no threads for the backend's.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let arguments = ["--policy", "session", "--max-connections", "9500", "--check", "none", "--loops", "1"];
    let dispatcher = Dispatcher::new(&[listener.local_addr().unwrap()], &arguments);
    let hello = client_hello();
    let mut held = Vec::new();
    let mut open = || {
        let mut client = dispatcher.connect();
        client.write_all(&hello).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"\x15\x03\x03\x00\x02\x02\x28").unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
        held.push((client, server));
    };
    (0..100).for_each(|_| open());
    let before = dispatcher.user_memory_bytes();
    (100..CONNECTIONS).for_each(|_| open());
    let each = (dispatcher.user_memory_bytes() - before) / (CONNECTIONS - 100);
    println!("{CONNECTIONS} idle connections: {each} bytes of user memory each");
    assert!(each <= 1024, "{each} bytes of user memory for each idle connection");
    assert_eq!(dispatcher.descriptors() / CONNECTIONS, 2, "two descriptors each: no pipes");
}
