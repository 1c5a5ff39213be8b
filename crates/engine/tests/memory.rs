//! The memory of a run does not depend on how many users it has, but on how many connections are open at once.

mod support;

use std::io::{BufReader, Write};
use std::time::Instant;

use support::*;
use tlsdyno_engine::load::limits::RECEIVE_BUFFER_BYTES;

/// Resident memory of this process, bytes: now, or the most so far.
fn resident(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Ten thousand users, three pages each, over at most 64 connections. Of the run's own memory, the receive buffer and
/// the histograms are there whatever the number of users; the bound here leaves each user less than 100 bytes beyond.
#[test]
fn ten_thousand_users_take_the_memory_of_their_open_connections() {
    let address = server(|stream| {
        let mut reader = BufReader::with_capacity(512, stream.try_clone().unwrap());
        let mut stream = stream;
        while next_request(&mut reader).is_some() {
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").is_err() {
                return;
            }
        }
    });
    let users = 10_000;
    let plan = plan(address, workload(vec![object("GET", "/", Some(1))], users, 3, 1), connections(64, 4, None));
    // The server's threads and the histograms of a first small run are touched before the measurement begins.
    let mut first = plan.clone();
    first.users = 0..128;
    go(&first);
    let (before, began) = (resident("VmHWM"), Instant::now());
    let outcome = go(&plan);
    assert_eq!((outcome.hits, outcome.connections, outcome.errors.len()), (30_000, 10_000, 0), "{:?}", outcome.errors);
    let grown = resident("VmHWM").saturating_sub(before);
    assert!(grown < 2 * RECEIVE_BUFFER_BYTES as u64 + 100 * u64::from(users), "grown by {grown} bytes");
    assert!(began.elapsed().as_secs() < 20);
}
