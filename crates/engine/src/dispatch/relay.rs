//! One direction of a connection: bytes from one socket to the other, copied while they are few, spliced when they are
//! many.
//!
//! Input is only taken when the receiver takes it, so what is held is bounded: [`COPY_BYTES`] in user memory or what
//! fits a pipe. A bulk transfer is patient: its sender's packets are left to gather in the kernel, because waking up
//! for each costs more than moving it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::{SpliceFlags, splice};

use super::limits::{BULK_AFTER_BYTES, BULK_WAKE_BYTES, BYTES_PER_TURN, COPY_BYTES, SPLICE_BYTES};
use super::pipes::{Pipe, Pipes};
use crate::sys;

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// There may be input: no read has come back short since the last event.
    readable: bool,
    /// The sender's end of stream was announced: read up to it.
    ending: bool,
    /// The receiver did not take all: wait for room.
    blocked: bool,
    /// The sender's end of stream was read.
    ended: bool,
    /// The end of stream was passed on, or nobody is left to pass anything to.
    done: bool,
    /// The last read filled the buffer, or this is a bulk transfer: splice from now on.
    splices: bool,
    /// Somebody learns from the bytes: they must be copied.
    watched: bool,
    /// A bulk transfer: much has moved between the last pauses.
    bulk: bool,
    /// The kernel tells of input only when there is much of it.
    patient: bool,
    /// What [`Direction::bytes`] was after the last pause.
    bytes_at_pause: u64,
    /// Bytes that the receiver did not take, and how many of them it did take since.
    held: Vec<u8>,
    taken: usize,
    pipe: Option<Pipe>,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedSide {
    /// The sender: it reset the connection.
    Sender,
    /// The receiver: it takes nothing any more.
    Receiver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Waits,
    /// Wait for the receiver to have room.
    Blocked,
    /// There is more, but others come first.
    Unfinished,
    /// All was passed on, and the end too.
    Done,
}

/// What a loop lends to the direction that moves.
pub(super) struct Tools<'a> {
    pub(super) buffer: &'a mut [u8; COPY_BYTES],
    pub(super) pipes: &'a mut Pipes,
    /// Sees bytes that pass, and says whether it wants to see more.
    pub(super) watch: &'a mut dyn FnMut(&[u8]) -> bool,
    pub(super) pipes_missing: u64,
}

impl Direction {
    pub(super) fn note_readable(&mut self, ending: bool) {
        self.readable = true;
        self.ending |= ending;
    }

