//! Pages that a command serves to browsers and to Prometheus, such as `tlsdyno probe serve`: GET, one answer a
//! connection, and nothing beyond loopback that nobody asked for.

#[cfg(test)]
mod kept_inputs;
mod query;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use self::query::Query;
use self::query::{Asked, asked};
use crate::ensure_fault;
use crate::fault::{Fault, OrFault};
use crate::listening::is_loopback;

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once. Where more come, the one that has kept us waiting longest makes place.
const CONNECTIONS_MAX: usize = 32;
/// How often the flag to stop is looked at.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// What a page comes to.
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// Media type of the body.
    pub kind: &'static str,
    /// What the page holds.
    pub body: String,
}

impl Answer {
    /// An answer that says what is wrong.
    pub fn plain(status: u16, text: impl Into<String>) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", body: text.into() + "\n" }
    }
}

/// Listens there. `shown`: what whoever reaches the address sees.
///
/// # Errors
/// Others reach the address and `beyond_loopback` does not say that they may, or it is not free.
pub fn listen(at: SocketAddr, beyond_loopback: bool, shown: &str) -> Result<TcpListener> {
    ensure_fault!(
        Usage,
        is_loopback(at.ip()) || beyond_loopback,
        "{at} can be reached from other machines; add --beyond-loopback if everybody there may see {shown}"
    );
    TcpListener::bind(at)
        .with_context(|| format!("failed to listen on {at}; choose another address"))
        .or_fault(Fault::Environment)
}

/// Answers until `stop` is set.
///
/// # Errors
/// The socket cannot be used.
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
            let Some(place) = places.take(stream) else { continue };
            scope.spawn(move || {
                // Whoever goes away before the answer gets none.
                let _ = converse(&place, is_loopback(peer.ip()), answer);
                places.open().retain(|other| !Arc::ptr_eq(other, &place));
            });
        }
    });
    Ok(())
}

/// The connections that are open, in the order in which they came.
#[derive(Default)]
struct Places(Mutex<Vec<Arc<Place>>>);

struct Place {
    stream: TcpStream,
    /// We wait for its client, who asks or takes the answer.
    is_waiting: AtomicBool,
}

impl Places {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, for which another is closed where there are too many; `None`: it cannot be, for
    /// all others wait for us.
    fn take(&self, stream: TcpStream) -> Option<Arc<Place>> {
        let mut open = self.open();
        if open.len() >= CONNECTIONS_MAX {
            let longest = open.iter().position(|place| place.is_waiting.load(Ordering::Relaxed))?;
            // Its thread, which waits for it, wakes up and ends.
            let _ = open.remove(longest).stream.shutdown(Shutdown::Both);
        }
        let place = Arc::new(Place { stream, is_waiting: AtomicBool::new(true) });
        open.push(Arc::clone(&place));
        Some(place)
    }
}

fn converse(place: &Place, is_local: bool, answer: &dyn Fn(&Query<'_>) -> Answer) -> io::Result<()> {
    let mut stream = &place.stream;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let (answer, has_body) = loop {
        match asked(&bytes, is_local) {
            Asked::Unfinished => {}
            Asked::Page { query, has_body } => {
                // Reading the store is our time, not the client's.
                place.is_waiting.store(false, Ordering::Relaxed);
                let answer = answer(&query);
                place.is_waiting.store(true, Ordering::Relaxed);
                break (answer, has_body);
            }
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
    stream.write_all(answer.head().as_bytes())?;
    stream.write_all(if has_body { answer.body.as_bytes() } else { b"" })
}

impl Answer {
    fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            _ => "Service Unavailable",
        };
        format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
             img-src data:; frame-ancestors 'none'\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        )
    }
}
