//! The server as its clients see it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVerifyMode, SslVersion};
use proptest::prelude::*;
use tempfile::TempDir;
use tlsdyno_tls::{Group, Suite, Version};

use super::connection::{Connection, Shared, Wish};
use super::limits::{MEMORY_FILE_BYTES_MAX, REQUEST_HEAD_BYTES_MAX};
use super::socket::Socket;
use super::transport::Transport;
use super::{Docroot, Listener, Settings, Stamp, TlsSettings, Transaction, bind, run};

mod origin;

/// A docroot with an object of each kind, and the settings of a server for it.
struct TestDocroot {
    directory: TempDir,
    docroot: Arc<Docroot>,
}

const SMALL: &str = "0123456789";

fn medium() -> Vec<u8> {
    (0..100_000u32).flat_map(u32::to_le_bytes).collect()
}

impl TestDocroot {
    fn new() -> TestDocroot {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("docroot");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("small"), SMALL).unwrap();
        fs::write(root.join("medium"), medium()).unwrap();
        fs::write(root.join("empty"), "").unwrap();
        let big: Vec<u8> = medium().into_iter().cycle().take(MEMORY_FILE_BYTES_MAX as usize + 12_345).collect();
        fs::write(root.join("big"), big).unwrap();
        let docroot = Arc::new(Docroot::load(&root).unwrap());
        TestDocroot { directory, docroot }
    }

    fn tls(&self) -> TlsSettings {
        let (certificate, key) = (self.directory.path().join("chain.pem"), self.directory.path().join("key.pem"));
        if !key.exists() {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&certificate, made.cert.pem()).unwrap();
            fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        }
        TlsSettings {
            certificate,
            key,
            versions: Vec::new(),
            suites: Vec::new(),
            groups: Vec::new(),
            tickets: true,
            session_cache: true,
            session_timeout_s: None,
            encrypt_then_mac: true,
            early_data: false,
        }
    }

    fn serve(&self, tls: Option<&TlsSettings>) -> Running {
        self.serve_with(tls, Settings::default())
    }

    fn serve_with(&self, tls: Option<&TlsSettings>, settings: Settings) -> Running {
        self.serve_at("127.0.0.1:0".parse().unwrap(), tls, settings)
    }

    fn serve_at(&self, address: SocketAddr, tls: Option<&TlsSettings>, settings: Settings) -> Running {
        let socket = bind(address, false).unwrap();
        let address = socket.local_addr().unwrap();
        let listeners = vec![Listener { socket, tls: tls.map(|settings| settings.context().unwrap()) }];
        let (stop, stopped) = UnixStream::pair().unwrap();
        let docroot = self.docroot.clone();
        let log = self.directory.path().join(format!("sessions-{}.log", address.port()));
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let settings = Settings { session_log: Some(file), ..settings };
        let thread = std::thread::spawn(move || run(&listeners, &docroot, settings, stopped).unwrap());
        Running { address, log, stop: Some(stop), thread: Some(thread) }
    }
}

struct Running {
    address: SocketAddr,
    log: PathBuf,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Vec<Stamp>>>,
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    }

    fn end(mut self) -> Vec<Stamp> {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let result = self.thread.take().map(JoinHandle::join);
        if let Some(result) = result
            && !std::thread::panicking()
        {
            result.unwrap();
        }
    }
}

