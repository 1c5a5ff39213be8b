//! HTTP/2 (RFC 9113), the client's side of a connection: frames, settings, windows and errors, and HPACK.
//!
//! [`Client`] is told what arrives and answers with events and with the bytes to send. What it holds is bounded: a
//! header block by [`BLOCK_BYTES_MAX`], the tables of HPACK by [`TABLE_BYTES_ANNOUNCED`] each, the requests under way
//! by who makes them; content is counted and not kept. The result never depends on how the bytes were cut.
//!
//! What a server must reckon with is what it has from a browser: the settings and windows are Chromium's
//! (`net/http/http_network_session.cc`, `net/spdy/spdy_session.h`: a table of 64 KiB, 6 MiB for a stream, 15 MiB for
//! the connection, header lists of 256 KiB, no push), and a window is opened again when half of it is used.

mod client;
mod encoder;
mod frame;
mod hpack;
mod huffman;
mod sending;
mod stream;

#[cfg(test)]
mod tests;

pub use client::{Client, Event};
pub use encoder::Encoder;
pub use hpack::{Decoder, HpackFault};
pub use stream::{Request, Stream, StreamFault};

/// The name of HTTP/2 over TLS in ALPN (RFC 9113 section 3.1).
pub const ALPN: &str = "h2";

/// Size of the header table that the client announces, bytes: Chromium's.
pub const TABLE_BYTES_ANNOUNCED: usize = 65_536;

/// Size of a header table before a setting says otherwise, bytes (RFC 9113 section 6.5.2).
pub const TABLE_BYTES_DEFAULT: usize = 4096;

/// Window of each stream that the client announces, bytes: Chromium's.
pub const STREAM_WINDOW_BYTES: u32 = 6_291_456;

/// Window of a connection, 15 MiB: Chromium's. It begins at 65,535 and is opened by 15,663,105.
pub const CONNECTION_WINDOW_BYTES: u32 = 15_728_640;

/// Window of a stream or connection before anything is said, bytes (RFC 9113 section 6.9.2).
const WINDOW_BYTES_DEFAULT: u32 = 65_535;

/// Largest window, bytes (RFC 9113 section 6.9.1).
const WINDOW_MAX: i64 = 0x7fff_ffff;

/// Most bytes of the fields of a response that the client announces to take: Chromium's.
pub const LIST_BYTES_MAX: usize = 262_144;

/// Longest header block as it is sent, bytes, over all its CONTINUATION frames; as long as a head of HTTP/1.1 may be.
pub const BLOCK_BYTES_MAX: usize = super::http::HEAD_BYTES_MAX;

/// Longest payload of a frame that is taken, bytes: the default, which browsers leave as it is (RFC 9113 section
/// 4.2).
pub const FRAME_BYTES_MAX: usize = 16_384;

/// Requests at once before the server says how many it takes: Chromium's.
const STREAMS_MAX_BEFORE_SETTINGS: u32 = 100;

/// Frames one after another that bring no response on (settings, pings, empty ones and the like), after which a server
/// only keeps its client busy.
pub const IDLE_FRAMES_MAX: u32 = 10_000;

/// What a server did that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its first frame is not SETTINGS.
    Preface,
    /// A frame is longer than [`FRAME_BYTES_MAX`], or as long as its type must not be.
    FrameSize,
    /// A frame on a stream that it cannot be on, or in a state that it cannot come in.
    Unexpected(&'static str),
    /// A setting, window or padding with a value that is forbidden.
    Value(&'static str),
    /// A header block is longer than [`BLOCK_BYTES_MAX`].
    BlockTooLong,
    /// A header block cannot be decoded.
    Hpack(HpackFault),
    /// It pushes, which it was told not to do.
    Push,
    /// [`IDLE_FRAMES_MAX`] frames brought nothing on.
    Flood,
    /// It allows no request at all.
    NoStreams,
    /// It ended the connection by GOAWAY with this error.
    GoneAway(u32),
}

impl From<HpackFault> for Fault {
    fn from(fault: HpackFault) -> Fault {
        Fault::Hpack(fault)
    }
}

impl Fault {
    /// The error code that the server is told (RFC 9113 section 7).
    fn code(self) -> u32 {
        match self {
            Fault::GoneAway(_) => frame::NO_ERROR,
            Fault::FrameSize => frame::FRAME_SIZE_ERROR,
            Fault::Hpack(HpackFault::ListTooLarge) | Fault::BlockTooLong | Fault::Flood | Fault::NoStreams => {
                frame::ENHANCE_YOUR_CALM
            }
            Fault::Hpack(_) => frame::COMPRESSION_ERROR,
            Fault::Preface | Fault::Unexpected(_) | Fault::Value(_) | Fault::Push => frame::PROTOCOL_ERROR,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Preface => f.write_str("the server does not begin with SETTINGS, as HTTP/2 does"),
            Fault::FrameSize => f.write_str("a frame is longer or shorter than its type may be"),
            Fault::Unexpected(what) => write!(f, "{what} came where it must not"),
            Fault::Value(what) => write!(f, "{what} has a forbidden value"),
            Fault::BlockTooLong => write!(f, "a header block is longer than {BLOCK_BYTES_MAX} bytes"),
            Fault::Hpack(fault) => f.write_str(match fault {
                HpackFault::Truncated => "a header block ends within a field",
                HpackFault::Integer => "a header block has an integer that is too large",
                HpackFault::Index => "a header block names a field that no table has",
                HpackFault::Huffman => "a header block has a string that is no Huffman code",
                HpackFault::TableSize => "a header block makes the table larger than allowed, or too late",
                HpackFault::ListTooLarge => "the fields of a response are larger than 262144 bytes together",
            }),
            Fault::Push => f.write_str("the server pushes, which it was told not to do"),
            Fault::Flood => write!(f, "{IDLE_FRAMES_MAX} frames one after another brought no response on"),
            Fault::NoStreams => f.write_str("the server allows no request (SETTINGS_MAX_CONCURRENT_STREAMS is 0)"),
            Fault::GoneAway(code) => {
                write!(f, "the server ended the connection by GOAWAY with {}", frame::error_name(*code))
            }
        }
    }
}

impl std::error::Error for Fault {}
