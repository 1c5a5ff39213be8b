//! Connections that end before they carry a request, and those that carry several.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_linger;
use tlsdyno_tls::{Config, Error, Handshake, Session, named};
use tlsdyno_wire::handshake;

use super::{AT_ONCE, Exchange, Failure, Turn};

/// The last message of a server's first flight in a full handshake of TLS 1.2.
const SERVER_DONE: &str = handshake::name(handshake::SERVER_HELLO_DONE);

named! {
    /// How far a connection goes before the client takes its leave.
    pub enum Reach: "reach of a connection" {
        /// TCP is connected, and nothing is sent.
        Tcp = "tcp",
        /// The server has agreed to begin TLS, as its protocol has it before the hello.
        Opened = "opened",
        /// The server has refused the hello with an alert.
        Refused = "refused",
        /// The server's part of the handshake is here; the client does not answer it.
        Flight = "flight",
        /// The handshake is complete at both ends, and nothing is requested.
        Finished = "finished",
        /// The request is answered.
        Answered = "answered",
    }
}

/// A connection that stays open, on which nothing more is said. Dropping it resets it, which frees its port at once.
pub struct Held(TcpStream);

impl Held {
    /// The server has neither closed nor reset it.
    pub fn is_open(&self) -> bool {
        // Tickets may have come, which nobody reads: only an end counts.
        poll(&mut [PollFd::new(&self.0, PollFlags::RDHUP)], Some(&AT_ONCE)) == Ok(0)
    }
}

impl<'a> Exchange<'a> {
    /// Makes the hello, goes as far as this, with these turns if it goes so far, and stays there.
    pub fn held_at(mut self, reach: Reach, tls: Option<&Arc<Config>>, turns: &'a [Turn]) -> Result<Held, Failure> {
        if reach == Reach::Answered {
            self = self.taking_turns(tls, None, turns)?;
            self.answered()?;
        } else {
            self.come_to(reach, tls, None)?;
        }
        if reach == Reach::Finished {
            self.send()?;
        }
        set_socket_linger(&self.stream, Some(Duration::ZERO)).map_err(std::io::Error::from)?;
        Ok(Held(self.stream))
    }

    /// Makes the hello and goes as far as this without a request, takes leave, and waits until the server has ended
    /// its part too. Answers what was negotiated, where it came so far, also of a hello that was to be refused.
    pub fn ending_at(
        mut self,
        reach: Reach,
        tls: Option<&Arc<Config>>,
        session: Option<Session>,
    ) -> Result<Option<Handshake>, Failure> {
        self.go(reach, tls, session)?;
        Ok(self.handshake)
    }

    /// Completes a handshake, requests nothing, and answers the session that the server gives, if it gives one.
    pub fn taking_session(mut self, tls: &Arc<Config>) -> Result<Option<Session>, Failure> {
        self.go(Reach::Finished, Some(tls), None)?;
        Ok(self.received.sessions.pop())
    }

    fn go(&mut self, reach: Reach, tls: Option<&Arc<Config>>, session: Option<Session>) -> Result<(), Failure> {
        self.come_to(reach, tls, session)?;
        if let (Reach::Finished, Some(client)) = (reach, &mut self.client) {
            client.close(&mut self.out);
            self.send()?;
        }
        self.out.clear();
        self.leave();
        Ok(())
    }

    /// What would be sent next stands in `out`.
    fn come_to(&mut self, reach: Reach, tls: Option<&Arc<Config>>, session: Option<Session>) -> Result<(), Failure> {
        self.hello(tls, session);
        while self.client.is_some() {
            self.send()?;
            let (read, _) = self.next_bytes().map_err(|error| self.late(error))?;
            if read == 0 {
                // Java's servers close without an alert.
                return if reach == Reach::Refused { Ok(()) } else { Err(Failure::Closed) };
            }
            match self.receive(read) {
                Err(Failure::Tls(Error::AlertReceived(_))) if reach == Reach::Refused => break,
                other => other?,
            }
            let client = self.client.as_mut().ok_or(Failure::Closed)?;
            let waits = self.received.moments.iter().any(|moment| moment.what == SERVER_DONE);
            if client.is_connected() || waits && reach != Reach::Finished {
                self.handshake = client.handshake().cloned();
                break;
            }
        }
        Ok(())
    }

    /// Sends no more, and reads on until the server ends too: tickets that are still under way among it.
    fn leave(&mut self) {
        // One that has reset the connection has ended.
        let _ = self.stream.shutdown(Shutdown::Write);
        while let Ok((read @ 1.., _)) = self.next_bytes() {
            if self.handshake.is_some() {
                let _ = self.receive(read);
            }
        }
    }

    /// Asks for the same once more, on the connection that the server has kept.
    pub fn again(&mut self) -> Result<(), Failure> {
        self.again_at_once(1)
    }

    /// Asks for the same so many times at once, which HTTP/2 alone can do.
    pub fn again_at_once(&mut self, count: u32) -> Result<(), Failure> {
        (0..count).for_each(|_| self.received.reply.next(self.request));
        self.times.requested_ns = None;
        self.answered()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::exchange::TIME_LIMIT;

    #[test]
    fn a_held_connection_is_open_until_the_server_ends_it() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let exchange = Exchange::connect(server.local_addr().unwrap(), TIME_LIMIT).unwrap();
        let held = exchange.held_at(Reach::Tcp, None, &[]).unwrap();
        let mut stream = server.accept().unwrap().0;
        stream.write_all(b"a ticket").unwrap();
        assert!(held.is_open());
        // On loopback its end has arrived with this.
        drop(stream);
        assert!(!held.is_open());
    }
}
