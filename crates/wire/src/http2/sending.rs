//! What the client sends: its preface, requests and their bodies, and its end of the connection.

use super::client::Client;
use super::encoder::Encoder;
use super::frame;
use super::stream::{Request, Stream};
use super::*;

/// How a client begins (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Settings of the client, in Chromium's order.
const SETTINGS: [(u16, u32); 4] = [
    (frame::HEADER_TABLE_SIZE, TABLE_BYTES_ANNOUNCED as u32),
    (frame::ENABLE_PUSH, 0),
    (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
    (frame::MAX_HEADER_LIST_SIZE, LIST_BYTES_MAX as u32),
];

/// The priority that Chromium gives a document: depends on nothing, exclusively, with the highest weight (RFC 7540
/// section 6.2; RFC 9113 does without, but servers read it).
const PRIORITY: [u8; 5] = [0x80, 0, 0, 0, 255];

/// Streams of a client have odd numbers up to this one.
const LAST_ID: u32 = 0x7fff_ffff;

impl<T> Client<T> {
    /// A connection that begins, over TLS or without: appends the preface, settings and the connection's window to
    /// `out`.
    pub fn begin(over_tls: bool, out: &mut Vec<u8>) -> Client<T> {
        out.extend_from_slice(PREFACE);
        frame::put_header(out, 6 * SETTINGS.len(), frame::SETTINGS, 0, 0);
        for (setting, value) in SETTINGS {
            out.extend_from_slice(&setting.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        frame::put_number(out, frame::WINDOW_UPDATE, 0, CONNECTION_WINDOW_BYTES - WINDOW_BYTES_DEFAULT);
        Client::unbegun(Encoder::new(over_tls))
    }

    /// Makes a request whose HTTP/1.1 head is `head`: appends its header block to `out`. Its body follows by
    /// [`send_body`](Client::send_body). Nobody makes one where [`is_going_away`](Client::is_going_away).
    pub fn request(&mut self, head: &[u8], request: Request<T>, out: &mut Vec<u8>) {
        let id = self.next_id;
        self.next_id += 2;
        // The last one that there is: the connection is used up.
        self.going_away |= self.next_id > LAST_ID;
        let start = out.len();
        let ends = if request.body_bytes == 0 { frame::END_STREAM } else { 0 };
        frame::put_header(out, 0, frame::HEADERS, ends | frame::WITH_PRIORITY, id);
        out.extend_from_slice(&PRIORITY);
        self.encoder.request(head, out);
        self.split(start, out);
        self.streams.push(Stream::new(id, request, self.stream_window));
    }

    /// Puts lengths to the frame that begins at `start` and is the last of `out`; what one frame does not hold goes
    /// into CONTINUATION.
    fn split(&self, start: usize, out: &mut Vec<u8>) {
        let whole = out.len() - start - frame::HEADER_BYTES;
        let first = whole.min(self.frame_max);
        let rest = out.split_off(start + frame::HEADER_BYTES + first);
        out[start..start + 3].copy_from_slice(&(first as u32).to_be_bytes()[1..]);
        let id = frame::number(out[start + 5..].first_chunk().expect("a frame has a header"));
        if rest.is_empty() {
            out[start + 4] |= frame::END_HEADERS;
        }
        let mut pieces = rest.chunks(self.frame_max).peekable();
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { frame::END_HEADERS } else { 0 };
            frame::put_header(out, piece.len(), frame::CONTINUATION, last, id);
            out.extend_from_slice(piece);
        }
    }

    /// Whether some of a request's body can be sent now.
    pub fn has_body_to_send(&self) -> bool {
        self.send_window > 0 && self.streams.iter().any(|stream| stream.body_left > 0 && stream.send_window > 0)
    }

    /// Appends what the windows have room for of the bodies of requests, at most `most` bytes: `content` appends a
    /// piece of so many bytes of a body of which so many are left.
    pub fn send_body(&mut self, most: usize, out: &mut Vec<u8>, mut content: impl FnMut(u64, usize, &mut Vec<u8>)) {
        let (before, mut most) = (out.len(), most as i64);
        for stream in &mut self.streams {
            while stream.body_left > 0 {
                let room = most.min(self.send_window).min(stream.send_window).min(self.frame_max as i64);
                let piece = stream.body_left.min(room.max(0) as u64);
                if piece == 0 {
                    break;
                }
                let ends = if piece == stream.body_left { frame::END_STREAM } else { 0 };
                frame::put_header(out, piece as usize, frame::DATA, ends, stream.id);
                content(stream.body_left, piece as usize, out);
                stream.body_left -= piece;
                let piece = piece as i64;
                (most, self.send_window, stream.send_window) =
                    (most - piece, self.send_window - piece, stream.send_window - piece);
            }
        }
        if out.len() > before {
            self.progress();
        }
    }

    /// Gives up the requests that `is_over` says so of: tells the server, and answers the first of them.
    pub fn cancel(&mut self, is_over: impl Fn(&T) -> bool, out: &mut Vec<u8>) -> Option<Stream<T>> {
        let id = self.streams.iter().find(|stream| is_over(&stream.data))?.id;
        frame::put_number(out, frame::RST_STREAM, id, frame::CANCEL);
        self.take(id)
    }

    /// Ends the connection, for this reason if there is one: appends GOAWAY to `out`.
    pub fn close(&self, fault: Option<Fault>, out: &mut Vec<u8>) {
        frame::put_goaway(out, fault.map_or(frame::NO_ERROR, Fault::code));
    }
}
