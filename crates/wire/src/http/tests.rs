use proptest::prelude::*;

use super::*;

/// What a response came to, however it was cut.
#[derive(Debug, PartialEq, Eq)]
struct Received {
    head: Option<ResponseHead>,
    location: Option<Vec<u8>>,
    body_bytes: u64,
    consumed: usize,
    end: Result<(), HttpFault>,
}

fn receive(to_head: bool, pieces: &[&[u8]]) -> Received {
    let mut response = Response::new(to_head).keeping_location(true);
    let mut consumed = 0;
    let mut fault = None;
    for piece in pieces {
        match response.receive(piece) {
            Ok(taken) => consumed += taken,
            Err(error) => {
                fault = Some(error);
                break;
            }
        }
    }
    match fault {
        // How far it got before a fault may differ, that there is one and which must not.
        Some(fault) => Received { head: None, location: None, body_bytes: 0, consumed: 0, end: Err(fault) },
        None => {
            let end = response.end_of_input();
            let location = response.location().map(<[u8]>::to_vec);
            Received { head: response.head(), location, body_bytes: response.body_bytes(), consumed, end }
        }
    }
}

fn whole(text: &str) -> Received {
    receive(false, &[text.as_bytes()])
}

fn head(status: u16, persists: bool, content_length: Option<u64>) -> Option<ResponseHead> {
    Some(ResponseHead { status, persists, content_length })
}

/// Responses that exercise every state, with what they must come to: status, persists, body bytes, bytes left over.
const RESPONSES: &[(&str, u16, bool, u64, usize)] = &[
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, true, 5, 0),
    ("HTTP/1.1 200 OK\nContent-Length: 5\n\nhelloHTTP", 200, true, 5, 4),
    ("HTTP/1.1 200\r\ncontent-length:5 , 5\r\nConnection: Keep-Alive, Close\r\n\r\nhello", 200, false, 5, 0),
    ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, false, 2, 0),
    ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, true, 2, 0),
    ("HTTP/1.1 204 No Content\r\n\r\nrest", 204, true, 0, 4),
    ("HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\n\r\n", 304, true, 0, 0),
    ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, true, 0, 0),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\nContent-Length: 7\r\n\r\nHTTP/1.1 200 \
         OK\r\nContent-Length: 1\r\n\r\nx",
        200,
        true,
        1,
        0,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \
         chunked\r\n\r\n5\r\nhello\r\n00A;name=\"value\"\r\n0123456789\r\n0\r\n\r\nnext",
        200,
        true,
        15,
        4,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1 \r\nh\r\n0\r\nTrailer: \
         yes\r\nOther: no\r\n\r\n",
        200,
        true,
        1,
        0,
    ),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\n\n", 200, true, 0, 0),
    ("HTTP/1.1 200 OK\r\nServer: x\r\n\r\nuntil the end", 200, false, 13, 0),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nuntil the end", 200, false, 13, 0),
    (
        "HTTP/1.1 302 Found\r\nlocation:  /a b \r\nLocation: /a b\nLocations: /c\r\nContent-Length: 1\r\n\r\nx",
        302,
        true,
        1,
        0,
    ),
    ("HTTP/1.1 200 OK\r\nX: folded\r\n line: 1\r\nContent-Length: 0\r\n\r\n", 200, true, 0, 0),
];

#[test]
fn responses_end_where_they_should() {
    for &(text, status, persists, body_bytes, left) in RESPONSES {
        let received = whole(text);
        assert_eq!(received.end, Ok(()), "{text:?}");
        assert_eq!(received.consumed, text.len() - left, "{text:?}");
        assert_eq!(received.body_bytes, body_bytes, "{text:?}");
        let head = received.head.expect(text);
        assert_eq!((head.status, head.persists), (status, persists), "{text:?}");
    }
}