/// Status, head and body of the next answer; `head_only` as the request was.
fn answer(stream: &mut impl Read, head_only: bool) -> (u16, String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed after {:?}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length: usize = header(&head, "Content-Length").unwrap().parse().unwrap();
    let mut body = vec![0; if head_only || status == 304 { 0 } else { length }];
    stream.read_exact(&mut body).unwrap();
    (status, head, body)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn ask(stream: &mut (impl Read + Write), request: &str) -> (u16, String, Vec<u8>) {
    stream.write_all(format!("{request}\r\n\r\n").as_bytes()).unwrap();
    answer(stream, request.starts_with("HEAD"))
}

fn is_closed(stream: &mut impl Read) -> bool {
    stream.read(&mut [0]).map_or(true, |read| read == 0)
}

/// Everything a client may ask, on one connection that stays open.
fn converse(stream: &mut (impl Read + Write)) {
    let (status, head, body) = ask(stream, "GET /small HTTP/1.1\r\nHost: x");
    assert_eq!((status, body.as_slice()), (200, SMALL.as_bytes()), "{head}");
    let (etag, modified) =
        (header(&head, "ETag").unwrap().to_owned(), header(&head, "Last-Modified").unwrap().to_owned());
    assert_eq!(ask(stream, "GET /medium?x=1 HTTP/1.1").2, medium());
    assert_eq!(ask(stream, "GET /empty HTTP/1.1").2, b"");
    let big = ask(stream, "GET /big HTTP/1.1").2;
    assert_eq!(big.len() as u64, MEMORY_FILE_BYTES_MAX + 12_345);
    assert_eq!(big[400_000..800_000], medium()[..]);

    let (status, head, _) = ask(stream, "HEAD /small HTTP/1.1");
    assert_eq!((status, header(&head, "Content-Length")), (200, Some("10")));
    assert_eq!(ask(stream, "GET /none HTTP/1.1").0, 404);
    assert_eq!(ask(stream, "HEAD /none HTTP/1.1").0, 404);
    assert_eq!(ask(stream, "DELETE /small HTTP/1.1").0, 405);

    assert_eq!(ask(stream, &format!("GET /small HTTP/1.1\r\nIf-Modified-Since: {modified}")).0, 304);
    assert_eq!(ask(stream, "GET /small HTTP/1.1\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT").0, 200);
    assert_eq!(ask(stream, &format!("GET /small HTTP/1.1\r\nIf-None-Match: \"x\", {etag}")).0, 304);
    // If-None-Match decides alone where both are given.
    assert_eq!(
        ask(stream, &format!("GET /small HTTP/1.1\r\nIf-None-Match: \"x\"\r\nIf-Modified-Since: {modified}")).0,
        200
    );

    let (status, head, body) = ask(stream, "GET /small HTTP/1.1\r\nRange: bytes=2-4");
    assert_eq!(
        (status, body.as_slice(), header(&head, "Content-Range")),
        (206, b"234".as_slice(), Some("bytes 2-4/10"))
    );
    let (status, head, _) = ask(stream, "GET /small HTTP/1.1\r\nRange: bytes=10-");
    assert_eq!((status, header(&head, "Content-Range")), (416, Some("bytes */10")));
    assert_eq!(ask(stream, "GET /small HTTP/1.1\r\nRange: bytes=0-1,3-4").0, 200);
    assert_eq!(ask(stream, "GET /small HTTP/1.1\r\nRange: bytes=2-4\r\nIf-Range: \"x\"").0, 200);
    let (status, _, body) = ask(stream, "GET /big HTTP/1.1\r\nRange: bytes=100000-499999");
    assert_eq!((status, body.len()), (206, 400_000));
    assert_eq!(body[300_000..], medium()[..100_000]);

    stream.write_all(b"POST /small HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde").unwrap();
    assert_eq!(answer(stream, false).2, SMALL.as_bytes());
    stream.write_all(b"POST /small HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").unwrap();
    assert_eq!(answer(stream, false).0, 200);
    stream.write_all(b"POST /small HTTP/1.1\r\nContent-Length: 40000\r\nExpect: 100-continue\r\n\r\n").unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&[b'x'; 40_000]).unwrap();
    assert_eq!(answer(stream, false).0, 200);

    // Three requests at once, the last of them in two pieces.
    stream.write_all(b"GET /small HTTP/1.1\r\n\r\n\r\nHEAD /medium HTTP/1.1\r\n\r\nGET /sm").unwrap();
    assert_eq!(answer(stream, false).0, 200);
    assert_eq!(header(&answer(stream, true).1, "Content-Length"), Some("400000"));
    stream.write_all(b"all HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(answer(stream, false).2, SMALL.as_bytes());

    let (status, head, _) = ask(stream, "GET /small HTTP/1.1\r\nConnection: close");
    assert_eq!((status, header(&head, "Connection")), (200, Some("close")));
    assert!(is_closed(stream));
}

#[test]
fn plain_clients_are_served() {
    let site = TestDocroot::new();
    let server = site.serve(None);
    converse(&mut server.connect());
    assert!(server.log().starts_with("- - - 1\n- - - 2\n"));
    let mut old = server.connect();
    assert_eq!(ask(&mut old, "GET /small HTTP/1.0").0, 200);
    assert!(is_closed(&mut old));
}

#[test]
fn nonsense_is_refused_and_the_server_lives_on() {
    let site = TestDocroot::new();
    let server = site.serve(None);
    for nonsense in [
        "\x16\x03\x01\x02\0".to_owned() + &"x".repeat(600) + "\n\n",
        "GET /small\r\n\r\n".to_owned(),
        "GET /small HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_owned(),
        "GET /small HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
        "POST /small HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n".to_owned(),
    ] {
        let mut stream = server.connect();
        stream.write_all(nonsense.as_bytes()).unwrap();
        assert_eq!(answer(&mut stream, false).0, 400, "{nonsense:?}");
        assert!(is_closed(&mut stream));
    }
    // A head without end is refused when it is too long, though the client goes on sending.
    let mut stream = server.connect();
    let endless = format!("GET /small HTTP/1.1\r\n{}", "X-Filler: 0123456789\r\n".repeat(REQUEST_HEAD_BYTES_MAX / 16));
    stream.write_all(endless.as_bytes()).unwrap();
    assert_eq!(answer(&mut stream, false).0, 431);
    drop(server.connect());
    assert_eq!(ask(&mut server.connect(), "GET /small HTTP/1.1").0, 200);
}

fn connect_openssl(
    server: &Running,
    version: SslVersion,
) -> Result<SslStream<TcpStream>, openssl::ssl::HandshakeError<TcpStream>> {
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    context.set_min_proto_version(Some(version)).unwrap();
    context.set_max_proto_version(Some(version)).unwrap();
    Ssl::new(&context.build()).unwrap().connect(server.connect())
}

/// Randomness for handshakes that protect nothing.
struct Counter(u8);

impl tlsdyno_tls::Entropy for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

#[derive(Default)]
struct Received {
    answer: Vec<u8>,
    sessions: Vec<tlsdyno_tls::Session>,
}

impl tlsdyno_tls::Receiver for Received {
    fn plaintext(&mut self, bytes: &[u8]) {
        self.answer.extend_from_slice(bytes);
    }

    fn session(&mut self, session: tlsdyno_tls::Session) {
        self.sessions.push(session);
    }
}

/// Fetches `/small` with the lean client; answers whether the server resumed, and the newest session.
fn fetch_lean(
    server: &Running,
    version: Version,
    session: Option<tlsdyno_tls::Session>,
) -> (bool, Option<tlsdyno_tls::Session>) {
    let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let settings = tlsdyno_tls::Settings {
        versions: vec![version],
        effort: tlsdyno_tls::Effort::Lean,
        now_unix_s: now_ms / 1000,
        ..Default::default()
    };
    let config = Arc::new(tlsdyno_tls::Config::new(settings).unwrap());
    let mut stream = server.connect();
    let (mut out, mut received, mut asked) = (Vec::new(), Received::default(), false);
    let mut client = tlsdyno_tls::Client::new(&config, session, &mut Counter(0), now_ms, &mut out);
    let mut buffer = vec![0; 1 << 15];
    while !client.peer_closed() {
        stream.write_all(&out).unwrap();
        out.clear();
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "closed without goodbye");
        client.receive(&mut buffer[..read], now_ms, &mut Counter(9), &mut out, &mut received).unwrap();
        if client.is_connected() && !std::mem::replace(&mut asked, true) {
            client.send(b"GET /small HTTP/1.1\r\nConnection: close\r\n\r\n", &mut out).unwrap();
        }
    }
    assert!(received.answer.ends_with(SMALL.as_bytes()));
    (client.handshake().unwrap().resumed.is_some(), received.sessions.pop())
}

