//! What is counted as one operation, and where the server offers it.

#[derive(Debug, PartialEq)]
pub struct Operation {
    /// The name that `--operation` takes.
    pub name: &'static str,
    pub title: &'static str,
    /// The protocol version as tlsdyno and tls-perf take it; `None`: no TLS.
    pub version: Option<&'static str>,
    /// The one suite of the server's port, by its IANA name.
    pub suite: &'static str,
    /// The one group of the server's port, where that is not left to server and client.
    pub group: Option<&'static str>,
    /// The server's key: `ecdsa` or `rsa`.
    pub key: &'static str,
    /// Whether each connection is to resume a session.
    pub resumes: bool,
    /// Whether the connection stays open after a response.
    pub keeps: bool,
    /// Requests at once on a connection of HTTP/2; `None`: HTTP/1.1.
    pub streams: Option<&'static str>,
    pub path: &'static str,
    /// About what nginx on one CPU serves in a second, for peers that take a number in place of a time.
    pub per_second: u32,
}

/// Full TLS 1.3 handshake with an ECDSA P-256 certificate, request, 1 KB, close.
const ECDSA: Operation = Operation {
    name: "ecdsa",
    title: "full TLS 1.3, ECDSA P-256, 1 KB, close",
    version: Some("1.3"),
    suite: "TLS_AES_128_GCM_SHA256",
    group: None,
    key: "ecdsa",
    resumes: false,
    keeps: false,
    streams: None,
    path: "/1k.bin",
    per_second: 1_700,
};

/// TCP connect, request, 1 KB, close.
pub const TCP: Operation =
    Operation { name: "tcp", title: "bare TCP, 1 KB, close", version: None, per_second: 12_000, ..ECDSA };

/// The next request on a connection.
const KEPT: Operation =
    Operation { name: "kept-1k", title: "kept request, 1 KB, TLS 1.3", keeps: true, per_second: 40_000, ..ECDSA };

/// The same of 1 MB.
const LARGE: Operation =
    Operation { name: "kept-1m", title: "kept request, 1 MB, TLS 1.3", path: "/1m.bin", per_second: 1_000, ..KEPT };

pub const OPERATIONS: [Operation; 11] = [
    ECDSA,
    Operation { name: "rsa", title: "full TLS 1.3, RSA-2048, 1 KB, close", key: "rsa", per_second: 1_200, ..ECDSA },
    Operation {
        name: "ticket12",
        title: "TLS 1.2 ticket, ECDSA, 1 KB, close",
        version: Some("1.2"),
        suite: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        resumes: true,
        per_second: 5_000,
        ..ECDSA
    },
    // By a ticket: PSK with ECDHE.
    Operation {
        name: "psk13",
        title: "TLS 1.3 resumption, ECDSA, 1 KB, close",
        resumes: true,
        per_second: 2_500,
        ..ECDSA
    },
    KEPT,
    LARGE,
    Operation { name: "http2-1k", title: "HTTP/2, kept request, 1 KB", streams: Some("1"), ..KEPT },
    Operation { name: "http2-1k-10", title: "HTTP/2, ten at once, 1 KB", streams: Some("10"), ..KEPT },
    Operation { name: "http2-1m", title: "HTTP/2, kept request, 1 MB", streams: Some("1"), ..LARGE },
    TCP,
    Operation {
        name: "hybrid",
        title: "full TLS 1.3, ECDSA P-256, X25519MLKEM768, 1 KB, close",
        group: Some("X25519MLKEM768"),
        per_second: 1_500,
        ..ECDSA
    },
];

impl Operation {
    /// Names of the operations that every OpenSSL of today can do.
    pub fn usual() -> Vec<&'static str> {
        OPERATIONS.iter().filter(|operation| operation.group.is_none()).map(|operation| operation.name).collect()
    }

    pub fn shakes_hands(&self) -> bool {
        !self.keeps && self.version.is_some()
    }
}
