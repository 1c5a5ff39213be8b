//! Servers that send byte by byte and never come to an end: a run ends in time all the same.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::{load, stderr};

/// Between two bytes: far less than the time-out, for it is progress.
const PAUSE: Duration = Duration::from_millis(50);
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: slow\r\nContent-Length: 1000000\r\n\r\n";
const CONNECTIONS: usize = 4;

/// Where a server begins to trickle.
#[derive(Clone, Copy, Debug)]
enum Begins {
    /// Behind so many bytes of the handshake's.
    InHandshake(usize),
    /// Behind so many bytes of the answer.
    InAnswer(usize),
}

/// A stream that lets so many bytes out at once, and the others one by one.
struct Trickle {
    stream: TcpStream,
    free: usize,
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.free == 0 {
            thread::sleep(PAUSE);
        }
        let count = bytes.len().min(self.free.max(1));
        self.free = self.free.saturating_sub(count);
        self.stream.write(&bytes[..count])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

fn credentials() -> Arc<ServerConfig> {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(config.with_single_cert(chain, key).unwrap())
}

/// Serves until the process ends. Of each connection so many requests are answered at once, before it begins to
/// trickle.
fn serve(tls: Option<Arc<ServerConfig>>, begins: Begins, served: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_nodelay(true).unwrap();
            let free = if let Begins::InHandshake(free) = begins { free } else { usize::MAX };
            let (tls, stream) = (tls.clone(), Trickle { stream, free });
            // The client ends the connection: no error of interest.
            thread::spawn(move || match tls {
                Some(config) => {
                    let connection = ServerConnection::new(config).unwrap();
                    answer(StreamOwned::new(connection, stream), begins, served)
                }
                None => answer(stream, begins, served),
            });
        }
    });
    address
}

/// Over TLS, each byte that trickles is a record of its own: there is progress in the answer, too.
fn answer(mut stream: impl Read + Write, begins: Begins, served: usize) -> io::Result<()> {
    for _ in 0..served {
        read_head(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")?;
        stream.flush()?;
    }
    read_head(&mut stream)?;
    let at_once = if let Begins::InAnswer(bytes) = begins { bytes } else { 0 };
    let all = HEAD.iter().copied().chain(std::iter::repeat_n(b'x', 1_000_000)).collect::<Vec<u8>>();
    stream.write_all(&all[..at_once])?;
    for byte in &all[at_once..] {
        stream.flush()?;
        thread::sleep(PAUSE);
        stream.write_all(&[*byte])?;
    }
    Ok(())
}

fn read_head(stream: &mut impl Read) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(())
}

/// Loads it for a second and answers exit code, result and what was said.
fn measure(scheme: &str, address: SocketAddr) -> (Option<i32>, Value, String) {
    let url = format!("{scheme}://{address}/");
    let connections = CONNECTIONS.to_string();
    let began = Instant::now();
    let output = load(&[&url, "-k", "-d", "1s", "--timeout", "2s", "--connections", &connections, "--json"]);
    // It would go on for 14 hours.
    assert!(began.elapsed() < Duration::from_secs(60), "it took {:?}", began.elapsed());
    let measured = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (output.status.code(), measured, stderr(&output))
}

#[test]
fn a_server_that_trickles_does_not_hold_a_run_up() {
    let config = credentials();
    // Wherever it begins: before and in the first record, in the certificate, in the status line, a header, the body.
    let handshakes = [0, 3, 80, 130, 400].map(|free| (true, Begins::InHandshake(free)));
    let answers = [0, 7, 25, HEAD.len() - 1, HEAD.len(), HEAD.len() + 70_000].map(Begins::InAnswer);
    let cases = handshakes.into_iter().chain(answers.map(|begins| (true, begins)));
    let cases = cases.chain(answers.map(|begins| (false, begins)));
    thread::scope(|scope| {
        for (tls, begins) in cases {
            let address = serve(tls.then(|| Arc::clone(&config)), begins, 0);
            scope.spawn(move || {
                let (code, measured, said) = measure(if tls { "https" } else { "http" }, address);
                assert_eq!(measured["errors"], json!({"cut": CONNECTIONS}), "{begins:?}: {measured}");
                assert_eq!((code, &measured["hits"]), (Some(4), &json!(0)), "{begins:?}: {said}");
                assert!(said.contains("had not completed its answers"), "{begins:?}: {said}");
                assert_eq!(measured["elapsed_ns"], 1_000_000_000, "the grace is no part of it: {measured}");
                let handshakes = if tls && matches!(begins, Begins::InAnswer(_)) { CONNECTIONS } else { 0 };
                assert_eq!(measured["handshakes"]["full"], handshakes, "{begins:?}: {measured}");
            });
        }
    });
}

#[test]
fn what_was_complete_before_the_trickle_counts() {
    for tls in [None, Some(credentials())] {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = serve(tls, Begins::InAnswer(HEAD.len()), 3);
        let (code, measured, said) = measure(scheme, address);
        assert_eq!(code, Some(7), "{said}");
        assert_eq!((&measured["hits"], &measured["errors"]), (&json!(3 * CONNECTIONS), &json!({"cut": CONNECTIONS})));
        assert_eq!(measured["hits_per_second"], 12.0, "of the second: {measured}");
        assert_eq!(measured["latency_ns"]["whole_response"]["count"], 3 * CONNECTIONS);
        let warning = measured["warnings"][0].as_str().unwrap();
        assert!(
            warning.starts_with("4 requests were under way at the end") && warning.contains("--timeout"),
            "{warning}"
        );
        let slices = measured["slices"].as_array().unwrap();
        let sliced_ns: u64 = slices.iter().map(|slice| slice["elapsed_ns"].as_u64().unwrap()).sum();
        assert!(sliced_ns < 1_300_000_000, "slices of the grace: {sliced_ns} ns");
    }
}
