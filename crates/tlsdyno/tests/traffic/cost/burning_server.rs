//! An HTTPS server on rustls, in a process of its own with one thread, that uses so much CPU time more at points of a
//! connection: what is found there can be compared with the truth.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::TLS13;
use rustls::{
    ALL_VERSIONS, CipherSuite, NamedGroup, ServerConfig, ServerConnection, SignatureAlgorithm, SignatureScheme,
    SupportedProtocolVersion,
};

/// The variable that says what is burnt, in microseconds: hello, signature, finish, request, key agreement.
const BURNS: &str = "TLSDYNO_TEST_BURNS_US";
/// The variable by which it takes ChaCha20 alone, and each session once.
const CHOOSY: &str = "TLSDYNO_TEST_CHOOSY";
/// What such a one speaks.
const TLS13_ALONE: &[&SupportedProtocolVersion] = &[&TLS13];
/// What a line of the server's begins with that tells what it used so far: for each burn at its first four points, for
/// each request on a kept connection, burn and all, and for each key agreement.
const USED: &str = "used, in us: ";
/// Of each [`Point`] so far: how many, and their CPU time in nanoseconds.
static SPENT: [[AtomicU64; 2]; 6] = [const { [const { AtomicU64::new(0) }; 2] }; 6];
/// Rounds of the work that is burnt in a microsecond, by a look at the start.
static ROUNDS_PER_US: OnceLock<f64> = OnceLock::new();

/// Where CPU time is burnt, and a request on a kept connection with all that it takes.
#[derive(Clone, Copy, PartialEq)]
enum Point {
    Hello,
    Signature,
    Finish,
    Request,
    Next,
    Agreement,
}

/// One that runs; ended with the test.
pub struct BurningServer {
    pub address: String,
    child: Child,
    /// Held open: the test of the other process ends with an error where nobody reads.
    output: BufReader<ChildStdout>,
}

impl BurningServer {
    /// `burns`: microseconds when a hello was read, for a signature, when a handshake is over, and for a request.
    pub fn start(burns: [u32; 4]) -> BurningServer {
        BurningServer::start_with_agreement(burns, 0)
    }

    /// One that burns as much in each key agreement, too.
    pub fn start_with_agreement(burns: [u32; 4], agreement: u32) -> BurningServer {
        let [hello, signature, finish, request] = burns;
        let burns = [hello, signature, finish, request, agreement];
        BurningServer::of(burns, &mut Command::new(std::env::current_exe().unwrap()))
    }

    /// One that burns nothing, takes ChaCha20 alone, and each session once.
    pub fn choosy() -> BurningServer {
        BurningServer::of([0; 5], Command::new(std::env::current_exe().unwrap()).env(CHOOSY, "1"))
    }

    fn of(burns: [u32; 5], program: &mut Command) -> BurningServer {
        let burns = burns.map(|us| us.to_string()).join(",");
        let mut child = program
            .args(["--exact", "cost::burning_server::serves_until_it_is_ended", "--ignored", "--nocapture"])
            .env(BURNS, burns)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let lines = output.by_ref().lines().map_while(Result::ok);
        let address = lines.filter_map(|line| Some(line.split_once("listens at ")?.1.to_owned())).next();
        BurningServer { address: address.expect("the server says where it listens"), child, output }
    }

    /// Ends it; what it used by the clock of its own thread, in microseconds: for each burn at its four points, for
    /// each request on a kept connection, and for each burn in a key agreement.
    pub fn ended(mut self) -> [f64; 6] {
        self.child.kill().unwrap();
        let lines = self.output.by_ref().lines().map_while(Result::ok);
        let last = lines.filter_map(|line| serde_json::from_str(line.strip_prefix(USED)?).ok()).last();
        last.expect("the server tells what it used")
    }
}

impl Drop for BurningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server itself: this test binary is run once more for it.
#[test]
#[ignore = "a server for other tests"]
fn serves_until_it_is_ended() {
    let Ok(burns) = std::env::var(BURNS) else { return };
    let burns: Vec<u64> = burns.split(',').map(|us| us.parse().unwrap()).collect();
    let &[hello, signature, finish, request, agreement] = burns.as_slice() else { panic!("five numbers are wanted") };
    ROUNDS_PER_US.get_or_init(rounds_per_us);
    let config = config(hello, signature, agreement);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("listens at {}", listener.local_addr().unwrap());
    for stream in listener.incoming().flatten() {
        // A client that breaks off is none of its business.
        let _ = serve(stream, &config, finish, request);
    }
}

