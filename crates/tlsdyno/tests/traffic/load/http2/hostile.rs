//! Servers that choose HTTP/2 and then do not keep to it: each is refused in words, and no run goes on for ever.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::super::{json, load, stderr};
use crate::place::at_once;
use crate::stacks::rustls_server;

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

type Tls = StreamOwned<ServerConnection, TcpStream>;

/// A server that treats each connection so, once its handshake is complete.
fn serve(treat: impl Fn(&mut Tls) -> std::io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let mut config = ServerConfig::clone(&rustls_server::config(true, &[&rustls::version::TLS13]));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (config, treat) = (Arc::new(config), Arc::new(treat));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (config, treat) = (Arc::clone(&config), Arc::clone(&treat));
            thread::spawn(move || {
                stream.set_read_timeout(Some(Duration::from_secs(30)))?;
                let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                treat(&mut tls)?;
                tls.conn.send_close_notify();
                tls.flush()
            });
        }
    });
    address
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// Reads up to the next request's head; answers its stream.
fn next_request(tls: &mut Tls, begins: &mut bool) -> std::io::Result<u32> {
    if std::mem::take(begins) {
        let mut preface = [0; 24];
        tls.read_exact(&mut preface)?;
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }
    loop {
        let mut header = [0; 9];
        tls.read_exact(&mut header)?;
        let [a, b, c, kind, _, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        tls.read_exact(&mut payload)?;
        if kind == 1 {
            return Ok(u32::from_be_bytes(stream));
        }
    }
}

/// What a hostile server greets with, and what it answers to the request on a stream.
struct Hostile {
    case: &'static str,
    greeting: Vec<u8>,
    answer: fn(u32) -> Vec<u8>,
    flags: &'static [&'static str],
    words: &'static str,
}

fn greets(case: &'static str, greeting: Vec<u8>, words: &'static str) -> Hostile {
    Hostile { case, greeting, answer: |_| Vec::new(), flags: &[], words }
}

/// The same behind its settings.
fn after(case: &'static str, frame: Vec<u8>, words: &'static str) -> Hostile {
    greets(case, [SETTINGS, &frame].concat(), words)
}

fn answers(case: &'static str, answer: fn(u32) -> Vec<u8>, words: &'static str) -> Hostile {
    Hostile { case, greeting: SETTINGS.to_vec(), answer, flags: &[], words }
}

fn setting(number: u8, value: u32) -> Vec<u8> {
    frame(4, 0, 0, &[&[0, number][..], &value.to_be_bytes()].concat())
}

/// Far more of a frame than a client puts up with.
fn flood(one: Vec<u8>) -> Vec<u8> {
    [SETTINGS, &one.repeat(10_001)].concat()
}

