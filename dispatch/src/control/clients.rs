//! Those who ask on a control socket: a bounded number at a time, and none of them, silent or slow, keeps another from
//! its answer.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Opens what the reserve lacks, as far as there are descriptors.
pub(super) fn fill(reserve: &mut Vec<File>) {
    while reserve.len() < RESERVE
        && let Ok(file) = File::open("/dev/null")
    {
        reserve.push(file);
    }
}

/// Makes the answer to a request.
pub(super) type Answer<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// The clients of one socket.
pub(super) struct Clients<'a> {
    listener: &'a UnixListener,
    /// Readable: it is over.
    wake: &'a UnixStream,
    answer: Answer<'a>,
    /// Given up one by one when descriptors have run out: that is when people ask what goes on. A loop may take what
    /// is given up before a client gets it, so there are several.
    reserve: Vec<File>,
    /// True while the reserve is not whole: no connection is accepted then.
    waits: &'a AtomicBool,
    /// In the order in which they came.
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    /// It is given up then.
    until: Instant,
    request: Vec<u8>,
    /// Empty while the request is not complete.
    answer: Vec<u8>,
    /// Bytes of the answer that are sent.
    sent: usize,
}

impl<'a> Clients<'a> {
    pub(super) fn new(
        listener: &'a UnixListener,
        wake: &'a UnixStream,
        answer: Answer<'a>,
        waits: &'a AtomicBool,
        reserve: Vec<File>,
    ) -> Clients<'a> {
        let clients = Vec::with_capacity(CLIENTS_MAX);
        let mut clients = Clients { listener, wake, answer, reserve, waits, clients };
        clients.fill_reserve();
        clients
    }

    fn fill_reserve(&mut self) {
        fill(&mut self.reserve);
        self.waits.store(self.reserve.len() < RESERVE, Ordering::Relaxed);
    }

    /// Gives one descriptor of the reserve up, after telling the loops not to take it.
    fn give_up_one(&mut self) -> bool {
        self.waits.store(true, Ordering::Relaxed);
        self.reserve.pop().is_some()
    }

    /// Answers until it is woken.
    pub(super) fn serve(mut self) {
        loop {
            let mut watched = vec![PollFd::new(self.wake, PollFlags::IN), PollFd::new(self.listener, PollFlags::IN)];
            watched.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, client.waits_for())));
            let now = Instant::now();
            let left = self.clients.iter().map(|client| client.until.saturating_duration_since(now)).min();
            let refill = (self.reserve.len() < RESERVE).then_some(RETRY_ACCEPTING);
            let left = left.into_iter().chain(refill).min();
            let most = left.and_then(|left| left.try_into().ok());
            if poll(&mut watched, most.as_ref()).is_err() {
                // A signal, or no memory for the moment.
                std::thread::sleep(RETRY_ACCEPTING);
                continue;
            }
            let is_ready: Vec<bool> = watched.iter().map(|watched| !watched.revents().is_empty()).collect();
            if is_ready[0] {
                return self.waits.store(false, Ordering::Relaxed);
            }
            self.go_on(&is_ready[2..]);
            if is_ready[1] {
                self.accept();
            }
            if self.reserve.len() < RESERVE {
                self.fill_reserve();
            }
        }
    }

    /// Goes on with those that are ready, and gives up those whose time is over.
    fn go_on(&mut self, is_ready: &[bool]) {
        let now = Instant::now();
        let (answer, mut is_ready) = (self.answer, is_ready.iter());
        self.clients.retain_mut(|client| {
            let is_ready = is_ready.next().is_some_and(|is_ready| *is_ready);
            client.until > now && (!is_ready || client.go_on(answer).unwrap_or(false))
        });
    }

    /// Lets one client in.
    fn accept(&mut self) {
        if self.clients.len() == CLIENTS_MAX {
            self.clients.remove(0);
        }
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => return,
                Err(_) if self.give_up_one() => {}
                Err(_) if !self.clients.is_empty() => drop(self.clients.remove(0)),
                // Without a descriptor the next attempt would fail at once, again and again.
                Err(_) => return std::thread::sleep(RETRY_ACCEPTING),
            }
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let until = Instant::now() + PATIENCE;
        let mut client = Client { stream, until, request: Vec::new(), answer: Vec::new(), sent: 0 };
        // Most have asked already, and need no turn of their own.
        if client.go_on(self.answer).unwrap_or(false) {
            self.clients.push(client);
        }
    }
}

impl Client {
    fn waits_for(&self) -> PollFlags {
        if self.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Reads and answers as far as that goes without waiting. Answers whether something is left to do.
    fn go_on(&mut self, answer: Answer) -> io::Result<bool> {
        let result = self.hear(answer).and_then(|()| self.tell());
        match result {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            result => result.map(|()| false),
        }
    }

    fn hear(&mut self, answer: Answer) -> io::Result<()> {
        let mut piece = [0; REQUEST_BYTES];
        while self.answer.is_empty() {
            let count = self.stream.read(&mut piece)?;
            self.request.extend_from_slice(&piece[..count]);
            let is_whole = self.request.windows(4).any(|end| end == b"\r\n\r\n");
            if is_whole || count == 0 || self.request.len() >= REQUEST_BYTES {
                self.answer = answer(&self.request);
            }
        }
        Ok(())
    }

    fn tell(&mut self) -> io::Result<()> {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => self.sent += count,
            }
        }
        Ok(())
    }
}
