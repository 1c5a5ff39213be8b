//! What load is made: the flags that `tlsdyno load` and its sweeps share.

use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use tlsdyno_base::choice::choice;
use tlsdyno_engine::load::limits::STREAMS_MAX;
use tlsdyno_engine::load::{Arrivals, BROWSER_STREAMS, Pause};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::Network;
use tlsdyno_record::store::load_run::Asked;
use tlsdyno_tls::{Effort, Group, Suite, Version};

use crate::load::client;
use crate::load::diagnosis::Sent;
use crate::load::places::{self, Sources};
use crate::load::url::Url;
use crate::load::values::{
    ExpectedStatus, Header, Profile, Reuse, bandwidth, parse_alpn, parse_method, pause, per_second,
};
use crate::load::workload::WorkloadFlags;

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
    #[arg(long, value_name = "RATE", group = "paced", value_parser = per_second)]
    pub rate: Option<f64>,

    /// A user waits so long between two of its connections: exp:2s (exponential, this mean) or const:2s. Sessions may
    /// expire meanwhile. Goes with what ends connections: --profile, --close, --requests-per-connection, session
    /// limits
    #[arg(long, value_name = "SPREAD:TIME", group = "paced", value_parser = pause)]
    pub pause: Option<Pause>,

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

    /// A further header, for example 'Accept: text/html', or @FILE with one (several times); Host replaces
    /// the URL's
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

    /// Go to the server, which is on this machine's loopback, through a network of this delay (of a packet and its
    /// answer together), loss (of the packets of each way) and bandwidth, for example
    /// 'delay=50ms,loss=1%,rate=56kbit'; see docs/LOAD.md. Needs root
    #[arg(long, value_name = "NETWORK", conflicts_with_all = ["unix", "source"])]
    pub network: Option<Network>,

    /// Each connection's client receives bodies at this bandwidth at most, for example 400kbit: an answer takes as long
    /// from its first byte on, and then the next request is made. A third of --duration, at least 1s, goes before
    /// and does not count
    #[arg(long, value_name = "BANDWIDTH", conflicts_with_all = ["paced", "follow_redirects", "requests"])]
    #[arg(conflicts_with_all = ["total_connections", "trace", "har"], value_parser = bandwidth)]
    pub receive_rate: Option<u64>,

    /// Say how many clients received so much on the average, connecting and waiting included [default: four fifths of
    /// --receive-rate]
    #[arg(long, value_name = "BANDWIDTH", requires = "receive_rate", value_parser = bandwidth)]
    pub keep: Option<u64>,

    /// Server name sent and verified [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,

    /// Offer HTTP/2 and HTTP/1.1 by ALPN, as browsers do, and speak what the server chooses, or HTTP/2 to an http://
    /// server that is known to speak it; a user has one connection
    #[arg(long, conflicts_with_all = ["alpn", "early_data", "per_user", "receive_rate"])]
    pub http2: bool,

    /// Requests at once on a connection of HTTP/2, if the server allows so many [default: 1; of a workload's user 100,
    /// whose objects follow their document]
    #[arg(long, value_name = "N", requires = "http2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(STREAMS_MAX)))]
    pub streams: Option<u32>,

    /// Send what browsers send: User-Agent, Accept, Accept-Language, and a cookie of so many bytes (0: none). Headers
    /// of -H replace those
    #[arg(long, value_name = "COOKIE_BYTES", value_parser = clap::value_parser!(u32).range(..=8192))]
    pub browser_headers: Option<u32>,

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
        let own = self.header.iter().filter(|header| !header.is_host()).map(Header::line);
        own.chain(self.browser_headers.into_iter().flat_map(|bytes| client::browser_lines(&self.header, bytes)))
            .collect()
    }

    /// Requests at once on a connection, and pages of a user: those of a URL have nothing to do with each other.
    pub fn at_once(&self) -> (u32, u32) {
        match (self.http2, self.workload.is_given()) {
            (false, _) => (1, 1),
            (true, true) => (self.streams.unwrap_or(BROWSER_STREAMS), 1),
            (true, false) => (self.streams.unwrap_or(1), self.streams.unwrap_or(1)),
        }
    }
}

pub fn effort(options: &Options) -> Effort {
    if options.insecure { Effort::Lean } else { options.effort }
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

/// Where the connections go: --connect-to, or what the URL's host resolves to. A Unix socket has no address; it is on
/// this machine.
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

pub fn asked(options: &Options, url: &Url) -> Asked {
    Asked {
        reuse_percent: options.reuse.and_then(Reuse::percent).filter(|_| url.tls),
        rate_per_second: options.rate,
        hits_per_handshake: options.hits_per_handshake,
        users: options.users.unwrap_or(options.connections),
        status: options.expect_status.0.filter(|_| !options.workload.is_given()),
        early_data: options.early_data,
        network: options.network,
    }
}
