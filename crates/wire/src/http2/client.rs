//! The client's side of a connection: what a server sends is read here, what the client sends is made in `sending`.

use super::encoder::Encoder;
use super::frame::{self, HEADER_BYTES, Header};
use super::hpack::Decoder;
use super::stream::{Block, Stream, StreamFault, returned};
use super::*;

/// What became of a request. It is no longer under way.
#[derive(Clone, Debug)]
pub enum Event<T> {
    /// Its response is complete.
    Complete(Stream<T>),
    /// It failed, and the connection goes on.
    Failed(Stream<T>, StreamFault),
    /// The server said that it did not look at it (RFC 9113 section 8.7): it can be made again on another connection.
    Unprocessed(Stream<T>),
}

/// A connection to a server that speaks HTTP/2, seen from its client. `T` is what the owner keeps with a request.
#[derive(Clone, Debug)]
pub struct Client<T> {
    decoder: Decoder,
    pub(super) encoder: Encoder,
    /// Requests under way, in the order in which they were made.
    pub(super) streams: Vec<Stream<T>>,
    pub(super) next_id: u32,
    /// A frame that arrived in part.
    held: Vec<u8>,
    /// DATA whose payload arrives.
    data: Option<Data>,
    /// A header block that arrives in several frames: its stream, and whether that ends with it.
    block: Vec<u8>,
    block_of: Option<(u32, bool)>,
    /// Bytes that may be sent on all streams together.
    pub(super) send_window: i64,
    /// Window that the server gives a new stream.
    pub(super) stream_window: i64,
    /// Longest payload that the server takes.
    pub(super) frame_max: usize,
    streams_max: u32,
    unreturned: u32,
    began: bool,
    idle_frames: u32,
    progressed: bool,
    pub(super) going_away: bool,
}

#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    /// Bytes of the payload to come, padding included.
    left: usize,
    /// How many of them are padding; `None`: the byte that says so is the next.
    padding: Option<usize>,
    ends: bool,
}

impl<T> Client<T> {
    /// Reads what the server sent and appends what is to be answered to `out`, and what became of requests to `events`.
    /// `answered` is called with each request whose response begins. After a fault nothing more can be read:
    /// [`close`](Client::close) tells the server.
    pub fn receive(
        &mut self,
        mut input: &[u8],
        out: &mut Vec<u8>,
        events: &mut Vec<Event<T>>,
        mut answered: impl FnMut(&mut T),
    ) -> Result<(), Fault> {
        let answered = &mut answered as &mut dyn FnMut(&mut T);
        while !input.is_empty() {
            if self.data.is_some() {
                input = self.receive_data(input, out, events)?;
            } else if self.held.is_empty()
                && let Some(header) = input.first_chunk()
            {
                // Most frames arrive whole and are read where they are.
                let header = self.begin_frame(Header::read(header))?;
                let rest = &input[HEADER_BYTES..];
                if header.kind == frame::DATA {
                    input = rest;
                    self.begin_data(header, out, events)?;
                } else if let Some((payload, rest)) = rest.split_at_checked(header.length) {
                    input = rest;
                    self.frame(header, payload, out, events, answered)?;
                } else {
                    self.held.extend_from_slice(input);
                    return Ok(());
                }
            } else {
                input = self.receive_held(input, out, events, answered)?;
            }
        }
        Ok(())
    }

