//! The sockets of `tlsdyno probe serve`: GET, one answer a connection.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::query::{Asked, Query, asked};
use crate::servers::listening::is_loopback;

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once.
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
    let open = &AtomicUsize::new(0);
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&NAP));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            let Ok((stream, peer)) = listener.accept() else { continue };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            scope.spawn(move || {
                // Whoever goes away before the answer gets none.
                let _ = converse(stream, is_loopback(peer.ip()), answer);
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
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
