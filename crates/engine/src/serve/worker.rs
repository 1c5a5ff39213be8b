//! The loop of one worker thread.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use openssl::ssl::SslContext;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::connection::{Connection, Shared, Wish};
use super::date::http_date;
use super::docroot::Docroot;
use super::limits::{ACCEPTS_PER_TURN, EVENTS, IDLE_NS, SWEEP_NS};
use super::origin::{self, Origin};
use super::pages::Pages;
use super::socket::Socket;
use super::transaction::{Builder, Stamp, Transaction};
use super::transport::Transport;
use tlsdyno_sys::monotonic_ns;

use crate::sys::{self, timespec};

/// Tokens from here on are listeners, below are connections, above sockets to the origin; the last is the stop signal.
const LISTENERS: u64 = 1 << 32;
const STOP: u64 = u64::MAX;

/// A listening socket and what is spoken on it.
#[derive(Debug)]
pub struct Listener {
    /// The listening socket, non-blocking.
    pub socket: TcpListener,
    /// TLS; `None` is plain HTTP.
    pub tls: Option<SslContext>,
}

/// What a worker does beside serving files.
#[derive(Debug, Default)]
pub struct Settings {
    /// Where sessions are logged, if wanted.
    pub session_log: Option<File>,
    /// What a page costs; `None`: nothing beside sending it.
    pub transaction: Option<Transaction>,
    /// The server behind, over plain HTTP, to which all requests are passed on; `None`: the docroot answers.
    pub origin: Option<SocketAddr>,
    /// Who is asked for the docroot's pages; needed where it has such.
    pub pages: Option<Box<dyn Pages>>,
}

/// Serves `docroot` on `listeners` until `stop` becomes readable or is hung up. Answers the times of its pages, where
/// they are to be kept.
///
/// Fails only when the loop itself cannot go on (no memory or descriptors for epoll); what goes wrong on a connection
/// ends that one.
pub fn run(
    listeners: &[Listener],
    docroot: &Arc<Docroot>,
    settings: Settings,
    stop: impl AsFd,
) -> io::Result<Vec<Stamp>> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
    let origin = settings.origin.map(|address| Ok::<_, io::Error>(Origin::new(address, epoll.try_clone()?)));
    let origin = origin.transpose()?;
    let mut shared = Shared::new(docroot, settings);
    shared.origin = origin;
    let mut worker = Worker {
        epoll,
        listeners,
        accepting: false,
        connections: Vec::new(),
        free: Vec::new(),
        unfinished: Vec::new(),
        building: VecDeque::new(),
        shared,
        second: i64::MIN,
        next_sweep_ns: 0,
    };
    worker.set_accepting(true)?;
    worker.serve()?;
    Ok(worker.shared.builder.map(Builder::into_stamps).unwrap_or_default())
}

struct Worker<'d> {
    epoll: OwnedFd,
    listeners: &'d [Listener],
    /// Listeners are watched: not while descriptors have run out.
    accepting: bool,
    connections: Vec<Option<Connection<'d>>>,
    free: Vec<u32>,
    unfinished: Vec<u32>,
    /// Connections that wait for a page, and when it is done: in this order.
    building: VecDeque<(u64, u32)>,
    shared: Shared<'d>,
    /// The second that the date was made for.
    second: i64,
    next_sweep_ns: u64,
}