    /// Completes a frame that arrived in part.
    fn receive_held<'a>(
        &mut self,
        input: &'a [u8],
        out: &mut Vec<u8>,
        events: &mut Vec<Event<T>>,
        answered: &mut dyn FnMut(&mut T),
    ) -> Result<&'a [u8], Fault> {
        let had_header = self.held.len() >= HEADER_BYTES;
        let header = self.held.first_chunk().map(Header::read);
        let whole = HEADER_BYTES + header.map_or(0, |header| header.length);
        let (taken, rest) = input.split_at(input.len().min(whole - self.held.len()));
        self.held.extend_from_slice(taken);
        let Some(header) = self.held.first_chunk().map(Header::read) else { return Ok(rest) };
        if !had_header {
            self.begin_frame(header)?;
            if header.kind == frame::DATA {
                self.held.clear();
                self.begin_data(header, out, events)?;
                return Ok(rest);
            }
        }
        if self.held.len() == HEADER_BYTES + header.length {
            let held = std::mem::take(&mut self.held);
            self.frame(header, &held[HEADER_BYTES..], out, events, answered)?;
            // The memory is used again, unless a frame was large.
            self.held = if held.capacity() <= 1024 { held } else { Vec::new() };
            self.held.clear();
        }
        Ok(rest)
    }

    /// What holds for every frame.
    fn begin_frame(&mut self, header: Header) -> Result<Header, Fault> {
        if !std::mem::replace(&mut self.began, true) && (header.kind, header.flags) != (frame::SETTINGS, 0) {
            return Err(Fault::Preface);
        }
        if header.length > FRAME_BYTES_MAX {
            return Err(Fault::FrameSize);
        }
        let continues = self.block_of.is_some_and(|(stream, _)| stream == header.stream);
        if (header.kind == frame::CONTINUATION) != continues || self.block_of.is_some() && !continues {
            return Err(Fault::Unexpected("CONTINUATION, or another frame in place of one,"));
        }
        let of_stream = match header.kind {
            frame::DATA | frame::HEADERS | frame::PRIORITY | frame::RST_STREAM | frame::CONTINUATION => true,
            frame::SETTINGS | frame::PING | frame::GOAWAY => false,
            _ => header.stream != 0,
        };
        // The server may open no stream, and answer none that the client did not.
        let is_known = header.stream % 2 == 1 && header.stream < self.next_id;
        let may_be_unknown = header.kind == frame::PRIORITY || header.kind > frame::CONTINUATION;
        if of_stream != (header.stream != 0) || of_stream && !is_known && !may_be_unknown {
            return Err(if header.kind == frame::PUSH_PROMISE {
                Fault::Push
            } else {
                Fault::Unexpected("a frame on a stream that was not opened, or one of the wrong sort,")
            });
        }
        self.idle_frames += 1;
        if self.idle_frames > IDLE_FRAMES_MAX { Err(Fault::Flood) } else { Ok(header) }
    }

    fn frame(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Vec<u8>,
        events: &mut Vec<Event<T>>,
        answered: &mut dyn FnMut(&mut T),
    ) -> Result<(), Fault> {
        match header.kind {
            frame::HEADERS => {
                let mut fields = without_padding(header, payload)?;
                if header.has(frame::WITH_PRIORITY) {
                    fields = fields.get(5..).ok_or(Fault::FrameSize)?;
                }
                self.block_of = Some((header.stream, header.has(frame::END_STREAM)));
                self.header_block(header, fields, out, events, answered)
            }
            frame::CONTINUATION => self.header_block(header, payload, out, events, answered),
            frame::SETTINGS => self.settings(header, payload, out),
            frame::PUSH_PROMISE => Err(Fault::Push),
            frame::PING => {
                let opaque: &[u8; 8] = payload.try_into().map_err(|_| Fault::FrameSize)?;
                if !header.has(frame::ACK) {
                    frame::put_header(out, opaque.len(), frame::PING, frame::ACK, 0);
                    out.extend_from_slice(opaque);
                }
                Ok(())
            }
            frame::GOAWAY => self.go_away(payload, events),
            frame::RST_STREAM => {
                let code = u32::from_be_bytes(payload.try_into().map_err(|_| Fault::FrameSize)?);
                if let Some(stream) = self.take(header.stream) {
                    events.push(match code {
                        frame::REFUSED_STREAM => Event::Unprocessed(stream),
                        _ => Event::Failed(stream, StreamFault::Reset(code)),
                    });
                }
                Ok(())
            }
            frame::WINDOW_UPDATE => self.window_update(header, payload),
            frame::PRIORITY if payload.len() != 5 => Err(Fault::FrameSize),
            _ => Ok(()),
        }
    }

    fn begin_data(&mut self, header: Header, out: &mut Vec<u8>, events: &mut Vec<Event<T>>) -> Result<(), Fault> {
        let (is_padded, ends) = (header.has(frame::PADDED), header.has(frame::END_STREAM));
        if is_padded && header.length == 0 {
            return Err(Fault::FrameSize);
        }
        let bytes = header.length as u32;
        let open = returned(&mut self.unreturned, bytes, CONNECTION_WINDOW_BYTES);
        if open > 0 {
            frame::put_number(out, frame::WINDOW_UPDATE, 0, open);
        }
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == header.stream) {
            let open = returned(&mut stream.unreturned, bytes, STREAM_WINDOW_BYTES);
            // Nobody sends on a stream that ends.
            if open > 0 && !ends {
                frame::put_number(out, frame::WINDOW_UPDATE, stream.id, open);
            }
        }
        let padding = if is_padded { None } else { Some(0) };
        self.data = Some(Data { stream: header.stream, left: header.length, padding, ends });
        if header.length == 0 {
            self.receive_data(&[], out, events)?;
        }
        Ok(())
    }

    /// Counts content; answers what does not belong to the frame.
    fn receive_data<'a>(
        &mut self,
        mut input: &'a [u8],
        out: &mut Vec<u8>,
        events: &mut Vec<Event<T>>,
    ) -> Result<&'a [u8], Fault> {
        let Some(mut data) = self.data.take() else { return Ok(input) };
        let padding = match (data.padding, input) {
            (Some(padding), _) => padding,
            (None, [padding, rest @ ..]) => {
                (input, data.left) = (rest, data.left - 1);
                usize::from(*padding)
            }
            (None, []) => 0,
        };
        let content = data.left.checked_sub(padding).ok_or(Fault::Value("the padding of a frame"))?;
        let (taken, rest) = input.split_at(input.len().min(data.left));
        data.left -= taken.len();
        let content = content.min(taken.len());
        data.padding = Some(padding.min(data.left));
        let is_fine = match self.streams.iter_mut().find(|stream| stream.id == data.stream) {
            Some(stream) => stream.content(content) && (data.left > 0 || !data.ends || stream.is_whole()),
            None => true,
        };
        if content > 0 {
            self.progress();
        }
        if !is_fine {
            self.refuse(data.stream, out, events);
        } else if data.left == 0 && data.ends {
            self.complete(data.stream, out, events);
        }
        if data.left > 0 {
            self.data = Some(data);
        }
        Ok(rest)
    }

    /// Takes a piece of a header block.
    fn header_block(
        &mut self,
        header: Header,
        fields: &[u8],
        out: &mut Vec<u8>,
        events: &mut Vec<Event<T>>,
        answered: &mut dyn FnMut(&mut T),
    ) -> Result<(), Fault> {
        if self.block.len() + fields.len() > BLOCK_BYTES_MAX {
            return Err(Fault::BlockTooLong);
        }
        if !header.has(frame::END_HEADERS) {
            self.block.extend_from_slice(fields);
            return Ok(());
        }
        let Some((id, ends)) = self.block_of.take() else { return Ok(()) };
        let mut whole = std::mem::take(&mut self.block);
        let block = if whole.is_empty() {
            fields
        } else {
            whole.extend_from_slice(fields);
            &whole
        };
        let mut found = Block::default();
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) else {
            // The stream is over; the tables must be kept all the same.
            return Ok(self.decoder.decode(block, LIST_BYTES_MAX, |_, _| ())?);
        };
        self.decoder.decode(block, LIST_BYTES_MAX, |name, value| stream.field(&mut found, name, value))?;
        if !stream.is_answered() {
            answered(&mut stream.data);
        }
        if !stream.end_of_block(found, ends) || ends && !stream.is_whole() {
            self.refuse(id, out, events);
        } else if ends {
            self.complete(id, out, events);
        }
        Ok(())
    }

    fn settings(&mut self, header: Header, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        if header.has(frame::ACK) {
            return if payload.is_empty() { Ok(()) } else { Err(Fault::FrameSize) };
        }
        let (settings, []) = payload.as_chunks::<6>() else { return Err(Fault::FrameSize) };
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                frame::HEADER_TABLE_SIZE => self.encoder.set_table_allowed(value as usize),
                frame::ENABLE_PUSH if value != 0 => return Err(Fault::Value("SETTINGS_ENABLE_PUSH")),
                frame::MAX_CONCURRENT_STREAMS if value == 0 => return Err(Fault::NoStreams),
                frame::MAX_CONCURRENT_STREAMS => self.streams_max = value,
                frame::INITIAL_WINDOW_SIZE => {
                    let change = i64::from(value) - self.stream_window;
                    self.stream_window += change;
                    let is_too_large = |window: i64| window > WINDOW_MAX;
                    self.streams.iter_mut().for_each(|stream| stream.send_window += change);
                    if self.streams.iter().map(|stream| stream.send_window).any(is_too_large)
                        || is_too_large(self.stream_window)
                    {
                        return Err(Fault::Value("SETTINGS_INITIAL_WINDOW_SIZE"));
                    }
                }
                frame::MAX_FRAME_SIZE => {
                    self.frame_max = Some(value as usize)
                        .filter(|bytes| (FRAME_BYTES_MAX..1 << 24).contains(bytes))
                        .ok_or(Fault::Value("SETTINGS_MAX_FRAME_SIZE"))?;
                }
                _ => {}
            }
        }
        frame::put_header(out, 0, frame::SETTINGS, frame::ACK, 0);
        Ok(())
    }

    fn window_update(&mut self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        let increment = i64::from(frame::number(payload.try_into().map_err(|_| Fault::FrameSize)?));
        let of_stream = self.streams.iter_mut().find(|stream| stream.id == header.stream);
        let window = match (header.stream, of_stream) {
            (0, _) => &mut self.send_window,
            (_, Some(stream)) => &mut stream.send_window,
            (_, None) => return Ok(()),
        };
        *window += increment;
        if increment == 0 || *window > WINDOW_MAX { Err(Fault::Value("WINDOW_UPDATE")) } else { Ok(()) }
    }

    /// The server takes no more requests, and has not looked at those behind the last that it names.
    fn go_away(&mut self, payload: &[u8], events: &mut Vec<Event<T>>) -> Result<(), Fault> {
        let (last, rest) = payload.split_first_chunk().ok_or(Fault::FrameSize)?;
        let code = u32::from_be_bytes(*rest.first_chunk().ok_or(Fault::FrameSize)?);
        let first_unseen = self.streams.partition_point(|stream| stream.id <= frame::number(last));
        events.extend(self.streams.drain(first_unseen..).map(Event::Unprocessed));
        self.going_away = true;
        if code == frame::NO_ERROR { Ok(()) } else { Err(Fault::GoneAway(code)) }
    }

    /// A response is whole. Whoever still sends a body stops (RFC 9113 section 8.1).
    fn complete(&mut self, id: u32, out: &mut Vec<u8>, events: &mut Vec<Event<T>>) {
        if let Some(stream) = self.take(id) {
            if stream.body_left > 0 {
                frame::put_number(out, frame::RST_STREAM, id, frame::CANCEL);
            }
            self.progress();
            events.push(Event::Complete(stream));
        }
    }

    /// A response is malformed: its stream ends.
    fn refuse(&mut self, id: u32, out: &mut Vec<u8>, events: &mut Vec<Event<T>>) {
        if let Some(stream) = self.take(id) {
            frame::put_number(out, frame::RST_STREAM, id, frame::PROTOCOL_ERROR);
            events.push(Event::Failed(stream, StreamFault::Malformed));
        }
    }

    pub(super) fn take(&mut self, id: u32) -> Option<Stream<T>> {
        let at = self.streams.iter().position(|stream| stream.id == id)?;
        Some(self.streams.remove(at))
    }

    /// Something was sent or arrived that a request needs.
    pub(super) fn progress(&mut self) {
        (self.idle_frames, self.progressed) = (0, true);
    }

    /// Whether content or a whole response arrived, or some of a body was sent, since this was last asked. What only
    /// keeps a client busy is no progress.
    pub fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Requests that the server takes at once.
    pub fn streams_max(&self) -> u32 {
        self.streams_max
    }

    /// Whether no further request can be made on the connection.
    pub fn is_going_away(&self) -> bool {
        self.going_away
    }

    /// The requests under way, in the order in which they were made.
    pub fn streams(&self) -> &[Stream<T>] {
        &self.streams
    }

    /// A connection of which nothing was sent yet.
    pub(super) fn unbegun(encoder: Encoder) -> Client<T> {
        Client {
            decoder: Decoder::new(TABLE_BYTES_ANNOUNCED),
            encoder,
            streams: Vec::new(),
            next_id: 1,
            held: Vec::new(),
            data: None,
            block: Vec::new(),
            block_of: None,
            send_window: WINDOW_BYTES_DEFAULT.into(),
            stream_window: WINDOW_BYTES_DEFAULT.into(),
            frame_max: FRAME_BYTES_MAX,
            streams_max: STREAMS_MAX_BEFORE_SETTINGS,
            unreturned: 0,
            began: false,
            idle_frames: 0,
            progressed: false,
            going_away: false,
        }
    }
}

/// The payload of a frame that may be padded.
fn without_padding(header: Header, payload: &[u8]) -> Result<&[u8], Fault> {
    if !header.has(frame::PADDED) {
        return Ok(payload);
    }
    let (padding, payload) = payload.split_first().ok_or(Fault::FrameSize)?;
    let length = payload.len().checked_sub(usize::from(*padding));
    Ok(&payload[..length.ok_or(Fault::Value("the padding of a frame"))?])
}
