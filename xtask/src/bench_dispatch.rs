//! `bench-dispatch`: what the dispatcher costs for each connection and each MiB, beside HAProxy in TCP mode in the same run.
//!
//! One thread of each on CPU 0; two built-in servers and the load on CPU 1. A connection is a TLS 1.3 handshake with a ticket offered, a request, 7 KB and the close; the
//! MiB are those of 64 MiB bodies. CPU time is that of all threads of the dispatcher from the scheduler (nanoseconds), while the load makes a given number of connections.
//! Rounds interleave the subjects; the median counts. HAProxy learns session IDs into a stick table, with the response inspection it needs for that, and splices responses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// A child that ends with the benchmark.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Subject {
    name: &'static str,
    address: String,
    process: Ending,
    /// Microseconds of CPU time for each connection and each MiB, one for each round.
    connection_us: Vec<f64>,
    mebibyte_us: Vec<f64>,
}

/// How much is measured.
struct Effort {
    rounds: usize,
    connections: u64,
    bodies: u64,
}

/// MiB of one body.
const BODY_MIB: u64 = 64;

/// Runs all rounds and prints a Markdown table. `--rounds N` (7), `--connections N` (4000) and `--bodies N` (8) of each subject in each round.
///
/// # Errors
/// A program is missing or fails, or the dispatcher costs more than HAProxy.
pub fn run(arguments: &[String]) -> Result<()> {
    let effort = parse(arguments)?;
    let tlsdyno = std::env::current_exe()?.with_file_name("tlsdyno");
    ensure!(tlsdyno.exists(), "{} is missing; run `cargo build --release -p tlsdyno` first", tlsdyno.display());
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("7k.bin"), vec![b'x'; 7 * 1024])?;
    fs::write(directory.path().join("big.bin"), vec![b'x'; (BODY_MIB << 20) as usize])?;
    let servers = [serve(&tlsdyno, directory.path())?, serve(&tlsdyno, directory.path())?];
    let backends: Vec<&str> = servers.iter().map(|(_, address)| address.as_str()).collect();
    let mut subjects = [
        own(&tlsdyno, "tlsdyno session", "session", &backends)?,
        own(&tlsdyno, "tlsdyno round-robin", "round-robin", &backends)?,
        haproxy("haproxy stick table", true, &backends, &directory)?,
        haproxy("haproxy plain", false, &backends, &directory)?,
    ];
    for round in 0..effort.rounds {
        for subject in &mut subjects {
            eprint!("\r\x1b[Kround {} of {}: {}", round + 1, effort.rounds, subject.name);
            measure(subject, &tlsdyno, &effort)?;
        }
    }
    eprintln!("\r\x1b[K");
    println!("| dispatcher | CPU us per connection | CPU us per MiB |\n|---|---|---|");
    for subject in &subjects {
        println!("| {} | {:.1} | {:.0} |", subject.name, median(&subject.connection_us), median(&subject.mebibyte_us));
    }
    let [session, _, stick, _] = &subjects;
    let mut missed = Vec::new();
    for (what, ours, theirs) in [
        ("connection", &session.connection_us, &stick.connection_us),
        ("MiB", &session.mebibyte_us, &stick.mebibyte_us),
    ] {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        println!("\nper {what}: {:.2} of HAProxy's with stick table, median of paired rounds", median(&ratios));
        if median(&ratios) > 1.0 {
            missed.push(what);
        }
    }
    ensure!(missed.is_empty(), "the dispatcher costs more than HAProxy per {}", missed.join(" and per "));
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Effort> {
    let mut effort = Effort { rounds: 7, connections: 4000, bodies: 8 };
    for pair in arguments.chunks(2) {
        let [flag, value] = pair else { bail!("{pair:?} wants a number") };
        let number: u64 = value.parse().with_context(|| format!("{flag} wants a number"))?;
        ensure!(number > 0, "{flag} must be at least 1");
        match flag.as_str() {
            "--rounds" => effort.rounds = number as usize,
            "--connections" => effort.connections = number,
            "--bodies" => effort.bodies = number,
            _ => bail!("unknown argument {flag}; usage: bench-dispatch [--rounds N] [--connections N] [--bodies N]"),
        }
    }
    Ok(effort)
}

/// Starts a program on a CPU; answers its first line of output too, if it prints its address.
fn start(cpu: &str, program: &Path, arguments: &[&str], prints: bool) -> Result<(Ending, String)> {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]).arg(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(if prints { Stdio::piped() } else { Stdio::null() });
    let mut child = Ending(command.spawn().with_context(|| format!("start {} with taskset", program.display()))?);
    let mut line = String::new();
    if let Some(output) = child.0.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    Ok((child, line.trim().to_owned()))
}

