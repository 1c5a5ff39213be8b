//! `bench-client`: what one operation costs the load client, beside wrk and h2load in the same run.
//!
//! One nginx worker on CPU 0, the client on CPU 1. Client CPU is user and system time of the whole process, start-up included; operations
//! are counted by the server. The suite is pinned at the server, so that everybody gets the same; the port for full handshakes keeps no
//! sessions, because wrk and h2load resume silently. Ours is kept saturated by a pause before each wait for events (the others are dearer
//! than the server and so saturated anyway). Rounds interleave the clients; the median counts.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

const SUITE: &str = "TLS_AES_128_GCM_SHA256";
const CONNECTIONS: &str = "256";

/// How long and how often each client runs.
struct Effort {
    rounds: usize,
    seconds: u32,
}

/// What is counted as one operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Full TLS 1.3 handshake, request, 1 KB, close.
    Handshake,
    /// Request and 1 KB on a kept connection.
    KeptRequest,
}

/// One row of the table.
struct Row {
    client: &'static str,
    operation: Operation,
    arguments: Vec<String>,
    /// Client CPU per operation in microseconds, one for each round.
    client_us: Vec<f64>,
    /// Server CPU likewise.
    server_us: Vec<f64>,
    operations: u64,
}

/// What a row must keep to: at most `share` of the other clients' best.
struct Bar {
    client: &'static str,
    operation: Operation,
    share: f64,
    against: &'static [&'static str],
}

const BARS: [Bar; 3] = [
    Bar { client: "tlsdyno floor", operation: Operation::Handshake, share: 1.0 / 8.0, against: &["wrk", "h2load"] },
    Bar { client: "tlsdyno honest", operation: Operation::Handshake, share: 1.0 / 3.0, against: &["wrk", "h2load"] },
    Bar { client: "tlsdyno kept", operation: Operation::KeptRequest, share: 1.0, against: &["wrk"] },
];

/// Runs all rounds and prints a Markdown table. `--rounds N` (3), `--seconds N` (3) of each client.
///
/// # Errors
/// A program is missing or fails, or a bar is missed.
pub fn run(arguments: &[String]) -> Result<()> {
    let effort = parse(arguments)?;
    let tlsdyno = std::env::current_exe()?.with_file_name("tlsdyno");
    ensure!(tlsdyno.exists(), "{} is missing; run `cargo build --release -p tlsdyno` first", tlsdyno.display());
    let server = Server::start()?;
    let mut rows = rows(&tlsdyno, &server, &effort);
    for round in 0..effort.rounds {
        for row in &mut rows {
            eprint!("\r\x1b[Kround {} of {}: {}", round + 1, effort.rounds, row.client);
            measure(row, &server)?;
        }
    }
    eprintln!("\r\x1b[K");
    print!("{}", table(&rows));
    let missed = verdicts(&rows);
    ensure!(missed == 0, "{missed} of {} bars missed", BARS.len());
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Effort> {
    let mut effort = Effort { rounds: 3, seconds: 3 };
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--rounds" => effort.rounds = value.parse().context("--rounds wants a number")?,
            [flag, value] if flag == "--seconds" => {
                effort.seconds = value.parse().context("--seconds wants a number")?
            }
            _ => bail!("unknown argument {pair:?}; usage: bench-client [--rounds N] [--seconds N]"),
        }
    }
    ensure!(effort.rounds > 0 && effort.seconds > 0, "rounds and seconds must be at least 1");
    Ok(effort)
}

