//! Reading and writing of the presentation language of RFC 9846 section 3: big-endian integers and length-prefixed
//! vectors.

use std::fmt;

/// What is wrong with bytes that should have been a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A field or vector ends after the bytes do.
    Truncated,
    /// Bytes are left after the last field.
    Trailing,
    /// A field has a value or length that the specification forbids.
    Value(&'static str),
}

/// Bytes that are not the message they claim to be; a `decode_error` in TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Name of the message or structure.
    pub what: &'static str,
    /// The rule that the bytes break.
    pub problem: Problem,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem {
            Problem::Truncated => write!(f, "{} is cut short", self.what),
            Problem::Trailing => write!(f, "{} has bytes after its end", self.what),
            Problem::Value(field) => write!(f, "{} has a forbidden {field}", self.what),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A cursor over the bytes of one structure; its errors carry the structure's name.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the structure called `what` from `bytes`.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, bytes }
    }

    /// The error of a forbidden field.
    pub fn forbidden(&self, field: &'static str) -> DecodeError {
        DecodeError { what: self.what, problem: Problem::Value(field) }
    }

    /// Whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.bytes.split_at_checked(length).ok_or(DecodeError { what: self.what, problem: Problem::Truncated })?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        let (taken, rest) =
            self.bytes.split_first_chunk().ok_or(DecodeError { what: self.what, problem: Problem::Truncated })?;
        self.bytes = rest;
        Ok(taken)
    }

    /// An 8-bit integer.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// A 16-bit integer.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(*self.array()?))
    }

    /// A 24-bit integer.
    pub fn u24(&mut self) -> Result<usize, DecodeError> {
        let [a, b, c] = *self.array::<3>()?;
        Ok(usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))
    }

    /// A 32-bit integer.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(*self.array()?))
    }

    /// A vector with an 8-bit length.
    pub fn vector8(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    /// A vector with a 16-bit length.
    pub fn vector16(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// A vector with a 24-bit length.
    pub fn vector24(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u24()?;
        self.take(length)
    }

    /// All bytes not read yet.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Fails if bytes are left over.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.bytes {
            [] => Ok(()),
            _ => Err(DecodeError { what: self.what, problem: Problem::Trailing }),
        }
    }
}

/// Appends a 16-bit integer.
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a vector with an 8-bit length, written by `content`.
///
/// # Panics
/// If the content has more than 255 bytes: the caller's fault.
pub fn put_vector8(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(0);
    let start = out.len();
    content(out);
    out[start - 1] = u8::try_from(out.len() - start).expect("a vector of at most 255 bytes");
}

/// Appends a vector with a 16-bit length, written by `content`.
///
/// # Panics
/// If the content has more than 65,535 bytes: the caller's fault.
pub fn put_vector16(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[0; 2]);
    let start = out.len();
    content(out);
    let length = u16::try_from(out.len() - start).expect("a vector of at most 65,535 bytes");
    out[start - 2..start].copy_from_slice(&length.to_be_bytes());
}

/// Appends a vector with a 24-bit length, written by `content`.
///
/// # Panics
/// If the content has 16 MiB or more: the caller's fault.
pub fn put_vector24(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[0; 3]);
    let start = out.len();
    content(out);
    let length = u32::try_from(out.len() - start).expect("a vector of less than 16 MiB").to_be_bytes();
    assert_eq!(length[0], 0, "a vector of less than 16 MiB");
    out[start - 3..start].copy_from_slice(&length[1..]);
}