fn greetings() -> Vec<Hostile> {
    vec![
        greets("speaks HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not begin with SETTINGS"),
        greets("pings first", frame(6, 0, 0, b"12345678"), "does not begin with SETTINGS"),
        greets("switches push on", setting(2, 1), "SETTINGS_ENABLE_PUSH has a forbidden value"),
        greets("allows no streams", setting(3, 0), "SETTINGS_MAX_CONCURRENT_STREAMS is 0"),
        greets("opens a window of 2^31", setting(4, 1 << 31), "SETTINGS_INITIAL_WINDOW_SIZE has a forbidden value"),
        greets("wants frames of one byte", setting(5, 1), "SETTINGS_MAX_FRAME_SIZE has a forbidden value"),
        greets("sends half a setting", [SETTINGS, &frame(4, 0, 0, b"123")].concat(), "longer or shorter"),
        greets("sends settings without end", flood(SETTINGS.to_vec()), "brought no response on"),
        greets("pings without end", flood(frame(6, 0, 0, b"12345678")), "brought no response on"),
        greets("sends what nobody knows", flood(frame(99, 0, 0, b"")), "brought no response on"),
        greets("sends a long frame", [SETTINGS, &frame(99, 0, 0, &[0; 16_385])].concat(), "longer or shorter"),
        greets(
            "is not calm",
            [SETTINGS, &frame(7, 0, 0, b"\0\0\0\0\0\0\0\x0b")].concat(),
            "GOAWAY with ENHANCE_YOUR_CALM",
        ),
        greets("begins with an answer", frame(1, 5, 1, b"\x88"), "does not begin with SETTINGS"),
        greets("wants frames of 16 MB", setting(5, 1 << 24), "SETTINGS_MAX_FRAME_SIZE has a forbidden value"),
        after("confirms settings at length", frame(4, 1, 0, b"123456"), "longer or shorter"),
        after("sets a stream", frame(4, 0, 1, b""), "of the wrong sort"),
        after("pings in seven bytes", frame(6, 0, 0, b"1234567"), "longer or shorter"),
        after("pings a stream", frame(6, 0, 1, b"12345678"), "of the wrong sort"),
        after("goes away from a stream", frame(7, 0, 1, &[0; 8]), "of the wrong sort"),
        after("goes away in four bytes", frame(7, 0, 0, &[0; 4]), "longer or shorter"),
        after("opens the window too far", frame(8, 0, 0, b"\x7f\xff\xff\xff"), "WINDOW_UPDATE has a forbidden value"),
        greets("goes away at once", [SETTINGS, &frame(7, 0, 0, &[0; 8])].concat(), "before"),
        Hostile {
            flags: &["-X", "POST", "--body", "10", "--timeout", "1s"],
            ..greets("keeps the window at 0", setting(4, 0), "does not answer requests in time")
        },
        Hostile {
            flags: &["--timeout", "1s"],
            ..greets("says nothing", SETTINGS.to_vec(), "does not answer requests in time")
        },
        Hostile {
            flags: &["--first-byte-timeout", "300ms"],
            ..greets("does not begin to answer", SETTINGS.to_vec(), "does not begin to answer in time")
        },
    ]
}

fn answers_in_frames() -> Vec<Hostile> {
    vec![
        answers("resets", |stream| frame(3, 0, stream, b"\0\0\0\x02"), "reset a stream with INTERNAL_ERROR"),
        answers("refuses", |stream| frame(3, 0, stream, b"\0\0\0\x07"), "refuses requests before it has served any"),
        answers("goes away each time", |_| frame(7, 0, 0, &[0; 8]), "before"),
        answers("pushes", |stream| frame(5, 4, stream, b"\0\0\0\x02\x88"), "pushes, which it was told not to do"),
        answers("answers what nobody asked for", |stream| frame(1, 5, stream + 1000, b"\x88"), "was not opened"),
        answers("answers on stream 0", |_| frame(0, 1, 0, b"x"), "was not opened"),
        answers("pads beyond its frame", |stream| frame(0, 8, stream, b"\x09abc"), "padding of a frame"),
        answers("resets stream 0", |_| frame(3, 0, 0, b"\0\0\0\x02"), "of the wrong sort"),
        answers("resets in three bytes", |stream| frame(3, 0, stream, b"\0\0\0"), "longer or shorter"),
        answers("has a priority of four bytes", |stream| frame(2, 0, stream, b"\0\0\0\0"), "longer or shorter"),
        answers("continues nothing", |stream| frame(9, 4, stream, b"\x88"), "CONTINUATION"),
        answers(
            "continues on another stream",
            |stream| [frame(1, 1, stream, b""), frame(9, 4, stream + 2, b"\x88")].concat(),
            "CONTINUATION",
        ),
        answers("ends with an interim response", |stream| frame(1, 5, stream, b"\x08\x03103"), "malformed"),
        answers(
            "has content that it may not have",
            |stream| [frame(1, 4, stream, b"\x89"), frame(0, 1, stream, b"x")].concat(),
            "malformed",
        ),
        answers(
            "is longer than it says",
            |stream| [frame(1, 4, stream, b"\x88\x5c\x011"), frame(0, 1, stream, b"xy")].concat(),
            "malformed",
        ),
        answers("opens no window", |_| frame(8, 0, 0, &[0; 4]), "WINDOW_UPDATE has a forbidden value"),
        answers("sends content before its head", |stream| frame(0, 1, stream, b"x"), "malformed"),
        answers("is shorter than it says", |stream| frame(1, 5, stream, b"\x88\x5c\x019"), "malformed"),
        answers("has a status of letters", |stream| frame(1, 5, stream, b"\x08\x03abc"), "malformed"),
        answers("switches protocols", |stream| frame(1, 5, stream, b"\x08\x03101"), "malformed"),
        answers("sends nothing but empty data", |stream| frame(0, 0, stream, b"").repeat(10_001), "malformed"),
        answers(
            "sends empty data behind its head",
            |stream| [frame(1, 4, stream, b"\x88"), frame(0, 0, stream, b"").repeat(10_001)].concat(),
            "brought no response on",
        ),
        answers(
            "has interim responses only",
            |stream| frame(1, 4, stream, b"\x08\x03103").repeat(10_001),
            "brought no response on",
        ),
    ]
}

