//! What keeps a load run from doing harm: strangers' hosts, and storms of errors.

use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::{ONE_BYTE, json, load, refuse, server, stderr};

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