#[test]
fn a_response_to_head_has_no_body() {
    let received = receive(true, &[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"]);
    assert_eq!(received.end, Ok(()));
    assert_eq!(received.head, head(200, true, Some(5)));
    let received = receive(true, &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]);
    assert_eq!((received.end, received.head), (Ok(()), head(200, true, None)));
}

const FAULTS: &[(&str, HttpFault)] = &[
    ("", HttpFault::Truncated),
    ("HTTP/1.1 200 OK\r\n", HttpFault::Truncated),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", HttpFault::Truncated),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", HttpFault::Truncated),
    ("\r\nHTTP/1.1 200 OK\r\n\r\n", HttpFault::StatusLine),
    ("HTTP/2 200\r\n\r\n", HttpFault::StatusLine),
    ("HTTP/1.1 20x OK\r\n\r\n", HttpFault::StatusLine),
    ("HTTP/1.1 2000 OK\r\n\r\n", HttpFault::StatusLine),
    ("HTTP/1.1 099 OK\r\n\r\n", HttpFault::StatusLine),
    ("SSH-2.0-OpenSSH_9.2\r\n", HttpFault::StatusLine),
    ("HTTP/1.1 101 Switching Protocols\r\n\r\n", HttpFault::Upgrade),
    ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", HttpFault::HeaderLine),
    ("HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello", HttpFault::HeaderLine),
    ("HTTP/1.1 200 OK\r\n: 5\r\n\r\nhello", HttpFault::HeaderLine),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\n", HttpFault::HeaderLine),
    ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", HttpFault::ContentLength),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello", HttpFault::ContentLength),
    ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello", HttpFault::ContentLength),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", HttpFault::ContentLength),
    ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n", HttpFault::ContentLength),
    ("HTTP/1.1 307 x\r\nLocation: /a\r\nLocation: /b\r\n\r\n", HttpFault::Location),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello", HttpFault::Chunk),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", HttpFault::Chunk),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", HttpFault::Chunk),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", HttpFault::Chunk),
];

#[test]
fn faults_are_named() {
    for &(text, fault) in FAULTS {
        assert_eq!(whole(text).end, Err(fault), "{text:?}");
    }
}

#[test]
fn heads_are_bounded() {
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(whole(&endless).end, Err(HttpFault::HeadTooLong));
    let many = format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(HEAD_BYTES_MAX));
    assert_eq!(whole(&many).end, Err(HttpFault::HeadTooLong));
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(HEAD_BYTES_MAX);
    assert_eq!(whole(&interim).end, Err(HttpFault::HeadTooLong));
    let hidden = format!("HTTP/1.1 200 OK\r\nConnection: {}close\r\n\r\n", " ".repeat(LINE_KEPT));
    assert_eq!(whole(&hidden).end, Err(HttpFault::HeadTooLong));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(LINE_KEPT * 9));
    assert_eq!(whole(&long).head, head(200, true, Some(0)));
    let trailers =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}", "a: b\r\n".repeat(HEAD_BYTES_MAX));
    assert_eq!(whole(&trailers).end, Err(HttpFault::HeadTooLong));
}

