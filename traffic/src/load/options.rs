//! What load is made: the flags that `tlsdyno load` and its sweeps share, and the plan of the engine that they mean.
//! Circle: load/redirects judges whether the whole of the flags allows redirects, as part of making the plan.

use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_base::certificate_files;
use tlsdyno_base::choice::choice;
use tlsdyno_base::listening::is_loopback;
use tlsdyno_engine::load::limits::CONNECTIONS_MAX;
use tlsdyno_engine::load::{Arrivals, Connections, Pacing, Pause, Plan, Rate, Route, Target, Timeouts, Until};
use tlsdyno_engine::time::Time;
use tlsdyno_record::store::load_run::Asked;
use tlsdyno_tls::{Config, Effort, Group, Settings, Suite, Version};

use crate::load::diagnosis::Sent;
use crate::load::places::{self, Sources};
use crate::load::shape::Shape;
use crate::load::url::Url;
use crate::load::values::{ExpectedStatus, Header, PauseFlag, PerSecond, Profile, Reuse, parse_alpn, parse_method};
use crate::load::workload::WorkloadFlags;
use crate::load::{client, redirects, urls};
use crate::trace;

/// Flags that say what load is made.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Load a host that is not this machine: name the one in the URL, and only one that you may load
    #[arg(long, value_name = "HOST")]
    pub i_may_load_this: Vec<String>,

    /// How long, for example 10, 500ms, 2m. Then nothing is begun any more; what is under way may go on for --timeout
    /// at most, and is cut after that [default: 10s; a log is replayed once]
    #[arg(short, short_alias = 'z', long, alias = "time", value_name = "TIME")]
    pub duration: Option<Time>,

    /// End after so many requests, instead of after a time
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["duration", "total_connections"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,

    /// End after so many connections were made, instead of after a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub total_connections: Option<u64>,

    /// Connections open at once
    #[arg(short, long, default_value_t = 64, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,

    /// Open loop: so many requests a second, for example 500/s, each at its intended time however the server does;
    /// latency then counts from there (scheduled_response). Without it the loop is closed
    #[arg(long, value_name = "RATE", group = "paced")]
    pub rate: Option<PerSecond>,

    /// A user waits so long between two of its connections: exp:2s (exponential, this mean) or const:2s. Sessions may
    /// expire meanwhile. Goes with what ends connections: --profile, --close, --requests-per-connection, session
    /// limits
    #[arg(long, value_name = "SPREAD:TIME", group = "paced")]
    pub pause: Option<PauseFlag>,

    /// How the requests of --rate are spread
    #[arg(long, default_value_t, value_parser = choice(Arrivals::ALL), requires = "rate")]
    pub arrivals: Arrivals,

    /// Seed of the random distances of --arrivals poisson and of the pauses of --pause exp
    #[arg(long, default_value_t = 1, value_name = "N", requires = "paced")]
    pub seed: u64,

    /// Share of connections that resume a session, 0% to 100%; `always`: whenever the user holds a session, which is
    /// the rule for workloads
    #[arg(long, value_name = "PERCENT")]
    pub reuse: Option<Reuse>,

    /// How connections and sessions are used (Mraz et al. 2002, Figure 2); a session is up after 300 s and 500
    /// requests unless --session-lifetime and --session-limit say otherwise
    #[arg(long, value_enum, conflicts_with_all = ["reuse", "close", "keep_alive"])]
    pub profile: Option<Profile>,

    /// How long a user's session may be resumed; then a full handshake begins a new one (typical: 100s to 300s)
    #[arg(long, value_name = "TIME")]
    pub session_lifetime: Option<Time>,

    /// Requests under a user's session, over all its connections; then a full handshake begins a new one (typical:
    /// 500)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub session_limit: Option<u32>,

    /// Requests for each full handshake, on a kept connection: 10 is a percent reuse of 90 (Mraz et al. 2002, equation
    /// 1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(conflicts_with_all = ["session_limit", "reuse", "profile"])]
    pub hits_per_handshake: Option<u32>,

    /// Sessions have a part of their lifetime or limit behind them when the load begins, each user's another, so that
    /// renewals are spread; without it all users renew together, in surges
    #[arg(long)]
    pub staggered: bool,

    /// Requests on each connection [default: no limit; 1 with --reuse]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub requests_per_connection: Option<u32>,

    /// One request on each connection, with `Connection: close`
    #[arg(long, conflicts_with_all = ["requests_per_connection", "keep_alive"])]
    pub close: bool,

    /// No limit on requests per connection, also with --reuse
    #[arg(long, conflicts_with = "requests_per_connection")]
    pub keep_alive: bool,

    /// Users, each with TLS sessions of its own (they matter with --reuse always) [default: as many as connections, or
    /// as the workload has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub users: Option<u32>,

    /// Connections of each user; the first handshake completes before the others open [default: 1; of a workload's
    /// user 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub per_user: Option<u32>,

    /// A user opens all connections of a page at once, instead of waiting for the first handshake, whose session the
    /// others could resume: more full handshakes. Goes with a workload, or with --per-user above 1
    #[arg(long)]
    pub all_at_once: bool,

    /// How much of TLS the client does: honest verifies the server and makes keys of every ticket, lean only of those
    /// that will be used; floor also saves the key agreement and acknowledgements without data (own servers on
    /// loopback only: such a connection has no secrecy)
    #[arg(long, default_value = "honest", value_name = "EFFORT", value_parser = choice(Effort::ALL))]
    pub effort: Effort,

    /// Do not verify the server: the same as --effort lean
    #[arg(short = 'k', long, conflicts_with = "effort")]
    pub insecure: bool,

    /// Take RSA keys below 2048 bits from a server on this machine, as the papers have them: they protect nothing. Who
    /// does not verify the server (-k, --effort lean) takes them there anyway
    #[arg(long)]
    pub small_rsa_keys: bool,

    /// TLS version [default: both]
    #[arg(long = "tls", value_name = "VERSION", value_parser = choice(Version::ALL))]
    pub version: Option<Version>,

    /// Cipher suites, best first, by OpenSSL or IANA name [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub suite: Vec<Suite>,

    /// Groups, best first [default: the curves]; hybrids with ML-KEM are for TLS 1.3. A curve named behind a hybrid
    /// gets a key share too; browsers offer X25519MLKEM768,X25519,P-256,P-384
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = choice(Group::ALL))]
    pub group: Vec<Group>,

    /// Trusted roots in PEM form [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// The client's certificate in PEM form, its issuers after it, for a server that asks for one
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,

    /// The private key of --client-cert in PEM form, without a passphrase (RSA, P-256 or P-384)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,

    /// Offer no TLS 1.2 tickets: sessions are resumed by ID
    #[arg(long)]
    pub no_tickets: bool,

    /// Send the first request of each resumed TLS 1.3 connection with the hello, where the server's tickets allow that
    /// (RFC 9846 section 2.3); such a request may be replayed, and has no body. Goes with --reuse, session limits
    /// or --profile intermittent
    #[arg(long)]
    pub early_data: bool,

    /// A further header, for example 'Accept: text/html' (several times); Host replaces the URL's
    #[arg(short = 'H', long, value_name = "HEADER")]
    pub header: Vec<Header>,

    /// Request method
    #[arg(short = 'X', long, default_value = "GET", conflicts_with = "what", value_name = "METHOD")]
    #[arg(value_parser = parse_method)]
    pub method: String,

    /// More URLs of the same server, each requested as often as its weight says (see --weights)
    #[arg(long, value_name = "URL", conflicts_with = "what")]
    pub also: Vec<String>,

    /// Weights of the URL and those of --also, in this order, for example 3,1 [default: all 1]
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "also")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub weights: Vec<u32>,

    /// Connect there, whatever the URL says; Host and server name stay those of the URL
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "unix")]
    pub connect_to: Option<String>,

    /// Connect to this Unix socket
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,

    /// Local addresses to connect from, for example 127.0.0.2-127.0.0.9: each has ports of its own
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', conflicts_with = "unix")]
    pub source: Vec<Sources>,

    /// Server name sent and verified [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,

    /// Application protocols to offer, best first; the requests are HTTP/1.1
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_alpn)]
    pub alpn: Vec<String>,

    /// File that is sent as body of every request
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "what"])]
    pub body_file: Option<PathBuf>,

    /// Bytes of request body
    #[arg(long, default_value_t = 0, value_name = "BYTES", conflicts_with = "what")]
    pub body: u64,

    /// Status of a hit; `any` accepts all
    #[arg(long, default_value = "200", value_name = "STATUS", conflicts_with = "what")]
    pub expect_status: ExpectedStatus,

    /// Follow redirects on the same server, at most so many one after another (5 if no number is given); the request
    /// is a hit when its last answer is, and its latency counts to there [default: they are answers like others]
    #[arg(long, value_name = "MAX", num_args = 0..=1, require_equals = true, default_missing_value = "5")]
    #[arg(conflicts_with = "what", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub follow_redirects: Option<u32>,

    /// How long a connection may go without progress, and how long what is under way may go on, progress or not, when
    /// the time of --duration is over
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub timeout: Time,

    /// How long connecting may take, progress or not [default: no limit but --timeout]
    #[arg(long, value_name = "TIME")]
    pub connect_timeout: Option<Time>,

    /// How long a TLS handshake may take, likewise
    #[arg(long, value_name = "TIME")]
    pub handshake_timeout: Option<Time>,

    /// How long the first byte of a response may take, likewise
    #[arg(long, value_name = "TIME")]
    pub first_byte_timeout: Option<Time>,

    /// How long a whole response may take, likewise
    #[arg(long, value_name = "TIME")]
    pub total_timeout: Option<Time>,

    /// Pause before each wait for events, so that they come in batches as in a busy client (for measuring the client
    /// itself)
    #[arg(long, value_name = "TIME")]
    pub batch: Option<Time>,

    /// What is requested, if it is not just the URL. Last: its heading is that of whatever comes after it.
    #[command(flatten, next_help_heading = "Workload")]
    pub workload: WorkloadFlags,
}

