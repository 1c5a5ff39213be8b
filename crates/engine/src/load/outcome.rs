//! What a load run did: counts, phase histograms, errors by kind.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use tlsdyno_tls::named;

use super::lives::Life;
use super::rated::Kept;
use super::slices::{Slice, SliceLatencies};

named! {
    /// A timed part of a connection or request. Histograms are kept apart because lumping them hides what resumption
    /// buys.
    pub enum Phase: "phase" {
        /// `connect` called until the connection is writable.
        TcpConnect = "tcp_connect",
        /// First TLS byte sent until the handshake is complete, full handshakes.
        FullHandshake = "full_handshake",
        /// The same, resumed handshakes.
        ResumedHandshake = "resumed_handshake",
        /// Request sent until the first byte of its response.
        FirstByte = "first_byte",
        /// Request sent until its response is complete.
        WholeResponse = "whole_response",
        /// Open loop only: intended send time until the response is complete, and so including the wait for a free
        /// user, connecting and the handshake.
        ScheduledResponse = "scheduled_response",
    }
}

named! {
    /// Why a request or connection failed.
    pub enum ErrorKind: "kind of error" {
        /// `connect` was refused.
        Refused = "refused",
        /// There is no route to the server, or a local rule forbids it.
        Unreachable = "unreachable",
        /// The connection was reset.
        Reset = "reset",
        /// The server closed before the response was complete.
        Closed = "closed",
        /// TCP was not connected within the time-out.
        ConnectTimeout = "connect_timeout",
        /// TCP was connected, but the TLS handshake made no progress within the time-out, or was not complete within
        /// its own.
        HandshakeTimeout = "handshake_timeout",
        /// A request was sent, but its response made no progress within the time-out.
        Timeout = "timeout",
        /// A request was sent, but no byte of its response came within the time-out for that.
        FirstByteTimeout = "first_byte_timeout",
        /// A request was sent, but its response was not complete within the time-out for that.
        TotalTimeout = "total_timeout",
        /// Under way when the run's time was over, and not complete
        /// [`Connections::timeout_ns`](super::Connections::timeout_ns) later either.
        Cut = "cut",
        /// No local port was free.
        Ports = "ports",
        /// No descriptor was free.
        Descriptors = "descriptors",
        /// No memory was to be had for a connection.
        Resources = "resources",
        /// TLS failed; the alert or fault is in [`Outcome::tls_faults`].
        Tls = "tls",
        /// Not HTTP; under HTTP/2 the fault is in [`Http2Use::faults`].
        Http = "http",
        /// The server reset a stream (HTTP/2), or refused it again and again.
        StreamReset = "stream_reset",
        /// A redirect to another scheme, host or port, while redirects are followed.
        RedirectElsewhere = "redirect_elsewhere",
        /// More redirects one after another than are followed; a loop ends here too.
        RedirectLimit = "redirect_limit",
        /// A redirect to what is no URL.
        RedirectMalformed = "redirect_malformed",
        /// Another status than expected.
        Status = "status",
        /// Another body length than expected.
        Length = "length",
    }
}

impl ErrorKind {
    /// This machine, not the server, lacked something.
    pub const fn is_local(self) -> bool {
        matches!(self, ErrorKind::Ports | ErrorKind::Descriptors | ErrorKind::Resources)
    }
}

/// Counts of completed handshakes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Handshakes {
    /// Number of completed full handshakes.
    pub full: u64,
    /// Connections that the plan wanted to resume.
    pub resumed_intended: u64,
    /// Connections whose ClientHello carried a session.
    pub resumed_offered: u64,
    /// Connections on which the server took the session.
    pub resumed_accepted: u64,
    /// Connections whose ClientHello offered early data (TLS 1.3).
    #[cfg_attr(feature = "serde", serde(default))]
    pub early_offered: u64,
    /// Connections on which the server took them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub early_accepted: u64,
    /// Handshakes with a HelloRetryRequest: the server wanted a key share that was not sent (TLS 1.3).
    #[cfg_attr(feature = "serde", serde(default))]
    pub retried_count: u64,
}

impl Handshakes {
    /// Number of completed handshakes, full or resumed.
    pub fn completed(&self) -> u64 {
        self.full + self.resumed_accepted
    }

    /// Resumed share of completed handshakes, percent; `None` without handshakes.
    pub fn resumed_percent(&self) -> Option<f64> {
        let all = self.completed();
        (all > 0).then(|| 100.0 * self.resumed_accepted as f64 / all as f64)
    }
}

/// What became of HTTP/2 where it was offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Http2Use {
    /// Connections on which the server chose it.
    pub chosen_count: u64,
    /// Connections on which it did not: their requests were made in HTTP/1.1.
    pub downgraded_count: u64,
    /// Requests that the server told not to have looked at (GOAWAY, REFUSED_STREAM), and that were made again.
    pub repeated_count: u64,
    /// The first few faults of the server by text, with counts.
    pub faults: BTreeMap<String, u64>,
}

