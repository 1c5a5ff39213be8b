//! A thin layer over epoll: one registration per descriptor.
//!
//! The load engine is level-triggered on purpose: a reader may stop after one short read without missing the end of the
//! stream, so that the usual case costs one `recv` and none that comes back empty. The dispatcher is edge-triggered: it
//! must be able to leave input unread while the other side cannot take it, without a system call to say so. Closing a
//! descriptor takes it out of the set by itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::sys;

/// The readiness that a descriptor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Input, or the peer's end of stream.
    Read,
    /// Input, and room for output or the end of connecting.
    ReadWrite,
    /// New input or the peer's end of stream, told once: whoever stops reading early must remember it.
    EdgeRead,
    /// As `EdgeRead`, and new room for output or the end of connecting.
    EdgeReadWrite,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        match self {
            Interest::Read => read,
            Interest::ReadWrite => read | epoll::EventFlags::OUT,
            Interest::EdgeRead => read | epoll::EventFlags::ET,
            Interest::EdgeReadWrite => read | epoll::EventFlags::OUT | epoll::EventFlags::ET,
        }
    }
}

/// The readiness of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The value it was registered with.
    pub token: u64,
    /// There is input, the end of input, or an error to read.
    pub readable: bool,
    /// There is room for output, or an error.
    pub writable: bool,
    /// The peer sent its end of stream: behind what can be read now there is nothing more.
    pub peer_ended: bool,
}

/// An epoll instance with room for a batch of events.
pub struct Reactor {
    epoll: OwnedFd,
    events: sys::Events,
}

impl Reactor {
    /// A reactor that answers at most `batch` events at once. Fails when there is no descriptor or memory left.
    pub fn new(batch: usize) -> io::Result<Reactor> {
        Ok(Reactor {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: sys::Events(Vec::with_capacity(batch)),
        })
    }

    /// Watches a descriptor until it is closed.
    pub fn add(&self, descriptor: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, descriptor, data, interest.flags())?)
    }

    /// Changes what a descriptor waits for.
    pub fn modify(&self, descriptor: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, descriptor, data, interest.flags())?)
    }

    /// Stops watching a descriptor that stays open.
    pub fn remove(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, descriptor)?)
    }

    /// Waits at most this long; [`Reactor::event`] then answers what came, up to the number answered here. A signal
    /// ends the wait early.
    pub fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        self.events.0.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events.0);
        match epoll::wait(&self.epoll, room, Some(&sys::timespec(timeout_ns))) {
            Ok(count) => Ok(count),
            Err(Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// One of the events that the last wait answered.
    pub fn event(&self, index: usize) -> Event {
        let event = self.events.0[index];
        let flags = event.flags;
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        Event {
            token: event.data.u64(),
            readable: failed || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
            writable: failed || flags.contains(epoll::EventFlags::OUT),
            peer_ended: flags.contains(epoll::EventFlags::RDHUP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn end_of_stream_is_reported_beside_the_last_input() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut reactor = Reactor::new(8).unwrap();
        reactor.add(&near, 7, Interest::ReadWrite).unwrap();
        assert_eq!(reactor.wait(1_000_000_000).unwrap(), 1);
        let writable = Event { token: 7, readable: false, writable: true, peer_ended: false };
        assert_eq!(reactor.event(0), writable);

        reactor.modify(&near, 9, Interest::Read).unwrap();
        assert_eq!(reactor.wait(0).unwrap(), 0);
        far.write_all(b"bye").unwrap();
        drop(far);
        assert_eq!(reactor.wait(1_000_000_000).unwrap(), 1);
        let event = reactor.event(0);
        assert!(event.token == 9 && event.readable);
        let mut text = String::new();
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "bye");
        // Level-triggered: the end stays visible.
        assert_eq!(reactor.wait(1_000_000_000).unwrap(), 1);
        assert!(reactor.event(0).peer_ended);
    }
}
