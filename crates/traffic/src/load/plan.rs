//! The plan of the engine that the flags of a load mean.
//! Circle: load/redirects judges whether the whole of the flags allows redirects, as part of making the plan.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tlsdyno_base::certificate_files;
use tlsdyno_base::listening::is_loopback;
use tlsdyno_engine::load::limits::CONNECTIONS_MAX;
use tlsdyno_engine::load::{
    BROWSER_ALPN, Connections, LoadTarget, Pacing, Pause, Plan, Rate, Rated, Route, Timeouts, Until, Workload,
};
use tlsdyno_engine::time::Time;
use tlsdyno_tls::{Config, Effort, Settings};

use crate::load::options::{Options, effort};
use crate::load::shape::Shape;
use crate::load::url::Url;
use crate::load::{client, redirects, urls};
use crate::network;

/// Most bytes of --body-file: it is kept in memory.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// How long a load lasts if nothing else is said: 10 s, in nanoseconds.
const DURATION_NS: u64 = 10_000_000_000;

/// The least time in which clients that receive at a rate begin, and which does not count.
const LEAD_IN_NS_MIN: u64 = 1_000_000_000;

/// Connections of a workload's user: the browsers of the papers had four.
const BROWSER_CONNECTIONS: u32 = 4;

/// Slices that a run is cut into, unless they would be shorter or longer than what follows, in nanoseconds.
const SLICES: u64 = 50;
const SLICE_NS_MIN: u64 = 50_000_000;
const SLICE_NS_MAX: u64 = 10_000_000_000;

/// The plan of the engine.
pub fn plan(options: &Options, url: &Url, address: SocketAddr) -> Result<Plan> {
    check_target(options, url, address)?;
    let tls = if url.tls { Some(tls(options, url, address)?) } else { None };
    let host =
        options.header.iter().find(|header| header.is_host()).map_or(url.host_header(), |header| header.value.clone());
    let read = |path: &PathBuf| tlsdyno_base::input::read(path, BODY_BYTES_MAX);
    let body: Option<Arc<[u8]>> = options.body_file.as_ref().map(read).transpose()?.map(Arc::from);
    let (workload, per_user) = requested(options, url, body.as_ref().map_or(options.body, |body| body.len() as u64))?;
    let shape = Shape::new(options);
    shape.check(options, url)?;
    check_pace(options)?;
    let (window, numbered) = options.workload.window();
    let connections = Connections {
        total: options.connections,
        per_user,
        first_alone: !options.all_at_once,
        requests_each: shape.requests_each,
        timeout_ns: options.timeout.nanoseconds()?,
        batch_ns: options.batch.map_or(0, |batch| batch.0.as_nanos() as u64),
    };
    let duration_ns = options.duration.map_or(Ok(DURATION_NS), Time::nanoseconds)?;
    let speed = options.workload.timing;
    let (streams, pages_at_once_count) = options.at_once();
    let rated = rated(options)?;
    // All clients connect at once, most with a full handshake.
    let lead_in_ns = if rated.is_some() { (duration_ns / 3).max(LEAD_IN_NS_MIN) } else { 0 };
    Ok(Plan {
        route: route(options)?,
        body,
        streams,
        pages_at_once_count,
        timeouts: timeouts(options)?,
        resumption: shape.resumption,
        session_limits: shape.session_limits,
        pacing: pacing(options, speed),
        // By a schedule, that and not the window says how far users get.
        window: window.filter(|_| options.rate.is_none() && speed.is_none()),
        redirects: options.follow_redirects.map(|most| redirects::here(most, options, url, address, &host)),
        numbered,
        until: match until(options)? {
            Until::Elapsed(elapsed_ns) => Until::Elapsed(elapsed_ns + lead_in_ns),
            until => until,
        },
        slice_ns: rated.is_none().then(|| (duration_ns / SLICES).clamp(SLICE_NS_MIN, SLICE_NS_MAX)),
        rated,
        lead_in_ns,
        ..Plan::new(LoadTarget { address, host, tls, prior_knowledge: options.http2 }, workload, connections)
    })
}

