//! What the fuzz target of the built-in server runs: `fuzz_targets/http_request.rs` hands it libFuzzer's inputs,
//! `crates/engine/tests/fuzz_briefly.rs` seeds and mutated ones.

use std::fs;
use std::sync::OnceLock;

use tlsdyno_engine::serve::{Answer, Docroot};
use tlsdyno_wire::http::{
    Body, HEAD_BYTES_MAX, HttpFault, METHOD_BYTES_MAX, RequestHead, Response, TargetReader, request_head,
};

/// A connection's requests, the first byte saying in which pieces they come: however they are cut, they are the same
/// requests with the same answers, which keep within their object and are HTTP.
pub fn http_request(data: &[u8]) {
    let Some((&piece, bytes)) = data.split_first() else { return };
    assert_eq!(
        converse(bytes, 1 + usize::from(piece)),
        converse(bytes, bytes.len().max(1)),
        "however the bytes are cut"
    );
}

/// One request as it was understood and answered; the part of the object is that of the answer.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    method: Vec<u8>,
    target: Vec<u8>,
    persists: bool,
    headers: usize,
    answer_head: Vec<u8>,
    part: (u64, u64),
    body_bytes: u64,
}

/// What comes of the bytes of a connection, as the server takes them: a head when it is whole, then its body piece by
/// piece.
fn converse(bytes: &[u8], piece: usize) -> (Vec<Exchange>, Option<HttpFault>) {
    let (mut exchanges, mut body) = (Vec::new(), Body::Length(0));
    let (mut taken, mut scratch) = (0, Vec::new());
    for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
        loop {
            let rest = &bytes[taken..end];
            if !body.is_complete() {
                let exchange: &mut Exchange = exchanges.last_mut().expect("the body of a request");
                let advance = match body.advance(rest) {
                    Ok(advance) => advance,
                    Err(fault) => {
                        // How much came before the fault is not told.
                        exchange.body_bytes = 0;
                        return (exchanges, Some(fault));
                    }
                };
                assert!(advance.consumed <= rest.len() && advance.content <= advance.consumed as u64);
                taken += advance.consumed;
                exchange.body_bytes += advance.content;
                if !body.is_complete() {
                    break;
                }
                continue;
            }
            match request_head(rest) {
                Ok(Some(head)) => {
                    assert!(head.bytes <= rest.len());
                    target_alone(&head, &rest[..head.bytes]);
                    exchanges.push(exchange(&head, &mut scratch));
                    (taken, body) = (taken + head.bytes, head.body);
                }
                Ok(None) => break,
                Err(fault) => return (exchanges, Some(fault)),
            }
        }
    }
    (exchanges, None)
}

/// A dispatcher reads the target alone, and must see the one that the server sees.
fn target_alone(head: &RequestHead<'_>, bytes: &[u8]) {
    match TargetReader::new(HEAD_BYTES_MAX + 2).read(bytes) {
        Ok(target) => assert_eq!(target, Some(head.target)),
        // It is the stricter one: it wants a method that can be one.
        Err(_) => assert!(!head.method.iter().all(u8::is_ascii_alphanumeric) || head.method.len() > METHOD_BYTES_MAX),
    }
}

fn exchange(head: &RequestHead<'_>, scratch: &mut Vec<u8>) -> Exchange {
    let answer = Answer::to(head, docroot(), scratch);
    let bytes = answer.object.filter(|_| !answer.is_refusal()).map(|object| object.bytes);
    assert!(answer.first <= answer.end && bytes.is_none_or(|bytes| answer.end <= bytes), "within the object");
    let mut answer_head = Vec::new();
    answer.write_head(b"Thu, 01 Jan 1970 00:00:00 GMT", &mut answer_head);
    let mut response = Response::new(answer.head_only);
    assert_eq!(response.receive(&answer_head), Ok(answer_head.len()), "a client understands it");
    let understood = response.head().expect("it was whole");
    assert_eq!((understood.persists, understood.content_length), (head.persists, Some(answer.end - answer.first)));
    Exchange {
        method: head.method.to_vec(),
        target: head.target.to_vec(),
        persists: head.persists,
        headers: head.headers.iter().count(),
        answer_head,
        part: (answer.first, answer.end),
        body_bytes: 0,
    }
}

/// Objects whose paths have to be decoded, and an empty one.
fn docroot() -> &'static Docroot {
    static DOCROOT: OnceLock<Docroot> = OnceLock::new();
    DOCROOT.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, bytes) in [("index.html", 1000), ("a b", 10), ("empty", 0)] {
            let path = directory.path().join(name);
            fs::write(&path, vec![b'x'; bytes]).expect("a file");
            // The time is in the answer and in conditions of seeds.
            let file = fs::File::options().write(true).open(path).expect("a file");
            file.set_modified(std::time::UNIX_EPOCH).expect("a time");
        }
        Docroot::load(directory.path()).expect("small files are held in memory")
    })
}

/// Seeds for [`http_request`].
pub fn request_seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 6] = [
        b"\x06GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=2-5\r\n\r\n\
          HEAD /a%20b?q HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"\x02POST http://x/index.html HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n\
          5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\nGET /no HTTP/1.1\r\n\r\n",
        b"\x09\r\nGET /empty HTTP/1.1\nContent-Length: 3\nRange: bytes=-1\n\n\
          abcPUT /index.html HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"\x04GET /index.html HTTP/1.1\r\nIf-None-Match: W/\"0-3e8\", *\r\nIf-Range: \"0-3e8\"\r\n\r\n",
        b"\x10GET / HTTP/1.1\r\nIf-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\nRange: bytes=999999-\r\n\
          Connection: close\r\n\r\n",
        b"\x01OPTIONS * HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ];
    texts.map(<[u8]>::to_vec).to_vec()
}
