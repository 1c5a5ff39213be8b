//! A response, fed in pieces of any size.

use super::head::{Framing, Line, minor_version};
use super::location::{Location, is_redirect};
use super::{Body, HEAD_BYTES_MAX, HttpFault};

/// A response as it arrives: knows its status, counts its body and knows where it ends. Bytes are not kept, but for the
/// `Location` of a redirect where that is asked for.
#[derive(Clone, Debug)]
pub struct Response {
    state: State,
    to_head: bool,
    head: ResponseHead,
    minor: u8,
    /// Bytes of heads so far, interim ones included.
    head_bytes: u32,
    framing: Framing,
    line: Line,
    body_bytes: u64,
    keeps_location: bool,
    location: Option<Box<Location>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    StatusLine,
    Headers,
    Body(Body),
    Complete,
}

/// What the head of a response says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code, 200 to 999.
    pub status: u16,
    /// The connection can carry another request once this response is complete.
    pub persists: bool,
    /// Length of the body if `Content-Length` told it, in bytes (for a response to HEAD: of the body that GET would
    /// have).
    pub content_length: Option<u64>,
}

impl Response {
    /// A response of which nothing was seen yet. `to_head`: the request was HEAD, so that no body follows whatever the
    /// head says.
    pub fn new(to_head: bool) -> Response {
        Response {
            state: State::StatusLine,
            to_head,
            head: ResponseHead::default(),
            minor: 0,
            head_bytes: 0,
            framing: Framing::default(),
            line: Line::EMPTY,
            body_bytes: 0,
            keeps_location: false,
            location: None,
        }
    }

    /// The same with the `Location` of a redirect kept.
    pub fn keeping_location(self, keeps_location: bool) -> Response {
        Response { keeps_location, ..self }
    }

    /// Where a redirect leads, if that was to be kept and the head, which was seen whole, says so.
    pub fn location(&self) -> Option<&[u8]> {
        self.location.as_ref()?.value()
    }

    /// Takes what belongs to this response from the front of `input` and answers how much that was: less than the whole
    /// only when the response is complete. Interim responses (100, 103) are passed over.
    pub fn receive(&mut self, input: &[u8]) -> Result<usize, HttpFault> {
        let mut rest = input;
        while !rest.is_empty() {
            match &mut self.state {
                State::StatusLine | State::Headers => rest = &rest[self.receive_line(rest)?..],
                State::Body(body) => {
                    let advance = body.advance(rest)?;
                    rest = &rest[advance.consumed..];
                    self.body_bytes += advance.content;
                    if body.is_complete() {
                        self.state = State::Complete;
                    }
                }
                State::Complete => break,
            }
        }
        Ok(input.len() - rest.len())
    }

    /// The connection ended. Completes a body that lasts until then; anything else that is not complete is
    /// [`HttpFault::Truncated`].
    pub fn end_of_input(&mut self) -> Result<(), HttpFault> {
        match self.state {
            State::Complete => Ok(()),
            State::Body(Body::UntilClose) => {
                self.state = State::Complete;
                Ok(())
            }
            _ => Err(HttpFault::Truncated),
        }
    }

    /// Whether the response was seen to its end.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether the body ends with the connection: nothing in the head says where else.
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::Body(Body::UntilClose)
    }

    /// What the head says; `None` until it was seen whole.
    pub fn head(&self) -> Option<ResponseHead> {
        match self.state {
            State::StatusLine | State::Headers => None,
            State::Body(_) | State::Complete => Some(self.head),
        }
    }

    /// Bytes of body content seen.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    fn receive_line(&mut self, input: &[u8]) -> Result<usize, HttpFault> {
        let (taken, line) = self.line.take(input);
        self.head_bytes += taken.min(HEAD_BYTES_MAX + 1) as u32;
        if self.head_bytes as usize > HEAD_BYTES_MAX {
            return Err(HttpFault::HeadTooLong);
        }
        if let Some(location) = &mut self.location {
            location.take(&input[..taken], line.is_some())?;
        }
        let Some((line, cut)) = line else {
            return Ok(taken);
        };
        if self.state == State::StatusLine {
            (self.minor, self.head.status) = status_line(line).ok_or(HttpFault::StatusLine)?;
            self.framing = Framing::default();
            self.location = (self.keeps_location && is_redirect(self.head.status)).then(Box::default);
            self.state = State::Headers;
        } else if line.is_empty() {
            self.end_of_head()?;
        } else {
            self.framing.line(line, cut)?;
        }
        Ok(taken)
    }

    fn end_of_head(&mut self) -> Result<(), HttpFault> {
        let body = match self.head.status {
            101 => return Err(HttpFault::Upgrade),
            // The final response is still to come, RFC 9110 section 15.2.
            100..=199 => {
                self.state = State::StatusLine;
                return Ok(());
            }
            // No body whatever the headers say, RFC 9112 section 6.3 item 1.
            204 | 304 => Body::Length(0),
            _ if self.to_head => Body::Length(0),
            _ => self.framing.body().unwrap_or(Body::UntilClose),
        };
        self.head.persists = self.framing.persists(self.minor) && body != Body::UntilClose;
        self.head.content_length = self.framing.content_length;
        self.state = if body.is_complete() { State::Complete } else { State::Body(body) };
        Ok(())
    }
}

/// Minor version and status of `HTTP/1.x NNN reason`, RFC 9112 section 4. The reason, and the blank before it, may be
/// missing.
fn status_line(line: &[u8]) -> Option<(u8, u16)> {
    let (version, rest) = line.split_at_checked(8)?;
    let minor = minor_version(version)?;
    let [b' ', digits @ ..] = rest else {
        return None;
    };
    let (digits, reason) = digits.split_at_checked(3)?;
    if !matches!(reason.first(), None | Some(b' ')) {
        return None;
    }
    let status = digits
        .iter()
        .try_fold(0u16, |value, &byte| (byte as char).to_digit(10).map(|digit| value * 10 + digit as u16))?;
    (status >= 100).then_some((minor, status))
}
