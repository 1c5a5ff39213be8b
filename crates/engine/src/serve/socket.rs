//! A non-blocking socket that knows when a read would find nothing.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// A connected socket, watched edge-triggered.
///
/// A read that fills less than it was given has emptied the socket (epoll(7)), so the next one is answered `WouldBlock`
/// without asking the kernel until an event says otherwise. That saves one system call per request on each kept-alive
/// connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    readable: bool,
    /// The peer ended its side: the end of the stream is still to be read, whatever the lengths of reads say.
    peer_ended: bool,
}

impl Socket {
    /// Takes a non-blocking stream of which nothing was read.
    pub fn new(stream: TcpStream) -> Socket {
        Socket { stream, readable: false, peer_ended: false }
    }

    /// An event said that there is something to read, perhaps the end.
    pub fn note_readable(&mut self, peer_ended: bool) {
        self.readable = true;
        self.peer_ended |= peer_ended;
    }

    pub fn end_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.readable {
            return Err(ErrorKind::WouldBlock.into());
        }
        let result = self.stream.read(buffer);
        match &result {
            Ok(read) if *read < buffer.len() && !self.peer_ended => self.readable = false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            _ => {}
        }
        result
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn reads_ask_the_kernel_only_after_an_event() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut socket = Socket::new(near);
        far.write_all(b"abc").unwrap();
        let mut buffer = [0; 2];
        let mut read = |socket: &mut Socket| socket.read(&mut buffer).map_err(|error| error.kind());
        assert_eq!(read(&mut socket), Err(ErrorKind::WouldBlock));
        socket.note_readable(false);
        assert_eq!(read(&mut socket), Ok(2));
        assert_eq!(read(&mut socket), Ok(1));
        far.write_all(b"d").unwrap();
        drop(far);
        assert_eq!(read(&mut socket), Err(ErrorKind::WouldBlock));
        // With the end announced, short reads are followed up to it.
        socket.note_readable(true);
        assert_eq!(read(&mut socket), Ok(1));
        assert_eq!(read(&mut socket), Ok(0));
    }
}
