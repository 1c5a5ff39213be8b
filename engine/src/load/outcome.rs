//! What a load run did: counts, phase histograms, errors by kind.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::slices::Slice;

/// A timed part of a connection or request. Histograms are kept apart because lumping them hides what resumption buys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// `connect` called until the connection is writable.
    TcpConnect,
    /// First TLS byte sent until the handshake is complete, full handshakes.
    FullHandshake,
    /// The same, resumed handshakes.
    ResumedHandshake,
    /// Request sent until the first byte of its response.
    FirstByte,
    /// Request sent until its response is complete.
    WholeResponse,
    /// Open loop only: intended send time until the response is complete, and so including the wait for a free user,
    /// connecting and the handshake.
    ScheduledResponse,
}

impl Phase {
    /// Every phase, in the order of reports.
    pub const ALL: [Phase; 6] = [
        Phase::TcpConnect,
        Phase::FullHandshake,
        Phase::ResumedHandshake,
        Phase::FirstByte,
        Phase::WholeResponse,
        Phase::ScheduledResponse,
    ];

    /// The name used in JSON and records.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::TcpConnect => "tcp_connect",
            Phase::FullHandshake => "full_handshake",
            Phase::ResumedHandshake => "resumed_handshake",
            Phase::FirstByte => "first_byte",
            Phase::WholeResponse => "whole_response",
            Phase::ScheduledResponse => "scheduled_response",
        }
    }
}

/// Why a request or connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// `connect` was refused.
    Refused,
    /// There is no route to the server, or a local rule forbids it.
    Unreachable,
    /// The connection was reset.
    Reset,
    /// The server closed before the response was complete.
    Closed,
    /// TCP was not connected within the time-out.
    ConnectTimeout,
    /// TCP was connected, but the TLS handshake made no progress within the time-out, or was not complete within its
    /// own.
    HandshakeTimeout,
    /// A request was sent, but its response made no progress within the time-out.
    Timeout,
    /// A request was sent, but no byte of its response came within the time-out for that.
    FirstByteTimeout,
    /// A request was sent, but its response was not complete within the time-out for that.
    TotalTimeout,
    /// Under way when the run's time was over, and not complete
    /// [`Connections::timeout_ns`](super::Connections::timeout_ns) later either.
    Cut,
    /// No local port was free.
    Ports,
    /// No descriptor was free.
    Descriptors,
    /// No memory was to be had for a connection.
    Resources,
    /// TLS failed; the alert or fault is in [`Outcome::tls_faults`].
    Tls,
    /// Not HTTP.
    Http,
    /// A redirect to another scheme, host or port, while redirects are followed.
    RedirectElsewhere,
    /// More redirects one after another than are followed; a loop ends here too.
    RedirectLimit,
    /// A redirect to what is no URL.
    RedirectMalformed,
    /// Another status than expected.
    Status,
    /// Another body length than expected.
    Length,
}

impl ErrorKind {
    /// Every kind, in the order of reports.
    pub const ALL: [ErrorKind; 20] = [
        ErrorKind::Refused,
        ErrorKind::Unreachable,
        ErrorKind::Reset,
        ErrorKind::Closed,
        ErrorKind::ConnectTimeout,
        ErrorKind::HandshakeTimeout,
        ErrorKind::Timeout,
        ErrorKind::FirstByteTimeout,
        ErrorKind::TotalTimeout,
        ErrorKind::Cut,
        ErrorKind::Ports,
        ErrorKind::Descriptors,
        ErrorKind::Resources,
        ErrorKind::Tls,
        ErrorKind::Http,
        ErrorKind::RedirectElsewhere,
        ErrorKind::RedirectLimit,
        ErrorKind::RedirectMalformed,
        ErrorKind::Status,
        ErrorKind::Length,
    ];

    /// The name used in JSON and records.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Refused => "refused",
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::Reset => "reset",
            ErrorKind::Closed => "closed",
            ErrorKind::ConnectTimeout => "connect_timeout",
            ErrorKind::HandshakeTimeout => "handshake_timeout",
            ErrorKind::Timeout => "timeout",
            ErrorKind::FirstByteTimeout => "first_byte_timeout",
            ErrorKind::TotalTimeout => "total_timeout",
            ErrorKind::Cut => "cut",
            ErrorKind::Ports => "ports",
            ErrorKind::Descriptors => "descriptors",
            ErrorKind::Resources => "resources",
            ErrorKind::Tls => "tls",
            ErrorKind::Http => "http",
            ErrorKind::RedirectElsewhere => "redirect_elsewhere",
            ErrorKind::RedirectLimit => "redirect_limit",
            ErrorKind::RedirectMalformed => "redirect_malformed",
            ErrorKind::Status => "status",
            ErrorKind::Length => "length",
        }
    }

    /// This machine, not the server, lacked something.
    pub const fn is_local(self) -> bool {
        matches!(self, ErrorKind::Ports | ErrorKind::Descriptors | ErrorKind::Resources)
    }
}

/// Counts of completed handshakes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Full handshakes completed.
    pub full: u64,
    /// Connections that the plan wanted to resume.
    pub resumed_intended: u64,
    /// Connections whose ClientHello carried a session.
    pub resumed_offered: u64,
    /// Connections on which the server took the session.
    pub resumed_accepted: u64,
    /// Connections whose ClientHello offered early data (TLS 1.3).
    pub early_offered: u64,
    /// Connections on which the server took them.
    pub early_accepted: u64,
    /// Handshakes with a HelloRetryRequest: the server wanted a key share that was not sent (TLS 1.3).
    pub retried: u64,
}

/// How the window of a replayed trace was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUse {
    /// The distance that was allowed: that from the oldest request that was not served to the newest presented was
    /// less.
    pub limit: u64,
    /// The largest distance that occurred.
    pub largest_distance: u64,
    /// How often connections began to have nothing to do because all requests left were outside.
    pub stalls: u64,
}

/// What one run did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Completed requests whose whole response was as expected.
    pub hits: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Connections opened.
    pub connections: u64,
    /// Handshakes by kind.
    pub handshakes: Handshakes,
    /// From the first connect to the last response, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time (user and system) of the loading thread in that time, in nanoseconds.
    pub client_cpu_ns: u64,
    /// Phase latencies in nanoseconds.
    pub phases: BTreeMap<Phase, Histogram<u64>>,
    /// Failed requests and connections by kind.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Complete responses by status code, expected or not.
    pub statuses: BTreeMap<u16, u64>,
    /// The first few TLS faults by text (alert names and the like), with counts.
    pub tls_faults: BTreeMap<String, u64>,
    /// Negotiated `version suite group` texts, with counts of handshakes.
    pub negotiated: BTreeMap<String, u64>,
    /// The run ended early because next to nothing succeeded any more (`storm`, `limits::SILENT_TIMEOUTS_MAX`): the
    /// server is gone, hangs, or never was there.
    pub gave_up: bool,
    /// Open loop: requests that were due before the end, but that no user was free for. They are in no histogram.
    pub unserved: u64,
    /// The run in slices, if the plan asked for them.
    pub slices: Vec<Slice>,
    /// The run was stopped before its end (Ctrl-C).
    pub stopped: bool,
    /// Redirects followed.
    pub redirects_followed: u64,
    /// Redirects that came when the run ended and nothing was begun any more: their requests are neither hits nor
    /// errors.
    pub redirects_unfinished: u64,
    /// How the window was used, if the plan had one.
    pub window: Option<WindowUse>,
}
