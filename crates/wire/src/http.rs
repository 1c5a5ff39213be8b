//! HTTP/1 framing (RFC 9112): where a response ends, and what a request asks for.
//!
//! Nothing here allocates but what a redirect leads to where somebody wants to follow it, and nothing grows with the
//! input: heads are bounded by [`HEAD_BYTES_MAX`], a header line that matters for framing by [`LINE_KEPT`], `Location`
//! by [`LOCATION_BYTES_MAX`]. The result never depends on how the bytes were cut into pieces.

mod body;
mod head;
mod location;
mod reference;
mod request;
mod response;

#[cfg(test)]
mod tests;

pub use body::{Advance, Body};
pub use location::is_redirect;
pub use reference::Reference;
pub use request::{Headers, METHOD_BYTES_MAX, RequestHead, TargetReader, request_head, target_path};
pub use response::{Response, ResponseHead};

/// Longest head (start line, header lines, empty line; also the trailers of a chunked body), in bytes. nginx and Apache
/// refuse request heads above 32 KiB and 8 KiB a line by default, so that whoever exceeds this is not speaking HTTP.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How much of a header line is kept while it arrives in pieces, in bytes. `Transfer-Encoding`, `Content-Length` and
/// `Connection` lines must fit; of the others nothing is needed.
pub const LINE_KEPT: usize = 160;

/// Longest `Location` line of a redirect that is to be followed, in bytes: what RFC 9110 section 4.1 asks everybody to
/// support.
pub const LOCATION_BYTES_MAX: usize = 8000;

/// Bytes that are not HTTP/1, or framing that RFC 9112 forbids to guess at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpFault {
    /// The status line is not `HTTP/1.x NNN …`.
    StatusLine,
    /// The request line is not `METHOD target HTTP/1.x`.
    RequestLine,
    /// A header line has no name and colon, or folds a header that decides the framing.
    HeaderLine,
    /// The head is longer than [`HEAD_BYTES_MAX`], or a header that decides the framing longer than [`LINE_KEPT`].
    HeadTooLong,
    /// `Content-Length` is no number, or two of them differ (RFC 9112 section 6.3).
    ContentLength,
    /// `Transfer-Encoding` of a request does not end in `chunked` (RFC 9112 section 6.3).
    TransferEncoding,
    /// A chunk header or its end is malformed (RFC 9112 section 7.1).
    Chunk,
    /// Two `Location` headers of a redirect differ.
    Location,
    /// The server switched protocols (101) though nobody asked for it.
    Upgrade,
    /// The input ended before the response was complete.
    Truncated,
}

impl std::fmt::Display for HttpFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HttpFault::StatusLine => "the status line is not HTTP/1",
            HttpFault::RequestLine => "the request line is not HTTP/1",
            HttpFault::HeaderLine => "malformed header line",
            HttpFault::HeadTooLong => "the head is too long",
            HttpFault::ContentLength => "malformed or contradicting Content-Length",
            HttpFault::TransferEncoding => "Transfer-Encoding of a request does not end in chunked",
            HttpFault::Chunk => "malformed chunk",
            HttpFault::Location => "contradicting Location headers",
            HttpFault::Upgrade => "the server switched protocols unasked",
            HttpFault::Truncated => "the input ended before the response was complete",
        })
    }
}

impl std::error::Error for HttpFault {}
