//! Lines over TLS over TCP, without waiting. Both ends use it. What a peer can make it hold is bounded.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, ensure};
use rustix::event::PollFlags;
use rustls::Connection;
use serde::Serialize;

/// Longest line of a peer that is known, in bytes: the outcome of a loop with thousands of slices.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Longest line of one that is not known yet, in bytes.
pub const FIRST_LINE_BYTES_MAX: usize = 4096;

const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub struct Link {
    tls: Connection,
    socket: TcpStream,
    /// Received, and not yet a whole line.
    input: Vec<u8>,
    /// Bytes of the input that were searched and hold no end of line.
    searched: usize,
    line_bytes_max: usize,
    /// To be sent, not yet taken by TLS.
    output: VecDeque<u8>,
    has_heard: bool,
}

impl Link {
    pub fn new(tls: Connection, socket: TcpStream) -> Result<Link> {
        socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).context("set up a socket")?;
        let (input, output) = (Vec::new(), VecDeque::new());
        Ok(Link { tls, socket, input, searched: 0, line_bytes_max: FIRST_LINE_BYTES_MAX, output, has_heard: false })
    }

    /// The peer is known now: its lines may be long.
    pub fn trust(&mut self) {
        self.line_bytes_max = LINE_BYTES_MAX;
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn peer(&self) -> std::io::Result<IpAddr> {
        self.socket.peer_addr().map(|address| address.ip())
    }

    pub fn waits_for(&self) -> PollFlags {
        let write = !self.output.is_empty() || self.tls.wants_write();
        if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    }

    /// Whether everything said is with the system.
    pub fn is_sent(&self) -> bool {
        self.output.is_empty() && !self.tls.wants_write()
    }

    /// Whether anything came since this was last asked: of a long line over a slow network, too, its pieces are signs
    /// of life.
    pub fn has_heard(&mut self) -> bool {
        std::mem::take(&mut self.has_heard)
    }

    /// Says something; it leaves with [`Link::send`].
    pub fn say(&mut self, message: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.output, message).context("encode a message")?;
        self.output.push_back(b'\n');
        Ok(())
    }

    pub fn send(&mut self) -> Result<()> {
        loop {
            if !self.tls.is_handshaking() && !self.output.is_empty() {
                let taken = self.tls.writer().write(self.output.as_slices().0).context("TLS takes nothing")?;
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
            self.has_heard = true;
        }
        let lines = self.lines()?;
        ensure!(!closed || !lines.is_empty(), "the connection was closed");
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::ServerConnection;

    use super::*;
    use crate::machines::token::Token;

    /// A coordinator's end and a worker's, which has the token of that or of another one.
    fn pair(is_own: bool) -> (Link, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (token, config) = Token::new().unwrap();
        let token = if is_own { token } else { Token::new().unwrap().0 };
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let server = ServerConnection::new(config).unwrap();
        (Link::new(server.into(), far).unwrap(), Link::new(token.client().unwrap().into(), near).unwrap())
    }

    /// What one end says until the other has so many lines of it.
    fn pass(from: &mut Link, to: &mut Link, lines: usize) -> Result<Vec<String>> {
        let mut heard = Vec::new();
        while heard.len() < lines {
            from.send()?;
            heard.extend(to.receive()?);
            to.send()?;
            from.receive()?;
        }
        Ok(heard)
    }

    #[test]
    fn lines_arrive_whole_and_in_order_however_they_are_cut() {
        let (mut coordinator, mut worker) = pair(true);
        worker.say(&"hello").unwrap();
        assert_eq!(pass(&mut worker, &mut coordinator, 1).unwrap(), ["\"hello\""]);
        coordinator.trust();
        worker.trust();
        // Several in one record, and one of several records.
        let said: Vec<String> = (0..40).map(|number: usize| "x".repeat(number * number * 400)).collect();
        said.iter().for_each(|text| worker.say(text).unwrap());
        let heard = pass(&mut worker, &mut coordinator, said.len()).unwrap();
        assert!(heard.iter().zip(&said).all(|(heard, said)| *heard == format!("\"{said}\"")));
        assert!(worker.is_sent());
        assert!(coordinator.has_heard() && !coordinator.has_heard() && !worker.has_heard());
        drop(worker);
        let gone = loop {
            match coordinator.receive() {
                Ok(lines) => assert!(lines.is_empty()),
                Err(error) => break format!("{error:#}"),
            }
        };
        assert!(gone.contains("closed") || gone.contains("broke"), "{gone}");
    }

    #[test]
    fn a_stranger_says_little_and_another_coordinator_is_found_out() {
        let (mut coordinator, mut worker) = pair(true);
        worker.say(&"x".repeat(FIRST_LINE_BYTES_MAX)).unwrap();
        let error = pass(&mut worker, &mut coordinator, 1).unwrap_err();
        assert!(error.to_string().contains("4096 bytes"), "{error}");
        let (mut coordinator, mut worker) = pair(false);
        worker.say(&"the secret").unwrap();
        let error = loop {
            // The coordinator answers the hello, by which the worker knows it.
            if let Err(error) = worker.send().and_then(|()| worker.receive().map(drop)) {
                break error;
            }
            assert_eq!(coordinator.receive().unwrap(), Vec::<String>::new(), "it said nothing");
            coordinator.send().unwrap();
        };
        assert!(error.downcast_ref::<rustls::Error>().is_some(), "{error:#}");
    }
}
