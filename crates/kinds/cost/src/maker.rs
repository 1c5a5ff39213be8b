//! Makes the connections of the steps.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tlsdyno_base::certificate_files;
use tlsdyno_base::exchange::{Exchange, Held, Reach, Turn};
use tlsdyno_base::url::Url;
use tlsdyno_engine::load::{BROWSER_ALPN, Route};
use tlsdyno_tls::{Config, EarlyData, Handshake, Session, Settings, Suite, Version};
use tlsdyno_wire::opening::Opening;

use crate::file::Cost;
use crate::server::PATIENCE;
use crate::steps::{Requests, Resumed, StepId};

/// Number of sessions for a turn where the server takes each session once: enough for 8 ms.
const SESSIONS_OF_TURN: usize = 16;
/// Maximum wait for a ticket of TLS 1.3 after the first answer.
const TICKET_PATIENCE: Duration = Duration::from_millis(300);

/// Number of addresses of this machine that held connections come from: each has some 28,000 ports for a server.
const SOURCES: u8 = 8;

/// The answer to a request is an error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BadStatus(pub u16);

impl fmt::Display for BadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer has status {}", self.0)
    }
}

impl Error for BadStatus {}

pub(crate) struct Maker {
    pub address: SocketAddr,
    /// Where connections that are held come from.
    route: Route,
    /// Address of the same pages without TLS.
    plain: Option<SocketAddr>,
    /// What comes before TLS, and what the server is called there.
    opening: (Option<Opening>, String),
    /// For each page a GET after which the server closes, and one after which it keeps the connection; where it does
    /// not speak HTTP, what is said to it.
    requests: BTreeMap<String, [Vec<Turn>; 2]>,
    /// Nothing is requested.
    no_request: bool,
    /// By index of the step: configuration of its connections, and of those that take a session for them.
    configs: Vec<[Arc<Config>; 2]>,
    sessions: BTreeMap<(Version, Resumed), Vec<Session>>,
    /// Kinds of session that the server takes only once each.
    taken_once: BTreeSet<(Version, Resumed)>,
    /// A CPU is spare, on which the client polls without sleeping.
    stays_awake: bool,
    /// How many times as long as usual the server may take.
    pub slower: u32,
    /// Minimum time between the starts of two connections.
    pause: Option<Duration>,
    last: Option<Instant>,
}

pub(crate) struct Made {
    /// `None`: the connection ended before.
    pub handshake: Option<Handshake>,
    /// Certificates of a server that answered a request, its own first, DER.
    pub chain: Vec<Vec<u8>>,
    pub body_bytes: u64,
}

