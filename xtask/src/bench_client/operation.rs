//! What is counted as one operation, and where the server offers it.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// One operation of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Full TLS 1.3 handshake with an ECDSA P-256 certificate, request, 1 KB, close.
    Ecdsa,
    /// The same with an RSA-2048 certificate.
    Rsa,
    /// TLS 1.2 handshake that resumes by a ticket, request, 1 KB, close.
    Ticket12,
    /// TLS 1.3 handshake that resumes by a ticket (PSK with ECDHE), request, 1 KB, close.
    Psk13,
    /// Request and 1 KB on a kept TLS 1.3 connection.
    Kept1k,
    /// Request and 1 MB on a kept TLS 1.3 connection.
    Kept1m,
    /// TCP connect, request, 1 KB, close; no TLS.
    Tcp,
    /// As `Ecdsa`, with X25519MLKEM768.
    Hybrid,
}

impl ValueEnum for Operation {
    fn value_variants<'a>() -> &'a [Operation] {
        &Operation::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

impl Operation {
    /// In the order of the table.
    pub const ALL: [Operation; 8] = [
        Operation::Ecdsa,
        Operation::Rsa,
        Operation::Ticket12,
        Operation::Psk13,
        Operation::Kept1k,
        Operation::Kept1m,
        Operation::Tcp,
        Operation::Hybrid,
    ];

    /// What every OpenSSL of today can do.
    pub fn usual() -> impl Iterator<Item = Operation> {
        Operation::ALL.into_iter().filter(|operation| operation.group().is_none())
    }

    /// The name that `--operation` takes.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Ecdsa => "ecdsa",
            Operation::Rsa => "rsa",
            Operation::Ticket12 => "ticket12",
            Operation::Psk13 => "psk13",
            Operation::Kept1k => "kept-1k",
            Operation::Kept1m => "kept-1m",
            Operation::Tcp => "tcp",
            Operation::Hybrid => "hybrid",
        }
    }

    /// The row's title in the table.
    pub fn title(self) -> &'static str {
        match self {
            Operation::Ecdsa => "full TLS 1.3, ECDSA P-256, 1 KB, close",
            Operation::Rsa => "full TLS 1.3, RSA-2048, 1 KB, close",
            Operation::Ticket12 => "TLS 1.2 ticket, ECDSA, 1 KB, close",
            Operation::Psk13 => "TLS 1.3 resumption, ECDSA, 1 KB, close",
            Operation::Kept1k => "kept request, 1 KB, TLS 1.3",
            Operation::Kept1m => "kept request, 1 MB, TLS 1.3",
            Operation::Tcp => "bare TCP, 1 KB, close",
            Operation::Hybrid => "full TLS 1.3, ECDSA P-256, X25519MLKEM768, 1 KB, close",
        }
    }

    /// Whether the connection stays open after a response.
    pub fn keeps(self) -> bool {
        matches!(self, Operation::Kept1k | Operation::Kept1m)
    }

    /// Whether each connection is to resume a session.
    pub fn resumes(self) -> bool {
        matches!(self, Operation::Ticket12 | Operation::Psk13)
    }

    /// Whether each connection has a handshake.
    pub fn shakes_hands(self) -> bool {
        !self.keeps() && self != Operation::Tcp
    }

    /// The protocol version as tlsdyno and tls-perf take it; `None`: no TLS.
    pub fn version(self) -> Option<&'static str> {
        match self {
            Operation::Ticket12 => Some("1.2"),
            Operation::Tcp => None,
            _ => Some("1.3"),
        }
    }

    /// The one suite of the server's port, by its IANA name.
    pub fn suite(self) -> &'static str {
        match self {
            Operation::Ticket12 => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            _ => "TLS_AES_128_GCM_SHA256",
        }
    }

    /// The one group of the server's port, where that is not left to server and client.
    pub fn group(self) -> Option<&'static str> {
        (self == Operation::Hybrid).then_some("X25519MLKEM768")
    }

    /// The object that is asked for.
    pub fn path(self) -> &'static str {
        match self {
            Operation::Kept1m => "/1m.bin",
            _ => "/1k.bin",
        }
    }

    /// About what nginx on one CPU serves in a second, for peers that take a number in place of a time.
    pub fn per_second(self) -> u32 {
        match self {
            Operation::Ecdsa => 1_700,
            Operation::Rsa => 1_200,
            Operation::Ticket12 => 5_000,
            Operation::Psk13 => 2_500,
            Operation::Kept1k => 40_000,
            Operation::Kept1m => 1_000,
            Operation::Tcp => 12_000,
            Operation::Hybrid => 1_500,
        }
    }
}
