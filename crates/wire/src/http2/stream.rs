//! One request and its response.

use super::frame::error_name;
use crate::http::{LOCATION_BYTES_MAX, is_redirect};

/// What a server did that ends one request, and not the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// It reset the stream with this error code.
    Reset(u32),
    /// The response is malformed: its status, its fields or its length (RFC 9113 section 8.1.1).
    Malformed,
}

impl std::fmt::Display for StreamFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamFault::Reset(code) => write!(f, "the server reset a stream with {}", error_name(*code)),
            StreamFault::Malformed => f.write_str("a response is malformed: its status, its fields or its length"),
        }
    }
}

/// A request under way. `T` is whatever its owner keeps with it.
#[derive(Clone, Debug)]
pub struct Stream<T> {
    pub(super) id: u32,
    /// What the owner keeps with it.
    pub data: T,
    /// Bytes of the request's body that were not sent yet.
    pub(super) body_left: u64,
    /// Bytes that may be sent; below zero after a setting made it smaller.
    pub(super) send_window: i64,
    /// Bytes that arrived and were not given back to the server's window yet.
    pub(super) unreturned: u32,
    to_head: bool,
    keeps_location: bool,
    is_answered: bool,
    status: u16,
    content_length: Option<u64>,
    body_bytes: u64,
    location: Option<Vec<u8>>,
}

impl<T> Stream<T> {
    pub(super) fn new(id: u32, request: Request<T>, send_window: i64) -> Stream<T> {
        Stream {
            id,
            data: request.data,
            body_left: request.body_bytes,
            send_window,
            unreturned: 0,
            to_head: request.to_head,
            keeps_location: request.keeps_location,
            is_answered: false,
            status: 0,
            content_length: None,
            body_bytes: 0,
            location: None,
        }
    }

    /// Status code of the response once its head was seen, 200 to 999.
    pub fn status(&self) -> Option<u16> {
        Some(self.status).filter(|status| *status >= 200)
    }

    /// Bytes of content seen.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Where a redirect leads, if that was to be kept.
    pub fn location(&self) -> Option<&[u8]> {
        self.location.as_deref()
    }

    /// Whether anything of the response was seen.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Takes a field of the response; the block is malformed where it may not stand there.
    pub(super) fn field(&mut self, block: &mut Block, name: &[u8], value: &[u8]) {
        let is_first = !std::mem::replace(&mut block.any_field, true);
        let fine = match name {
            // The head: one status, before all other fields.
            b":status" if is_first && self.status().is_none() => {
                let digits = value.iter().map(|digit| u16::from(digit.wrapping_sub(b'0')));
                let is_number = value.len() == 3 && value.iter().all(u8::is_ascii_digit);
                self.status = if is_number { digits.fold(0, |number, digit| number * 10 + digit) } else { 0 };
                block.is_head = true;
                self.status >= 100 && self.status != 101
            }
            [b':', ..] | [] => false,
            b"content-length" if block.is_head => {
                let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let before = std::mem::replace(&mut self.content_length, length);
                length.is_some() && before.is_none_or(|before| Some(before) == length)
            }
            b"location" if block.is_head && self.keeps_location && is_redirect(self.status) => {
                self.location = Some(value.to_vec()).filter(|location| location.len() <= LOCATION_BYTES_MAX);
                true
            }
            _ => !name.iter().any(u8::is_ascii_uppercase),
        };
        block.is_malformed |= !fine;
    }

    /// The end of a block of fields: a head, an interim one, or trailers. Answers whether it may be that.
    pub(super) fn end_of_block(&mut self, block: Block, end_stream: bool) -> bool {
        self.is_answered = true;
        if self.status().is_none() {
            // Interim responses have nothing to do with the length of the final one.
            self.content_length = None;
            return block.is_head && !block.is_malformed && !end_stream;
        }
        !block.is_malformed && (block.is_head || end_stream)
    }

    /// Takes content. Answers whether it may come.
    pub(super) fn content(&mut self, bytes: usize) -> bool {
        self.body_bytes += bytes as u64;
        let most = if self.has_no_content() { Some(0) } else { self.content_length };
        self.status().is_some() && most.is_none_or(|most| self.body_bytes <= most)
    }

    /// Whether the response, which ended, is as long as it said.
    pub(super) fn is_whole(&self) -> bool {
        let told = self.content_length.filter(|_| !self.has_no_content());
        self.status().is_some() && told.is_none_or(|told| told == self.body_bytes)
    }

    fn has_no_content(&self) -> bool {
        self.to_head || matches!(self.status, 204 | 304)
    }
}

/// As much of `window` as is to be given back once so many bytes more arrived: what was used of it, when that is more
/// than half. So a server never waits for it, and cannot send too much without being told that it may.
pub(super) fn returned(unreturned: &mut u32, bytes: u32, window: u32) -> u32 {
    *unreturned += bytes;
    if *unreturned > window / 2 { std::mem::take(unreturned) } else { 0 }
}

/// What is known of a block of fields while it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    any_field: bool,
    is_head: bool,
    is_malformed: bool,
}

/// A request that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request<T> {
    /// What its owner keeps with it.
    pub data: T,
    /// Bytes of body that follow the head.
    pub body_bytes: u64,
    /// It is a HEAD: no content follows whatever the response says.
    pub to_head: bool,
    /// Keep where a redirect leads.
    pub keeps_location: bool,
}