impl Options {
    /// The further headers of each request, as they are sent. The Host header stands by itself.
    pub fn header_lines(&self) -> String {
        self.header.iter().filter(|header| !header.is_host()).map(Header::line).collect()
    }
}

/// How much of TLS the client does.
pub fn effort(options: &Options) -> Effort {
    if options.insecure { Effort::Lean } else { options.effort }
}

/// The client side of TLS.
fn tls(options: &Options, url: &Url, address: SocketAddr) -> Result<Arc<Config>> {
    let effort = effort(options);
    let certificate = match (&options.client_cert, &options.client_key) {
        (Some(certificate), Some(key)) => Some(certificate_files::client_certificate(certificate, key)?),
        _ => None,
    };
    let settings = Settings {
        versions: options.version.into_iter().collect(),
        suites: options.suite.clone(),
        groups: options.group.clone(),
        server_name: Some(options.sni.clone().unwrap_or_else(|| url.host.clone())),
        alpn: options.alpn.clone(),
        effort,
        tickets: !options.no_tickets,
        early_data: options.early_data,
        small_rsa_keys: is_loopback(address.ip()) && (options.small_rsa_keys || effort != Effort::Honest),
        trust_anchors: match effort {
            Effort::Honest => certificate_files::trust_anchors(options.ca_file.as_deref())?,
            Effort::Lean | Effort::Floor => Vec::new(),
        },
        client_certificate: certificate.map(Arc::new),
        now_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?.as_secs(),
        ..Settings::default()
    };
    Ok(Arc::new(Config::new(settings)?))
}