fn rows(tlsdyno: &Path, server: &Server, effort: &Effort) -> Vec<Row> {
    let url = format!("https://127.0.0.1:{}/1k.bin", server.tls_port);
    let ca = server.directory.path().join("ca.pem").display().to_string();
    let seconds = effort.seconds.to_string();
    // h2load 1.52 never ends when told a time and the server closes: a number instead, of what a server core serves in about that time.
    let handshakes = (effort.seconds * 1500).to_string();
    let requests = (effort.seconds * 40_000).to_string();
    let row = |client, operation, words: &[&str]| Row {
        client,
        operation,
        arguments: words.iter().map(|word| (*word).to_owned()).collect(),
        client_us: Vec::new(),
        server_us: Vec::new(),
        operations: 0,
    };
    let program = tlsdyno.display().to_string();
    let own =
        [program.as_str(), "load", &url, "--connections", CONNECTIONS, "--batch", "4ms", "--tls", "1.3", "--json"];
    let own_row = |client, operation, more: &[&str]| {
        let time = ["--duration", &seconds];
        row(client, operation, &[&own[..], &time[..], more].concat())
    };
    use Operation::{Handshake, KeptRequest};
    let close = "Connection: close";
    vec![
        row("wrk", Handshake, &["wrk", "-t1", "-c", CONNECTIONS, "-d", &seconds, "-H", close, &url]),
        row("h2load", Handshake, &["h2load", "--h1", "-t1", "-c", CONNECTIONS, "-n", &handshakes, "-H", close, &url]),
        own_row("tlsdyno honest", Handshake, &["--close", "--effort", "honest", "--ca-file", &ca, "--suite", SUITE]),
        own_row("tlsdyno lean", Handshake, &["--close", "--effort", "lean", "--suite", SUITE]),
        own_row("tlsdyno floor", Handshake, &["--close", "--effort", "floor", "--suite", SUITE]),
        row("wrk", KeptRequest, &["wrk", "-t1", "-c", CONNECTIONS, "-d", &seconds, &url]),
        row("h2load", KeptRequest, &["h2load", "--h1", "-t1", "-c", CONNECTIONS, "-n", &requests, &url]),
        own_row("tlsdyno kept", KeptRequest, &["--effort", "lean", "--suite", SUITE]),
    ]
}

fn measure(row: &mut Row, server: &Server) -> Result<()> {
    let (before, cpu_before_ns) = (server.counters()?, server.cpu_ns()?);
    let client_s = client_cpu_s(&row.arguments).with_context(|| format!("{} failed", row.client))?;
    let (after, cpu_after_ns) = (server.counters()?, server.cpu_ns()?);
    // Reading the counters is itself one connection and one request.
    let operations = match row.operation {
        Operation::Handshake => after.accepts - before.accepts - 1,
        Operation::KeptRequest => after.requests - before.requests - 1,
    };
    ensure!(operations > 100, "{} did only {operations} operations; is the server up?", row.client);
    row.operations += operations;
    row.client_us.push(client_s * 1e6 / operations as f64);
    row.server_us.push((cpu_after_ns - cpu_before_ns) as f64 / 1e3 / operations as f64);
    Ok(())
}

/// User and system time of a command on CPU 1, in seconds. The shell's `time` has milliseconds, where /proc has clock ticks.
fn client_cpu_s(arguments: &[String]) -> Result<f64> {
    let script = r#"TIMEFORMAT='%3U %3S'; time taskset -c 1 "$@" >/dev/null 2>&1"#;
    let output = Command::new("timeout").args(["120", "bash", "-c", script, "bash"]).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?} ended with {}", output.status);
    let text = String::from_utf8(output.stderr)?;
    let times: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(times.len() == 2, "bash answered `{text}`");
    Ok(times[0] + times[1])
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| operation | client | client µs | of wrk | server µs | operations |\n|---|---|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let wrk = rows.iter().find(|other| other.client == "wrk" && other.operation == row.operation);
        let share = wrk.map_or(f64::NAN, |wrk| median(&row.client_us) / median(&wrk.client_us));
        let operation = match row.operation {
            Operation::Handshake => "full TLS 1.3 handshake + 1 KB",
            Operation::KeptRequest => "kept request, 1 KB",
        };
        let (client, server) = (median(&row.client_us), median(&row.server_us));
        writeln!(out, "| {operation} | {} | {client:.1} | {share:.2} | {server:.1} | {} |", row.client, row.operations)
            .expect("writing to a string succeeds");
    }
    out
}