#[test]
fn where_a_redirect_leads_is_kept_where_that_is_asked_for() {
    let long = "/".repeat(LINE_KEPT * 3);
    let text = format!("HTTP/1.1 303 See Other\r\nA: b\r\nLOCATION:{long}\r\nB: c\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(whole(&text).location, Some(long.into_bytes()));
    let mut response = Response::new(false);
    response.receive(text.as_bytes()).unwrap();
    assert_eq!(response.location(), None);
    assert_eq!(whole("HTTP/1.1 200 OK\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n").location, None);
    assert_eq!(whole("HTTP/1.1 302 x\r\nLocation:\r\nContent-Length: 0\r\n\r\n").location, Some(Vec::new()));
    let endless = format!("HTTP/1.1 302 x\r\nLocation: {}\r\n\r\n", "/".repeat(LOCATION_BYTES_MAX));
    assert_eq!(whole(&endless).end, Err(HttpFault::HeadTooLong));
    let unrelated = format!("HTTP/1.1 302 x\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "/".repeat(LOCATION_BYTES_MAX));
    assert_eq!(whole(&unrelated).end, Ok(()));
}

/// Every response and fault cut at every byte, and fed byte by byte, comes to the same.
#[test]
fn every_cut_gives_the_same_result() {
    let texts = RESPONSES.iter().map(|row| row.0).chain(FAULTS.iter().map(|row| row.0));
    for text in texts {
        let bytes = text.as_bytes();
        for to_head in [false, true] {
            let expected = receive(to_head, &[bytes]);
            for cut in 0..=bytes.len() {
                let (front, back) = bytes.split_at(cut);
                assert_eq!(receive(to_head, &[front, back]), expected, "{text:?} cut at {cut}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(receive(to_head, &single), expected, "{text:?} byte by byte");
        }
    }
}

/// Bytes that often look like HTTP, so that the deep states are reached.
fn nearly_http() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Just(b"HTTP/1.0 304 x\n".to_vec()),
        Just(b"HTTP/1.1 302 x\r\n".to_vec()),
        (0usize..300).prop_map(|length| format!("Location: /{}\r\n", "z".repeat(length)).into_bytes()),
        Just(b"Content-Length: 12\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"Connection: close\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"4\r\nabcd\r\n".to_vec()),
        Just(b"0\r\n\r\n".to_vec()),
        (0usize..300).prop_map(|length| format!("X-Long: {}\r\n", "y".repeat(length)).into_bytes()),
        (0usize..300).prop_map(|length| format!("Connection: {}close\r\n", ",".repeat(length)).into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..9),
    ];
    let tail = proptest::collection::vec(piece, 0..9);
    (any::<bool>(), tail).prop_map(|(start, pieces)| {
        let mut bytes = if start { b"HTTP/1.1 200 OK\r\n".to_vec() } else { Vec::new() };
        bytes.extend(pieces.concat());
        bytes
    })
}

proptest! {
    #[test]
    fn any_cuts_of_any_bytes_give_the_same_result(
        bytes in nearly_http(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        to_head in any::<bool>(),
    ) {
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in at.into_iter().chain([bytes.len()]) {
            pieces.push(&bytes[from..to]);
            from = to;
        }
        prop_assert_eq!(receive(to_head, &pieces), receive(to_head, &[&bytes]));
    }

    #[test]
    fn a_request_head_appears_when_its_last_byte_does(
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        path in "/[a-z0-9%?=]{0,20}",
    ) {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        for cut in 0..head.len() {
            prop_assert_eq!(request_head(&head.as_bytes()[..cut]), Ok(None));
        }
        let mut buffer = head.clone().into_bytes();
        buffer.extend(bytes);
        let parsed = request_head(&buffer).unwrap().unwrap();
        prop_assert_eq!(parsed.bytes, head.len());
        prop_assert_eq!(parsed.target, path.as_bytes());
    }
}

#[test]
fn requests_are_read() {
    let text =
        b"\r\nPOST /a?b=c HTTP/1.1\r\nHost: example\r\nIF-Modified-Since:  then \r\ncontent-length: 3\r\n\r\nabcGET";
    let head = request_head(text).unwrap().unwrap();
    assert_eq!((head.method, head.target), (&b"POST"[..], &b"/a?b=c"[..]));
    assert_eq!(&text[head.bytes..], b"abcGET");
    assert_eq!((head.persists, head.body), (true, Body::Length(3)));
    assert_eq!(head.headers.get("if-modified-since"), Some(&b"then"[..]));
    assert_eq!(head.headers.get("Range"), None);
    assert_eq!(head.headers.iter().count(), 3);

    let persists = |text: &str| request_head(text.as_bytes()).unwrap().unwrap().persists;
    assert!(!persists("GET / HTTP/1.0\r\n\r\n"));
    assert!(persists("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    assert!(!persists("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"));
    assert_eq!(
        request_head(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap().unwrap().body,
        Body::chunked()
    );
}

#[test]
fn requests_are_refused() {
    let fault = |text: &str| request_head(text.as_bytes()).unwrap_err();
    assert_eq!(fault("GET /\r\n\r\n"), HttpFault::RequestLine);
    assert_eq!(fault("GET / HTTP/2.0\r\n"), HttpFault::RequestLine);
    assert_eq!(fault("GET  / HTTP/1.1\r\n"), HttpFault::RequestLine);
    assert_eq!(fault("GET / HTTP/1.1\r\nHost\r\n"), HttpFault::HeaderLine);
    assert_eq!(fault("GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n"), HttpFault::TransferEncoding);
    assert_eq!(fault("GET / HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n"), HttpFault::ContentLength);
    assert_eq!(fault(&format!("GET /{}", "x".repeat(HEAD_BYTES_MAX))), HttpFault::HeadTooLong);
}

/// What the bytes come to, given in pieces, and how many of them that took.
fn target_of<'a>(bytes: &'a [u8], pieces: &[usize], most: usize) -> (usize, Result<Option<&'a [u8]>, HttpFault>) {
    let mut reader = TargetReader::new(most);
    for &end in pieces {
        match reader.read(&bytes[..end]) {
            Ok(None) => {}
            found => return (end, found),
        }
    }
    (bytes.len(), Ok(None))
}

#[test]
fn a_target_is_known_with_its_line() {
    let read = |text: &'static str| TargetReader::new(100).read(text.as_bytes());
    assert_eq!(read("GET /a?b HTTP/1.1\r\n"), Ok(Some(&b"/a?b"[..])));
    assert_eq!(read("\r\n\nM-SEARCH * HTTP/1.0\nHost: x"), Ok(Some(&b"*"[..])));
    assert_eq!(read("GET /a HTTP/1.1\r"), Ok(None));
    for text in ["\x16\x03", "GE\0", " / HTTP/1.1\n", "GET /\r\n", "PRI * HTTP/2.0\r\n", "GET\r\n"] {
        assert_eq!(read(text), Err(HttpFault::RequestLine), "{text:?}");
    }
    let long = format!("GET /{} HTTP/1.1\n", "x".repeat(100));
    assert_eq!(TargetReader::new(100).read(long.as_bytes()), Err(HttpFault::HeadTooLong));
    let line = long.len();
    assert_eq!(TargetReader::new(line - 1).read(long.as_bytes()), Err(HttpFault::HeadTooLong));
    assert!(matches!(TargetReader::new(line).read(long.as_bytes()), Ok(Some(_))));
    assert_eq!(TargetReader::new(100).read(&[b'A'; METHOD_BYTES_MAX]), Ok(None));
    assert_eq!(TargetReader::new(100).read(&[b'A'; METHOD_BYTES_MAX + 1]), Err(HttpFault::RequestLine));
}

#[test]
fn a_path_is_a_target_without_authority_and_query() {
    let path = |target: &'static str| target_path(target.as_bytes()).map(|path| std::str::from_utf8(path).unwrap());
    assert_eq!((path("/a/b"), path("/a?b=/c"), path("/")), (Some("/a/b"), Some("/a"), Some("/")));
    assert_eq!((path("http://x/a?b"), path("http://x"), path("http://x?b/c")), (Some("/a"), Some("/"), Some("/")));
    assert_eq!((path("*"), path("example:443")), (None, None));
}

proptest! {
    /// However a line is cut, it comes to the same: what is found in pieces is found in the whole, and nothing else.
    #[test]
    fn any_cuts_of_any_line_give_the_same_target(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..120),
            "[ \r\n]{0,2}[A-Z]{0,40} ?[/a-z?:*]{0,60} (HTTP/1.1)?[\r\n]{0,3}.{0,20}".prop_map(String::into_bytes),
        ],
        step in 1..9_usize,
        most in 1..120_usize,
    ) {
        let ends: Vec<usize> = (step..bytes.len()).step_by(step).chain([bytes.len()]).collect();
        let (_, whole) = target_of(&bytes, &[bytes.len()], most);
        let (_, pieces) = target_of(&bytes, &ends, most);
        prop_assert_eq!(whole, pieces);
    }
}
