//! Who reads strangers' packets has no privileges, and nothing is left of it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tlsdyno::model::ServerName;
use tlsdyno_base::process_tree;

use super::started;
use crate::place::{self, Place, eventually};

/// The process that reads packets for this one, once there is one that is not `before`.
fn reader_of(top: u32, before: u32) -> u32 {
    let mut reader = 0;
    eventually("a process reads packets", || {
        let own = process_tree::descendants(top);
        let is_it = |pid: &u32| *pid != before && status(*pid, "Seccomp") == "2";
        reader = own.iter().map(|one| one.pid).find(is_it).unwrap_or_default();
        reader != 0
    });
    reader
}

fn status(pid: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().replace('\t', " ")
}

fn begun(mut top: Command) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(top.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.starts_with("tlsdyno: watches "), "{line}");
    (top, told)
}

#[test]
fn packets_are_read_without_privileges_and_no_process_outlives_the_other() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let at = server.address().to_string();
    let (mut top, _told) = begun(place.tlsdyno(&["top", "--listen", &at, "--once", "600s"]));
    let reader = reader_of(top.id(), 0);
    for (field, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1"), ("Groups", "")] {
        assert_eq!(status(reader, field), value, "{field}");
    }
    for field in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(reader, field), "0000000000000000", "{field}");
    }
    for field in ["Uid", "Gid"] {
        assert_eq!(status(reader, field), "65534 65534 65534 65534", "{field}");
    }
    // Another takes the place of one that was killed.
    place::kill(reader);
    let other = reader_of(top.id(), reader);
    eventually("it is waited for", || !std::path::Path::new(&format!("/proc/{reader}")).exists());
    top.kill().unwrap();
    top.wait().unwrap();
    eventually("the reader ends with it", || place::is_gone(other));
}

/// Ctrl-C, which a terminal sends to all processes, has it answer once more.
#[test]
fn what_was_counted_until_ctrl_c_is_told() {
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let at = server.address();
    let (top, _told) = begun(place.tlsdyno(&["top", "--listen", &at.to_string(), "--once", "600s", "--json"]));
    let is_root = rustix::process::geteuid().is_root();
    let reader = is_root.then(|| reader_of(top.id(), 0));
    assert!(place::handshake(&server, &[]).contains("TLSv1.3"));
    for process in reader.into_iter().chain([top.id()]) {
        place::signal(process, rustix::process::Signal::INT);
    }
    let output = top.wait_with_output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130));
    if is_root {
        assert_eq!(seen["servers"][0]["handshakes"]["agreed"]["tls13_handshakes"], 1, "{seen}");
    }
}
