//! Lines over TLS over TCP, without waiting. Both ends use it. What a peer can make it hold is bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::PollFlags;
use rustls::Connection;
use serde::Serialize;

/// Longest line of a peer that is known, in bytes: the outcome of a loop with thousands of slices.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Longest line of one that is not known yet, in bytes.
pub const FIRST_LINE_BYTES_MAX: usize = 4096;

/// Bytes taken from TLS at once.
const PIECE_BYTES: usize = 64 * 1024;

/// One end.
#[derive(Debug)]
pub struct Link {
    tls: Connection,
    socket: TcpStream,
    /// Received, and not yet a whole line.
    input: Vec<u8>,
    /// Of these, so many were looked through and have no end of line.
    searched: usize,
    /// Longest line that is taken.
    line_bytes_max: usize,
    /// To be sent, not yet taken by TLS.
    output: Vec<u8>,
}

impl Link {
    /// A link over a connected socket.
    ///
    /// # Errors
    /// The socket cannot be set up.
    pub fn new(tls: Connection, socket: TcpStream) -> Result<Link> {
        socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).context("set up a socket")?;
        let (input, output) = (Vec::new(), Vec::new());
        Ok(Link { tls, socket, input, searched: 0, line_bytes_max: FIRST_LINE_BYTES_MAX, output })
    }

    /// The peer is known now: its lines may be long.
    pub fn trust(&mut self) {
        self.line_bytes_max = LINE_BYTES_MAX;
    }

    /// To be waited for.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What for.
    pub fn waits_for(&self) -> PollFlags {
        let write = !self.output.is_empty() || self.tls.wants_write();
        if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    }

    /// Whether everything said is with the system.
    pub fn is_sent(&self) -> bool {
        self.output.is_empty() && !self.tls.wants_write()
    }

    /// Says something; it leaves with [`Link::send`].
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn say(&mut self, message: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.output, message).context("encode a message")?;
        self.output.push(b'\n');
        Ok(())
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn send(&mut self) -> Result<()> {
        loop {
            if !self.tls.is_handshaking() && !self.output.is_empty() {
                let taken = self.tls.writer().write(&self.output).context("TLS takes nothing")?;
                self.output.drain(..taken);
            }
            if !self.tls.wants_write() {
                return Ok(());
            }
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the connection broke"),
            }
        }
    }

    /// Takes what there is and answers the whole lines of it. Nothing means nothing yet.
    ///
    /// # Errors
    /// The peer closed the connection, is somebody else, or says too much.
    pub fn receive(&mut self) -> Result<Vec<String>> {
        let closed = match self.tls.read_tls(&mut self.socket) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            Err(error) => return Err(error).context("the connection broke"),
        };
        let state = self.tls.process_new_packets().context("TLS failed")?;
        let mut piece = [0; PIECE_BYTES];
        let mut left = state.plaintext_bytes_to_read();
        while left > 0 {
            let count = self.tls.reader().read(&mut piece[..left.min(PIECE_BYTES)])?;
            self.input.extend_from_slice(&piece[..count]);
            left -= count;
        }
        let lines = self.lines()?;
        if closed && lines.is_empty() {
            bail!("the connection was closed");
        }
        Ok(lines)
    }

    fn lines(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.input[self.searched..]) {
            let end = self.searched + length;
            ensure!(end - from <= self.line_bytes_max, "a line of more than {} bytes came", self.line_bytes_max);
            lines.push(String::from_utf8(self.input[from..end].to_vec()).context("a line is no text")?);
            (from, self.searched) = (end + 1, end + 1);
        }
        self.input.drain(..from);
        self.searched = self.input.len();
        ensure!(self.searched <= self.line_bytes_max, "a line of more than {} bytes came", self.line_bytes_max);
        Ok(lines)
    }
}