impl Maker {
    /// `url`: what is requested; `usual`: the suites that the server takes instead of AES-128-GCM.
    pub fn new<'a>(
        cost: &Cost,
        url: &Url,
        address: SocketAddr,
        steps: impl IntoIterator<Item = &'a StepId>,
        usual: &[Suite],
    ) -> Result<Maker> {
        let host = url.host_header();
        let request = |path: &str, connection: &str| {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tlsdyno\r\n{connection}\r\n");
            vec![Turn::http(head.into_bytes())]
        };
        let turns = cost.turns(url)?;
        let of_page = |page: &str| {
            let path = if page.is_empty() { &url.path } else { page };
            let of_http = || [request(path, "Connection: close\r\n"), request(path, "")];
            (page.to_owned(), turns.clone().map_or_else(of_http, |turns| [turns.clone(), turns]))
        };
        let pages = [""].into_iter().chain(cost.pages.iter().map(String::as_str));
        let certificate = match (&cost.client_certificate, &cost.client_key) {
            (Some(of), Some(key)) => Some(Arc::new(certificate_files::client_certificate(of, key)?)),
            _ => None,
        };
        let configs = |step: &StepId| {
            let of_step = step.http2.map(|_| BROWSER_ALPN.map(str::to_owned).to_vec());
            let (alpn, client_certificate) = (of_step.unwrap_or_else(|| cost.alpn.clone()), certificate.clone());
            let mut settings = Settings { alpn, client_certificate, ..step.settings(&url.host, usual) };
            if let Some(group) = cost.group.filter(|_| step.group.is_none()) {
                settings.groups = vec![group];
            }
            let of_session = Settings { lack: None, ..settings.clone() };
            Ok([Arc::new(Config::new(settings)?), Arc::new(Config::new(of_session)?)])
        };
        let is_of_loopback = address.is_ipv4() && address.ip().is_loopback();
        let sources = (1..=SOURCES).filter(|_| is_of_loopback).map(|last| Ipv4Addr::new(127, 0, 1, last).into());
        Ok(Maker {
            address,
            route: Route { sources: sources.collect(), ..Route::default() },
            plain: cost.plain_url.as_deref().map(|url| Url::parse(url)?.resolve()).transpose()?,
            opening: (url.protocol.and_then(|protocol| protocol.opening), url.host.clone()),
            requests: pages.map(of_page).collect(),
            no_request: cost.no_request,
            configs: steps.into_iter().map(configs).collect::<Result<_>>()?,
            sessions: BTreeMap::new(),
            taken_once: BTreeSet::new(),
            // No time is told of a server that may be slow.
            stays_awake: cost.slower() == 1 && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1),
            slower: cost.slower(),
            pause: cost.at_most_per_s.map(|rate| Duration::from_secs_f64(1.0 / rate)),
            last: None,
        })
    }

    /// Makes one connection of the step with this number. Fails if it ends early, or resumes no session although it
    /// should.
    pub fn make(&mut self, number: usize, step: &StepId) -> Result<Made> {
        let config = step.version.map(|_| Arc::clone(&self.configs[number][0]));
        let session = step.version.zip(step.resumes).map(|kind| self.session(number, kind)).transpose()?;
        let connected = self.connect(step.version.is_none())?;
        if step.reach == Reach::Tcp {
            connected.ending_at(Reach::Tcp, None, None)?;
            return Ok(Made { handshake: None, chain: Vec::new(), body_bytes: 0 });
        }
        let connected = self.opened(connected, step)?;
        let made = if step.reach == Reach::Answered {
            let keeps = step.more_requests > 0 || step.http2.is_some();
            let request = &self.requests[&step.page][usize::from(keeps)];
            let mut exchange = connected.taking_turns(config.as_ref(), session, request)?;
            exchange.answered()?;
            match step.http2 {
                Some(Requests::AtOnce) => exchange.again_at_once(step.more_requests)?,
                _ => (0..step.more_requests).try_for_each(|_| exchange.again())?,
            }
            let answer = exchange.end()?;
            if answer.status >= 400 {
                bail!(BadStatus(answer.status));
            }
            // The answer is that of the last of them.
            let body_bytes = answer.body_bytes * u64::from(1 + step.more_requests);
            Made { handshake: answer.handshake, chain: answer.chain, body_bytes }
        } else {
            let config = config.filter(|_| step.reach != Reach::Opened);
            let handshake = connected.ending_at(step.reach, config.as_ref(), session)?;
            ensure!(step.reach != Reach::Refused || handshake.is_none(), "the server goes on with such a hello");
            Made { handshake, chain: Vec::new(), body_bytes: 0 }
        };
        let handshake = made.handshake.as_ref();
        let is_resumed = handshake.is_some_and(|handshake| handshake.resumed.is_some());
        ensure!(step.resumes.is_none() || is_resumed, "the server does not resume the session");
        let is_compressed = handshake.is_some_and(|handshake| handshake.certificate_compressed);
        ensure!(!step.compressed || is_compressed, "the server does not compress its certificate by zlib (RFC 8879)");
        let is_http2 = handshake.is_some_and(|handshake| handshake.alpn == Some(0));
        ensure!(step.http2.is_none() || is_http2, "the server does not choose HTTP/2 (ALPN)");
        let is_early = handshake.is_some_and(|handshake| handshake.early_data == EarlyData::Accepted);
        ensure!(step.resumes != Some(Resumed::EarlyData) || is_early, "the server takes no early data");
        Ok(made)
    }

    /// Makes a connection of the step with this number and stays there. `turn`: number of those before it, which take
    /// turns in where they come from.
    pub fn hold(&mut self, number: usize, step: &StepId, turn: u64) -> Result<Held> {
        self.wait();
        let socket = self.route.connect(&self.address, turn, false);
        let stream = TcpStream::from(socket.map_err(|kind| anyhow!("it could not be made ({kind})"))?);
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let connected = Exchange::over(stream, PATIENCE)?;
        let request = &self.requests[&step.page][1];
        if step.reach == Reach::Tcp {
            return Ok(connected.held_at(step.reach, None, request)?);
        }
        Ok(self.opened(connected, step)?.held_at(step.reach, Some(&self.configs[number][0]), request)?)
    }

    /// Says what comes before TLS.
    fn opened<'b>(&self, connected: Exchange<'b>, step: &StepId) -> Result<Exchange<'b>> {
        let (opening, host) = &self.opening;
        Ok(connected.opened(opening.filter(|_| step.version.is_some()), host)?)
    }

    /// For the pause since the last connection.
    fn wait(&mut self) {
        if let (Some(pause), Some(last)) = (self.pause, self.last) {
            std::thread::sleep(pause.saturating_sub(last.elapsed()));
        }
        self.last = Some(Instant::now());
    }

    fn connect<'a>(&mut self, is_plain: bool) -> Result<Exchange<'a>> {
        self.wait();
        let address = if is_plain { self.plain.context("there is no plain HTTP")? } else { self.address };
        let exchange = Exchange::connect(address, self.slower * PATIENCE)?;
        Ok(if self.stays_awake { exchange.staying_awake() } else { exchange })
    }

    /// Session for connections of this step to resume.
    fn session(&mut self, number: usize, kind: (Version, Resumed)) -> Result<Session> {
        if self.sessions.get(&kind).is_none_or(Vec::is_empty) {
            self.take_sessions(number, kind)?;
        }
        let held = self.sessions.entry(kind).or_default();
        let session = if self.taken_once.contains(&kind) { held.pop() } else { held.last().cloned() };
        session.context("the server gives no session to resume")
    }

    /// Takes new sessions by a connection with a full handshake.
    fn take_sessions(&mut self, number: usize, kind: (Version, Resumed)) -> Result<()> {
        let config = Arc::clone(&self.configs[number][1]);
        let connected = self.connect(false)?.opened(self.opening.0, &self.opening.1)?;
        let sessions = if self.no_request {
            connected.taking_session(&config)?.into_iter().collect()
        } else {
            let mut exchange = connected.taking_turns(Some(&config), None, &self.requests[""][1])?;
            exchange.answered()?;
            exchange.wait_for_ticket(self.slower * TICKET_PATIENCE);
            exchange.end()?.sessions
        };
        ensure!(!sessions.is_empty(), "the server gives no session to resume");
        self.sessions.entry(kind).or_default().extend(sessions);
        Ok(())
    }

    /// Gives each connection of this step a new session, or no longer. `false`: nothing changed, or it resumes none.
    pub fn resume_once_each(&mut self, step: &StepId, once: bool) -> bool {
        let Some(kind) = step.version.zip(step.resumes) else { return false };
        // The server has taken the one that is held.
        self.sessions.remove(&kind);
        if once { self.taken_once.insert(kind) } else { self.taken_once.remove(&kind) }
    }

    /// Takes new sessions for a turn of this step, before the server forgets the last ones: it may have room for few.
    /// Fails if the server issues none.
    pub fn renew_session(&mut self, number: usize, step: &StepId) -> Result<()> {
        self.stock(number, step, SESSIONS_OF_TURN)
    }

    /// The same for so many connections, none of which then makes another one first to take a session.
    pub fn stock(&mut self, number: usize, step: &StepId, connections: usize) -> Result<()> {
        let Some(kind) = step.version.zip(step.resumes) else { return Ok(()) };
        self.sessions.remove(&kind);
        let wanted = if self.taken_once.contains(&kind) { connections } else { 1 };
        while self.sessions.get(&kind).map_or(0, Vec::len) < wanted {
            self.take_sessions(number, kind)?;
        }
        Ok(())
    }

    /// The next connection of this step needs no other one first to take a session.
    pub fn is_stocked(&self, step: &StepId) -> bool {
        let kind = step.version.zip(step.resumes);
        kind.is_none_or(|kind| self.sessions.get(&kind).is_some_and(|held| !held.is_empty()))
    }
}
