//! Plain or encrypted: how a connection's bytes travel.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use openssl::ssl::{ErrorCode, ShutdownState, Ssl, SslContext, SslStream};

use super::limits::RECORD_BYTES;
use super::socket::Socket;

/// How a connection's bytes travel.
#[derive(Debug)]
pub enum Transport {
    Plain(Socket),
    Tls {
        stream: SslStream<Socket>,
        /// Early data may come or are coming: OpenSSL has calls of their own for what is read and written before their
        /// end.
        early: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// This many bytes went.
    Moved(usize),
    /// Nothing now; an event will tell when.
    Blocked {
        /// What is missing is room for output.
        on_output: bool,
    },
    /// The peer has closed orderly (for a handshake or write: anything but success).
    Ended,
    Broken,
}

impl Transport {
    /// A new connection, encrypted if there is a context.
    pub fn new(socket: Socket, context: Option<&SslContext>) -> io::Result<Transport> {
        Ok(match context {
            None => Transport::Plain(socket),
            Some(context) => {
                let mut ssl = Ssl::new(context)?;
                ssl.set_accept_state();
                Transport::Tls { stream: SslStream::new(ssl, socket)?, early: context.max_early_data() > 0 }
            }
        })
    }

    pub fn socket(&self) -> &Socket {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls { stream, .. } => stream.get_ref(),
        }
    }

    pub fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls { stream, .. } => stream.get_mut(),
        }
    }

    /// Goes on with the handshake; `Moved(0)` when it is complete, or when early data may be read before that.
    pub fn handshake(&mut self) -> Attempt {
        match self {
            Transport::Plain(_) | Transport::Tls { early: true, .. } => Attempt::Moved(0),
            Transport::Tls { stream, .. } => {
                stream.accept().map_or_else(|error| attempt(&error), |()| Attempt::Moved(0))
            }
        }
    }

    /// Ends early data, of which the rest is dropped into `scratch`, and completes the handshake: `Moved(0)`. A server
    /// that closed before would destroy its answer by a reset, since the client still has its Finished to send.
    pub fn complete(&mut self, scratch: &mut [u8]) -> Attempt {
        while let Transport::Tls { stream, early: early @ true } = self {
            match stream.read_early_data(scratch) {
                Ok(0) => *early = false,
                Ok(_) => {}
                Err(error) => return attempt(&error),
            }
        }
        self.handshake()
    }

    /// Reads some bytes.
    pub fn read(&mut self, buffer: &mut [u8]) -> Attempt {
        match self {
            Transport::Plain(socket) => match socket.read(buffer) {
                Ok(0) => Attempt::Ended,
                other => plain_attempt(other, false),
            },
            Transport::Tls { stream, early } => {
                if *early {
                    match stream.read_early_data(buffer) {
                        // Their end: what follows is protected by the handshake.
                        Ok(0) => *early = false,
                        Ok(bytes) => return Attempt::Moved(bytes),
                        Err(error) => return attempt(&error),
                    }
                }
                stream.ssl_read(buffer).map_or_else(|error| attempt(&error), Attempt::Moved)
            }
        }
    }

    /// Writes `head` and then `body`, or the beginning of them. An encrypted piece must come again just so until it has
    /// gone, and `scratch` is where both are joined for one record.
    pub fn write(&mut self, head: &[u8], body: &[u8], scratch: &mut [u8; RECORD_BYTES]) -> Attempt {
        match self {
            Transport::Plain(socket) if body.is_empty() => plain_attempt(socket.write(head), true),
            Transport::Plain(socket) if head.is_empty() => plain_attempt(socket.write(body), true),
            Transport::Plain(socket) => {
                plain_attempt(socket.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]), true)
            }
            Transport::Tls { stream, early } => {
                let record = join(head, body, scratch);
                // Before the end of early data the client is not known to be who it was, but may have its answer.
                let written = if *early { stream.write_early_data(record) } else { stream.ssl_write(record) };
                written.map_or_else(|error| attempt(&error), Attempt::Moved)
            }
        }
    }

    /// Says goodbye as TLS wants it, once and without waiting; a peer that is gone does not hear it.
    pub fn say_goodbye(&mut self) {
        if let Transport::Tls { stream, .. } = self
            && !stream.get_shutdown().contains(ShutdownState::SENT)
        {
            let _ = stream.shutdown();
        }
    }
}

/// What goes into the next record: pieces of both if the head is short, else of the first that is left.
fn join<'a>(head: &'a [u8], body: &'a [u8], scratch: &'a mut [u8; RECORD_BYTES]) -> &'a [u8] {
    if head.is_empty() {
        return &body[..body.len().min(RECORD_BYTES)];
    }
    if body.is_empty() || head.len() >= RECORD_BYTES {
        return &head[..head.len().min(RECORD_BYTES)];
    }
    let from_body = body.len().min(RECORD_BYTES - head.len());
    scratch[..head.len()].copy_from_slice(head);
    scratch[head.len()..head.len() + from_body].copy_from_slice(&body[..from_body]);
    &scratch[..head.len() + from_body]
}

fn plain_attempt(result: io::Result<usize>, on_output: bool) -> Attempt {
    match result {
        Ok(moved) => Attempt::Moved(moved),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Attempt::Blocked { on_output },
        Err(error) if error.kind() == ErrorKind::Interrupted => Attempt::Moved(0),
        Err(_) => Attempt::Broken,
    }
}

fn attempt(error: &openssl::ssl::Error) -> Attempt {
    match error.code() {
        ErrorCode::WANT_READ => Attempt::Blocked { on_output: false },
        ErrorCode::WANT_WRITE => Attempt::Blocked { on_output: true },
        ErrorCode::ZERO_RETURN => Attempt::Ended,
        _ => Attempt::Broken,
    }
}
