//! nginx with one worker, with a port for each operation, and what it counts.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::operation::{Operation, TCP};
use crate::nginx::{self, Nginx, Settings};
use crate::process;

/// How long the server may take to write its log down after the last connection.
const LOG_WAIT: Duration = Duration::from_secs(2);

/// nginx, ended when this is dropped.
pub struct Server {
    /// Its own port answers with the counters.
    nginx: Nginx,
    ports: Vec<(&'static Operation, u16)>,
}

#[derive(Clone, Copy)]
pub struct Counters {
    pub accepts: u64,
    pub requests: u64,
    /// Bytes of the log of resumptions.
    log_bytes: u64,
}

/// What the log of resumptions says of some requests.
#[derive(Clone, Copy, Default)]
pub struct Logged {
    pub requests: u64,
    pub resumed: u64,
}

impl Server {
    pub fn start(operations: &[&'static Operation]) -> Result<Server> {
        let directory = nginx::directory()?;
        let path = directory.path();
        fs::create_dir(path.join("html"))?;
        fs::set_permissions(path.join("html"), fs::Permissions::from_mode(0o755))?;
        fs::write(path.join("html/1k.bin"), [b'x'; 1024])?;
        fs::write(path.join("html/1m.bin"), vec![b'x'; 1 << 20])?;
        write_certificates(path)?;
        let mut ports = nginx::free_ports(2 + operations.len())?;
        let port = ports.remove(0);
        // Bare TCP stands beside handshakes.
        let ports: Vec<_> = operations.iter().copied().chain([&TCP]).zip(ports).collect();
        let http = configuration(&ports, port);
        let settings = Settings { cpu: Some("0"), workers: 1, connections: 4096, http: &http, port };
        Ok(Server { nginx: Nginx::start(directory, &settings)?, ports })
    }

    pub fn port(&self, operation: &Operation) -> u16 {
        self.ports.iter().find(|(of, _)| of.name == operation.name).expect("what is measured has a port").1
    }

    pub fn url(&self, operation: &Operation) -> String {
        let scheme = if operation.version.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}{}", self.port(operation), operation.path)
    }

    pub fn ca_file(&self) -> String {
        self.nginx.file("ca.pem").display().to_string()
    }

    /// The server's own counters, over plain HTTP. Asking is itself one connection and one request.
    pub fn counters(&self) -> Result<Counters> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.nginx.port))?;
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let line = text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1).context("no counters")?;
        let numbers: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [accepts, _, requests] = numbers[..] else { bail!("`{line}` is not three numbers") };
        Ok(Counters { accepts, requests, log_bytes: fs::metadata(self.log())?.len() })
    }

    pub fn cpu_ns(&self) -> Result<u64> {
        process::cpu_ns(self.nginx.worker()?)
    }

    /// Waits until the log has all of `requests` since `before`, or no more comes, and reads it.
    pub fn logged(&self, before: Counters, requests: u64) -> Result<Logged> {
        let began = Instant::now();
        loop {
            let mut log = fs::File::open(self.log())?;
            log.seek(SeekFrom::Start(before.log_bytes))?;
            let mut text = String::new();
            log.read_to_string(&mut text)?;
            let logged = Logged {
                requests: text.lines().count() as u64,
                resumed: text.lines().filter(|line| *line == "r").count() as u64,
            };
            if logged.requests >= requests || began.elapsed() > LOG_WAIT {
                return Ok(logged);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> std::path::PathBuf {
        self.nginx.file("reused.log")
    }
}

fn configuration(ports: &[(&Operation, u16)], status_port: u16) -> String {
    let servers: String = ports.iter().map(|(operation, port)| listener(operation, *port)).collect();
    format!(
        "log_format reused '$ssl_session_reused';
  access_log off; root html; sendfile on; keepalive_timeout 60s;
  server {{ listen 127.0.0.1:{status_port}; location = /status {{ stub_status; }} }}
{servers}"
    )
}

/// The port of an operation. Sessions are kept only where they are to be resumed: some clients do that without being
/// asked.
fn listener(operation: &Operation, port: u16) -> String {
    let Some(version) = operation.version else {
        return format!("  server {{ listen 127.0.0.1:{port} backlog=4096; }}\n");
    };
    let key = operation.key;
    let suite = match version {
        "1.2" => "ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256".to_owned(),
        _ => format!("ssl_conf_command Ciphersuites {}", operation.suite),
    };
    // From OpenSSL 3.5 on some clients would agree on a hybrid group where others do not.
    let groups = operation.group.unwrap_or("X25519:prime256v1:secp384r1");
    let tickets = if operation.resumes { "on" } else { "off" };
    let http2 = operation.streams.map_or("", |_| " http2");
    let log = if operation.shakes_hands() { "access_log reused.log reused buffer=64k flush=100ms;" } else { "" };
    format!(
        "  server {{
    listen 127.0.0.1:{port} ssl{http2} backlog=4096; keepalive_requests 1000000000;
    ssl_certificate {key}.pem; ssl_certificate_key {key}.key;
    ssl_protocols TLSv{version}; {suite}; ssl_ecdh_curve {groups};
    ssl_session_tickets {tickets}; ssl_session_cache off; {log}
  }}
"
    )
}

/// A root and leaves with P-256 and RSA-2048 keys for 127.0.0.1.
fn write_certificates(path: &Path) -> Result<()> {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root_key = KeyPair::generate()?;
    fs::write(path.join("ca.pem"), root.self_signed(&root_key)?.pem())?;
    let issuer = Issuer::new(root, root_key);
    for (name, key) in [("ecdsa", KeyPair::generate()?), ("rsa", KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256)?)] {
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
        fs::write(path.join(format!("{name}.pem")), leaf.pem())?;
        fs::write(path.join(format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}
