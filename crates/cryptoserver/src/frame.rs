//! Requests and answers as bytes, the same between provider and agent (a Unix socket) and between agent and service
//! (TLS). A frame is the length of what follows (2 bytes) and a body; numbers are in network order.
//!
//! Body of a request: tag (4), operation (1), key (16), detail (2), message. Of an answer: tag (4), status (1), bytes.
//! `native/cryptoserver/agent.c` is the other end of the Unix socket.

use std::fmt;

/// Bytes of what says which key is meant: the first half of the SHA-256 of its SubjectPublicKeyInfo.
pub const KEY_ID_BYTES: usize = 16;
/// Most bytes of a message: the block that an RSA key of 4096 bits decrypts.
pub const MESSAGE_BYTES_MAX: usize = 512;
/// Most bytes of an answer after its status.
pub const ANSWER_BYTES_MAX: usize = 512;
const REQUEST_HEAD: usize = 4 + 1 + KEY_ID_BYTES + 2;
const ANSWER_HEAD: usize = 4 + 1;

pub type KeyId = [u8; KEY_ID_BYTES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A signature over the message; the detail is a signature scheme of TLS (RFC 8446, section 4.2.3).
    Sign = 1,
    /// The pre-master secret in the message; the detail is the version that the client offered.
    Decrypt = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Comes back with the answer.
    pub tag: u32,
    pub operation: Operation,
    pub key: KeyId,
    pub detail: u16,
    pub message: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The bytes are the signature or the secret.
    Done = 0,
    /// It is not what a handshake asks for; the bytes say why, as in all that follow.
    Refused = 1,
    NoKey = 2,
    NoService = 3,
    /// The client asks for more than it may in a second.
    TooMany = 4,
    Failed = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    pub tag: u32,
    pub status: Status,
    /// A signature, a secret, or the reason in words.
    pub bytes: &'a [u8],
}

/// What is no frame of this protocol: the connection cannot be used further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes that are no frame of the cryptoserver's protocol")
    }
}

impl std::error::Error for Malformed {}

pub trait Body<'a>: Sized {
    /// Bytes that every body has.
    const HEAD: usize;
    /// Most bytes after those.
    const REST_MAX: usize;

    /// Understands a body, whose length is right already.
    fn decode(body: &'a [u8]) -> Result<Self, Malformed>;
}

/// The first frame of `input` and its bytes, or `None` where more must come.
pub fn first<'a, B: Body<'a>>(input: &'a [u8]) -> Result<Option<(B, usize)>, Malformed> {
    let Some((length, rest)) = input.split_first_chunk::<2>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if !(B::HEAD..=B::HEAD + B::REST_MAX).contains(&length) {
        return Err(Malformed);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    Ok(Some((B::decode(body)?, 2 + length)))
}

fn tag(body: &[u8]) -> u32 {
    u32::from_be_bytes([body[0], body[1], body[2], body[3]])
}

impl<'a> Body<'a> for Request<'a> {
    const HEAD: usize = REQUEST_HEAD;
    const REST_MAX: usize = MESSAGE_BYTES_MAX;

    fn decode(body: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let operation = match body[4] {
            1 => Operation::Sign,
            2 => Operation::Decrypt,
            _ => return Err(Malformed),
        };
        let key = body[5..5 + KEY_ID_BYTES].try_into().map_err(|_| Malformed)?;
        let detail = u16::from_be_bytes([body[REQUEST_HEAD - 2], body[REQUEST_HEAD - 1]]);
        Ok(Request { tag: tag(body), operation, key, detail, message: &body[REQUEST_HEAD..] })
    }
}

impl<'a> Body<'a> for Answer<'a> {
    const HEAD: usize = ANSWER_HEAD;
    const REST_MAX: usize = ANSWER_BYTES_MAX;

    fn decode(body: &'a [u8]) -> Result<Answer<'a>, Malformed> {
        let status = match body[4] {
            0 => Status::Done,
            1 => Status::Refused,
            2 => Status::NoKey,
            3 => Status::NoService,
            4 => Status::TooMany,
            5 => Status::Failed,
            _ => return Err(Malformed),
        };
        Ok(Answer { tag: tag(body), status, bytes: &body[ANSWER_HEAD..] })
    }
}

fn put_length(bytes: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(&u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes());
}

impl Request<'_> {
    /// Appends the frame. A message has at most [`MESSAGE_BYTES_MAX`] bytes.
    pub fn encode(&self, into: &mut Vec<u8>) {
        put_length(REQUEST_HEAD + self.message.len(), into);
        into.extend_from_slice(&self.tag.to_be_bytes());
        into.push(self.operation as u8);
        into.extend_from_slice(&self.key);
        into.extend_from_slice(&self.detail.to_be_bytes());
        into.extend_from_slice(self.message);
    }
}

impl Answer<'_> {
    /// Appends the frame. What does not fit is cut off, which only a reason in words can be.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let bytes = &self.bytes[..self.bytes.len().min(ANSWER_BYTES_MAX)];
        put_length(ANSWER_HEAD + bytes.len(), into);
        into.extend_from_slice(&self.tag.to_be_bytes());
        into.push(self.status as u8);
        into.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_understood_survives_and_no_beginning_is_taken_for_it(
            tag: u32, key: [u8; 16], detail: u16, decrypt: bool,
            message in proptest::collection::vec(any::<u8>(), 0..=MESSAGE_BYTES_MAX),
        ) {
            let operation = if decrypt { Operation::Decrypt } else { Operation::Sign };
            let request = Request { tag, operation, key, detail, message: &message };
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            for end in 0..bytes.len() {
                prop_assert_eq!(first::<Request>(&bytes[..end]), Ok(None));
            }
            let whole = bytes.len();
            bytes.push(7);
            prop_assert_eq!(first::<Request>(&bytes), Ok(Some((request, whole))));
            let answer = Answer { tag, status: Status::NoKey, bytes: &message };
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            prop_assert_eq!(first::<Answer>(&bytes), Ok(Some((answer, bytes.len()))));
        }
    }

    #[test]
    fn lengths_and_numbers_that_mean_nothing_are_refused_at_once() {
        let of = |length: u16| first::<Request>(&length.to_be_bytes()).map(|found| found.is_some());
        assert_eq!(of(REQUEST_HEAD as u16 - 1), Err(Malformed));
        assert_eq!(of((REQUEST_HEAD + MESSAGE_BYTES_MAX + 1) as u16), Err(Malformed));
        assert_eq!(of(REQUEST_HEAD as u16), Ok(false));
        let mut bytes = Vec::new();
        Request { tag: 0, operation: Operation::Sign, key: [0; 16], detail: 0, message: b"" }.encode(&mut bytes);
        bytes[6] = 3;
        assert_eq!(first::<Request>(&bytes), Err(Malformed));
        assert_eq!(first::<Answer>(&[0, 5, 0, 0, 0, 0, 6]), Err(Malformed));
    }
}
