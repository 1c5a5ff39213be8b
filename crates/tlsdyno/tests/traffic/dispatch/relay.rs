//! Bytes pass unchanged, ends and resets pass faithfully, and nothing is held without bound.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use rustix::process::Signal;

use super::support::{Dispatcher, backend, noise};
use crate::place::eventually;

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Takes everything, then answers with as much of its own.
fn take_then_answer(mut stream: TcpStream) -> Vec<u8> {
    let taken = read_all(&mut stream);
    stream.write_all(&noise(7, taken.len())).unwrap();
    taken
}

#[test]
fn bytes_pass_unchanged_in_both_directions_through_half_closes() {
    let (address, taken) = backend(take_then_answer);
    let dispatcher = Dispatcher::new(&[address], &["--policy", "round-robin", "--check", "none"]);
    // Around the sizes at which copying turns to splicing.
    for length in [0, 1, 7_000, 16_383, 16_384, 16_385, 40_000, 5_000_000] {
        let sent = noise(length as u64, length);
        let mut client = dispatcher.connect();
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(read_all(&mut client) == noise(7, length), "{length} bytes down");
        assert!(taken.recv().unwrap() == sent, "{length} bytes up");
    }
}

#[test]
fn both_directions_move_at_the_same_time() {
    let (address, taken) = backend(|stream: TcpStream| {
        let mut sender = stream.try_clone().unwrap();
        let writing = thread::spawn(move || {
            sender.write_all(&noise(9, 8_000_000)).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut stream = stream;
        let taken = read_all(&mut stream);
        writing.join().unwrap();
        taken
    });
    let dispatcher = Dispatcher::new(&[address], &["--policy", "round-robin", "--check", "none"]);
    let clients: Vec<_> = (0..4)
        .map(|seed| {
            let client = dispatcher.connect();
            thread::spawn(move || {
                let mut sender = client.try_clone().unwrap();
                let writing = thread::spawn(move || {
                    sender.write_all(&noise(seed, 3_000_000)).unwrap();
                    sender.shutdown(Shutdown::Write).unwrap();
                });
                let mut client = client;
                assert!(read_all(&mut client) == noise(9, 8_000_000));
                writing.join().unwrap();
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    for _ in 0..4 {
        let taken = taken.recv().unwrap();
        assert!((0..4).any(|seed| taken == noise(seed, 3_000_000)));
    }
}

#[test]
fn round_robin_takes_turns_and_drains_on_ctrl_c() {
    let serve = |name: &'static [u8]| {
        move |mut stream: TcpStream| {
            stream.write_all(name).unwrap();
            let _ = stream.read(&mut [0; 1]);
            stream.write_all(b"!").unwrap();
        }
    };
    let (one, _one) = backend(serve(b"1"));
    let (two, _two) = backend(serve(b"2"));
    let dispatcher = Dispatcher::new(&[one, two], &["--policy", "round-robin", "--check", "none", "--loops", "1"]);
    let mut clients: Vec<_> = (0..4).map(|_| dispatcher.connect()).collect();
    let mut names = Vec::new();
    for client in &mut clients {
        let mut name = [0];
        client.read_exact(&mut name).unwrap();
        names.push(name[0]);
    }
    assert_eq!(names, *b"1212");

    dispatcher.signal(Signal::INT);
    let refused = || match TcpStream::connect(dispatcher.address) {
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(_) => false,
    };
    eventually("new connections are refused", refused);
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        assert_eq!(read_all(client), b"!", "those that were open go on");
    }
    drop(clients);
    let (code, said) = dispatcher.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("open ones may go on"), "{said}");
}

#[test]
fn resets_are_passed_on() {
    let (address, seen) = backend(|mut stream: TcpStream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        if byte == *b"r" {
            socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            return None;
        }
        stream.read(&mut byte).err().map(|error| error.kind())
    });
    let dispatcher = Dispatcher::new(&[address], &["--policy", "round-robin", "--check", "none"]);
    let mut client = dispatcher.connect();
    client.write_all(b"r").unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(seen.recv().unwrap(), None);

    let mut client = dispatcher.connect();
    client.write_all(b"c").unwrap();
    socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(seen.recv().unwrap(), Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_receiver_that_takes_nothing_holds_the_sender_back() {
    let (address, sent) = backend(|mut stream: TcpStream| {
        stream.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        let piece = noise(3, 1 << 20);
        let mut sent = 0_usize;
        // Far more than all the buffers on the way.
        while sent < 1 << 30 {
            match stream.write(&piece[sent % piece.len()..]) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        stream.shutdown(Shutdown::Write).unwrap();
        sent
    });
    let dispatcher = Dispatcher::new(&[address], &["--policy", "round-robin", "--check", "none"]);
    let before = dispatcher.user_memory_bytes();
    let mut client = dispatcher.connect();
    let sent = sent.recv().unwrap();
    assert!(sent < 1 << 28, "{sent} bytes were taken for a client that reads none");
    let grown = dispatcher.user_memory_bytes().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes of user memory");
    let received = read_all(&mut client);
    let piece = noise(3, 1 << 20);
    assert_eq!(received.len(), sent);
    assert!(received.chunks(piece.len()).all(|chunk| *chunk == piece[..chunk.len()]));
}