#[test]
fn tls_clients_are_served() {
    let site = TestDocroot::new();
    let server = site.serve(Some(&site.tls()));
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        converse(&mut connect_openssl(&server, version).unwrap());
    }
    // Plain HTTP on a TLS port is no reason to fall.
    let mut stream = server.connect();
    stream.write_all(b"GET /small HTTP/1.1\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"));
}

#[test]
fn sessions_resume_as_the_settings_say() {
    let site = TestDocroot::new();
    for (tickets, session_cache, resumes) in
        [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
    {
        let server = site.serve(Some(&TlsSettings { tickets, session_cache, ..site.tls() }));
        for (version, name) in [(Version::Tls12, "TLSv1.2"), (Version::Tls13, "TLSv1.3")] {
            let (resumed, session) = fetch_lean(&server, version, None);
            assert!(!resumed);
            let (resumed, _) = fetch_lean(&server, version, session);
            assert_eq!(resumed, resumes, "tickets {tickets}, cache {session_cache}, {name}");
            let mark = if resumes { "r" } else { "." };
            let log = server.log();
            let last = log.lines().last().unwrap();
            assert!(last.starts_with(&format!("{mark} {name} ")) && last.ends_with(" 1"), "{last}");
        }
    }
}

#[test]
fn suites_groups_and_versions_are_those_asked_for() {
    let site = TestDocroot::new();
    let settings = TlsSettings {
        versions: vec![Version::Tls12],
        suites: vec![Suite::EcdheEcdsaAes128Sha],
        groups: vec![Group::P384],
        ..site.tls()
    };
    let server = site.serve(Some(&settings));
    let stream = connect_openssl(&server, SslVersion::TLS1_2).unwrap();
    assert_eq!(stream.ssl().current_cipher().unwrap().name(), "ECDHE-ECDSA-AES128-SHA");
    assert!(connect_openssl(&server, SslVersion::TLS1_3).is_err());

    let mut wrong = site.tls();
    wrong.key = wrong.certificate.clone();
    let error = wrong.context().unwrap_err().to_string();
    assert!(error.contains("the key") && error.contains("chain.pem"), "{error}");
}

#[test]
fn a_slow_reader_gets_everything_and_holds_up_nobody() {
    let site = TestDocroot::new();
    let server = site.serve(Some(&site.tls()));
    let connect = || connect_openssl(&server, SslVersion::TLS1_3).unwrap();
    let mut slow = connect();
    // More than all buffers between the two hold.
    for _ in 0..20 {
        slow.write_all(b"GET /big HTTP/1.1\r\n\r\n").unwrap();
    }
    assert_eq!(ask(&mut connect(), "GET /small HTTP/1.1").0, 200);
    for _ in 0..20 {
        assert_eq!(answer(&mut slow, false).2.len() as u64, MEMORY_FILE_BYTES_MAX + 12_345);
    }
}

#[test]
fn pages_of_a_stated_cost_are_built_one_after_the_other_and_stamped() {
    const WAIT: Duration = Duration::from_millis(40);
    let site = TestDocroot::new();
    let transaction = Transaction { cpu_ns: 0, wait_ns: WAIT.as_nanos() as u64, stamps: true };
    let server = site.serve_with(None, Settings { transaction: Some(transaction), ..Settings::default() });
    let mut streams = [server.connect(), server.connect(), server.connect()];
    let begun = std::time::Instant::now();
    // The first asks for two at once; the last asks for nothing that there is, and need not wait.
    streams[0].write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\nGET /small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    streams[1].write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    streams[2].write_all(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(answer(&mut streams[2], false).0, 404);
    assert_eq!(answer(&mut streams[0], false).2, SMALL.as_bytes());
    assert!(begun.elapsed() >= WAIT, "{:?}", begun.elapsed());
    assert_eq!(answer(&mut streams[1], false).0, 200);
    assert_eq!(answer(&mut streams[0], false).0, 200);
    assert!(begun.elapsed() >= 3 * WAIT, "{:?}", begun.elapsed());
    // Whoever leaves while a page is built takes nobody else with it.
    streams[1].write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    drop(streams);
    let mut last = server.connect();
    last.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(answer(&mut last, false).0, 200);
    let stamps = server.end();
    assert!((4..=5).contains(&stamps.len()), "{stamps:?}");
    for stamp in &stamps {
        assert!(stamp.asked_ns <= stamp.begun_ns && stamp.done_ns - stamp.begun_ns >= transaction.wait_ns, "{stamp:?}");
    }
    assert!(stamps.windows(2).all(|pair| pair[0].done_ns <= pair[1].begun_ns), "{stamps:?}");
}

/// A connection with its far end, driven by hand.
fn pair<'d>() -> (TcpStream, Connection<'d>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nodelay(true).unwrap();
    (far, Connection::new(Transport::new(Socket::new(near), None).unwrap(), 0))
}

/// What the server answers to `input`, sent in pieces cut at `cuts`.
fn conversation(docroot: &Docroot, input: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut shared = Shared::new(docroot, Settings::default());
    let (mut far, mut connection) = pair();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    cuts.extend([0, input.len()]);
    cuts.sort_unstable();
    let mut open = true;
    for piece in cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]) {
        if open && !piece.is_empty() {
            // A refusing server may have closed meanwhile.
            let _ = far.write_all(piece);
            connection.transport.socket_mut().note_readable(false);
            open = finish(&mut connection, &mut shared);
        }
    }
    far.shutdown(std::net::Shutdown::Write).unwrap();
    if open {
        connection.transport.socket_mut().note_readable(true);
        assert!(!finish(&mut connection, &mut shared), "the end of input ends the connection");
    }
    drop(connection);
    let mut output = Vec::new();
    // A reset after the answers is what a client that sends nonsense gets.
    let _ = far.read_to_end(&mut output);
    output
}

