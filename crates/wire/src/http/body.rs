//! The body of a message: counted, never kept.

use super::{HEAD_BYTES_MAX, HttpFault};

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// After this many more bytes; 0: it is complete.
    Length(u64),
    /// As its chunks say (RFC 9112 section 7.1).
    Chunked(Chunks),
    /// Where the connection ends (RFC 9112 section 6.3, item 8).
    UntilClose,
}

/// What [`Body::advance`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of input that belong to the body and its framing.
    pub consumed: usize,
    /// Bytes of content among them.
    pub content: u64,
}

/// The state between two bytes of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    at: At,
    /// Bytes of chunk extensions and trailers so far, which are bounded.
    overhead: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the size; so many digits seen.
    Size {
        value: u64,
        digits: u8,
    },
    /// Behind the size: blanks and extensions up to the end of the line.
    Extension {
        value: u64,
    },
    Data {
        left: u64,
    },
    /// Behind the data: CRLF, or LF alone.
    DataEnd {
        carriage_return: bool,
    },
    /// In the trailers; the line is empty so far.
    TrailerStart,
    Trailer,
    Done,
}

impl Body {
    /// A chunked body of which nothing was seen yet.
    pub const fn chunked() -> Body {
        let at = At::Size { value: 0, digits: 0 };
        Body::Chunked(Chunks { at, overhead: 0 })
    }

    /// Whether the last byte of the body was seen. A body that ends with the connection never is.
    pub fn is_complete(&self) -> bool {
        match self {
            Body::Length(left) => *left == 0,
            Body::Chunked(chunks) => chunks.at == At::Done,
            Body::UntilClose => false,
        }
    }

    /// Takes what belongs to the body from the front of `input`. Bytes behind the body are not consumed.
    pub fn advance(&mut self, input: &[u8]) -> Result<Advance, HttpFault> {
        match self {
            Body::Length(left) => {
                let taken = (*left).min(input.len() as u64);
                *left -= taken;
                Ok(Advance { consumed: taken as usize, content: taken })
            }
            Body::Chunked(chunks) => chunks.advance(input),
            Body::UntilClose => Ok(Advance { consumed: input.len(), content: input.len() as u64 }),
        }
    }
}

impl Chunks {
    fn advance(&mut self, input: &[u8]) -> Result<Advance, HttpFault> {
        let mut done = Advance::default();
        while done.consumed < input.len() && self.at != At::Done {
            if let At::Data { left } = &mut self.at {
                let taken = (*left).min((input.len() - done.consumed) as u64);
                *left -= taken;
                done.consumed += taken as usize;
                done.content += taken;
                if *left == 0 {
                    self.at = At::DataEnd { carriage_return: false };
                }
            } else {
                self.step(input[done.consumed])?;
                done.consumed += 1;
            }
        }
        Ok(done)
    }

    /// One byte of framing.
    fn step(&mut self, byte: u8) -> Result<(), HttpFault> {
        self.at = match self.at {
            At::Size { value, digits } => size(value, digits, byte)?,
            At::Extension { value } => {
                self.count_overhead()?;
                if byte == b'\n' { chunk(value) } else { self.at }
            }
            At::DataEnd { carriage_return: false } if byte == b'\r' => At::DataEnd { carriage_return: true },
            At::DataEnd { .. } if byte == b'\n' => At::Size { value: 0, digits: 0 },
            At::TrailerStart | At::Trailer => {
                self.count_overhead()?;
                match (self.at, byte) {
                    (At::TrailerStart, b'\n') => At::Done,
                    (At::TrailerStart, b'\r') | (_, b'\n') => At::TrailerStart,
                    _ => At::Trailer,
                }
            }
            At::DataEnd { .. } | At::Data { .. } | At::Done => return Err(HttpFault::Chunk),
        };
        Ok(())
    }

    fn count_overhead(&mut self) -> Result<(), HttpFault> {
        self.overhead += 1;
        if self.overhead as usize > HEAD_BYTES_MAX {
            return Err(HttpFault::HeadTooLong);
        }
        Ok(())
    }
}

fn size(value: u64, digits: u8, byte: u8) -> Result<At, HttpFault> {
    if let Some(digit) = (byte as char).to_digit(16) {
        if value >> 60 != 0 || digits == 32 {
            return Err(HttpFault::Chunk);
        }
        return Ok(At::Size { value: value << 4 | u64::from(digit), digits: digits + 1 });
    }
    match byte {
        _ if digits == 0 => Err(HttpFault::Chunk),
        b'\n' => Ok(chunk(value)),
        b'\r' | b';' | b' ' | b'\t' => Ok(At::Extension { value }),
        _ => Err(HttpFault::Chunk),
    }
}

/// What follows a complete size line.
fn chunk(size: u64) -> At {
    if size == 0 { At::TrailerStart } else { At::Data { left: size } }
}
