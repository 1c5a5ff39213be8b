//! A limit on open files that is too low: what the dispatcher advises is true, and does when it is followed.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;

use rustix::process::Signal;

use super::support::{Dispatcher, backend, control_path, noise};
use crate::place::eventually;

/// Files that the dispatcher may open.
const MOST: usize = 256;

/// A dispatcher of one loop that may open no more than so many files.
fn limited(most: usize, backend: SocketAddr, control: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_tlsdyno")]);
    command.args(["dispatch", "--listen", "127.0.0.1:0", "--print-address", "--loops", "1", "--policy", "round-robin"]);
    command.args(["--backend", &backend.to_string(), "--control", control]).args(arguments);
    command
}

/// What comes behind a text, up to the next character that is no digit.
fn number_after(said: &str, text: &str) -> usize {
    let (_, rest) = said.split_once(text).unwrap_or_else(|| panic!("no `{text}` in: {said}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after `{text}` in: {said}"))
}

#[test]
fn the_remedies_for_too_few_descriptors_are_true() {
    let (address, _served) = backend(|mut stream: TcpStream| {
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        let _ = stream.write_all(&received);
    });
    let control = control_path();
    let output = limited(MOST, address, &control, &[]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.starts_with("tlsdyno: 8192 connections need 16384 open files, two for each"), "{said}");
    assert!(said.contains("besides 512 for 256 pipes") && said.contains("This process may open 256"), "{said}");
    let advised = number_after(&said, "--max-connections ");
    let all = number_after(&said, "--nofile=");
    assert_eq!(all, number_after(&said, " for the dispatcher itself: "), "{said}");

    // The advice is followed, and all those connections are open at once and move much.
    let dispatcher = Dispatcher::start(limited(MOST, address, &control, &["--max-connections", &advised.to_string()]));
    let idle = dispatcher.descriptors();
    assert!(idle + 4 * advised <= MOST && advised > MOST / 6, "{idle} descriptors, {advised} connections advised");
    let clients: Vec<TcpStream> = (0..advised).map(|_| dispatcher.connect()).collect();
    eventually("all are open", || dispatcher.status(&control)["open"] == advised);
    let talks = clients.into_iter().enumerate().map(|(number, mut client)| {
        thread::spawn(move || {
            let sent = noise(number as u64, 1 << 20);
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut received = Vec::new();
            client.read_to_end(&mut received).unwrap();
            assert!(sent == received, "connection {number}");
        })
    });
    talks.collect::<Vec<_>>().into_iter().for_each(|talk| talk.join().unwrap());
    assert_eq!(dispatcher.count(&control, "accept_pauses"), 0, "descriptors ran out");
    assert!(dispatcher.descriptors() <= MOST);
    dispatcher.signal(Signal::TERM);
    assert_eq!(dispatcher.wait().0, Some(0));

    // More of them fit where there are fewer pipes, which is said.
    let more = (2 * advised - 4).to_string();
    let dispatcher = Dispatcher::start(limited(MOST, address, &control, &["--max-connections", &more]));
    dispatcher.signal(Signal::TERM);
    let (code, said) = dispatcher.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("pipes of") && said.contains(&format!("beside {more} connections")), "{said}");

    // The limit that is named suffices for all.
    let dispatcher = Dispatcher::start(limited(all, address, &control, &[]));
    dispatcher.signal(Signal::TERM);
    assert_eq!(dispatcher.wait(), (Some(0), String::new()));
    assert_eq!(limited(all - 2 * 256 - 1, address, &control, &[]).output().unwrap().status.code(), Some(6));
}
