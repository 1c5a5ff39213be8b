//! `tlsdyno load`: a closed-loop load on anybody's server, or the load process of an experiment.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tlsdyno_engine::load::{
    Connections, ErrorKind, Expect, Object, Outcome, Plan, Progress, Request, Resumption, Target, Until, User,
    Workload, run_observed,
};

use crate::exit::{Exit, OrExit};
use crate::experiment::job::TlsSpec;
use crate::interrupt;
use crate::load::summary::Summary;
use crate::load::url::Url;
use crate::load::values::{ExpectedStatus, Header, Reuse, parse_method};
use crate::load::warning::{Warning, warnings};
use crate::load::{descriptors, diagnosis, job, permission, report, tls};
use crate::time::Time;

/// Load a server and measure it: throughput, latency by phase, handshakes by kind
///
/// A closed loop: every connection makes its next request as soon as the last response is complete. Without --reuse nothing
/// is resumed and connections are kept; with --reuse each connection makes one request (unless --requests-per-connection
/// says otherwise) and exactly that share of them resumes a session.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tlsdyno load https://localhost:8443/1k.bin --insecure
  tlsdyno load https://localhost:8443/ --reuse 80% --tls 1.3 --duration 30s --json
  tlsdyno load http://[::1]:8080/ --connections 16 --requests-per-connection 100

Phases: tcp_connect (connect called until the first bytes leave), full_handshake and resumed_handshake (ClientHello sent until
complete), first_byte and whole_response (request sent until then).")]
pub struct Args {
    /// What to request, for example https://localhost:8443/1k.bin
    #[arg(required_unless_present = "job")]
    url: Option<String>,

    /// Run the blocks of an experiment on command (one JSON line each on standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    job: Option<PathBuf>,

    /// Load a host that is not this machine: name the one in the URL, and only one that you may load
    #[arg(long, value_name = "HOST")]
    i_may_load_this: Vec<String>,

    /// How long, for example 10, 500ms, 2m
    #[arg(short, long, default_value = "10s", value_name = "TIME")]
    duration: Time,

    /// End after so many connections were made, instead of after a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    total_connections: Option<u64>,

    /// Connections open at once
    #[arg(short, long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    connections: u32,

    /// Share of connections that resume a session, 0% to 100%; `always`: whenever the user holds a session
    #[arg(long, value_name = "PERCENT")]
    reuse: Option<Reuse>,

    /// Requests on each connection [default: no limit; 1 with --reuse]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_connection: Option<u32>,

    /// One request on each connection, with `Connection: close`
    #[arg(long, conflicts_with_all = ["requests_per_connection", "keep_alive"])]
    close: bool,

    /// No limit on requests per connection, also with --reuse
    #[arg(long, conflicts_with = "requests_per_connection")]
    keep_alive: bool,

    /// Users, each with TLS sessions of its own (they matter with --reuse always) [default: as many as connections]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    users: Option<u32>,

    /// Connections of each user; the first handshake completes before the others open
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    per_user: u32,

    /// How much of TLS the client does: honest verifies the server, lean does not, floor also saves the key agreement (own
    /// servers on loopback only: such a connection has no secrecy)
    #[arg(long, default_value = "honest", value_name = "EFFORT", value_parser = ["honest", "lean", "floor"])]
    effort: String,

    /// Do not verify the server: the same as --effort lean
    #[arg(short = 'k', long, conflicts_with = "effort")]
    insecure: bool,

    /// TLS version [default: both]
    #[arg(long = "tls", value_name = "VERSION", value_parser = ["1.2", "1.3"])]
    version: Option<String>,

    /// Cipher suites, best first, by OpenSSL or IANA name [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    suite: Vec<String>,

    /// Groups, best first: X25519, P-256, P-384 [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    group: Vec<String>,

    /// Trusted roots in PEM form [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Offer no TLS 1.2 tickets: sessions are resumed by ID
    #[arg(long)]
    no_tickets: bool,