    /// Something was read. If that did not fill the buffer it took all there was, but for an end that was announced;
    /// one that comes later is a new event.
    pub(super) fn note_read(&mut self, filled: bool) {
        self.readable = filled || self.ending;
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(super) fn note_writable(&mut self) {
        self.blocked = false;
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Something could move without waiting.
    pub(super) fn is_ready(&self) -> bool {
        !self.done && !self.blocked && (self.readable || self.holds() > 0)
    }

    /// Nothing has happened for a while. A bulk transfer remains one if it moved much since the last pause.
    pub(super) fn note_pause(&mut self) {
        self.bulk = self.moves_much();
        self.bytes_at_pause = self.bytes;
    }

    fn moves_much(&self) -> bool {
        self.bytes - self.bytes_at_pause >= BULK_AFTER_BYTES
    }

    /// There may be input of which the kernel does not tell.
    pub(super) fn waits_patiently(&self) -> bool {
        self.patient && !self.done && !self.blocked
    }

    /// Goes back to being told of each input.
    pub(super) fn end_patience(&mut self, from: BorrowedFd) {
        if self.patient && sys::set_low_water_mark(from, 1).is_ok() {
            self.patient = false;
            self.note_pause();
            self.splices = self.bulk;
        }
    }

    /// Nothing more is passed on.
    pub(super) fn give_up(&mut self, pipes: &mut Pipes) {
        self.done = true;
        self.held = Vec::new();
        if let Some(pipe) = self.pipe.take() {
            pipes.give(pipe);
        }
    }

    /// Bytes received and not passed on.
    pub(super) fn holds(&self) -> usize {
        self.held.len() - self.taken + self.pipe.as_ref().map_or(0, |pipe| pipe.bytes)
    }

    /// Sends bytes; what the receiver does not take is held.
    fn send(&mut self, to: BorrowedFd, bytes: &[u8], flags: SendFlags) -> Result<(), FailedSide> {
        debug_assert!(self.holds() == 0);
        let sent = send(to, bytes, flags)?;
        self.bytes += sent as u64;
        if sent < bytes.len() {
            self.held = bytes[sent..].to_vec();
            self.taken = 0;
            self.blocked = true;
        }
        Ok(())
    }

    /// Sends the first bytes to a receiver that may not be connected yet; whether it is. What it did not take is for
    /// [`Direction::send_rest`].
    pub(super) fn send_early(&mut self, to: BorrowedFd, first: &[u8]) -> Result<bool, FailedSide> {
        if first.is_empty() {
            return Ok(false);
        }
        self.taken = send(to, first, SendFlags::NOSIGNAL)?;
        Ok(self.taken > 0)
    }

    /// Sends what of the first bytes was not sent early.
    pub(super) fn send_rest(&mut self, to: BorrowedFd, first: &[u8]) -> Result<(), FailedSide> {
        let early = std::mem::take(&mut self.taken);
        self.bytes += early as u64;
        if early == first.len() { Ok(()) } else { self.send(to, &first[early..], SendFlags::NOSIGNAL) }
    }

    /// The sender's end of stream was read elsewhere.
    pub(super) fn note_end(&mut self) {
        self.ended = true;
    }

    /// Moves what can be moved now. `last`: the opposite direction is done, and both sockets will be closed when this
    /// one is.
    pub(super) fn pump(
        &mut self,
        from: BorrowedFd,
        to: BorrowedFd,
        last: bool,
        tools: &mut Tools,
    ) -> Result<Flow, FailedSide> {
        let mut budget = BYTES_PER_TURN;
        loop {
            if self.done {
                return Ok(Flow::Done);
            }
            self.flush(to)?;
            if self.blocked {
                return Ok(Flow::Blocked);
            }
            if self.ended {
                if !last {
                    // Fails where the receiver is gone already, which its own direction will tell.
                    let _ = rustix::net::shutdown(to, Shutdown::Write);
                }
                self.give_up(tools.pipes);
                return Ok(Flow::Done);
            }
            if !self.readable {
                self.wait_for_input(from, tools.pipes);
                return Ok(Flow::Waits);
            }
            if budget == 0 {
                return Ok(Flow::Unfinished);
            }
            budget = budget.saturating_sub(self.take_input(from, to, tools)?);
        }
    }

    fn wait_for_input(&mut self, from: BorrowedFd, pipes: &mut Pipes) {
        if let Some(pipe) = self.pipe.take() {
            pipes.give(pipe);
        }
        self.bulk |= self.moves_much();
        self.splices = self.bulk && !self.watched;
        if self.splices && !self.patient {
            self.patient = sys::set_low_water_mark(from, BULK_WAKE_BYTES).is_ok();
        }
    }

    fn take_input(&mut self, from: BorrowedFd, to: BorrowedFd, tools: &mut Tools) -> Result<usize, FailedSide> {
        if self.splices && self.pipe.is_none() {
            self.pipe = tools.pipes.take();
            tools.pipes_missing += u64::from(self.pipe.is_none());
        }
        if self.pipe.is_some() { self.fill_pipe(from) } else { self.copy(from, to, tools) }
    }

    fn copy(&mut self, from: BorrowedFd, to: BorrowedFd, tools: &mut Tools) -> Result<usize, FailedSide> {
        let (count, fault) = self.gather(from, &mut tools.buffer[..]);
        if count > 0 {
            self.watched = (tools.watch)(&tools.buffer[..count]);
            self.splices = (count == COPY_BYTES || self.bulk) && !self.watched;
            // The end follows at once, and goes in the same segment.
            let flags = if self.ended { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
            self.send(to, &tools.buffer[..count], flags)?;
        }
        fault.map_or(Ok(count), Err)
    }

    /// Reads once, and where the end was announced, up to it.
    fn gather(&mut self, from: BorrowedFd, buffer: &mut [u8]) -> (usize, Option<FailedSide>) {
        let mut have = 0;
        while self.readable && !self.ended && have < buffer.len() {
            match rustix::net::recv(from, &mut buffer[have..], RecvFlags::empty()) {
                Ok((0, _)) => self.ended = true,
                Ok((count, _)) => {
                    have += count;
                    self.note_read(have == buffer.len());
                }
                Err(Errno::AGAIN) => self.readable = false,
                Err(Errno::INTR) => {}
                Err(_) => return (have, Some(FailedSide::Sender)),
            }
        }
        (have, None)
    }

    fn fill_pipe(&mut self, from: BorrowedFd) -> Result<usize, FailedSide> {
        let Some(pipe) = &mut self.pipe else { return Ok(0) };
        match splice(from, None, &pipe.input, None, SPLICE_BYTES, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
            Ok(0) => {
                self.ended = true;
                Ok(0)
            }
            Ok(count) => {
                pipe.bytes += count;
                Ok(count)
            }
            // The pipe is empty here, so it is the sender that has no more.
            Err(Errno::AGAIN) => {
                self.readable = false;
                Ok(0)
            }
            Err(Errno::INTR) => Ok(0),
            Err(_) => Err(FailedSide::Sender),
        }
    }

    fn flush(&mut self, to: BorrowedFd) -> Result<(), FailedSide> {
        if self.blocked {
            return Ok(());
        }
        if !self.held.is_empty() {
            let sent = send(to, &self.held[self.taken..], SendFlags::NOSIGNAL)?;
            self.taken += sent;
            self.bytes += sent as u64;
            self.blocked = self.taken < self.held.len();
            if !self.blocked {
                self.held = Vec::new();
                self.taken = 0;
            }
        }
        while let Some(pipe) = &mut self.pipe
            && pipe.bytes > 0
            && !self.blocked
        {
            match splice(&pipe.output, None, to, None, pipe.bytes, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
                Ok(count) => {
                    pipe.bytes -= count;
                    self.bytes += count as u64;
                }
                Err(Errno::AGAIN) => self.blocked = true,
                Err(Errno::INTR) => {}
                Err(_) => return Err(FailedSide::Receiver),
            }
        }
        Ok(())
    }
}

fn send(to: impl AsFd, bytes: &[u8], flags: SendFlags) -> Result<usize, FailedSide> {
    match rustix::net::send(to, bytes, flags) {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(_) => Err(FailedSide::Receiver),
    }
}
