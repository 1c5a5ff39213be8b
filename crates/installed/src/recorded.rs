//! The answers of the applications behind a copy: each request goes to its application once, and is answered from
//! memory from then on. Only the copy may ask, so that nobody gets past its rules.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memchr::memmem;
use rustix::net::sockopt::socket_peercred;
use tlsdyno_base::{namespace, process_tree};
use tlsdyno_wire::http::{Body, RequestHead, Response, request_head};

/// How long an application may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of one answer, and of all that are kept.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const KEPT_BYTES_MAX: usize = 256 << 20;
/// What an answer takes beside its bytes and its request, about.
const BYTES_BESIDE: usize = 256;
const PARENTS_MAX: usize = 16;
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

/// Replays the answers of an application (`HOST:PORT`, or `unix:PATH`) at a socket that this process makes. It takes
/// requests without a body only (GET, HEAD), so that nothing is changed, and asks one after the other.
pub fn replay(application: &str, socket: &Path) -> io::Result<()> {
    static ALL: Mutex<BTreeMap<String, Arc<Recorded>>> = Mutex::new(BTreeMap::new());
    let recorded = locked(&ALL).entry(application.to_owned()).or_insert_with(|| Recorded::new(application)).clone();
    // One that is left over from the last start of this copy.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    // Whoever the copy's workers run as: their process is looked at.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().filter(|stream| recorded.is_of_copy(stream)) {
            let recorded = recorded.clone();
            std::thread::spawn(move || recorded.serve(stream));
        }
    });
    Ok(())
}

/// Room for so many bytes of answers, given back when it is dropped.
#[derive(Debug, Default)]
struct Room(usize);

impl Room {
    fn grow(&mut self, bytes: usize) -> io::Result<()> {
        self.0 += bytes;
        let all = KEPT_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.0 > ANSWER_BYTES_MAX || all > KEPT_BYTES_MAX {
            return Err(io::Error::other("no more than 64 MiB of an answer and 256 MiB of all are kept"));
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        KEPT_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Memory of all kept answers, bytes.
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Answer {
    bytes: Vec<u8>,
    persists: bool,
    _room: Room,
}

/// Where an answer is kept. Whoever asks first holds the lock until it is there.
type AnswerSlot = Arc<Mutex<Option<Arc<Answer>>>>;

struct Recorded {
    application: String,
    answers: Mutex<HashMap<Vec<u8>, AnswerSlot>>,
    /// Held while the application is asked.
    asking: Mutex<()>,
    /// Start times of the copies' processes, by process id.
    of_copies: Mutex<HashMap<u32, u64>>,
}

impl Recorded {
    fn new(application: &str) -> Arc<Recorded> {
        Arc::new(Recorded {
            application: application.to_owned(),
            answers: Mutex::default(),
            asking: Mutex::default(),
            of_copies: Mutex::default(),
        })
    }

    /// Whether a process that descends from this one is at the other end.
    fn is_of_copy(&self, stream: &UnixStream) -> bool {
        let Ok(peer) = socket_peercred(stream) else { return false };
        let mut process = process_tree::stat(peer.pid.as_raw_nonzero().get().unsigned_abs());
        let Some(asking) = process.clone() else { return false };
        if locked(&self.of_copies).get(&asking.pid) == Some(&asking.started_ticks) {
            return true;
        }
        for _ in 0..PARENTS_MAX {
            let Some(ancestor) = process else { return false };
            if ancestor.pid == std::process::id() {
                locked(&self.of_copies).insert(asking.pid, asking.started_ticks);
                return true;
            }
            process = process_tree::stat(ancestor.parent);
        }
        false
    }

    /// Answers until the client has enough, or what it sends is no request.
    fn serve(&self, mut stream: UnixStream) {
        let mut buffer = Vec::new();
        while let Ok(Some((answer, head_bytes))) = self.next(&mut stream, &mut buffer) {
            if stream.write_all(&answer.bytes).is_err() || !answer.persists {
                return;
            }
            buffer.drain(..head_bytes);
        }
    }

    /// The answer to the next request and the bytes that the request took of the buffer; `None` at the end.
    fn next(&self, stream: &mut UnixStream, buffer: &mut Vec<u8>) -> io::Result<Option<(Arc<Answer>, usize)>> {
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
            let why = "answers are replayed to GET and HEAD only: --ask-backend asks for anything else";
            return refusal("405 Method Not Allowed", why);
        }
        let mut key = [head.method, b" ", head.target].concat();
        for name in ASKED_BY {
            key.extend([b"\n", head.headers.get(name).unwrap_or_default()].concat());
        }
        let taken = key.len() + BYTES_BESIDE;
        let place = locked(&self.answers).entry(key).or_default().clone();
        let mut kept = locked(&place);
        if let Some(answer) = &*kept {
            return answer.clone();
        }
        let one_by_one = locked(&self.asking);
        let answer = self.ask(request, is_head, taken).map(Arc::new);
        drop(one_by_one);
        // What failed is kept, too: nobody is asked twice.
        let failed = |error| refusal("502 Bad Gateway", &format!("{}: {error}", self.application));
        kept.insert(answer.unwrap_or_else(failed)).clone()
    }

    /// Sends the application this request as it came. `taken`: bytes that its place takes.
    fn ask(&self, request: &[u8], is_head: bool, taken: usize) -> io::Result<Answer> {
        let mut room = Room::default();
        room.grow(taken)?;
        let mut stream = namespace::outside(|| connect(&self.application))??;
        stream.write_all(&self.addressed(request))?;
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
            room.grow(taken)?;
            bytes.extend_from_slice(&piece[..taken]);
        }
        let head = response.head().ok_or_else(|| io::Error::other("no answer"))?;
        Ok(Answer { bytes, persists: head.persists && !ended, _room: room })
    }

    /// The request with the application's own name where nginx has put that of the socket, or of its group.
    fn addressed(&self, request: &[u8]) -> Vec<u8> {
        const NAME: &[u8] = b"\r\nHost: ";
        let name = memmem::find(request, NAME).map(|at| at + NAME.len());
        let end = name.and_then(|at| Some(at + memmem::find(&request[at..], b"\r\n")?));
        let is_of_copy = |host: &[u8]| host == b"localhost" || host.starts_with(b"tlsdyno-application-");
        match (name, end) {
            (Some(at), Some(end)) if is_of_copy(&request[at..end]) && !self.application.starts_with("unix:") => {
                let host = self.application.strip_suffix(":80").unwrap_or(&self.application);
                [&request[..at], host.as_bytes(), &request[end..]].concat()
            }
            _ => request.to_vec(),
        }
    }
}

trait Stream: Read + Write + Send {}
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
    Arc::new(Answer { bytes: text.into_bytes(), persists: false, _room: Room::default() })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::path::PathBuf;
    use std::process::Command;

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
                let has = |word: &[u8]| memmem::find(&request[..read], word).is_some();
                let answer = match (has(b"HTTP/1.0"), has(b"/host")) {
                    (_, true) => {
                        String::from_utf8_lossy(&request[..read]).replacen("GET", "HTTP/1.0 200 OK\r\n\r\n", 1)
                    }
                    (true, _) => format!("HTTP/1.0 200 OK\r\n\r\n{number}"),
                    _ => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{number}\r\n0\r\n\r\n"),
                };
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    fn replayed(application: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        replay(application, &socket).unwrap();
        (directory, socket)
    }

