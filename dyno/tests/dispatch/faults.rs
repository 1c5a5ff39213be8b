//! Backends and clients that misbehave: what is not affected completes, what is affected ends, and nothing is lost or made up.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tlsdyno::servers::ServerKind;
use tlsdyno_wire::codec::{put_u16, put_vector8};
use tlsdyno_wire::hello::{self, Template, put_extension};

use crate::cluster::{Cluster, Sessions};
use crate::support::{Dispatcher, await_that, backend, control_path, noise, tlsdyno};

/// Answers with its name, then with what it was sent.
fn echo(name: &'static [u8]) -> SocketAddr {
    let (address, _) = backend(move |mut stream: TcpStream| {
        let _ = stream.write_all(name);
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
    address
}

fn client_hello() -> Vec<u8> {
    let template = Template::new(&[0x1301, 0xc02b], |out| {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_vector8(out, |out| put_u16(out, hello::TLS13)));
    });
    let mut out = Vec::new();
    template.write(&mut out, 0x0301, &[5; 32], &[]).finish();
    out
}

/// What comes back for these bytes, up to the end.
fn exchange(dispatcher: &Dispatcher, bytes: &[u8]) -> Vec<u8> {
    let mut client = dispatcher.connect();
    client.write_all(bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    answer
}

/// A port on which nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

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
    await_that("the dead one is taken for down", || !up());
    let _back = TcpListener::bind(address).unwrap();
    await_that("it is up again", up);
}

#[test]
fn a_real_server_killed_under_load_costs_only_its_own_connections() {
    let cluster = Cluster::new(&ServerKind::Nginx, Sessions::Tickets13, 3);
    let control = control_path();
    let arguments = ["--policy", "session", "--check-interval", "50ms", "--control", &control];
    let dispatcher = Dispatcher::new(&cluster.addresses(), &arguments);
    let url = format!("https://{}/1k.bin", dispatcher.address);
    let mut load = tlsdyno();
    load.args(["load", &url, "--effort", "floor", "--json", "--total-connections", "3000", "--connections", "8"]);
    let load = load.args(["--reuse", "80%"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    await_that("the load is under way", || dispatcher.spread(&control).iter().sum::<u64>() > 300);
    for pid in cluster.servers[0].pids() {
        let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
    }
    let output = load.wait_with_output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors: u64 = json["errors"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    let hits = json["hits"].as_u64().unwrap();
    println!("one of three killed: {hits} hits, {errors} errors");
    assert!(errors <= 16, "only those that were on it: {json:#}");
    assert_eq!(hits + errors, 3000, "{json:#}");
    await_that("it is known to be down", || dispatcher.status(&control)["backends"][0]["up"] == false);
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
    await_that("it counted them", || dispatcher.count(&control, "no_backend") == 3);
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
    for _ in 0..4 {
        assert_eq!(exchange(&dispatcher, b"x"), b"x");
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
        "listen = [\"127.0.0.1:0\"]\npolicy = \"round-robin\"\ncontrol = \"{}\"\n[check]\nkind = \"hello\"\ninterval = \"20ms\"\n\
         timeout = \"50ms\"\nfall = 2\n",
        &*control
    );
    for address in [frozen.local_addr().unwrap(), alive] {
        config += &format!("[[backend]]\naddress = \"{address}\"\n");
    }
    let (dispatcher, _file) = Dispatcher::from_file(&config);
    await_that("it is taken for down", || {
        let status = dispatcher.status(&control);
        let up = |backend: usize| status["backends"][backend]["up"].as_bool().unwrap();
        !up(0) && up(1)
    });
    for _ in 0..4 {
        assert_eq!(exchange(&dispatcher, &client_hello()).len(), 7, "the other one answers");
    }
}

#[test]
fn a_reset_in_mid_handshake_reaches_the_client_and_nobody_else() {
    let (address, _seen) = backend(|mut stream: TcpStream| {
        let mut bytes = [0; 512];
        let _ = stream.read(&mut bytes);
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let alive = echo(b"");
    let control = control_path();
    let arguments = ["--policy", "session", "--loops", "1", "--control", &control];
    let dispatcher = Dispatcher::new(&[address, alive], &arguments);
    let (mut reset, mut echoed) = (0, 0);
    for _ in 0..10 {
        let mut client = dispatcher.connect();
        client.write_all(&client_hello()).unwrap();
        let mut bytes = vec![0; client_hello().len()];
        match client.read_exact(&mut bytes) {
            Ok(()) => echoed += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                reset += 1;
            }
        }
    }
    assert_eq!((reset, echoed), (5, 5));
    assert_eq!(dispatcher.count(&control, "reset_by_backend"), 5);
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
    await_that("it is let go", || {
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
    thread::scope(|scope| {
        for part in 0..4_usize {
            let (dispatcher, hello) = (&dispatcher, &hello);
            scope.spawn(move || {
                for number in (part..10_000).step_by(4) {
                    let mut bytes = hello.clone();
                    let random = noise(number as u64, 8);
                    bytes[usize::from(random[0]) % hello.len()] = random[1];
                    bytes.truncate(usize::from(random[2]) % (hello.len() * 2) + 1);
                    bytes.extend_from_slice(&random[3..]);
                    let mut client = dispatcher.connect();
                    // The half-close tells a truncated hello; reading to the end tells that nothing is stuck.
                    client.write_all(&bytes).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                    let mut back = Vec::new();
                    client.read_to_end(&mut back).unwrap();
                    assert_eq!(back, bytes);
                }
            });
        }
    });
    assert!(dispatcher.count(&control, "hellos_malformed") > 100 && dispatcher.count(&control, "not_tls") > 100);
    await_that("all are closed", || dispatcher.status(&control)["open"] == 0);
}

#[test]
fn descriptors_may_run_out_and_come_back() {
    let control = control_path();
    let dispatcher = Dispatcher::new(&[echo(b"")], &["--policy", "round-robin", "--control", &control]);
    let limit = |current| Rlimit { current: Some(current), maximum: Some(20_000) };
    let pid = Pid::from_raw(dispatcher.pid() as i32);
    prlimit(pid, Resource::Nofile, limit(60)).unwrap();
    let mut clients: Vec<_> = (0..60).map(|_| dispatcher.connect()).collect();
    await_that("accepting pauses", || dispatcher.count(&control, "accept_pauses") > 0);
    // Those that were let in are served, and when they leave, the others are let in or told.
    for client in &mut clients {
        let _ = client.write_all(b"x");
        let _ = client.shutdown(Shutdown::Write);
    }
    for mut client in clients {
        let mut answer = Vec::new();
        if client.read_to_end(&mut answer).is_ok() {
            assert!(answer == b"x" || answer.is_empty());
        }
    }
    prlimit(pid, Resource::Nofile, limit(20_000)).unwrap();
    await_that("it serves again", || exchange(&dispatcher, b"back") == b"back");
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
    await_that("the next may come", || hold().is_some());
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
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    assert!(hard >= 20_000, "this test needs 20,000 open files, the hard limit is {hard}");
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: Some(hard) }).unwrap();
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
