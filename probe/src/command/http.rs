//! The sockets of `tlsdyno probe serve`: GET, one answer a connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tlsdyno_base::listening::is_loopback;

use super::query::{Asked, Query, asked};

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once. Where more come, the one that has kept us waiting longest makes place.
const CONNECTIONS_MAX: usize = 32;
/// How often the flag is looked at.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// An answer.
pub struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: String,
}

impl Answer {
    /// An answer that says what is wrong.
    pub fn plain(status: u16, text: impl Into<String>) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", body: text.into() + "\n" }
    }
}

/// Answers until `stop` is set.
///
/// # Errors
/// The socket fails.
pub fn serve(listener: &TcpListener, stop: &AtomicBool, answer: &(dyn Fn(&Query<'_>) -> Answer + Sync)) -> Result<()> {
    listener.set_nonblocking(true).context("failed to prepare the socket")?;
    let places = &Places::default();
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&NAP));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            let Ok((stream, peer)) = listener.accept() else { continue };
            let Some(number) = places.take(&stream) else { continue };
            scope.spawn(move || {
                // Whoever goes away before the answer gets none.
                let _ = converse(stream, is_loopback(peer.ip()), &|query| {
                    // Reading the store is our time, not the client's.
                    places.set_waiting(number, false);
                    let answer = answer(query);
                    places.set_waiting(number, true);
                    answer
                });
                places.leave(number);
            });
        }
    });
    Ok(())
}

/// The connections that are open.
#[derive(Default)]
struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    /// Those that came so far.
    count: u64,
    /// In the order in which they came.
    open: Vec<Place>,
}

struct Place {
    number: u64,
    /// We wait for its client, who asks or takes the answer.
    is_waiting: bool,
    stream: TcpStream,
}

impl Places {
    fn with<T>(&self, work: impl FnOnce(&mut Taken) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A number for a new connection, for which another is closed where there are too many; `None`: it cannot be, for
    /// all others wait for us.
    fn take(&self, stream: &TcpStream) -> Option<u64> {
        let stream = stream.try_clone().ok()?;
        self.with(|taken| {
            if taken.open.len() >= CONNECTIONS_MAX {
                let longest = taken.open.iter().position(|place| place.is_waiting)?;
                // Its thread, which waits for it, wakes up and ends.
                let _ = taken.open.remove(longest).stream.shutdown(Shutdown::Both);
            }
            taken.count += 1;
            taken.open.push(Place { number: taken.count, is_waiting: true, stream });
            Some(taken.count)
        })
    }

    fn set_waiting(&self, number: u64, is_waiting: bool) {
        self.with(|taken| {
            let own = taken.open.iter_mut().find(|place| place.number == number);
            own.into_iter().for_each(|place| place.is_waiting = is_waiting);
        });
    }

    fn leave(&self, number: u64) {
        self.with(|taken| taken.open.retain(|place| place.number != number));
    }
}

fn converse(mut stream: TcpStream, is_local: bool, answer: &dyn Fn(&Query<'_>) -> Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let (answer, has_body) = loop {
        match asked(&bytes, is_local) {
            Asked::Unfinished => {}
            Asked::Page { query, has_body } => break (answer(&query), has_body),
            Asked::Refused { status, why, has_body } => break (Answer::plain(status, why), has_body),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&buffer[..read]);
    };
    send(&mut stream, &answer, has_body)
}

fn send(stream: &mut TcpStream, answer: &Answer, has_body: bool) -> io::Result<()> {
    let reason = match answer.status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        _ => "Service Unavailable",
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
         img-src data:; frame-ancestors 'none'\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    stream.write_all(head.as_bytes())?;
    if has_body {
        stream.write_all(answer.body.as_bytes())?;
    }
    stream.flush()
}