    /// A further header, for example 'Accept: text/html' (several times); Host replaces the URL's
    #[arg(short = 'H', long, value_name = "HEADER")]
    header: Vec<Header>,

    /// Request method
    #[arg(short = 'X', long, default_value = "GET", value_name = "METHOD", value_parser = parse_method)]
    method: String,

    /// Bytes of request body
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    body: u64,

    /// Status of a hit; `any` accepts all
    #[arg(long, default_value = "200", value_name = "STATUS")]
    expect_status: ExpectedStatus,

    /// How long a connection may go without progress
    #[arg(long, default_value = "10s", value_name = "TIME")]
    timeout: Time,

    /// Pause before each wait for events, so that they come in batches as in a busy client (for measuring the client itself)
    #[arg(long, value_name = "TIME")]
    batch: Option<Time>,

    /// Run on this CPU only
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Runs the load and prints what it measured.
pub fn run(args: &Args) -> Result<Exit> {
    let stop = interrupt::flag()?;
    if let Some(cpu) = args.cpu {
        pin_to(cpu).or_exit(Exit::Environment)?;
    }
    if let Some(path) = &args.job {
        // Killed in mid-block, the runner leaves nobody to load for; the end of standard input is only seen between blocks.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .context("failed to tie the load process to its runner")?;
        let job = job::Prepared::read(path).or_exit(Exit::Input)?;
        job::serve(&job, std::io::stdin().lock(), std::io::stdout().lock(), &stop)?;
        return Ok(Exit::Done);
    }
    let text = args.url.as_deref().expect("clap requires the URL where there is no job");
    let url = Url::parse(text).or_exit(Exit::Usage)?;
    let address = url.resolve().or_exit(Exit::Unreachable)?;
    let plan = plan(args, &url, address).or_exit(Exit::Usage)?;
    permission::check(&url.host, address, &args.i_may_load_this).or_exit(Exit::Usage)?;
    descriptors::make_room_for(args.connections).or_exit(Exit::Environment)?;
    let outcome = load(&plan, &stop)?;
    let asked = args.reuse.and_then(Reuse::percent).filter(|_| url.tls);
    let warnings = warnings(&outcome, address, asked, args.expect_status.0);
    let effort = url.tls.then(|| effort(args).to_owned());
    print(&Summary::new(text.to_owned(), effort, asked, &outcome, &warnings), args.json)?;
    exit(&outcome, &warnings, address)
}

fn print(summary: &Summary, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let mut text = serde_json::to_vec_pretty(summary).context("failed to encode the result")?;
        text.push(b'\n');
        out.write_all(&text)?;
    } else {
        out.write_all(report::text(summary).as_bytes())?;
    }
    out.flush().context("failed to print")
}

/// How the program ends after a run that was printed.
fn exit(outcome: &Outcome, warnings: &[Warning], address: SocketAddr) -> Result<Exit> {
    if outcome.stopped {
        return Ok(Exit::Interrupted);
    }
    if outcome.hits == 0 {
        let why = diagnosis::of(outcome, address);
        let local = diagnosis::main_kind(outcome).is_some_and(ErrorKind::is_local);
        let exit = if local { Exit::Environment } else { Exit::Unreachable };
        return Err(anyhow::anyhow!("not one request succeeded: {why}")).or_exit(exit);
    }
    if !outcome.errors.is_empty() {
        return Ok(Exit::Errors);
    }
    if warnings.iter().any(|warning| matches!(warning, Warning::ReuseMissed { .. })) {
        return Ok(Exit::Invalid);
    }
    Ok(Exit::Done)
}

fn effort(args: &Args) -> &str {
    if args.insecure { "lean" } else { &args.effort }
}

