//! What the parts of a connection are, and what they are called.

use std::fmt;

use serde::{Serialize, Serializer};
use tlsdyno_tls::{Group, Suite, Version};

use crate::steps::AT_ONCE;

/// Identity of a part. Its name is [`Display`](fmt::Display).
#[derive(Clone, Debug, PartialEq)]
pub enum PartId {
    /// Consecutive stretches of a connection's life: several where no method can separate them.
    Life(Vec<Stretch>),
    /// A whole handshake, without TCP. `Some`: of another version than that of a whole connection.
    Full(Option<Version>),
    /// As `Full`, with a session resumed.
    Resumed(Option<Version>),
    /// Full less resumed handshake.
    Saved(Option<Version>),
    Retry,
    /// The next request of a page on a kept connection. `Some`: of another version than that of a whole connection.
    Next(Option<Version>, String),
    NextWithoutTls(String),
    /// What TLS adds to the next request of a page.
    TlsInNext(String),
    /// What HTTP/2 takes more than HTTP/1.1 for a connection with one request.
    Http2,
    /// The next request on a connection of HTTP/2. `true`: one of several at once.
    NextOfHttp2(bool),
    /// A suite in place of the one that the server takes; `None`: AES-128-GCM.
    Suite(Suite, Option<Suite>),
    /// As `Suite`, for each request of a page.
    SuiteOfEach(Suite, Option<Suite>, String),
    /// A group in place of the one that the server agrees on.
    Group(Group, Group),
    /// The server's RSA certificate in place of its ECDSA one.
    RsaCertificate,
    CompressedCertificate,
    EarlyData,
    /// Resumption without a key agreement.
    ResumedByKey,
    /// A session of TLS 1.2 by its ID in place of a ticket.
    ResumedById,
}

/// A stretch of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    Accepting,
    /// What the protocol has before TLS.
    Opening,
    Hello,
    /// The server's key pair and the shared secret.
    KeyAgreement,
    /// The rest of the server's first flight, without certificate and signature.
    KeySchedule,
    /// Both, where no method can separate them.
    AgreementAndSchedule,
    Signature,
    /// The client's Finished, and tickets.
    Finished,
    /// Key share, certificate and signature of TLS 1.2.
    ShareAndSignature,
    /// Key agreement, key schedule and Finished of TLS 1.2.
    AgreementToFinished,
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// A stretch in the life of a whole connection: the costs of these add up to it.
    Life,
    /// An addition to that life, or outside of it.
    Beside,
    /// Additional cost of another choice.
    Choice,
}

impl PartId {
    pub fn stretch(of: Stretch) -> PartId {
        PartId::Life(vec![of])
    }

    pub fn kind(&self) -> PartKind {
        match self {
            PartId::Life(_) => PartKind::Life,
            PartId::Full(_) | PartId::Resumed(_) | PartId::Saved(_) | PartId::Retry => PartKind::Beside,
            PartId::Next(..) | PartId::NextWithoutTls(_) | PartId::TlsInNext(_) => PartKind::Beside,
            PartId::NextOfHttp2(_) => PartKind::Beside,
            _ => PartKind::Choice,
        }
    }

    /// Needed for each request of a connection but the first.
    pub fn is_of_request(&self) -> bool {
        let is_next = matches!(self, PartId::Next(..) | PartId::NextWithoutTls(_) | PartId::TlsInNext(_));
        is_next || matches!(self, PartId::SuiteOfEach(..) | PartId::NextOfHttp2(_))
    }

    /// Several stretches of a connection's life that no method can separate.
    pub fn is_joined(&self) -> bool {
        matches!(self, PartId::Life(of) if of.len() > 1 || of.contains(&Stretch::AgreementAndSchedule))
    }

    fn name(&self) -> String {
        let other = |version: &Option<Version>| version.map_or(String::new(), |version| format!(", TLS {version}"));
        let of_page = |page: &str| if page.is_empty() { String::new() } else { format!(", {page}") };
        let in_place = |suite: &Suite, usual: &Option<Suite>| {
            format!("{suite} in place of {}", usual.map_or("AES-128".to_owned(), |usual| usual.to_string()))
        };
        match self {
            PartId::Life(of) => {
                let of = of.iter().map(|stretch| stretch.name()).collect::<Vec<_>>().join(", ");
                of + if self.is_joined() { ", together" } else { "" }
            }
            PartId::Full(version) => format!("full handshake{}", other(version)),
            PartId::Resumed(version) => format!("resumed handshake{}", other(version)),
            PartId::Saved(version) => format!("saved by resumption{}", other(version)),
            PartId::Retry => "a second hello (HelloRetryRequest)".to_owned(),
            PartId::Next(version, page) => {
                format!("next request on the connection{}{}", other(version), of_page(page))
            }
            PartId::Http2 => "HTTP/2 in place of HTTP/1.1: its beginning and the first request".to_owned(),
            PartId::NextOfHttp2(false) => "next request on the connection, HTTP/2".to_owned(),
            PartId::NextOfHttp2(true) => format!("each of {AT_ONCE} requests at once, HTTP/2"),
            PartId::NextWithoutTls(page) => format!("next request without TLS{}", of_page(page)),
            PartId::TlsInNext(page) => format!("TLS in the next request{}", of_page(page)),
            PartId::Suite(suite, usual) => in_place(suite, usual),
            PartId::SuiteOfEach(suite, usual, page) => {
                format!("{}, each request{}", in_place(suite, usual), of_page(page))
            }
            PartId::Group(group, Group::X25519) => format!("{group} in place of X25519"),
            PartId::Group(group, usual) if group == usual => {
                format!("a client that offers {group} first, and needs no second hello")
            }
            PartId::Group(group, usual) => format!("{group} in place of {usual} by a second hello"),
            PartId::RsaCertificate => "its RSA certificate in place of its ECDSA one".to_owned(),
            PartId::CompressedCertificate => "its certificate compressed by zlib".to_owned(),
            PartId::EarlyData => "the request as early data".to_owned(),
            PartId::ResumedByKey => "resumption without a key agreement (psk_ke)".to_owned(),
            PartId::ResumedById => "a session by ID in place of a ticket, TLS 1.2".to_owned(),
        }
    }
}

impl Stretch {
    fn name(self) -> &'static str {
        match self {
            Stretch::Accepting => "accepting and closing",
            Stretch::Opening => "opening, as its protocol has it before TLS",
            Stretch::Hello => "reading the hello",
            Stretch::KeyAgreement => "key agreement",
            Stretch::KeySchedule => "key schedule and encryption of its messages",
            Stretch::AgreementAndSchedule => "key agreement and key schedule",
            Stretch::Signature => "certificate and signature",
            Stretch::Finished => "client's Finished, tickets",
            Stretch::ShareAndSignature => "key share, certificate and signature",
            Stretch::AgreementToFinished => "key agreement, key schedule, Finished",
            Stretch::Request => "the request",
        }
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&crate::label(self.name()))
    }
}

impl Serialize for PartId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
