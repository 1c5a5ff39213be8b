//! The request and its response in the protocol that the server chose, or another than HTTP.

use tlsdyno_tls::Config;
use tlsdyno_wire::answer::{AnswerFault, AnswerReader};
use tlsdyno_wire::http::Response;
use tlsdyno_wire::http2::{ALPN, Client, Event, Request};

use super::Failure;

/// What a connection's answer is read as.
pub(super) enum Reply {
    Http1(Box<Response>),
    Http2(Box<Http2>),
    Other(AnswerReader),
}

/// A connection of HTTP/2 with its request, or several of them at once.
pub(super) struct Http2 {
    client: Client<()>,
    /// Frames to send.
    pub(super) frames: Vec<u8>,
    /// Requests that are not answered yet.
    open: u32,
    /// Status and bytes of body of the response that was complete last.
    complete: Option<(u16, u64)>,
    location: Option<String>,
}

/// The place of HTTP/2 among the protocols that are offered.
pub(super) fn place_of_http2(config: &Config) -> Option<u8> {
    config.settings().alpn.iter().position(|name| name == ALPN).and_then(|place| u8::try_from(place).ok())
}

impl Http2 {
    /// Begins a connection, over TLS or without, and makes the request with this head.
    pub(super) fn asking(over_tls: bool, head: &[u8]) -> Reply {
        let mut frames = Vec::new();
        let client = Client::begin(over_tls, &mut frames);
        let mut http2 = Http2 { client, frames, open: 0, complete: None, location: None };
        http2.request(head);
        Reply::Http2(Box::new(http2))
    }

    fn request(&mut self, head: &[u8]) {
        let request = Request { data: (), body_bytes: 0, to_head: head.starts_with(b"HEAD "), keeps_location: true };
        self.client.request(head, request, &mut self.frames);
        self.open += 1;
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut events = Vec::new();
        let received = self.client.receive(bytes, &mut self.frames, &mut events, |()| ());
        for event in events {
            match event {
                Event::Complete(stream) => {
                    self.open -= 1;
                    self.complete = stream.status().map(|of| (of, stream.body_bytes()));
                    self.location = stream.location().map(|to| String::from_utf8_lossy(to).into_owned());
                }
                Event::Failed(_, fault) => return Err(fault.to_string()),
                Event::Unprocessed(_) => return Err("the server refused the request without looking at it".to_owned()),
            }
        }
        received.map_err(|fault| fault.to_string())
    }
}

impl Reply {
    /// Makes another request, or expects the response to one.
    pub(super) fn next(&mut self, head: &[u8]) {
        match self {
            Reply::Http1(response) => **response = Response::new(false),
            Reply::Http2(http2) => http2.request(head),
            Reply::Other(reader) => *reader = reader.anew(),
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Reply::Http1(response) => {
                response.receive(bytes).map(drop).map_err(|fault| Failure::Http(fault.to_string()))
            }
            Reply::Http2(http2) => http2.receive(bytes).map_err(Failure::Http),
            Reply::Other(reader) => reader.receive_all(bytes).map_err(Failure::Answer),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        match self {
            Reply::Http1(response) => response.is_complete(),
            Reply::Http2(http2) => http2.open == 0,
            Reply::Other(reader) => reader.is_complete(),
        }
    }

    /// The server sends no more.
    ///
    /// # Errors
    /// The response is not whole.
    pub(super) fn end_of_input(&mut self) -> Result<(), Failure> {
        let is_whole = match self {
            Reply::Http1(response) => response.end_of_input().is_ok(),
            Reply::Http2(http2) => http2.open == 0,
            Reply::Other(reader) => return reader.end_of_input().map_err(Failure::Answer),
        };
        if is_whole { Ok(()) } else { Err(Failure::Closed) }
    }

    /// What is wrong with an answer, not of HTTP, that has begun and does not end.
    pub(super) fn begun(&self) -> Option<AnswerFault> {
        match self {
            Reply::Other(reader) if reader.received() > 0 => reader.end_of_input().err(),
            _ => None,
        }
    }

    /// Status, 0 of what has none, and bytes of body.
    pub(super) fn result(&self) -> Option<(u16, u64)> {
        match self {
            Reply::Http1(response) => Some((response.head()?.status, response.body_bytes())),
            Reply::Http2(http2) => http2.complete,
            Reply::Other(reader) => Some((0, reader.received())),
        }
    }

    /// What is known of the response's head, if that is not among the bytes that came.
    pub(super) fn head(&self) -> Option<Vec<u8>> {
        let Reply::Http2(http2) = self else { return None };
        let location = http2.location.iter().map(|to| format!("Location: {to}\r\n")).collect::<String>();
        Some(format!("HTTP/2 {}\r\n{location}\r\n", http2.complete?.0).into_bytes())
    }

    /// Frames that end the connection.
    pub(super) fn last_words(&mut self) -> Vec<u8> {
        let Reply::Http2(http2) = self else { return Vec::new() };
        http2.client.close(None, &mut http2.frames);
        std::mem::take(&mut http2.frames)
    }
}