fn rated(options: &Options) -> Result<Option<Rated>> {
    let Some(bits_per_second) = options.receive_rate else { return Ok(None) };
    let keep_bits_per_second = options.keep.unwrap_or(bits_per_second / 5 * 4);
    ensure!(keep_bits_per_second <= bits_per_second, "--keep is a part of --receive-rate, and cannot be above it");
    Ok(Some(Rated { bits_per_second, keep_bits_per_second }))
}

fn check_target(options: &Options, url: &Url, address: SocketAddr) -> Result<()> {
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
    if options.network.is_some() {
        network::check_address(address)?;
    }
    ensure!(url.tls || options.client_cert.is_none(), "--client-cert is for TLS; the URL is plain http");
    Ok(())
}

/// What is requested, and over how many connections of each user.
fn requested(options: &Options, url: &Url, body_bytes: u64) -> Result<(Arc<Workload>, u32)> {
    let made = options.workload.spec(options.users, options.connections)?;
    ensure!(
        made.is_none() || url.path == "/",
        "the workload says what is requested; give the URL without a path, not {}",
        url.path
    );
    let is_browser = made.is_some() && options.receive_rate.is_none() && !options.http2;
    let per_user = options.per_user.unwrap_or(if is_browser { BROWSER_CONNECTIONS } else { 1 });
    ensure!(
        !options.all_at_once || per_user > 1,
        "--all-at-once is about the connections of a user, of which each has one here: add --per-user or a workload"
    );
    let workload = match &made {
        None => Arc::new(urls::workload(options, url, per_user, body_bytes)?),
        Some(spec) => {
            let site = tlsdyno_workloads::make(spec)?;
            site.summary.tell();
            client::workload(&site, &options.header_lines())
        }
    };
    if made.is_none_or(|spec| spec.is_servers_own()) {
        tlsdyno_workloads::changing::tell(&workload);
    }
    Ok((workload, per_user))
}

fn check_pace(options: &Options) -> Result<()> {
    let names_window = options.workload.window.is_some();
    ensure!(
        options.rate.is_none() || !names_window,
        "--window bounds how far a closed loop gets ahead; at --rate the schedule says that: leave out one of them"
    );
    ensure!(
        options.workload.timing.is_none() || !(names_window || options.rate.is_some()),
        "--timing replays each request at its own time; that leaves nothing for --window or --rate: leave them out"
    );
    ensure!(
        options.pause.is_none() || !options.workload.is_trace(),
        "a log has times of its own, which --timing keeps to; leave out --pause"
    );
    Ok(())
}

fn route(options: &Options) -> Result<Route> {
    let sources = options.source.iter().flat_map(|sources| sources.0.iter().copied()).collect();
    let route = Route { unix_path: options.unix.clone(), sources, source_of_client: false, ..Route::default() };
    ensure!(
        options.connections <= route.connections_max(CONNECTIONS_MAX),
        "an address has no more than {CONNECTIONS_MAX} ports, and so connections to one server; name more addresses \
         (--source)"
    );
    Ok(route)
}

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

fn tls(options: &Options, url: &Url, address: SocketAddr) -> Result<Arc<Config>> {
    let effort = effort(options);
    let files = options.client_cert.as_ref().zip(options.client_key.as_ref());
    let certificate =
        files.map(|(certificate, key)| certificate_files::client_certificate(certificate, key)).transpose()?;
    let settings = Settings {
        versions: options.version.into_iter().collect(),
        suites: options.suite.clone(),
        groups: options.group.clone(),
        server_name: Some(options.sni.clone().unwrap_or_else(|| url.host.clone())),
        alpn: if options.http2 { BROWSER_ALPN.map(str::to_owned).to_vec() } else { options.alpn.clone() },
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

fn pacing(options: &Options, speed: Option<f64>) -> Pacing {
    let seed = options.seed;
    match (options.rate, options.pause, speed) {
        (Some(per_second), ..) => Pacing::Open(Rate { per_second, arrivals: options.arrivals, seed }),
        (None, Some(pause), _) => Pacing::Pauses(Pause { seed, ..pause }),
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
