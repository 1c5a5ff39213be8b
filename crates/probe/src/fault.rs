//! What can go wrong in a round.

use std::io;

use serde::{Deserialize, Serialize};
use tlsdyno_tls::named;

named! {
    /// Why a step of a round failed.
    pub enum FaultKind: "kind of fault" {
        /// The name has no address.
        Name = "name",
        /// The name leads to a host that may not be probed.
        Forbidden = "forbidden",
        /// `connect` was refused.
        Refused = "refused",
        /// There is no route, or a local rule forbids it.
        Unreachable = "unreachable",
        /// The connection was reset.
        Reset = "reset",
        /// The server closed before its response was complete.
        Closed = "closed",
        /// TCP was not connected in time.
        ConnectTimeout = "connect_timeout",
        /// The handshake was not complete in time.
        HandshakeTimeout = "handshake_timeout",
        /// The response was not complete in time.
        Timeout = "timeout",
        /// The server ended the handshake with an alert.
        Alert = "alert",
        /// TLS failed in another way.
        Tls = "tls",
        /// The certificate cannot be trusted, and that was to be a fault.
        Certificate = "certificate",
        /// The answer is not HTTP/1.
        Http = "http",
        /// The status says that something is wrong (400 and above).
        Status = "status",
        /// This machine's address changed within the round: its connections went different ways. Nothing of it is kept.
        Moved = "moved",
        /// This machine slept within the round. Nothing of it is kept.
        Asleep = "asleep",
        /// This machine has no port, descriptor or memory left.
        Local = "local",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What failed: `lookup`, `tcp`, `full`, `resumed`, `early`, `kept`, or the `round` as a whole.
    pub step: String,
    pub kind: FaultKind,
    pub text: String,
}

/// A fault that does not know yet in which step it happened.
#[derive(Debug)]
pub struct Cause {
    pub kind: FaultKind,
    pub text: String,
}

impl Cause {
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Cause {
        Cause { kind, text: text.into() }
    }

    /// An error of a socket; `late` is what it is called when the time-out passed.
    pub fn of_io(error: &io::Error, late: FaultKind) -> Cause {
        let kind = match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => late,
            io::ErrorKind::ConnectionRefused => FaultKind::Refused,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable | io::ErrorKind::PermissionDenied => {
                FaultKind::Unreachable
            }
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse | io::ErrorKind::OutOfMemory => FaultKind::Local,
            io::ErrorKind::UnexpectedEof => FaultKind::Closed,
            _ if [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error()) => FaultKind::Local,
            _ => FaultKind::Reset,
        };
        let text = if kind == late { "no answer in time".to_owned() } else { error.to_string() };
        Cause { kind, text }
    }

    pub fn in_step(self, step: &str) -> Fault {
        Fault { step: step.to_owned(), kind: self.kind, text: self.text }
    }
}

impl From<tlsdyno_tls::Error> for Cause {
    fn from(error: tlsdyno_tls::Error) -> Cause {
        let kind = match error {
            tlsdyno_tls::Error::AlertReceived(_) | tlsdyno_tls::Error::CertificateWanted(_) => FaultKind::Alert,
            tlsdyno_tls::Error::ClosedInHandshake | tlsdyno_tls::Error::Truncated => FaultKind::Closed,
            _ => FaultKind::Tls,
        };
        Cause { kind, text: error.to_string() }
    }
}
