//! HTTP/2 as a client reads it: what a server sends on a connection, and header blocks by themselves.

use tlsdyno_wire::http2::{Client, Decoder, Encoder, Event, LIST_BYTES_MAX, Request, TABLE_BYTES_ANNOUNCED};

/// What a server sends after three requests, the first byte saying in which pieces it comes: however it is cut, it
/// comes to the same; no request ends twice, and what is answered does not grow beyond what came.
pub fn http2_receive(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let receive = |piece: usize| {
        let (mut out, mut events, mut answered) = (Vec::new(), Vec::new(), Vec::new());
        let mut client = Client::begin(true, &mut out);
        for data in 0..3u8 {
            let request = Request { data, body_bytes: 9 * u64::from(data), to_head: data == 1, keeps_location: true };
            client.request(b"GET / HTTP/1.1\r\nHost: h\r\nCookie: a=1; b=2\r\n\r\n", request, &mut out);
        }
        out.clear();
        let mut pieces = bytes.chunks(piece);
        let end =
            pieces.try_for_each(|piece| client.receive(piece, &mut out, &mut events, |data| answered.push(*data)));
        let ends: Vec<_> = events.iter().map(end_of).collect();
        let mut ended: Vec<u8> = ends.iter().map(|(data, ..)| *data).collect();
        ended.extend(client.streams().iter().map(|stream| stream.data));
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 2], "each request is under way or ended, once");
        assert!(out.len() <= 2 * bytes.len() + 100);
        (out, ends, answered, end, client.is_going_away(), client.streams_max())
    };
    assert_eq!(receive(bytes.len().max(1)), receive(1 + usize::from(cut)));
}

/// Which request ended how, with its status and, if it is complete, its length.
fn end_of(event: &Event<u8>) -> (u8, u8, Option<u16>, u64) {
    match event {
        Event::Complete(stream) => (stream.data, 0, stream.status(), stream.body_bytes()),
        Event::Failed(stream, _) => (stream.data, 1, stream.status(), 0),
        Event::Unprocessed(stream) => (stream.data, 2, stream.status(), 0),
    }
}

/// Header blocks of one connection, each after a byte with its length: what is understood is no larger than the limit,
/// and survives encoding where it can stand in a head.
pub fn hpack_decode(data: &[u8]) {
    let (mut decoder, mut encoder) = (Decoder::new(TABLE_BYTES_ANNOUNCED), Encoder::default());
    let mut again = Decoder::new(TABLE_BYTES_ANNOUNCED);
    let mut rest = data;
    while let Some((&length, after)) = rest.split_first() {
        let block;
        (block, rest) = after.split_at(after.len().min(length.into()));
        let mut fields = Vec::new();
        let decoded = decoder.decode(block, LIST_BYTES_MAX, |name, value| fields.push((name.to_vec(), value.to_vec())));
        assert!(fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>() <= LIST_BYTES_MAX);
        if decoded.is_err() {
            return;
        }
        let is_plain = |bytes: &[u8]| bytes.iter().all(|byte| byte.is_ascii_digit());
        fields.retain(|(name, value)| !name.is_empty() && is_plain(name) && is_plain(value));
        let mut head = b"GET / HTTP/1.1\n".to_vec();
        fields.iter().for_each(|(name, value)| head.extend([&name[..], b":", value, b"\n"].concat()));
        let (mut encoded, mut read_back) = (Vec::new(), Vec::new());
        encoder.request(&head, &mut encoded);
        let read = again.decode(&encoded, usize::MAX, |name, value| read_back.push((name.to_vec(), value.to_vec())));
        assert_eq!((read, &read_back[3..]), (Ok(()), &fields[..]));
    }
}

/// Seeds for [`http2_receive`].
pub fn http2_seeds() -> Vec<Vec<u8>> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream][..], payload].concat()
    };
    let settings = frame(4, 0, 0, b"\0\x03\0\0\0\x80\0\x04\0\x01\0\0\0\x05\0\xff\xff\xff");
    let script = |cut: u8, frames: &[Vec<u8>]| [&[cut][..], &settings, &frames.concat()].concat();
    vec![
        script(6, &[frame(1, 4, 1, b"\x88\x5c\x015"), frame(0, 1, 1, b"hello"), frame(1, 5, 3, b"\x88\xbe")]),
        script(
            0,
            &[frame(1, 0x28, 1, b"\x01\0\0\0\0\x09\x88\0"), frame(9, 4, 1, b"\x5c\x013"), frame(0, 9, 1, b"\x01abc\0")],
        ),
        script(
            2,
            &[frame(1, 4, 1, b"\x08\x03103"), frame(7, 0, 0, b"\0\0\0\x03\0\0\0\0"), frame(3, 0, 3, b"\0\0\0\x07")],
        ),
        script(
            9,
            &[
                frame(6, 0, 0, b"12345678"),
                frame(8, 0, 0, b"\0\0\x40\0"),
                frame(1, 5, 5, b"\x48\x82\x64\x02\x6e\x02/x"),
            ],
        ),
        script(
            4,
            &[
                frame(2, 0, 1, b"\0\0\0\0\x09"),
                frame(5, 4, 1, b"\0\0\0\x02\x88"),
                frame(7, 0, 0, b"\0\0\0\0\0\0\0\x0b"),
            ],
        ),
    ]
}

/// Seeds for [`hpack_decode`]: the examples of RFC 7541 section C.6 begin so.
pub fn hpack_seeds() -> Vec<Vec<u8>> {
    vec![
        b"\x03\x3f\xe1\x01\x0b\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x02\xbf\xbe".to_vec(),
        b"\x06\x40\x012\x0234\x01\xbe\x07\x7e\x83\x08\x4f\xff\x20\xbe".to_vec(),
        b"\x05\x10\x019\x018\x05\x00\x817\x816".to_vec(),
    ]
}