fn plan(args: &Args, url: &Url, address: SocketAddr) -> Result<Plan> {
    let effort = effort(args);
    ensure!(
        effort != "floor" || address.ip().is_loopback(),
        "effort floor sends a key share without a secret, and is for your own servers on this machine only; {address} is not: use lean"
    );
    ensure!(url.tls || args.reuse.is_none(), "--reuse is about TLS sessions; the URL is plain http");
    let spec = TlsSpec {
        versions: args.version.iter().cloned().collect(),
        suites: args.suite.clone(),
        groups: args.group.clone(),
        effort: effort.to_owned(),
        noop: Vec::new(),
        encrypt_then_mac: true,
        tickets: !args.no_tickets,
        ca_file: args.ca_file.clone(),
    };
    let tls = if url.tls { Some(tls::config(&spec, &url.host)?) } else { None };
    let host =
        args.header.iter().find(|header| header.is_host()).map_or(url.host_header(), |header| header.value.clone());
    let users = args.users.unwrap_or(args.connections);
    let requests_each = match (args.close, args.keep_alive, args.requests_per_connection) {
        (true, _, _) => Some(1),
        (_, true, _) => None,
        (_, _, None) if args.reuse.is_some() => Some(1),
        (_, _, each) => each,
    };
    Ok(Plan {
        target: Target { address, host, tls },
        workload: Arc::new(workload(args, url, users)),
        users: 0..users,
        connections: Connections {
            total: args.connections,
            per_user: args.per_user,
            first_alone: true,
            requests_each,
            timeout_ns: args.timeout.nanoseconds()?,
            batch_ns: args.batch.map_or(0, |batch| batch.0.as_nanos() as u64),
        },
        resumption: args.reuse.map_or(Resumption::Never, Reuse::resumption),
        until: match args.total_connections {
            Some(count) => Until::ConnectionsMade(count),
            None => Until::Elapsed(args.duration.nanoseconds()?),
        },
    })
}

/// Requests that a user makes before it begins anew. It only has to be long: the users share one sequence.
const REQUESTS_PER_USER: u32 = 65_536;

fn workload(args: &Args, url: &Url, users: u32) -> Workload {
    let object = Object {
        method: args.method.clone(),
        path: url.path.clone(),
        headers: args.header.iter().filter(|header| !header.is_host()).map(Header::line).collect(),
        body_bytes: args.body,
        expect: Expect { status: args.expect_status.0, body_bytes: None },
    };
    let request = |index: u32| Request {
        object: 0,
        page_end: (index + 1).is_multiple_of(args.per_user),
        close_after: false,
        forget_session: false,
    };
    Workload {
        objects: vec![object],
        requests: (0..REQUESTS_PER_USER).map(request).collect(),
        users: vec![User { requests: 0..REQUESTS_PER_USER }; users as usize],
    }
}

fn pin_to(cpu: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    ensure!(cpu < rustix::thread::CpuSet::MAX_CPU, "there is no CPU {cpu}");
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("failed to move to CPU {cpu}; `nproc --all` tells how many there are"))
}

/// Runs the plan on this thread; another one shows the progress where somebody watches.
fn load(plan: &Plan, stop: &AtomicBool) -> Result<Outcome> {
    let progress = Progress::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if std::io::stderr().is_terminal() {
            scope.spawn(|| show(&progress, &done));
        }
        let outcome = run_observed(plan, stop, &progress);
        done.store(true, Ordering::Relaxed);
        Ok(outcome?)
    })
}

fn show(progress: &Progress, done: &AtomicBool) {
    let began = Instant::now();
    let mut shown = Instant::now();
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        if shown.elapsed() < Duration::from_millis(500) {
            continue;
        }
        shown = Instant::now();
        let (hits, errors) = (progress.hits.load(Ordering::Relaxed), progress.errors.load(Ordering::Relaxed));
        let seconds = began.elapsed().as_secs_f64();
        let rate = report::grouped((hits as f64 / seconds) as u64);
        eprint!(
            "\r\x1b[K{seconds:6.1} s   {} hits   {rate} /s   {} errors",
            report::grouped(hits),
            report::grouped(errors)
        );
    }
    eprint!("\r\x1b[K");
}
