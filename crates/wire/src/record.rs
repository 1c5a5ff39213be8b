//! Record framing: headers, and records cut out of any sequence of reads (RFC 9846 section 5.1).

use std::fmt;

use crate::limits;

/// Content type of change_cipher_spec records.
pub const CHANGE_CIPHER_SPEC: u8 = 20;
/// Content type of alert records.
pub const ALERT: u8 = 21;
/// Content type of handshake records.
pub const HANDSHAKE: u8 = 22;
/// Content type of application data, and of every protected record in TLS 1.3.
pub const APPLICATION_DATA: u8 = 23;

/// Bytes of a record header.
pub const HEADER: usize = 5;

/// Why bytes are not a sequence of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first bytes are no record header: the peer does not speak TLS.
    NotTls([u8; HEADER]),
    /// A record is longer than the limit; a `record_overflow` in TLS.
    Oversized {
        /// Length in the header, bytes.
        length: usize,
        /// Maximum length, bytes.
        limit: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::NotTls(bytes) => write!(f, "not a TLS record: `{}`", bytes.escape_ascii()),
            FrameError::Oversized { length, limit } => {
                write!(f, "a record of {length} bytes, {limit} are allowed")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// A record header that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Content type, 20 to 23.
    pub content_type: u8,
    /// The header as it is on the wire: the additional data of TLS 1.3.
    pub bytes: [u8; HEADER],
}

impl Header {
    /// A header of version 3.3.
    pub fn new(content_type: u8, length: u16) -> Header {
        let [high, low] = length.to_be_bytes();
        Header { content_type, bytes: [content_type, 3, 3, high, low] }
    }

    /// Checks type and version and that the body has at most `limit` bytes.
    pub fn decode(bytes: [u8; HEADER], limit: usize) -> Result<Header, FrameError> {
        let header = Header { content_type: bytes[0], bytes };
        if !(CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&bytes[0]) || bytes[1] != 3 {
            return Err(FrameError::NotTls(bytes));
        }
        match header.length() {
            length if length > limit => Err(FrameError::Oversized { length, limit }),
            _ => Ok(header),
        }
    }

    /// Length of the body in bytes.
    pub fn length(&self) -> usize {
        usize::from(u16::from_be_bytes([self.bytes[3], self.bytes[4]]))
    }
}

/// The body of a record: in the caller's buffer where the record came in one piece, so that it can be decrypted there.
#[derive(Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The record is whole in the caller's buffer.
    Borrowed(&'a mut [u8]),
    /// Put together from several reads; header included.
    Owned(Vec<u8>),
}

impl Body<'_> {
    /// The body's bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        match self {
            Body::Borrowed(bytes) => bytes,
            Body::Owned(record) => &mut record[HEADER..],
        }
    }
}

/// Cuts a byte stream into records. Holds bytes only while a record is incomplete: at most one record.
#[derive(Debug, Default)]
pub struct Deframer {
    partial: Vec<u8>,
}

/// The next record, if complete, and the input after it.
pub type Framed<'a> = (Option<(Header, Body<'a>)>, &'a mut [u8]);

impl Deframer {
    /// Whether a record has begun and not ended.
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Cuts the next record off `input`. Without a whole record all of `input` is kept, and the rest is empty.
    pub fn next<'a>(&mut self, input: &'a mut [u8], limit: usize) -> Result<Framed<'a>, FrameError> {
        if self.is_partial() {
            return self.complete(input, limit);
        }
        let Some(bytes) = input.first_chunk::<HEADER>() else {
            self.partial.extend_from_slice(input);
            return Ok((None, &mut []));
        };
        let header = Header::decode(*bytes, limit)?;
        let whole = HEADER + header.length();
        if input.len() < whole {
            self.partial.reserve_exact(whole);
            self.partial.extend_from_slice(input);
            return Ok((None, &mut []));
        }
        let (record, rest) = input.split_at_mut(whole);
        Ok((Some((header, Body::Borrowed(&mut record[HEADER..]))), rest))
    }

    fn complete<'a>(&mut self, input: &'a mut [u8], limit: usize) -> Result<Framed<'a>, FrameError> {
        let input = self.fill_to(HEADER, input);
        let Some(bytes) = self.partial.first_chunk::<HEADER>() else {
            return Ok((None, input));
        };
        let header = Header::decode(*bytes, limit)?;
        let whole = HEADER + header.length();
        let rest = self.fill_to(whole, input);
        if self.partial.len() < whole {
            return Ok((None, rest));
        }
        let record = std::mem::take(&mut self.partial);
        Ok((Some((header, Body::Owned(record))), rest))
    }

    /// Moves bytes from `input` until `length` bytes are held.
    fn fill_to<'a>(&mut self, length: usize, input: &'a mut [u8]) -> &'a mut [u8] {
        let missing = length.saturating_sub(self.partial.len()).min(input.len());
        let (taken, rest) = input.split_at_mut(missing);
        self.partial.reserve_exact(length.saturating_sub(self.partial.len()));
        self.partial.extend_from_slice(taken);
        rest
    }
}

/// Appends `content` as plaintext records, cut at the plaintext limit. Empty content gives no record.
pub fn put_plain(out: &mut Vec<u8>, content_type: u8, content: &[u8]) {
    for fragment in content.chunks(limits::RECORD_PLAINTEXT) {
        let length = u16::try_from(fragment.len()).expect("a fragment is at most 16 KiB");
        out.extend_from_slice(&Header::new(content_type, length).bytes);
        out.extend_from_slice(fragment);
    }
}
