//! Those who ask on a control socket: a bounded number at a time, each in a thread of its own, so that none of them,
//! silent or slow, keeps another from its answer.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

/// Most clients at a time. One more takes the place of the one that has been there longest.
pub const CLIENTS_MAX: usize = 16;
/// How long a client may take to ask and to listen, whatever moves meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause when nobody can be let in, because descriptors have run out.
const RETRY_ACCEPTING: Duration = Duration::from_millis(50);
/// Descriptors that are kept for bad times.
pub const RESERVE: usize = 8;
/// Longest request that is read; the path is at its beginning.
const REQUEST_BYTES: usize = 4096;

pub(super) type Answer<'a> = &'a (dyn Fn(&[u8]) -> Vec<u8> + Sync);

/// Opens what the reserve lacks, as far as there are descriptors.
pub(super) fn fill(reserve: &mut Vec<File>) {
    while reserve.len() < RESERVE
        && let Ok(file) = File::open("/dev/null")
    {
        reserve.push(file);
    }
}

/// Answers on `listener`, which does not block, until `wake` is readable.
///
/// Descriptors of the `reserve` are given up one by one when no others are left: that is when people ask what goes on.
/// A loop may take what is given up before a client gets it, so there are several. While the reserve is not whole,
/// `waits` tells the loops not to accept.
pub(super) fn serve(
    listener: &UnixListener,
    wake: &UnixStream,
    answer: Answer<'_>,
    waits: &AtomicBool,
    mut reserve: Vec<File>,
) {
    thread::scope(|scope| {
        let mut clients: Vec<Client<'_>> = Vec::with_capacity(CLIENTS_MAX);
        loop {
            fill(&mut reserve);
            let is_whole = reserve.len() == RESERVE;
            waits.store(!is_whole, Ordering::Relaxed);
            let most = if is_whole { None } else { RETRY_ACCEPTING.try_into().ok() };
            let mut watched = [PollFd::new(wake, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            if poll(&mut watched, most.as_ref()).is_err() {
                // A signal, or no memory for the moment.
                thread::sleep(RETRY_ACCEPTING);
                continue;
            }
            let [is_over, is_asked] = watched.map(|watched| !watched.revents().is_empty());
            if is_over {
                break;
            }
            clients.retain(|client| !client.thread.is_finished());
            if is_asked && let Some(stream) = accept(listener, waits, &mut reserve, &mut clients) {
                let stream = Arc::new(stream);
                let weak = Arc::downgrade(&stream);
                let talk = move || drop(talk(&stream, answer));
                if let Ok(thread) = Builder::new().name("control client".to_owned()).spawn_scoped(scope, talk) {
                    clients.push(Client { stream: weak, thread });
                }
            }
        }
        clients.into_iter().for_each(Client::dismiss);
        waits.store(false, Ordering::Relaxed);
    });
}

/// A client and the thread that talks to it, which alone keeps the stream open.
struct Client<'scope> {
    stream: Weak<UnixStream>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl Client<'_> {
    /// Cuts the client off. Its descriptor is free afterwards.
    fn dismiss(self) {
        if let Some(stream) = self.stream.upgrade() {
            // It may have gone by itself.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // Talking fails in ways that concern nobody else.
        let _ = self.thread.join();
    }
}

/// Lets one client in, and another one go where there is no room.
fn accept(
    listener: &UnixListener,
    waits: &AtomicBool,
    reserve: &mut Vec<File>,
    clients: &mut Vec<Client<'_>>,
) -> Option<UnixStream> {
    if clients.len() == CLIENTS_MAX {
        clients.remove(0).dismiss();
    }
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => return None,
            Err(_) => {}
        }
        waits.store(true, Ordering::Relaxed);
        if reserve.pop().is_some() {
            continue;
        }
        if clients.is_empty() {
            // Without a descriptor the next attempt would fail at once, again and again.
            thread::sleep(RETRY_ACCEPTING);
            return None;
        }
        clients.remove(0).dismiss();
    }
}

/// Hears what the client asks and answers it, both within [`PATIENCE`].
fn talk(mut stream: &UnixStream, answer: Answer<'_>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let left = || Some(until.saturating_duration_since(Instant::now()));
    let mut request = Vec::new();
    let mut piece = [0; REQUEST_BYTES];
    loop {
        // No time left is an error here too.
        stream.set_read_timeout(left())?;
        let count = stream.read(&mut piece)?;
        request.extend_from_slice(&piece[..count]);
        let is_whole = request.windows(4).any(|end| end == b"\r\n\r\n");
        if is_whole || count == 0 || request.len() >= REQUEST_BYTES {
            break;
        }
    }
    let answer = answer(&request);
    let mut rest = answer.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(left())?;
        rest = &rest[stream.write(rest)?..];
    }
    Ok(())
}