fn answers_in_fields() -> Vec<Hostile> {
    vec![
        answers("names a wrong index", |stream| frame(1, 5, stream, b"\x88\xfe"), "names a field that no table has"),
        answers("names index 0", |stream| frame(1, 5, stream, b"\x80"), "names a field that no table has"),
        answers("breaks off a field", |stream| frame(1, 5, stream, b"\x88\x5c\x09"), "ends within a field"),
        answers("is no Huffman code", |stream| frame(1, 5, stream, b"\x48\x82\0\0"), "no Huffman code"),
        answers(
            "makes its table huge",
            |stream| frame(1, 5, stream, b"\x3f\xff\xff\xff\x07"),
            "makes the table larger",
        ),
        answers("has two statuses", |stream| frame(1, 5, stream, b"\x88\x88"), "malformed"),
        answers("has its status late", |stream| frame(1, 5, stream, b"\x5c\x010\x88"), "malformed"),
        answers("has two lengths", |stream| frame(1, 5, stream, b"\x88\x5c\x010\x5c\x011"), "malformed"),
        answers("shouts", |stream| frame(1, 5, stream, b"\x88\x00\x01X\x01y"), "malformed"),
        answers("changes its table late", |stream| frame(1, 5, stream, b"\x88\x20"), "too late"),
        answers("counts without end", |stream| frame(1, 5, stream, b"\xff\xff\xff\xff\xff\xff"), "too large"),
        answers(
            "continues without end",
            |stream| [frame(1, 0, stream, b"\x88"), frame(9, 0, stream, &[b'x'; 16_384]).repeat(5)].concat(),
            "longer than 65536 bytes",
        ),
        answers(
            "continues with nothing, without end",
            |stream| [frame(1, 0, stream, b"\x88"), frame(9, 0, stream, b"").repeat(10_001)].concat(),
            "brought no response on",
        ),
        answers("does not continue", |stream| [frame(1, 0, stream, b""), SETTINGS.to_vec()].concat(), "CONTINUATION"),
        answers(
            "has fields of a megabyte",
            |stream| {
                let large = [&b"\x88\x40\x01x\x7f\x81\x1e"[..], &[b'y'; 3968], &[0xbe; 300]].concat();
                frame(1, 5, stream, &large)
            },
            "larger than 262144 bytes",
        ),
    ]
}

#[test]
fn each_is_refused_in_words() {
    let all = greetings().into_iter().chain(answers_in_frames()).chain(answers_in_fields());
    at_once(all, |Hostile { case, greeting, answer, flags, words }| {
        let address = serve(move |tls| {
            // The client may be gone before all is said.
            tls.write_all(&greeting)?;
            tls.flush()?;
            let mut begins = true;
            loop {
                let stream = next_request(tls, &mut begins)?;
                tls.write_all(&answer(stream))?;
                tls.flush()?;
            }
        });
        let url = format!("https://{address}/");
        let output = load(&[&[url.as_str(), "-k", "--http2", "--streams", "3", "-n", "6", "-c", "2"], flags].concat());
        let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(4), "a server that {case}: {told}");
        assert!(told.contains(words), "a server that {case} is not told `{words}`: {told}");
    });
}