/// Prints a line for each bar; answers how many are missed.
fn verdicts(rows: &[Row]) -> usize {
    let mut missed = 0;
    println!();
    for bar in &BARS {
        let cost = |client: &str| {
            let row = rows.iter().find(|row| row.client == client && row.operation == bar.operation);
            median(&row.expect("every bar is about rows of the table").client_us)
        };
        let best = bar.against.iter().map(|client| cost(client)).fold(f64::INFINITY, f64::min);
        let (own, most) = (cost(bar.client), best * bar.share);
        let verdict = if own <= most { "met" } else { "MISSED" };
        missed += usize::from(own > most);
        println!(
            "{verdict}: {} {own:.1} µs, at most {most:.1} µs ({:.3} of {best:.1} µs, the better of {})",
            bar.client,
            bar.share,
            bar.against.join(" and ")
        );
    }
    missed
}

/// Where Debian keeps nginx; not in everybody's PATH.
const NGINX: &str = "/usr/sbin/nginx";

/// nginx with one worker, ended when this is dropped.
struct Server {
    directory: TempDir,
    master: Child,
    tls_port: u16,
    status_port: u16,
}

struct Counters {
    accepts: u64,
    requests: u64,
}

impl Server {
    fn start() -> Result<Server> {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        // The worker runs as nobody where the master is root.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        fs::create_dir(path.join("html"))?;
        fs::set_permissions(path.join("html"), fs::Permissions::from_mode(0o755))?;
        fs::write(path.join("html/1k.bin"), [b'x'; 1024])?;
        write_certificates(path)?;
        let (tls_port, status_port) = free_ports()?;
        fs::write(path.join("nginx.conf"), configuration(tls_port, status_port))?;
        let master = Command::new("taskset")
            .args(["-c", "0", NGINX, "-p"])
            .arg(path)
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start nginx")?;
        let server = Server { directory, master, tls_port, status_port };
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

    /// The server's own counters, over plain HTTP.
    fn counters(&self) -> Result<Counters> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.status_port))?;
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let line = text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1).context("no counters")?;
        let numbers: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [accepts, _, requests] = numbers[..] else { bail!("`{line}` is not three numbers") };
        Ok(Counters { accepts, requests })
    }

    /// CPU time of the worker.
    fn cpu_ns(&self) -> Result<u64> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.master.id()))?;
        let worker = children.split_whitespace().next().context("nginx has no worker")?;
        let account = fs::read_to_string(format!("/proc/{worker}/schedstat"))?;
        Ok(account.split_whitespace().next().context("an empty schedstat")?.parse()?)
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

fn free_ports() -> Result<(u16, u16)> {
    let (first, second) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}

fn configuration(tls_port: u16, status_port: u16) -> String {
    format!(
        "worker_processes 1; daemon off; pid nginx.pid; error_log error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; root html; sendfile on; keepalive_requests 1000000000; keepalive_timeout 60s;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  server {{ listen 127.0.0.1:{status_port}; location = /status {{ stub_status; }} }}
  server {{
    listen 127.0.0.1:{tls_port} ssl backlog=4096;
    ssl_certificate chain.pem; ssl_certificate_key key.pem;
    ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites {SUITE};
    ssl_session_tickets off; ssl_session_cache off;
  }}
}}
"
    )
}

/// A root and a P-256 leaf for 127.0.0.1.
fn write_certificates(path: &Path) -> Result<()> {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root_key = KeyPair::generate()?;
    fs::write(path.join("ca.pem"), root.self_signed(&root_key)?.pem())?;
    let leaf_key = KeyPair::generate()?;
    let leaf =
        CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&leaf_key, &Issuer::new(root, root_key))?;
    fs::write(path.join("chain.pem"), leaf.pem())?;
    fs::write(path.join("key.pem"), leaf_key.serialize_pem())?;
    Ok(())
}