impl<'d> Worker<'d> {
    fn serve(&mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            // Idle, nothing wakes us but events: a server that is not measured costs no CPU.
            let timeout_ns = match self.building.front() {
                _ if !self.unfinished.is_empty() => 0,
                Some((done_ns, _)) => done_ns.saturating_sub(monotonic_ns()).min(SWEEP_NS),
                None => SWEEP_NS,
            };
            let timeout = timespec(timeout_ns);
            let idle = self.unfinished.is_empty() && self.accepting && self.free.len() == self.connections.len();
            let waited =
                epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), (!idle).then_some(&timeout));
            match waited {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.tell_time();
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    token if token >= origin::FIRST_TOKEN => {
                        let socket = (token - origin::FIRST_TOKEN) as u32;
                        let client = self.shared.origin.as_mut().and_then(|origin| origin.note(socket, event.flags));
                        client.map_or(Ok(()), |client| self.drive(client))?;
                    }
                    token if token >= LISTENERS => self.accept((token - LISTENERS) as usize)?,
                    token => self.handle(token as u32, event.flags)?,
                }
            }
            for index in std::mem::take(&mut self.unfinished) {
                self.drive(index)?;
            }
            // Whoever has left meanwhile, or has a successor, is driven in vain.
            while let Some(&(done_ns, index)) = self.building.front()
                && done_ns <= self.shared.now_ns
            {
                self.building.pop_front();
                self.drive(index)?;
            }
            if self.shared.now_ns >= self.next_sweep_ns {
                self.sweep()?;
            }
        }
    }

    fn tell_time(&mut self) {
        self.shared.now_ns = monotonic_ns();
        let second = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        if second != self.second {
            self.second = second;
            self.shared.date = http_date(second);
        }
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        let listener = &self.listeners[listener];
        for _ in 0..ACCEPTS_PER_TURN {
            let accepted = sys::accept(&listener.socket);
            let descriptor = match accepted {
                Ok(descriptor) => descriptor,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.set_accepting(false);
                }
                // Nobody left, or one that gave up while waiting.
                Err(_) => return Ok(()),
            };
            let socket = Socket::new(TcpStream::from(descriptor));
            // Without memory for another connection this one is dropped.
            if let Ok(transport) = Transport::new(socket, listener.tls.as_ref()) {
                self.admit(Connection::new(transport, self.shared.now_ns))?;
            }
        }
        Ok(())
    }

    fn admit(&mut self, connection: Connection<'d>) -> io::Result<()> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            (self.connections.len() - 1) as u32
        });
        let token = EventData::new_u64(u64::from(index));
        epoll::add(&self.epoll, connection.transport.socket(), token, interest(false))?;
        self.connections[index as usize] = Some(connection);
        Ok(())
    }

    fn handle(&mut self, index: u32, flags: EventFlags) -> io::Result<()> {
        if let Some(connection) = &mut self.connections[index as usize] {
            let peer_ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            if peer_ended || flags.contains(EventFlags::IN) {
                connection.transport.socket_mut().note_readable(peer_ended);
            }
            self.drive(index)?;
        }
        Ok(())
    }

    fn drive(&mut self, index: u32) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index as usize] else {
            return Ok(());
        };
        self.shared.driven = index;
        match connection.drive(&mut self.shared) {
            Wish::Wait { for_output: false } => Ok(()),
            // Edge-triggered: changing the interest also asks anew whether there is room already.
            Wish::Wait { for_output: true } => {
                let token = EventData::new_u64(u64::from(index));
                Ok(epoll::modify(&self.epoll, connection.transport.socket(), token, interest(true))?)
            }
            Wish::Again => {
                self.unfinished.push(index);
                Ok(())
            }
            Wish::Page { done_ns } => {
                self.building.push_back((done_ns, index));
                Ok(())
            }
            Wish::Close => self.close(index),
        }
    }

    /// Closes a connection; the kernel takes its descriptor out of the epoll set.
    fn close(&mut self, index: u32) -> io::Result<()> {
        if let Some(connection) = self.connections[index as usize].take() {
            connection.leave(&mut self.shared);
            self.free.push(index);
        }
        if self.accepting { Ok(()) } else { self.set_accepting(true) }
    }

    fn set_accepting(&mut self, accepting: bool) -> io::Result<()> {
        if accepting != self.accepting {
            for (index, listener) in self.listeners.iter().enumerate() {
                if accepting {
                    let token = EventData::new_u64(LISTENERS + index as u64);
                    epoll::add(&self.epoll, &listener.socket, token, EventFlags::IN)?;
                } else {
                    epoll::delete(&self.epoll, &listener.socket)?;
                }
            }
            self.accepting = accepting;
        }
        Ok(())
    }

    /// Closes connections that idle or linger too long, and tries to accept again.
    fn sweep(&mut self) -> io::Result<()> {
        let now_ns = self.shared.now_ns;
        self.next_sweep_ns = now_ns + SWEEP_NS;
        for index in 0..self.connections.len() as u32 {
            let over = self.connections[index as usize].as_ref().is_some_and(|connection| {
                now_ns.saturating_sub(connection.progress_ns) >= IDLE_NS || connection.has_lingered(now_ns)
            });
            if over {
                self.close(index)?;
            }
        }
        self.set_accepting(true)
    }
}

fn interest(in_output: bool) -> EventFlags {
    let input = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    if in_output { input | EventFlags::OUT } else { input }
}