/// A client that has taken leave waits once for the server to close, and not each time.
#[test]
fn a_server_that_closes_no_connection_is_not_waited_for_again() {
    let address = serve(move |tls| {
        tls.write_all(SETTINGS)?;
        let mut begins = true;
        loop {
            let Ok(stream) = next_request(tls, &mut begins) else {
                // Until the client closes.
                return tls.sock.read_to_end(&mut Vec::new()).map(drop);
            };
            tls.write_all(&[frame(1, 4, stream, b"\x88"), frame(0, 1, stream, b"hello")].concat())?;
            tls.flush()?;
        }
    });
    let url = format!("https://{address}/");
    let output = load(&[&url, "-k", "--http2", "--close", "-n", "300", "-c", "1", "--json"]);
    let measured = json(&output);
    assert_eq!((&measured["hits"], &measured["connections"]), (&300.into(), &300.into()), "{measured}");
    assert!(measured["elapsed_ns"].as_u64().unwrap() < 150_000_000_000, "{measured}");
}

/// Wherever the connection is cut, within frames too: a request is answered or fails, once.
#[test]
fn a_server_that_breaks_off_anywhere_loses_what_it_did_not_answer() {
    let answered = Arc::new(AtomicU64::new(0));
    let (counted, connections) = (Arc::clone(&answered), AtomicU64::new(0));
    let address = serve(move |tls| {
        tls.write_all(SETTINGS)?;
        let cut = connections.fetch_add(1, Ordering::Relaxed) as usize % 60;
        let mut begins = true;
        let mut said = Vec::new();
        while said.len() < cut {
            let stream = next_request(tls, &mut begins)?;
            said = frame(1, 4, stream, b"\x88");
            said.extend(frame(0, 1, stream, b"hello"));
            tls.write_all(&said[..said.len().min(cut)])?;
            tls.flush()?;
            if said.len() <= cut {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            said.resize(60, 0);
        }
        Ok(())
    });
    let url = format!("https://{address}/");
    let output = load(&[&url, "-k", "--http2", "--streams", "4", "-n", "400", "-c", "2", "--json"]);
    let measured = json(&output);
    let failed: u64 = measured["errors"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(measured["hits"].as_u64().unwrap() + failed, 400, "{measured}");
    assert_eq!(measured["hits"], answered.load(Ordering::Relaxed), "{measured}");
}

/// A server that serves from one to six requests of a connection and goes away at any point of them: all are served,
/// each once.
#[test]
fn nothing_is_lost_where_a_server_goes_away_at_any_point() {
    let answered = Arc::new(AtomicU64::new(0));
    let (counted, connections) = (Arc::clone(&answered), AtomicU64::new(0));
    let address = serve(move |tls| {
        tls.write_all(SETTINGS)?;
        let number = connections.fetch_add(1, Ordering::Relaxed);
        let (serves, says_before) = (1 + number % 6, number / 6 % 2 == 0);
        let mut begins = true;
        for at in 1..=serves {
            let stream = next_request(tls, &mut begins)?;
            let goaway = frame(7, 0, 0, &[&stream.to_be_bytes()[..], &[0; 4]].concat());
            let answer = [frame(1, 4, stream, b"\x88"), frame(0, 1, stream, b"hello")].concat();
            let is_last = at == serves;
            let words = match (is_last, says_before) {
                (false, _) => answer,
                (true, true) => [goaway, answer].concat(),
                (true, false) => [answer, goaway].concat(),
            };
            counted.fetch_add(1, Ordering::Relaxed);
            tls.write_all(&words)?;
            tls.flush()?;
        }
        Ok(())
    });
    let url = format!("https://{address}/");
    for streams in ["1", "5"] {
        let output = load(&[&url, "-k", "--http2", "--streams", streams, "-n", "500", "-c", "3", "--json"]);
        let measured = json(&output);
        assert_eq!(output.status.code(), Some(0), "{} {measured}", stderr(&output));
        assert_eq!((&measured["hits"], measured["errors"].to_string()), (&500.into(), "{}".to_owned()));
        assert_eq!(answered.swap(0, Ordering::Relaxed), 500, "as many as the server served");
    }
}