/// How the window of a replayed trace was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowUse {
    /// The distance that was allowed: that from the oldest request that was not served to the newest presented was
    /// less. `None`: any.
    pub limit: Option<u64>,
    /// The largest such distance that occurred, in requests.
    pub largest_distance: u64,
    /// How often connections began to have nothing to do because all requests left were outside.
    pub stalls: u64,
}

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Outcome {
    /// Completed requests whose whole response was as expected.
    pub hits: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Number of connections opened.
    pub connections: u64,
    /// Handshakes by kind.
    pub handshakes: Handshakes,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
    /// From the first connect to the last response, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time (user and system) of the loading thread in that time, in nanoseconds.
    pub client_cpu_ns: u64,
    /// Phase latencies in nanoseconds. Written, each is text: the V2 serialisation of HdrHistogram, base64.
    #[cfg_attr(feature = "serde", serde(rename = "histograms", with = "super::written::histograms"))]
    pub phases: BTreeMap<Phase, Histogram<u64>>,
    /// Failed requests and connections by kind.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Complete responses by status code, expected or not.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::written::statuses"))]
    pub statuses: BTreeMap<u16, u64>,
    /// The first few TLS faults by text (alert names and the like), with counts.
    pub tls_faults: BTreeMap<String, u64>,
    /// Negotiated `version suite group` texts, with counts of handshakes.
    pub negotiated: BTreeMap<String, u64>,
    /// What became of HTTP/2, if it was offered.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub http2: Option<Http2Use>,
    /// The run ended early because next to nothing succeeded any more (`storm`, `limits::SILENT_TIMEOUTS_MAX`): the
    /// server is gone, hangs, or never was there.
    pub gave_up: bool,
    /// Open loop: requests that were due before the end, but that no user was free for. They are in no histogram.
    pub unserved: u64,
    /// The run in slices, if the plan asked for them.
    pub slices: Vec<Slice>,
    /// The latencies of each slice, if the run is a part of a load.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub slice_latencies: Vec<SliceLatencies>,
    /// What each of the loops did, if there were several.
    #[cfg_attr(feature = "serde", serde(rename = "workers"))]
    pub parts: Vec<LoopOutcome>,
    /// The connections of the first clients, if the plan asked for slices and they are not too many.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub lives: Vec<Life>,
    /// The run was stopped before its end (Ctrl-C).
    pub stopped: bool,
    /// Number of redirects followed.
    pub redirects_followed: u64,
    /// Redirects that came when the run ended and nothing was begun any more: their requests are neither hits nor
    /// errors.
    pub redirects_unfinished: u64,
    /// How the window was used, if the plan had one.
    pub window: Option<WindowUse>,
    /// How many clients kept their rate, if they received at one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub kept: Option<Kept>,
    /// What became of loops that were lost: what they did is in nothing else here.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub losses: Vec<String>,
    /// What a relay of packets between clients and server did meanwhile, if there was one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub relayed: Option<Relayed>,
}

/// What a relay of packets did in a run, both ways together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Relayed {
    /// Number of packets that arrived.
    pub packets: u64,
    /// Packets that the network lost, as it was asked to.
    pub lost_count: u64,
    /// Packets that found the queue of their line full.
    pub dropped_count: u64,
    /// Packets that arrived more than a millisecond after their time.
    pub late_count: u64,
    /// Packets that the relay did not fetch in time: they are lost, and nobody asked for that.
    pub missed_count: u64,
    /// CPU time of the relay, in nanoseconds: on the load's CPU, and in nobody's CPU time per hit.
    pub cpu_ns: u64,
    /// Packets a second that it can carry, measured before.
    pub limit_per_second: u64,
}

impl Outcome {
    /// CPU time of the client by elapsed time, 0 to 1; of several loops that of the busiest.
    pub fn busy_fraction(&self) -> f64 {
        let of_parts = self.parts.iter().map(LoopOutcome::busy_fraction).max_by(f64::total_cmp);
        of_parts.unwrap_or_else(|| busy_fraction(self.client_cpu_ns, self.elapsed_ns))
    }

    /// Faults of HTTP/2 by text; none where it was not offered.
    pub fn http2_faults(&self) -> &BTreeMap<String, u64> {
        const NONE: &BTreeMap<String, u64> = &BTreeMap::new();
        self.http2.as_ref().map_or(NONE, |http2| &http2.faults)
    }

    /// Hits per second of elapsed time.
    pub fn hits_per_second(&self) -> f64 {
        self.hits as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

fn busy_fraction(cpu_ns: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 { 0.0 } else { (cpu_ns as f64 / elapsed_ns as f64).min(1.0) }
}

/// What one of the loops of a load did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LoopOutcome {
    /// Name of the loop in messages.
    pub name: String,
    /// Hits of the loop.
    pub hits: u64,
    /// Connections that the loop opened.
    pub connections: u64,
    /// Handshakes of the loop.
    pub handshakes: Handshakes,
    /// Failed requests and connections of the loop.
    pub errors: u64,
    /// How much later than the first of the loops it began, in nanoseconds.
    pub began_after_ns: u64,
    /// From when it began to its last response, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of its thread, in nanoseconds.
    pub client_cpu_ns: u64,
}

impl LoopOutcome {
    /// CPU time by elapsed time, 0 to 1.
    pub fn busy_fraction(&self) -> f64 {
        busy_fraction(self.client_cpu_ns, self.elapsed_ns)
    }
}
