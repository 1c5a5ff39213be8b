use proptest::prelude::*;

use super::super::frame::*;
use super::super::*;

/// A client that made so many requests, with bodies of so many bytes.
fn client(requests: u32, body_bytes: u64) -> Client<u32> {
    let mut out = Vec::new();
    let mut client = Client::begin(true, &mut out);
    assert!(out.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    for data in 0..requests {
        let request = Request { data, body_bytes, to_head: false, keeps_location: true };
        client.request(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", request, &mut out);
    }
    client
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_header(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out
}

fn settings(list: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        list.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// `:status: 200`, and `content-length` of one digit.
const OK_WITH_LENGTH: &[u8] = &[0x88, 0x5c, 1, b'5'];

/// What was answered, what became of requests by their numbers, and the fault.
#[derive(Debug, PartialEq)]
struct Seen {
    out: Vec<u8>,
    ends: Vec<(u32, &'static str, Option<u16>, u64)>,
    answered: Vec<u32>,
    fault: Option<Fault>,
}

fn receive(client: &mut Client<u32>, input: &[u8], piece: usize) -> Seen {
    let mut seen = Seen { out: Vec::new(), ends: Vec::new(), answered: Vec::new(), fault: None };
    let mut events = Vec::new();
    for piece in input.chunks(piece.max(1)) {
        let answered = |data: &mut u32| seen.answered.push(*data);
        if let Err(fault) = client.receive(piece, &mut seen.out, &mut events, answered) {
            seen.fault = Some(fault);
            break;
        }
    }
    seen.ends.extend(events.iter().map(|event| {
        let (what, stream) = match event {
            Event::Complete(stream) => ("complete", stream),
            Event::Failed(stream, StreamFault::Malformed) => ("malformed", stream),
            Event::Failed(stream, StreamFault::Reset(_)) => ("reset", stream),
            Event::Unprocessed(stream) => ("unprocessed", stream),
        };
        // How much of a malformed response is looked at depends on the pieces.
        let body_bytes = if what == "complete" { stream.body_bytes() } else { 0 };
        (stream.data, what, stream.status(), body_bytes)
    }));
    seen
}

#[test]
fn responses_of_several_streams_are_told_apart_however_they_are_cut() {
    let whole = [
        settings(&[(MAX_CONCURRENT_STREAMS, 128), (INITIAL_WINDOW_SIZE, 65_536), (MAX_FRAME_SIZE, 16_777_215)]),
        frame(SETTINGS, ACK, 0, &[]),
        // An interim response, a padded head with a priority, CONTINUATION, and an unknown frame between.
        frame(HEADERS, END_HEADERS, 3, b"\x08\x03103"),
        frame(HEADERS, PADDED | WITH_PRIORITY, 3, b"\x02\0\0\0\0\x10\x88\0\0"),
        frame(CONTINUATION, END_HEADERS, 3, &OK_WITH_LENGTH[1..]),
        frame(99, 0, 7, b"unknown"),
        frame(HEADERS, END_HEADERS, 1, b"\x88"),
        frame(DATA, PADDED, 3, b"\x01he\0"),
        frame(DATA, 0, 1, b"four"),
        frame(PING, 0, 0, b"12345678"),
        frame(DATA, 0, 3, b"llo"),
        // The end in an empty frame, and in trailers.
        frame(DATA, END_STREAM, 3, b""),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x40\x01t\x01v"),
        // A redirect by name, without content.
        frame(HEADERS, END_HEADERS | END_STREAM, 5, b"\x48\x03302\x6e\x02/x"),
    ]
    .concat();
    let at_once = receive(&mut client(3, 0), &whole, whole.len());
    let ends = [(1, "complete", Some(200), 5), (0, "complete", Some(200), 4), (2, "complete", Some(302), 0)];
    assert_eq!((&at_once.ends[..], at_once.fault, &at_once.answered[..]), (&ends[..], None, &[1, 0, 2][..]));
    assert_eq!(at_once.out, [frame(SETTINGS, ACK, 0, &[]), frame(PING, ACK, 0, b"12345678")].concat());
    for piece in 1..whole.len() {
        assert_eq!(receive(&mut client(3, 0), &whole, piece), at_once, "in pieces of {piece}");
    }
}

/// A fault by its name, a server's frames behind its settings, and whether a fault is that.
type Case = (&'static str, Vec<u8>, fn(Fault) -> bool);

fn begun(frames: &[Vec<u8>]) -> Vec<u8> {
    [settings(&[]), frames.concat()].concat()
}

fn one(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    begun(&[frame(kind, flags, stream, payload)])
}

fn is_unexpected(fault: Fault) -> bool {
    matches!(fault, Fault::Unexpected(_))
}

fn is_value(fault: Fault) -> bool {
    matches!(fault, Fault::Value(_))
}

fn is_size(fault: Fault) -> bool {
    fault == Fault::FrameSize
}

fn is_flood(fault: Fault) -> bool {
    fault == Fault::Flood
}

fn is_wrong_index(fault: Fault) -> bool {
    fault == Fault::Hpack(HpackFault::Index)
}

fn of_the_connection() -> Vec<Case> {
    vec![
        ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), |fault| fault == Fault::Preface),
        ("no settings first", frame(PING, 0, 0, b"12345678"), |fault| fault == Fault::Preface),
        ("only their acknowledgement", frame(SETTINGS, ACK, 0, b""), |fault| fault == Fault::Preface),
        ("settings of five bytes", one(SETTINGS, 0, 0, b"12345"), is_size),
        ("an acknowledgement with settings", one(SETTINGS, ACK, 0, b"123456"), is_size),
        ("settings on a stream", one(SETTINGS, 0, 1, b""), is_unexpected),
        ("push is on", begun(&[settings(&[(ENABLE_PUSH, 1)])]), is_value),
        ("a window of 2^31", begun(&[settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)])]), is_value),
        ("frames of 1 byte", begun(&[settings(&[(MAX_FRAME_SIZE, 1)])]), is_value),
        ("no streams", begun(&[settings(&[(MAX_CONCURRENT_STREAMS, 0)])]), |fault| fault == Fault::NoStreams),
        ("a ping of seven bytes", one(PING, 0, 0, b"1234567"), is_size),
        ("a ping on a stream", one(PING, 0, 1, b"12345678"), is_unexpected),
        ("a window update of zero", one(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"), is_value),
        ("a window beyond 2^31", one(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"), is_value),
        ("a window update of five bytes", one(WINDOW_UPDATE, 0, 0, b"12345"), is_size),
        ("GOAWAY with an error", one(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x0b"), |fault| fault == Fault::GoneAway(11)),
        ("GOAWAY of seven bytes", one(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0"), is_size),
    ]
}

fn of_streams() -> Vec<Case> {
    vec![
        ("a long frame", one(DATA, 0, 1, &[0; FRAME_BYTES_MAX + 1]), is_size),
        ("a push", one(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02\x88"), |fault| fault == Fault::Push),
        ("a push on nothing", one(PUSH_PROMISE, END_HEADERS, 2, b"\0\0\0\x04\x88"), |fault| fault == Fault::Push),
        ("data on no stream", one(DATA, 0, 0, b"x"), is_unexpected),
        ("data on a stream of the server", one(DATA, 0, 2, b"x"), is_unexpected),
        ("a response that nobody asked for", one(HEADERS, END_HEADERS, 9, b"\x88"), is_unexpected),
        ("a reset of nothing", one(RST_STREAM, 0, 9, b"\0\0\0\0"), is_unexpected),
        ("a reset of three bytes", one(RST_STREAM, 0, 1, b"\0\0\0"), is_size),
        ("a priority of four bytes", one(PRIORITY, 0, 1, b"1234"), is_size),
        ("padding without room", one(DATA, PADDED, 1, b"\x05abcd"), is_value),
        ("padding of nothing", one(DATA, PADDED, 1, b""), is_size),
        ("padding of a head without room", one(HEADERS, PADDED | END_HEADERS, 1, b"\x05\x88"), is_value),
        ("a head too short for its priority", one(HEADERS, WITH_PRIORITY | END_HEADERS, 1, b"\x88"), is_size),
        ("CONTINUATION alone", one(CONTINUATION, END_HEADERS, 1, b"\x88"), is_unexpected),
        ("another frame before its end", begun(&[frame(HEADERS, 0, 1, b""), settings(&[])]), is_unexpected),
        ("that of another", begun(&[frame(HEADERS, 0, 1, b""), frame(CONTINUATION, 4, 3, b"")]), is_unexpected),
        ("a wrong index", one(HEADERS, END_HEADERS, 1, b"\xff\x80\x01"), is_wrong_index),
        (
            "a wrong index on a stream that is over",
            begun(&[frame(RST_STREAM, 0, 1, b"\0\0\0\x08"), frame(HEADERS, END_HEADERS, 1, b"\xfe")]),
            is_wrong_index,
        ),
    ]
}

fn without_end() -> Vec<Case> {
    let huge = vec![b'x'; FRAME_BYTES_MAX];
    let continued = |piece: &[u8], count| {
        let mut frames = vec![frame(HEADERS, 0, 1, b"\x88")];
        frames.resize(count, frame(CONTINUATION, 0, 1, piece));
        begun(&frames)
    };
    let flood = |one: Vec<u8>| begun(&vec![one; 10_001]);
    vec![
        ("CONTINUATION", continued(&huge, 6), |fault| fault == Fault::BlockTooLong),
        ("empty CONTINUATION", continued(b"", 10_001), is_flood),
        ("settings", flood(settings(&[])), is_flood),
        ("pings", flood(frame(PING, 0, 0, b"12345678")), is_flood),
        ("empty data", flood(frame(DATA, 0, 1, b"")), is_flood),
        ("unknown frames", flood(frame(77, 0, 1, b"")), is_flood),
        ("interim responses", flood(frame(HEADERS, END_HEADERS, 1, b"\x08\x03103")), is_flood),
    ]
}

#[test]
fn what_servers_must_not_do_ends_the_connection() {
    for (case, input, judge) in [of_the_connection(), of_streams(), without_end()].concat() {
        let seen = receive(&mut client(3, 0), &input, input.len());
        assert!(seen.fault.is_some_and(judge), "{case}: {:?}", seen.fault);
        assert_eq!(receive(&mut client(3, 0), &input, 7).fault, seen.fault, "{case}, in pieces");
        let mut out = Vec::new();
        client(1, 0).close(seen.fault, &mut out);
        assert_eq!(out.len(), HEADER_BYTES + 8, "{case}: the server is told");
        assert!(!seen.fault.unwrap().to_string().is_empty());
    }
}

#[test]
fn a_window_is_opened_again_when_half_of_it_is_used() {
    let data = vec![frame(DATA, 0, 1, &[b'x'; FRAME_BYTES_MAX]); 481];
    let mut client = client(1, 0);
    let input = begun(&[vec![frame(HEADERS, END_HEADERS, 1, b"\x88")], data].concat());
    let seen = receive(&mut client, &input, 1 << 24);
    let opened = |stream, frames: u32| frame(WINDOW_UPDATE, 0, stream, &(frames * 16_384).to_be_bytes());
    let of_stream = [opened(1, 193), opened(1, 193)].concat();
    assert_eq!((seen.fault, seen.out), (None, [frame(SETTINGS, ACK, 0, b""), of_stream, opened(0, 481)].concat()));
}

#[test]
fn a_malformed_response_ends_its_stream_alone() {
    let head = |block: &[u8], flags| frame(HEADERS, END_HEADERS | flags, 1, block);
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("no status", head(b"\x5c\x015", END_STREAM), "malformed"),
        ("two", head(b"\x88\x88", END_STREAM), "malformed"),
        ("a status of two digits", head(b"\x08\x0220", END_STREAM), "malformed"),
        ("a status of letters", head(b"\x08\x03abc", END_STREAM), "malformed"),
        ("101", head(b"\x08\x03101", 0), "malformed"),
        ("an interim response that ends", head(b"\x08\x03103", END_STREAM), "malformed"),
        ("the status behind a field", head(b"\x5c\x015\x88", END_STREAM), "malformed"),
        ("a field of requests", head(b"\x88\x82", END_STREAM), "malformed"),
        ("capital letters", head(b"\x88\x00\x01X\x01y", END_STREAM), "malformed"),
        ("a length that is none", head(b"\x88\x5c\x01x", 0), "malformed"),
        ("two lengths", head(b"\x88\x5c\x015\x5c\x016", 0), "malformed"),
        (
            "two equal lengths",
            [head(b"\x88\x5c\x015\x5c\x015", 0), frame(DATA, END_STREAM, 1, b"hello")].concat(),
            "complete",
        ),
        ("shorter than it says", [head(OK_WITH_LENGTH, 0), frame(DATA, END_STREAM, 1, b"hell")].concat(), "malformed"),
        ("longer than it says", [head(OK_WITH_LENGTH, 0), frame(DATA, 0, 1, b"hello!")].concat(), "malformed"),
        ("nothing of what it says", head(OK_WITH_LENGTH, END_STREAM), "malformed"),
        ("data before the head", frame(DATA, 0, 1, b"x"), "malformed"),
        ("trailers that do not end", [head(b"\x88", 0), head(b"\x40\x01t\x01v", 0)].concat(), "malformed"),
        ("304 with the length of what it leaves out", head(b"\x8b\x5c\x015", END_STREAM), "complete"),
        ("204 with content", [head(b"\x89", 0), frame(DATA, END_STREAM, 1, b"x")].concat(), "malformed"),
        ("reset", frame(RST_STREAM, 0, 1, b"\0\0\0\x02"), "reset"),
        ("refused", frame(RST_STREAM, 0, 1, b"\0\0\0\x07"), "unprocessed"),
    ];
    for (case, frames, end) in cases {
        let other = [frame(HEADERS, END_HEADERS, 3, b"\x88"), frame(DATA, END_STREAM, 3, b"fine")].concat();
        let input = [settings(&[]), frames.clone(), other].concat();
        for piece in [1, input.len()] {
            let seen = receive(&mut client(2, 0), &input, piece);
            let ends: Vec<_> = seen.ends.iter().map(|(data, end, ..)| (*data, *end)).collect();
            assert_eq!((&ends[..], seen.fault), (&[(0, *end), (1, "complete")][..], None), "{case}");
            let told = seen.out.ends_with(&frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR.to_be_bytes()));
            assert_eq!(told, *end == "malformed", "{case}: the server is told");
        }
    }
}

#[test]
fn goaway_says_which_requests_nobody_looked_at() {
    for last in 0..8 {
        let mut client = client(3, 0);
        let goaway = frame(GOAWAY, 0, 0, &[&[0, 0, 0, last][..], b"\0\0\0\0debug"].concat());
        let answer = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88");
        let input = if last > 0 { [settings(&[]), goaway, answer] } else { [settings(&[]), goaway, Vec::new()] };
        let seen = receive(&mut client, &input.concat(), 1 << 20);
        let unseen: Vec<u32> = seen.ends.iter().filter(|end| end.1 == "unprocessed").map(|end| end.0).collect();
        assert_eq!(unseen, (0..3).filter(|data| data * 2 + 1 > u32::from(last)).collect::<Vec<_>>());
        assert_eq!((client.is_going_away(), client.streams().len()), (true, 3 - unseen.len() - usize::from(last > 0)));
    }
}

#[test]
fn bodies_keep_to_the_windows() {
    let mut client = client(2, 100_000);
    let sent = |client: &mut Client<u32>, most: usize| {
        let mut out = Vec::new();
        client.send_body(most, &mut out, |_, piece, out| out.resize(out.len() + piece, b'x'));
        let mut frames = Vec::new();
        let mut rest = &out[..];
        while let Some(header) = rest.first_chunk().map(Header::read) {
            assert!(header.kind == DATA && header.length <= FRAME_BYTES_MAX);
            frames.push((header.stream, header.length, header.has(END_STREAM)));
            rest = &rest[HEADER_BYTES + header.length..];
        }
        frames
    };
    assert_eq!(sent(&mut client, 20_000), [(1, 16_384, false), (1, 3616, false)]);
    let bytes: usize = sent(&mut client, 1 << 20).iter().map(|(_, bytes, _)| bytes).sum();
    assert_eq!((bytes, client.has_body_to_send()), (65_535 - 20_000, false), "the connection's window");
    let open = |stream, by: u32| frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    let input = [settings(&[(INITIAL_WINDOW_SIZE, 10)]), open(0, 1_000_000)].concat();
    assert_eq!(receive(&mut client, &input, 1 << 20).fault, None);
    assert_eq!(sent(&mut client, 1 << 20), [(3, 10, false)], "the first stream owes what it sent before");
    receive(&mut client, &[open(1, 100_000), open(3, 100_000)].concat(), 1 << 20);
    let frames = sent(&mut client, 1 << 20);
    assert_eq!(frames.iter().filter(|(_, _, ends)| *ends).count(), 2);
    assert_eq!(frames.iter().map(|(_, bytes, _)| bytes).sum::<usize>(), 200_000 - 65_535 - 10);
    // A server that has answered needs no more of the body.
    let mut client = self::client(1, 100_000);
    let seen = receive(&mut client, &[settings(&[]), frame(HEADERS, 5, 1, b"\x88")].concat(), 1 << 20);
    assert_eq!((seen.ends[0].1, &seen.out[9..]), ("complete", &frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes())[..]));
}

#[test]
fn a_head_that_one_frame_does_not_hold_is_continued() {
    let mut client = client(0, 0);
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "\u{7f}".repeat(40_000));
    let mut out = Vec::new();
    client.request(
        head.as_bytes(),
        Request { data: 0, body_bytes: 0, to_head: false, keeps_location: false },
        &mut out,
    );
    let mut rest = &out[..];
    let mut frames = Vec::new();
    while let Some(header) = rest.first_chunk().map(Header::read) {
        frames.push((header.kind, header.length, header.flags, header.stream));
        rest = &rest[HEADER_BYTES + header.length..];
    }
    let (first, last) = (END_STREAM | WITH_PRIORITY, END_HEADERS);
    let expected = [(HEADERS, 16_384, first, 1), (CONTINUATION, 16_384, 0, 1), (CONTINUATION, frames[2].1, last, 1)];
    assert_eq!(frames, expected);
    client.cancel(|data| *data == 0, &mut out).unwrap();
    assert!(client.streams().is_empty() && client.cancel(|_| true, &mut out).is_none());
}

proptest! {
    /// Whatever arrives: the same however it is cut, and no request is told of twice.
    #[test]
    fn cuts_change_nothing(
        frames in proptest::collection::vec(
            (0u8..11, any::<u8>(), 0u32..8, proptest::collection::vec(any::<u8>(), 0..20)), 0..12
        ),
        piece in 1usize..20,
    ) {
        let frames = frames.into_iter()
            .map(|(kind, flags, stream, payload)| frame(kind, flags & 0x2d, stream, &payload));
        let input = [settings(&[])].into_iter().chain(frames).collect::<Vec<_>>().concat();
        let at_once = receive(&mut client(3, 9), &input, input.len());
        prop_assert_eq!(&receive(&mut client(3, 9), &input, piece), &at_once);
        let mut ended: Vec<u32> = at_once.ends.iter().map(|end| end.0).collect();
        ended.sort_unstable();
        ended.dedup();
        prop_assert_eq!(ended.len(), at_once.ends.len());
    }
}