fn serve(tlsdyno: &Path, docroot: &Path) -> Result<(Ending, String)> {
    let docroot = docroot.to_str().context("a directory with a readable name")?;
    let arguments = ["serve", "--docroot", docroot, "--listen", "127.0.0.1:0", "--print-address", "--tls", "1.3"];
    let (child, line) = start("1", tlsdyno, &arguments, true)?;
    let address = line.split('"').find(|part| part.starts_with("127.0.0.1:"));
    let address = address.with_context(|| format!("the server printed no address but `{line}`"))?.to_owned();
    Ok((child, address))
}

fn subject(name: &'static str, address: String, process: Ending) -> Subject {
    Subject { name, address, process, connection_us: Vec::new(), mebibyte_us: Vec::new() }
}

fn own(tlsdyno: &Path, name: &'static str, policy: &str, backends: &[&str]) -> Result<Subject> {
    let mut arguments =
        vec!["dispatch", "--listen", "127.0.0.1:0", "--print-address", "--loops", "1", "--policy", policy];
    arguments.extend(["--check", "none"]);
    backends.iter().for_each(|backend| arguments.extend(["--backend", backend]));
    let (child, address) = start("0", tlsdyno, &arguments, true)?;
    ensure!(!address.is_empty(), "the dispatcher did not start");
    Ok(subject(name, address, child))
}

fn haproxy(name: &'static str, sticks: bool, backends: &[&str], directory: &TempDir) -> Result<Subject> {
    let program =
        ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].map(PathBuf::from).into_iter().find(|path| path.exists());
    let program = program.context("haproxy is missing; run `scripts/install-packages bench`")?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let stick = "    stick-table type binary len 32 size 100k expire 5m
    acl client_hello req.ssl_hello_type 1
    acl server_hello res.ssl_hello_type 2
    tcp-request inspect-delay 5s
    tcp-request content accept if client_hello
    tcp-response inspect-delay 5s
    tcp-response content accept if server_hello
    stick on payload_lv(43,1) if client_hello
    stick store-response payload_lv(43,1) if server_hello
";
    let servers: String =
        backends.iter().enumerate().map(|(number, backend)| format!("    server s{number} {backend}\n")).collect();
    let config = format!(
        "global\n    nbthread 1\n    maxconn 4000\ndefaults\n    mode tcp\n    timeout connect 3s\n    timeout client 60s\n    timeout server 60s\n    \
         option splice-response\nlisten l\n    bind {address}\n    balance roundrobin\n{}{servers}",
        if sticks { stick } else { "" }
    );
    let file = directory.path().join(format!("{}.cfg", name.replace(' ', "-")));
    fs::write(&file, config)?;
    let file = file.to_str().context("a directory with a readable name")?;
    let (child, _) = start("0", &program, &["-db", "-f", file], false)?;
    let began = Instant::now();
    while std::net::TcpStream::connect(&address).is_err() {
        ensure!(began.elapsed() < Duration::from_secs(10), "haproxy does not listen on {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(subject(name, address, child))
}

fn measure(subject: &mut Subject, tlsdyno: &Path, effort: &Effort) -> Result<()> {
    let connections = effort.connections.to_string();
    let small = ["--total-connections", &connections, "--connections", "16", "--reuse", "80%"];
    subject.connection_us.push(cost_us(subject, tlsdyno, "7k.bin", &small)? / effort.connections as f64);
    let bodies = effort.bodies.to_string();
    let large = ["--total-connections", &bodies, "--connections", "2", "--reuse", "0%"];
    subject.mebibyte_us.push(cost_us(subject, tlsdyno, "big.bin", &large)? / (effort.bodies * BODY_MIB) as f64);
    Ok(())
}

/// CPU time of the subject while the load makes its requests.
fn cost_us(subject: &Subject, tlsdyno: &Path, object: &str, arguments: &[&str]) -> Result<f64> {
    let before_ns = cpu_ns(subject.process.0.id())?;
    let url = format!("https://{}/{object}", subject.address);
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(tlsdyno).args(["load", &url, "--effort", "floor", "--json"]).args(arguments);
    let output = command.output().context("start the load")?;
    let json = String::from_utf8_lossy(&output.stdout);
    let complete = json.replace([' ', '\n'], "").contains("\"errors\":{}");
    ensure!(complete, "the load through {} failed: {json}{}", subject.name, String::from_utf8_lossy(&output.stderr));
    Ok((cpu_ns(subject.process.0.id())? - before_ns) as f64 / 1e3)
}

/// CPU time of all threads, from the scheduler.
fn cpu_ns(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += text.split(' ').next().unwrap_or_default().parse::<u64>().context("read schedstat")?;
    }
    Ok(sum)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