/// The plan of the engine.
///
/// # Errors
/// Flags that contradict each other or the URL, and TLS settings that cannot work.
pub fn plan(options: &Options, url: &Url, address: SocketAddr) -> Result<Plan> {
    ensure!(
        effort(options) != Effort::Floor || address.ip().is_loopback(),
        "effort floor sends a key share without a secret, and is for your own servers on this machine only; {address} \
         is not: use lean"
    );
    ensure!(
        !options.small_rsa_keys || is_loopback(address.ip()),
        "--small-rsa-keys is for servers of experiments on this machine; {address} is not on it: give the server a key \
         of 2048 bits or more"
    );
    let tls = if url.tls { Some(tls(options, url, address)?) } else { None };
    ensure!(url.tls || options.client_cert.is_none(), "--client-cert is for TLS; the URL is plain http");
    let host =
        options.header.iter().find(|header| header.is_host()).map_or(url.host_header(), |header| header.value.clone());
    let read = |path: &PathBuf| tlsdyno_base::input::read(path, BODY_BYTES_MAX);
    let body: Option<Arc<[u8]>> = options.body_file.as_ref().map(read).transpose()?.map(Arc::from);
    let body_bytes = body.as_ref().map_or(options.body, |body| body.len() as u64);
    let made = options.workload.spec(options.users)?;
    ensure!(
        made.is_none() || url.path == "/",
        "the workload says what is requested; give the URL without a path, not {}",
        url.path
    );
    let (workload, per_user) = match &made {
        Some(spec) => {
            let site = trace::make(spec)?;
            site.summary.tell();
            (client::workload(&site, &options.header_lines()), options.per_user.unwrap_or(BROWSER_CONNECTIONS))
        }
        None => {
            let per_user = options.per_user.unwrap_or(1);
            (Arc::new(urls::workload(options, url, per_user, body_bytes)?), per_user)
        }
    };
    ensure!(
        !options.all_at_once || per_user > 1,
        "--all-at-once is about the connections of a user, of which each has one here: add --per-user or a workload"
    );
    let shape = Shape::of(options);
    shape.check(options, url)?;
    ensure!(
        options.rate.is_none() || !options.workload.names_window(),
        "--window bounds how far a closed loop gets ahead; at --rate the schedule says that: leave out one of them"
    );
    let speed = options.workload.speed();
    ensure!(
        speed.is_none() || !(options.workload.names_window() || options.rate.is_some()),
        "--timing replays each request at its own time; that leaves nothing for --window or --rate: leave them out"
    );
    ensure!(
        options.pause.is_none() || !options.workload.is_trace(),
        "a log has times of its own, which --timing keeps to; leave out --pause"
    );
    let (window, numbered) = options.workload.window();
    let route = Route {
        unix_path: options.unix.clone(),
        sources: options.source.iter().flat_map(|sources| sources.0.iter().copied()).collect(),
        source_of_client: false,
        ..Route::default()
    };
    ensure!(
        options.connections <= route.connections_max(CONNECTIONS_MAX),
        "an address has no more than {CONNECTIONS_MAX} ports, and so connections to one server; name more addresses \
         (--source)"
    );
    let connections = Connections {
        total: options.connections,
        per_user,
        first_alone: !options.all_at_once,
        requests_each: shape.requests_each,
        timeout_ns: options.timeout.nanoseconds()?,
        batch_ns: options.batch.map_or(0, |batch| batch.0.as_nanos() as u64),
    };
    let duration_ns = options.duration.map_or(Ok(DURATION_NS), Time::nanoseconds)?;
    Ok(Plan {
        route,
        body,
        timeouts: timeouts(options)?,
        resumption: shape.resumption,
        session_limits: shape.session_limits,
        pacing: pacing(options, speed),
        // By a schedule, that and not the window says how far users get.
        window: window.filter(|_| options.rate.is_none() && speed.is_none()),
        redirects: options.follow_redirects.map(|most| redirects::here(most, options, url, address, &host)),
        numbered,
        until: until(options)?,
        slice_ns: Some((duration_ns / SLICES).clamp(SLICE_NS_MIN, SLICE_NS_MAX)),
        ..Plan::new(Target { address, host, tls }, workload, connections)
    })
}

