//! The answers of the applications behind a server: each request goes to its application once, and is answered from
//! memory from then on.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tlsdyno_wire::http::{Body, RequestHead, Response, request_head};

/// How long an application may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of one answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What an answer may depend on, beside method and target.
const ASKED_BY: [&str; 11] = [
    "Host",
    "Connection",
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Authorization",
    "Cookie",
    "If-Modified-Since",
    "If-None-Match",
    "Range",
    "X-Forwarded-Proto",
];

/// Where the answers of an application are replayed: a port of loopback that this process serves. `application`:
/// `HOST:PORT`, or `unix:PATH`. It takes requests without a body only (GET, HEAD), so that nothing is changed.
///
/// # Errors
/// No port can be had.
pub fn in_place_of(application: &str) -> io::Result<SocketAddr> {
    static PLACES: Mutex<BTreeMap<String, SocketAddr>> = Mutex::new(BTreeMap::new());
    let mut places = locked(&PLACES);
    if let Some(place) = places.get(application) {
        return Ok(*place);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let place = listener.local_addr()?;
    let recorded = Arc::new(Recorded { application: application.to_owned(), answers: Mutex::default() });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let recorded = recorded.clone();
            std::thread::spawn(move || recorded.serve(stream));
        }
    });
    places.insert(application.to_owned(), place);
    Ok(place)
}

/// An answer, byte for byte.
struct Answer {
    bytes: Vec<u8>,
    persists: bool,
}

/// Where an answer is kept. Whoever asks first holds the lock until it is there.
type Place = Arc<Mutex<Option<Arc<Answer>>>>;

struct Recorded {
    application: String,
    answers: Mutex<HashMap<Vec<u8>, Place>>,
}

impl Recorded {
    /// Answers until the client has enough, or what it sends is no request.
    fn serve(&self, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        let _ = stream.set_nodelay(true);
        while let Ok(Some((answer, head_bytes))) = self.next(&mut stream, &mut buffer) {
            if stream.write_all(&answer.bytes).is_err() || !answer.persists {
                return;
            }
            buffer.drain(..head_bytes);
        }
    }

    /// The answer to the next request and the bytes that the request took of the buffer; `None` at the end.
    fn next(&self, stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<(Arc<Answer>, usize)>> {
        loop {
            match request_head(buffer) {
                Ok(Some(head)) => return Ok(Some((self.answer(&head, &buffer[..head.bytes]), head.bytes))),
                Ok(None) => {}
                Err(fault) => return Ok(Some((refusal("400 Bad Request", &fault.to_string()), 0))),
            }
            let mut piece = [0; 16 << 10];
            match stream.read(&mut piece)? {
                0 => return Ok(None),
                bytes => buffer.extend_from_slice(&piece[..bytes]),
            }
        }
    }

    fn answer(&self, head: &RequestHead, request: &[u8]) -> Arc<Answer> {
        let is_head = head.method == b"HEAD";
        if !(is_head || head.method == b"GET") || head.body != Body::Length(0) {
            let why = "answers are replayed to GET and HEAD only: leave --replay-backend out to ask for anything else";
            return refusal("405 Method Not Allowed", why);
        }
        let mut key = [head.method, b" ", head.target].concat();
        for name in ASKED_BY {
            key.extend([b"\n", head.headers.get(name).unwrap_or_default()].concat());
        }
        let place = locked(&self.answers).entry(key).or_default().clone();
        let mut kept = locked(&place);
        if let Some(answer) = &*kept {
            return answer.clone();
        }
        match self.ask(request, is_head) {
            Ok((status, answer)) => {
                let answer = Arc::new(answer);
                // What failed may succeed the next time.
                *kept = (status < 500).then(|| answer.clone());
                answer
            }
            Err(error) => refusal("502 Bad Gateway", &format!("{}: {error}", self.application)),
        }
    }

    /// Sends the application this request as it came.
    fn ask(&self, request: &[u8], is_head: bool) -> io::Result<(u16, Answer)> {
        let mut stream = connect(&self.application)?;
        stream.write_all(request)?;
        let (mut response, mut bytes) = (Response::new(is_head), Vec::new());
        let fault = |fault| io::Error::other(format!("{fault}"));
        let mut piece = vec![0; 64 << 10];
        let mut ended = false;
        while !response.is_complete() {
            let read = stream.read(&mut piece)?;
            ended = read == 0;
            if ended {
                response.end_of_input().map_err(fault)?;
            }
            let taken = response.receive(&piece[..read]).map_err(fault)?;
            bytes.extend_from_slice(&piece[..taken]);
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(io::Error::other("an answer of more than 64 MB is not kept"));
            }
        }
        let head = response.head().ok_or_else(|| io::Error::other("no answer"))?;
        Ok((head.status, Answer { bytes, persists: head.persists && !ended }))
    }
}

trait Stream: Read + Write {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

fn connect(application: &str) -> io::Result<Box<dyn Stream>> {
    if let Some(path) = application.strip_prefix("unix:") {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        return Ok(Box::new(stream));
    }
    let mut last = io::Error::other("no such host");
    for address in application.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(Box::new(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn refusal(status: &str, why: &str) -> Arc<Answer> {
    let length = why.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}");
    Arc::new(Answer { bytes: text.into_bytes(), persists: false })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An application that counts: each answer says how many requests it has had.
    fn application() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let mut request = [0; 1000];
                let read = stream.read(&mut request).unwrap();
                let is_old = request[..read].windows(8).any(|word| word == b"HTTP/1.0");
                let answer = match is_old {
                    true => format!("HTTP/1.0 200 OK\r\n\r\n{number}"),
                    false => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{number}\r\n0\r\n\r\n"),
                };
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    fn said(place: SocketAddr, requests: &str) -> String {
        let mut stream = TcpStream::connect(place).unwrap();
        stream.write_all(requests.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn each_request_reaches_the_application_once() {
        let application = application().to_string();
        let place = in_place_of(&application).unwrap();
        assert_eq!(in_place_of(&application).unwrap(), place);
        let old = "GET /a HTTP/1.0\r\nX-Request-Id: 1\r\n\r\n";
        assert_eq!(said(place, old), "HTTP/1.0 200 OK\r\n\r\n0");
        assert_eq!(said(place, &old.replace("Id: 1", "Id: 2")), "HTTP/1.0 200 OK\r\n\r\n0");
        assert_eq!(said(place, &old.replace("/a", "/b")), "HTTP/1.0 200 OK\r\n\r\n1");
        assert_eq!(said(place, &old.replace("X-Request-Id", "Cookie")), "HTTP/1.0 200 OK\r\n\r\n2");
        // On one connection, which goes on.
        let new = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
        assert_eq!(said(place, &new).matches("\r\n1\r\n3\r\n0\r\n").count(), 2);
    }

    #[test]
    fn what_would_change_something_is_refused() {
        let place = in_place_of("127.0.0.1:1").unwrap();
        assert!(said(place, "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(said(place, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 502 "));
        assert!(said(place, "\x16\x03\x01\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }
}
