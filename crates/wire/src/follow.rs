//! Follows the plaintext handshake messages of one side in whatever pieces they come, and keeps only those that are
//! asked for: what a bystander needs that must not hold certificates.

use crate::handshake;
use crate::limits;
use crate::record::{self, FrameError};

/// An event in a stream of records.
#[derive(Debug, PartialEq, Eq)]
pub enum Met<'a> {
    /// A whole handshake message that was asked for.
    Message {
        /// Message type.
        kind: u8,
        /// The beginning of its body, as much as was asked for.
        body: &'a [u8],
        /// Length of the body, bytes.
        length: usize,
    },
    /// A record of another content type begins.
    Record(u8),
}

/// State between pieces: a few bytes, and the message that is being kept.
#[derive(Debug, Default)]
pub struct Follower {
    record: [u8; record::HEADER],
    record_have: usize,
    /// Bytes of the record's body still to come, once its header is there.
    record_left: usize,
    message: [u8; handshake::HEADER],
    message_have: usize,
    /// Bytes of the message's body still to come, once its header is there.
    message_left: usize,
    keep: usize,
    kept: Vec<u8>,
}

impl Follower {
    /// Goes on through `input`, which then starts after what was met. `None`: all of `input` was used up. `keep` says
    /// how many bytes of the body of a message of this type and length are wanted; `None`: the message is passed
    /// over.
    ///
    /// # Errors
    /// These are no TLS records.
    pub fn next(
        &mut self,
        input: &mut &[u8],
        keep: impl Fn(u8, usize) -> Option<usize>,
    ) -> Result<Option<Met<'_>>, FrameError> {
        loop {
            if self.record_have < record::HEADER {
                if !fill(&mut self.record, &mut self.record_have, input) {
                    return Ok(None);
                }
                self.record_left = record::Header::decode(self.record, limits::RECORD_TLS12)?.length();
                if self.record[0] != record::HANDSHAKE {
                    return Ok(Some(Met::Record(self.record[0])));
                }
            }
            if self.record_left == 0 {
                self.record_have = 0;
                continue;
            }
            if input.is_empty() {
                return Ok(None);
            }
            if self.record[0] != record::HANDSHAKE {
                self.skip(input);
            } else if self.follow_message(input, &keep) && self.keep != PASS_OVER {
                let (kind, length) = (self.message[0], length_of(self.message));
                return Ok(Some(Met::Message { kind, body: &self.kept, length }));
            }
        }
    }

    /// Bytes of the record's body still to come: all of it when [`Met::Record`] has just been met.
    pub fn record_left(&self) -> usize {
        self.record_left
    }

    /// The message that is being kept, if one is: its type, what is there of its body, and the length of the body.
    pub fn unfinished(&self) -> Option<(u8, &[u8], usize)> {
        let is_kept = self.message_have == handshake::HEADER && self.keep != PASS_OVER;
        is_kept.then(|| (self.message[0], &*self.kept, length_of(self.message)))
    }

    /// Passes over `count` bytes that nobody saw. Whether it still knows where the next record and message begin; if
    /// not, a new one must begin with a record.
    pub fn lose(&mut self, count: usize) -> bool {
        let is_message = self.record[0] == record::HANDSHAKE;
        let is_in_record = self.record_have == record::HEADER && count <= self.record_left;
        let is_in_message =
            self.message_have == handshake::HEADER && self.keep == PASS_OVER && count < self.message_left;
        if !is_in_record || (is_message && !is_in_message) {
            return false;
        }
        self.record_left -= count;
        if is_message {
            self.message_left -= count;
        }
        true
    }

    /// Passes over bytes of a record that is no handshake record.
    fn skip(&mut self, input: &mut &[u8]) {
        let count = input.len().min(self.record_left);
        *input = &input[count..];
        self.record_left -= count;
    }

    /// Goes on in the record's handshake message; whether the message is whole now.
    fn follow_message(&mut self, input: &mut &[u8], keep: impl Fn(u8, usize) -> Option<usize>) -> bool {
        let here = input.len().min(self.record_left);
        let (mut content, rest) = input.split_at(here);
        if self.message_have < handshake::HEADER {
            let begun = fill(&mut self.message, &mut self.message_have, &mut content);
            if begun {
                self.message_left = length_of(self.message);
                self.keep = keep(self.message[0], self.message_left).unwrap_or(PASS_OVER);
                self.kept.clear();
            }
        }
        let mut whole = false;
        if self.message_have == handshake::HEADER {
            let (piece, after) = content.split_at(content.len().min(self.message_left));
            if self.keep != PASS_OVER {
                let wanted = self.keep.saturating_sub(self.kept.len()).min(piece.len());
                self.kept.extend_from_slice(&piece[..wanted]);
            }
            self.message_left -= piece.len();
            content = after;
            whole = self.message_left == 0;
        }
        if whole {
            self.message_have = 0;
        }
        self.record_left -= here - content.len();
        *input = &input[here - content.len()..];
        debug_assert!(input.len() >= rest.len());
        whole
    }
}

const PASS_OVER: usize = usize::MAX;

fn length_of(header: [u8; handshake::HEADER]) -> usize {
    u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize
}

/// Moves bytes into `to` until it is full; whether it is.
fn fill<const N: usize>(to: &mut [u8; N], have: &mut usize, input: &mut &[u8]) -> bool {
    let count = (N - *have).min(input.len());
    let (taken, rest) = input.split_at(count);
    to[*have..*have + count].copy_from_slice(taken);
    *have += count;
    *input = rest;
    *have == N
}
