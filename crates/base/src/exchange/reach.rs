//! Connections that end before they carry a request, and those that carry several.

use std::net::Shutdown;
use std::sync::Arc;

use tlsdyno_tls::{Config, Error, Handshake, Session, named};
use tlsdyno_wire::handshake;
use tlsdyno_wire::http::Response;

use super::{Exchange, Failure};

/// The last message of a server's first flight in a full handshake of TLS 1.2.
const SERVER_DONE: &str = handshake::name(handshake::SERVER_HELLO_DONE);

named! {
    /// How far a connection goes before the client takes its leave.
    pub enum Reach: "reach of a connection" {
        /// TCP is connected, and nothing is sent.
        Tcp = "tcp",
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

impl Exchange<'_> {
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
                match reach {
                    Reach::Finished => {
                        client.close(&mut self.out);
                        self.send()?;
                    }
                    _ => self.out.clear(),
                }
                break;
            }
        }
        self.leave();
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
        self.received.response = Response::new(false);
        self.times.requested_ns = None;
        self.answered()
    }
}