/// When the load ends.
fn until(options: &Options) -> Result<Until> {
    ensure!(
        options.requests.is_none() || !options.workload.is_trace(),
        "-n would end a log in the middle of its order; it is replayed once, or until --duration or \
         --total-connections end it"
    );
    Ok(match (options.requests, options.total_connections, options.duration) {
        (Some(count), ..) => Until::Requests(count),
        (None, Some(count), _) => Until::ConnectionsMade(count),
        (None, None, Some(duration)) => Until::Elapsed(duration.nanoseconds()?),
        (None, None, None) if options.workload.is_trace() => Until::Laps(1),
        (None, None, None) => Until::Elapsed(DURATION_NS),
    })
}

/// What the load sends and where, for the diagnosis of a run that fails.
pub fn sent(options: &Options, url: &Url, address: SocketAddr) -> Sent {
    let name = options.sni.as_ref().unwrap_or(&url.host);
    Sent {
        server: options.unix.as_ref().map_or_else(|| address.to_string(), |path| path.display().to_string()),
        unix: options.unix.is_some(),
        offered: url.tls.then(|| offered(options)),
        name: name.parse::<std::net::IpAddr>().is_err().then(|| name.clone()),
    }
}

/// What the client's hellos offer, in words: what a server that refuses all of it did not find there.
fn offered(options: &Options) -> String {
    let versions = options.version.map_or_else(|| "1.2 and 1.3".to_owned(), |version| version.to_string());
    let named = |texts: Vec<String>, all: &str| if texts.is_empty() { all.to_owned() } else { texts.join(", ") };
    let suites = options.suite.iter().map(|suite| suite.openssl_name().to_owned()).collect();
    let groups = options.group.iter().map(ToString::to_string).collect();
    let only_hybrids = !options.group.is_empty() && options.group.iter().all(|group| group.is_hybrid());
    let without_curve = match only_hybrids {
        true => ", which OpenSSL has from version 3.5 on; --group X25519MLKEM768,X25519 offers a curve beside",
        false => "",
    };
    format!(
        "offered were TLS {versions}; suites {}; groups {}{without_curve}",
        named(suites, "AES-GCM, ChaCha20 and CBC"),
        named(groups, "X25519, P-256, P-384")
    )
}

