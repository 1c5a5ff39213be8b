//! What keeps a load run from doing harm: strangers' hosts, and storms of errors.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::{ONE_BYTE, json, load, refuse, server, stderr};

#[test]
fn a_host_that_is_not_this_machine_must_be_named_twice() {
    refuse(&["http://192.0.2.1/"], 2, &["not this machine", "--i-may-load-this 192.0.2.1"]);
    refuse(&["https://192.0.2.1/", "-k", "--i-may-load-this", "192.0.2.2"], 2, &["--i-may-load-this 192.0.2.1"]);
    let output =
        load(&["http://192.0.2.1/", "--i-may-load-this", "192.0.2.1", "--timeout", "100ms", "--duration", "200ms"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}

#[test]
fn a_server_that_resets_connections_ends_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Closed at once and unread: the system answers with a reset.
            socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
    });
    let output = load(&[&format!("http://{address}/"), "--duration", "1m", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let measured = json(&output);
    let errors = measured["errors"].as_object().unwrap();
    assert!(errors.contains_key("reset") || errors.contains_key("closed"), "{errors:?}");
    let warning = measured["warnings"][0].as_str().unwrap();
    assert!(warning.contains("ended early") && warning.contains(&address.to_string()), "{warning}");
}

#[test]
fn descriptors_that_run_out_in_mid_run_are_named_with_the_command() {
    let (address, _) = server(ONE_BYTE);
    // The first descriptors are taken by files that the shell leaves open, which nobody can foresee.
    let script = "for fd in {10..50}; do eval \"exec $fd</dev/null\"; done; ulimit -n 60
        exec \"$0\" load \"$1\" --connections 25 --close --duration 300ms --json";
    let url = format!("http://{address}/");
    let output = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_tlsdyno"), &url]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("descriptors") && text.contains("prlimit --pid $$ --nofile"), "{text}");
}

/// Each phase has its limit and its kind of error: servers that stand still there, though something else still moves.
#[test]
fn every_phase_has_a_time_out_of_its_own() {
    let expect = |url: &str, flags: &[&str], kind: &str| {
        let always = [url, "-k", "--connections", "2", "--total-connections", "4", "--timeout", "20s", "--json"];
        let output = load(&[&always[..], flags].concat());
        let measured = json(&output);
        assert_eq!(measured["errors"], serde_json::json!({kind: 4}), "{measured}");
        assert!(measured["elapsed_ns"].as_u64().unwrap() < 10_000_000_000, "{measured}");
    };
    let trickle = |first: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut head = [0; 4096];
                    let _ = stream.read(&mut head);
                    // A byte now and then is progress, and so no --timeout; what it belongs to never ends.
                    for byte in first.iter().chain(std::iter::repeat(&b'x')) {
                        if stream.write_all(&[*byte]).is_err() {
                            return;
                        }
                        thread::sleep(Duration::from_millis(20));
                    }
                });
            }
        });
        address
    };
    let answer = trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    expect(&format!("http://{answer}/"), &["--total-timeout", "1s", "--first-byte-timeout", "10s"], "total_timeout");
    // The head of a record of 16 KiB, whose end does not come.
    let handshake = trickle(&[22, 3, 3, 0x3f, 0xff]);
    expect(&format!("https://{handshake}/"), &["--handshake-timeout", "300ms"], "handshake_timeout");
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let deaf_address = deaf.local_addr().unwrap();
    thread::spawn(move || {
        let _kept: Vec<_> = deaf.incoming().collect();
    });
    expect(&format!("http://{deaf_address}/"), &["--first-byte-timeout", "300ms"], "first_byte_timeout");
    refuse(&["http://127.0.0.1/", "--total-timeout", "0"], 2, &["longer than nothing"]);
}

/// A port whose backlog is full: its system does not answer further calls.
#[test]
fn a_full_backlog_is_a_connect_time_out() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let filling: Vec<_> = (0..4)
        .map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)))
        .take_while(Result::is_ok)
        .collect();
    assert!(filling.len() < 4, "the backlog is full");
    let url = format!("http://{address}/");
    let limits = ["--connect-timeout", "300ms", "--first-byte-timeout", "5s", "--timeout", "20s"];
    let output =
        load(&[&[url.as_str(), "--connections", "1", "--total-connections", "2", "--json"], &limits[..]].concat());
    assert_eq!(json(&output)["errors"], serde_json::json!({"connect_timeout": 2}), "{}", stderr(&output));
}