    fn answer_to(socket: &Path, requests: &str) -> String {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(requests.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn each_request_reaches_the_application_once() {
        let application = application().to_string();
        let (_first, socket) = replayed(&application);
        let (_second, other) = replayed(&application);
        let old = "GET /a HTTP/1.0\r\nX-Request-Id: 1\r\n\r\n";
        assert_eq!(answer_to(&socket, old), "HTTP/1.0 200 OK\r\n\r\n0");
        assert_eq!(answer_to(&other, &old.replace("Id: 1", "Id: 2")), "HTTP/1.0 200 OK\r\n\r\n0");
        assert_eq!(answer_to(&socket, &old.replace("/a", "/b")), "HTTP/1.0 200 OK\r\n\r\n1");
        assert_eq!(answer_to(&socket, &old.replace("X-Request-Id", "Cookie")), "HTTP/1.0 200 OK\r\n\r\n2");
        // On one connection, which goes on.
        let new = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
        assert_eq!(answer_to(&socket, &new).matches("\r\n1\r\n3\r\n0\r\n").count(), 2);
        // nginx calls what is behind a socket localhost.
        let host = answer_to(&socket, "GET /host HTTP/1.0\r\nHost: localhost\r\n\r\n");
        assert!(host.contains(&format!("Host: {application}\r\n")), "{host}");
    }

    #[test]
    fn what_would_change_something_is_refused() {
        let (_directory, socket) = replayed("127.0.0.1:1");
        assert!(answer_to(&socket, "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(answer_to(&socket, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 502 "));
        assert!(answer_to(&socket, "\x16\x03\x01\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }

    /// The process that asks counts, whoever it runs as.
    #[test]
    fn a_process_that_is_no_part_of_the_copy_gets_no_answer() {
        let (_directory, socket) = replayed("127.0.0.1:1");
        // One whose parent has ended descends from this process no longer.
        let ask = "import os,socket,sys,time\nparent = os.getpid()\n\
                   if sys.argv[2] == 'orphan' and os.fork(): os._exit(0)\n\
                   while sys.argv[2] == 'orphan' and os.getppid() == parent: time.sleep(0)\n\
                   s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
                   try: s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); sys.stdout.write(s.recv(99).decode())\n\
                   except OSError: pass\n";
        let answered = |who: &str| {
            let said = Command::new("python3").args(["-c", ask]).arg(&socket).arg(who).output().unwrap();
            String::from_utf8_lossy(&said.stdout).starts_with("HTTP/1.1 502")
        };
        assert!(answered("child") && !answered("orphan"));
    }

    #[test]
    fn all_answers_together_have_one_bound() {
        let (mut room, before) = (Room::default(), KEPT_BYTES.load(Ordering::Relaxed));
        room.grow(ANSWER_BYTES_MAX).unwrap();
        assert!(room.grow(1).is_err());
        let mut others: Vec<Room> = Vec::new();
        let full = loop {
            others.push(Room::default());
            if others.last_mut().unwrap().grow(ANSWER_BYTES_MAX).is_err() {
                break others.len();
            }
        };
        assert!(full <= 4, "{full}");
        drop((room, others));
        assert!(KEPT_BYTES.load(Ordering::Relaxed) <= before + (1 << 20));
    }
}
