//! nginx with one worker, with a port for each operation, and what it counts.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::operation::Operation;

/// Where Debian keeps nginx; not in everybody's PATH.
const NGINX: &str = "/usr/sbin/nginx";

/// How long the server may take to write its log down after the last connection.
const LOG_WAIT: Duration = Duration::from_secs(2);

/// nginx, ended when this is dropped.
pub struct Server {
    directory: TempDir,
    master: Child,
    status_port: u16,
    /// In the order of [`Operation::ALL`].
    ports: Vec<u16>,
}

/// What the server counted.
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
    pub fn start() -> Result<Server> {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        // The worker runs as nobody where the master is root.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        fs::create_dir(path.join("html"))?;
        fs::set_permissions(path.join("html"), fs::Permissions::from_mode(0o755))?;
        fs::write(path.join("html/1k.bin"), [b'x'; 1024])?;
        fs::write(path.join("html/1m.bin"), vec![b'x'; 1 << 20])?;
        write_certificates(path)?;
        let mut ports = free_ports(1 + Operation::ALL.len())?;
        let status_port = ports.remove(0);
        fs::write(path.join("nginx.conf"), configuration(&ports, status_port))?;
        let master = Command::new("taskset")
            .args(["-c", "0", NGINX, "-p"])
            .arg(path)
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start nginx")?;
        let server = Server { directory, master, status_port, ports };
        let began = Instant::now();
        while server.counters().is_err() {
            if began.elapsed() > Duration::from_secs(10) {
                let log = fs::read_to_string(server.directory.path().join("error.log")).unwrap_or_default();
                bail!("nginx did not start: {log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub fn port(&self, operation: Operation) -> u16 {
        let place = Operation::ALL.iter().position(|&other| other == operation).expect("all operations have ports");
        self.ports[place]
    }

    pub fn url(&self, operation: Operation) -> String {
        let scheme = if operation.version().is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}{}", self.port(operation), operation.path())
    }

    pub fn ca_file(&self) -> String {
        self.directory.path().join("ca.pem").display().to_string()
    }

    /// The server's own counters, over plain HTTP. Asking is itself one connection and one request.
    pub fn counters(&self) -> Result<Counters> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.status_port))?;
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let line = text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1).context("no counters")?;
        let numbers: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [accepts, _, requests] = numbers[..] else { bail!("`{line}` is not three numbers") };
        Ok(Counters { accepts, requests, log_bytes: fs::metadata(self.log())?.len() })
    }

    /// CPU time of the worker.
    pub fn cpu_ns(&self) -> Result<u64> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.master.id()))?;
        let worker = children.split_whitespace().next().context("nginx has no worker")?;
        let account = fs::read_to_string(format!("/proc/{worker}/schedstat"))?;
        Ok(account.split_whitespace().next().context("an empty schedstat")?.parse()?)
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
        self.directory.path().join("reused.log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Asked to quit by its own means, so that the master takes its worker along.
        let _ = Command::new(NGINX)
            .arg("-p")
            .arg(self.directory.path())
            .args(["-c", "nginx.conf", "-e", "error.log", "-s", "stop"])
            .stderr(Stdio::null())
            .status();
        let _ = self.master.wait();
    }
}

fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    Ok(listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<std::io::Result<_>>()?)
}

fn configuration(ports: &[u16], status_port: u16) -> String {
    let servers: String =
        Operation::ALL.iter().zip(ports).map(|(operation, port)| listener(*operation, *port)).collect();
    format!(
        "worker_processes 1; daemon off; pid nginx.pid; error_log error.log;
events {{ worker_connections 4096; }}
http {{
  log_format reused '$ssl_session_reused';
  access_log off; root html; sendfile on; keepalive_requests 1000000000; keepalive_timeout 60s;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  server {{ listen 127.0.0.1:{status_port}; location = /status {{ stub_status; }} }}
{servers}}}
"
    )
}

/// The port of an operation. Sessions are kept only where they are to be resumed: some clients do that without being asked.
fn listener(operation: Operation, port: u16) -> String {
    let Some(version) = operation.version() else {
        return format!("  server {{ listen 127.0.0.1:{port} backlog=4096; }}\n");
    };
    let key = if operation == Operation::Rsa { "rsa" } else { "ecdsa" };
    let suite = match version {
        "1.2" => "ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256".to_owned(),
        _ => format!("ssl_conf_command Ciphersuites {}", operation.suite()),
    };
    let tickets = if operation.resumes() { "on" } else { "off" };
    let log = if operation.shakes_hands() { "access_log reused.log reused buffer=64k flush=100ms;" } else { "" };
    format!(
        "  server {{
    listen 127.0.0.1:{port} ssl backlog=4096;
    ssl_certificate {key}.pem; ssl_certificate_key {key}.key;
    ssl_protocols TLSv{version}; {suite};
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