/// One more of [`SPENT`].
fn spend(point: Point, time: Duration) {
    let [count, ns] = &SPENT[point as usize];
    ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    let count = count.fetch_add(1, Ordering::Relaxed) + 1;
    if point == Point::Next && count.is_multiple_of(1024) {
        let mean = |[count, ns]: &[AtomicU64; 2]| {
            ns.load(Ordering::Relaxed) as f64 / 1e3 / count.load(Ordering::Relaxed).max(1) as f64
        };
        println!("{USED}{:?}", SPENT.each_ref().map(mean));
    }
}

fn serve(mut stream: TcpStream, config: &Arc<ServerConfig>, finish: u64, request: u64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
    while connection.is_handshaking() {
        if connection.complete_io(&mut stream)?.0 == 0 && connection.is_handshaking() {
            return Ok(());
        }
    }
    burn(Point::Finish, finish);
    let mut stream = rustls::Stream::new(&mut connection, &mut stream);
    let (mut asked, mut buffer, mut before) = (Vec::new(), [0; 4096], None);
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        asked.extend_from_slice(&buffer[..read]);
        if asked.ends_with(b"\r\n\r\n") {
            burn(Point::Request, request);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nobject")?;
            stream.flush()?;
            if asked.windows(17).any(|words| words == b"Connection: close") {
                stream.conn.send_close_notify();
                return stream.flush();
            }
            let now = used();
            before.replace(now).inspect(|before| spend(Point::Next, now - *before));
            asked.clear();
        }
    }
}

/// Does work of so many microseconds. It is work and no time, which a machine of changing pace makes dearer as it does
/// the code around it; what it took by the clock is told.
fn burn(point: Point, us: u64) {
    // Who burns nothing reads the clocks, too.
    let before = used();
    work((us as f64 * ROUNDS_PER_US.get().unwrap()) as u64);
    spend(point, used() - before);
}

fn rounds_per_us() -> f64 {
    const ROUNDS: u64 = 10_000_000;
    let before = used();
    work(ROUNDS);
    ROUNDS as f64 / ((used() - before).as_secs_f64() * 1e6)
}

fn work(rounds: u64) {
    let mut state = 1_u64;
    for _ in 0..rounds {
        state = std::hint::black_box(state).wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(7);
    }
    std::hint::black_box(state);
}

/// CPU time of this thread so far.
fn used() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn config(hello: u64, signature: u64, agreement: u64) -> Arc<ServerConfig> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let chain = vec![CertificateDer::from(params.self_signed(&key).unwrap().der().to_vec())];
    let key = aws_lc_rs::sign::any_ecdsa_type(&PrivateKeyDer::try_from(key.serialize_der()).unwrap()).unwrap();
    let key = Arc::new(BurningKey { key, us: signature });
    let resolver = Arc::new(BurningResolver { key: Arc::new(CertifiedKey::new(chain, key)), us: hello });
    let is_choosy = std::env::var(CHOOSY).is_ok();
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| !is_choosy || suite.suite() == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    let burning =
        |group| -> &'static dyn SupportedKxGroup { Box::leak(Box::new(BurningGroup { group, us: agreement })) };
    provider.kx_groups = provider.kx_groups.into_iter().map(burning).collect();
    let config = ServerConfig::builder_with_provider(Arc::new(provider));
    let config = config.with_protocol_versions(if is_choosy { TLS13_ALONE } else { ALL_VERSIONS }).unwrap();
    let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
    if !is_choosy {
        config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    }
    Arc::new(config)
}

#[derive(Debug)]
struct BurningResolver {
    key: Arc<CertifiedKey>,
    us: u64,
}

impl ResolvesServerCert for BurningResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        burn(Point::Hello, self.us);
        Some(Arc::clone(&self.key))
    }
}

#[derive(Debug)]
struct BurningKey {
    key: Arc<dyn SigningKey>,
    us: u64,
}

impl SigningKey for BurningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let signer = self.key.choose_scheme(offered)?;
        Some(Box::new(BurningSigner { signer, us: self.us }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

#[derive(Debug)]
struct BurningSigner {
    signer: Box<dyn Signer>,
    us: u64,
}

impl Signer for BurningSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        burn(Point::Signature, self.us);
        self.signer.sign(message)
    }

    fn scheme(&self) -> SignatureScheme {
        self.signer.scheme()
    }
}

#[derive(Debug)]
struct BurningGroup {
    group: &'static dyn SupportedKxGroup,
    us: u64,
}

impl SupportedKxGroup for BurningGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        burn(Point::Agreement, self.us);
        self.group.start()
    }

    fn start_and_complete(&self, theirs: &[u8]) -> Result<CompletedKeyExchange, rustls::Error> {
        burn(Point::Agreement, self.us);
        self.group.start_and_complete(theirs)
    }

    fn name(&self) -> NamedGroup {
        self.group.name()
    }
}