/// Gives turns until the connection waits (true) or wants to be closed (false).
fn finish<'d>(connection: &mut Connection<'d>, shared: &mut Shared<'d>) -> bool {
    loop {
        match connection.drive(shared) {
            Wish::Wait { .. } | Wish::Page { .. } => return true,
            Wish::Again => {}
            Wish::Close => return false,
        }
    }
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("GET /small HTTP/1.1\r\n"),
        Just("HEAD /medium HTTP/1.1\r\n"),
        Just("GET /nowhere%20 HTTP/1.1\r\n"),
        Just("\r\nPUT * HTTP/1.1\r\n"),
        Just("GET /empty HTTP/1.1\r\nConnection: keep-alive\r\n"),
    ];
    let rest = prop_oneof![
        Just("\r\n"),
        Just("Host: x\r\nRange: bytes=3-\r\n\r\n"),
        Just("Content-Length: 3\r\n\r\nabc"),
        Just("Transfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n0\r\nTrailer: y\r\n\r\n"),
    ];
    (line, rest).prop_map(|(line, rest)| format!("{line}{rest}").into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_do_not_depend_on_cuts(
        requests in prop::collection::vec(request(), 1..6),
        cuts in prop::collection::vec(0usize..1000, 0..12),
    ) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("small"), SMALL).unwrap();
        fs::write(root.path().join("medium"), medium()).unwrap();
        fs::write(root.path().join("empty"), "").unwrap();
        let docroot = Docroot::load(root.path()).unwrap();
        let input = requests.concat();
        let whole = conversation(&docroot, &input, &[]);
        let answers = String::from_utf8_lossy(&whole).matches("HTTP/1.1 ").count();
        prop_assert_eq!(answers, requests.len());
        prop_assert_eq!(conversation(&docroot, &input, &cuts), whole);
    }

    #[test]
    fn garbage_never_panics_and_always_ends(
        mut input in prop::collection::vec(any::<u8>(), 0..400),
        good in request(),
        cuts in prop::collection::vec(0usize..1000, 0..4),
        at in 0usize..1000,
    ) {
        let docroot = Docroot::default();
        let at = at % (input.len() + 1);
        input.splice(at..at, good);
        conversation(&docroot, &input, &cuts);
    }
}