fn pacing(options: &Options, speed: Option<f64>) -> Pacing {
    let seed = options.seed;
    match (options.rate, options.pause, speed) {
        (Some(PerSecond(per_second)), ..) => Pacing::Open(Rate { per_second, arrivals: options.arrivals, seed }),
        (None, Some(PauseFlag(spread, mean)), _) => {
            Pacing::Pauses(Pause { mean_ns: mean.0.as_nanos() as u64, spread, seed })
        }
        (None, None, Some(speed)) => Pacing::Recorded(speed),
        (None, None, None) => Pacing::Closed,
    }
}

fn timeouts(options: &Options) -> Result<Timeouts> {
    let nanoseconds = |time: Option<Time>| time.map(Time::nanoseconds).transpose();
    Ok(Timeouts {
        connect_ns: nanoseconds(options.connect_timeout)?,
        handshake_ns: nanoseconds(options.handshake_timeout)?,
        first_byte_ns: nanoseconds(options.first_byte_timeout)?,
        total_ns: nanoseconds(options.total_timeout)?,
    })
}

/// Most bytes of --body-file: it is kept in memory.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// How long a load lasts if nothing else is said: 10 s, in nanoseconds.
const DURATION_NS: u64 = 10_000_000_000;

/// Connections of a workload's user: the browsers of the papers had four.
const BROWSER_CONNECTIONS: u32 = 4;

/// Slices that a run is cut into, unless they would be shorter or longer than what follows, in nanoseconds.
const SLICES: u64 = 50;
const SLICE_NS_MIN: u64 = 50_000_000;
const SLICE_NS_MAX: u64 = 10_000_000_000;

/// Where the connections go: --connect-to, or what the URL's host resolves to. A Unix socket has no address; it is on
/// this machine.
///
/// # Errors
/// A name is not known, or there is no such socket.
pub fn address(options: &Options, url: &Url) -> Result<SocketAddr> {
    match (&options.unix, &options.connect_to) {
        (Some(path), _) => {
            let found = std::fs::metadata(path).map_err(|error| {
                anyhow!("there is no Unix socket {} (--unix): {error}; does the server run?", path.display())
            })?;
            ensure!(found.file_type().is_socket(), "{} is no Unix socket (--unix)", path.display());
            Ok(SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), url.port))
        }
        (None, Some(text)) => places::resolve(text),
        (None, None) => url.resolve(),
    }
}

/// What the flags ask for that a run can miss.
pub fn asked(options: &Options, url: &Url) -> Asked {
    Asked {
        reuse_percent: options.reuse.and_then(Reuse::percent).filter(|_| url.tls),
        rate_per_second: options.rate.map(|rate| rate.0),
        hits_per_handshake: options.hits_per_handshake,
        users: options.users.unwrap_or(options.connections),
        status: options.expect_status.0.filter(|_| !options.workload.is_given()),
        early_data: options.early_data,
    }
}
