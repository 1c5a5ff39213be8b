//! What a load run is asked to do. Plain data, filled by the control plane.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use tlsdyno_tls::{Effort, named};

use super::limits::{CONNECTIONS_MAX, RATE_MAX, STREAMS_MAX};
use super::rated::Rated;
use super::redirect::Redirects;
use super::route::Route;
use super::share::Share;

/// The name of HTTP/2 over TLS in ALPN.
pub const HTTP2: &str = tlsdyno_wire::http2::ALPN;

/// What browsers offer by ALPN to speak HTTP/2.
pub const BROWSER_ALPN: [&str; 2] = [HTTP2, "http/1.1"];

/// Requests at once on a browser's connection of HTTP/2, if the server allows so many: Chromium's.
pub const BROWSER_STREAMS: u32 = 100;

/// What a response must look like to count as a hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Expect {
    /// Status code; `None` accepts any.
    pub status: Option<u16>,
    /// Body length in bytes; `None` accepts any.
    pub body_bytes: Option<u64>,
}

/// One object that can be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Object {
    /// Method, for example `GET`, `HEAD`, `POST`.
    pub method: String,
    /// Path and query as on the request line.
    pub path: String,
    /// Further header lines, each ending in CRLF (for example `If-Modified-Since: …\r\n`).
    pub headers: String,
    /// Bytes sent as body (POST); `Content-Length` is added by the engine.
    pub body_bytes: u64,
    /// What the response must look like.
    pub expect: Expect,
}

/// One request of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Index into [`Workload::objects`].
    pub object: u32,
    /// The page ends here: the next request waits until all up to this one are done.
    pub page_end: bool,
    /// All of the user's connections are closed after the page that this request ends (only with `page_end`).
    pub close_after: bool,
    /// Before this request (the first of a page) the user forgets its TLS sessions and closes its connections: a new
    /// browser session.
    pub forget_session: bool,
}

/// One browser-like client: a run of consecutive requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct User {
    /// Indices into [`Workload::requests`].
    pub requests: Range<u32>,
}

/// Which objects are requested by which users in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Workload {
    /// The distinct objects that requests name by index.
    pub objects: Vec<Object>,
    /// The requests of all users, each user's in order and without gap.
    #[cfg_attr(feature = "serde", serde(with = "super::written::requests"))]
    pub requests: Vec<Request>,
    /// The users, in order of first appearance.
    pub users: Vec<User>,
    /// The place of each request in the trace that the workload was made of, all different and ascending within a
    /// user; empty if the workload is no trace.
    pub order: Vec<u32>,
    /// When each request was made in that trace, in milliseconds after its first, ascending within a user; empty if
    /// that is not known.
    pub at_ms: Vec<u64>,
}

/// How many connections users open, and what happens on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Connections {
    /// Most connections open at once, over all users.
    pub total: u32,
    /// Most connections one user has open at once (browsers of the papers: 4).
    pub per_user: u32,
    /// A user's further connections wait until the first handshake of the page is complete (and so can resume its
    /// session).
    pub first_alone: bool,
    /// Close a connection after this many requests; `None`: as long as the page or the user lasts. `Some(1)` sends
    /// `Connection: close`.
    pub requests_each: Option<u32>,
    /// How long one connection may go without progress before it counts as timed out, and how long what is in flight
    /// at the end of a timed run may go on, in nanoseconds.
    pub timeout_ns: u64,
    /// Fixed pause before each wait for events, in nanoseconds, so that events arrive in batches as in a busy client
    /// (xtask bench-client). 0: none.
    pub batch_ns: u64,
}

/// How long each phase of a connection may take, in nanoseconds, beside [`Connections::timeout_ns`], which is without
/// any progress. `None`: no limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timeouts {
    /// `connect` called until the first bytes leave.
    pub connect_ns: Option<u64>,
    /// The first bytes until the handshake is complete.
    pub handshake_ns: Option<u64>,
    /// A request sent until the first byte of its response.
    pub first_byte_ns: Option<u64>,
    /// A request sent until its response is complete.
    pub total_ns: Option<u64>,
}

impl Timeouts {
    /// The limits that are set, nanoseconds.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        [self.connect_ns, self.handshake_ns, self.first_byte_ns, self.total_ns].into_iter().flatten()
    }
}

/// When a connection intends to resume a session.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Resumption {
    /// Whenever the user holds a session.
    Always,
    /// Never.
    Never,
    /// This share of connections, by the running counter of Apostolopoulos et al. 2000: reuse if and only if
    /// reused < share · connections so far. 0 to 1. One counter for all users; theirs is each client's own.
    Share(f64),
    /// The same rule and share for each client by itself: it offers sessions of its own only. A client is a place among
    /// the active users; it outlives the users of the workload that it plays one after the other, and so do its
    /// sessions.
    ShareOfEach(f64),
}

impl Resumption {
    /// Percentage of connections that are to resume, where it is fixed.
    pub fn percent(self) -> Option<f64> {
        match self {
            Resumption::Share(share) | Resumption::ShareOfEach(share) => Some(share * 100.0),
            Resumption::Always | Resumption::Never => None,
        }
    }
}

named! {
    /// How the arrivals of an open loop are spread.
    #[derive(Default)]
    pub enum Arrivals: "spread of arrivals" {
        /// At equal distances
        #[default]
        Constant = "constant",
        /// Independent of each other, at exponential distances, as from many users
        Poisson = "poisson",
    }
}

/// The rate of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rate {
    /// Pages that are begun in a second (a page of one request: requests).
    pub per_second: f64,
    /// Distribution of the distances between arrivals.
    pub arrivals: Arrivals,
    /// Seed of random distances.
    pub seed: u64,
}

named! {
    /// How pauses are spread.
    pub enum Spread: "spread of pauses" {
        /// All alike
        Constant = "const",
        /// Exponentially, as of people who do not wait for each other
        Exponential = "exp",
    }
}

/// Pauses between the connections of a user.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pause {
    /// Their mean, nanoseconds.
    pub mean_ns: u64,
    /// Distribution of the pauses.
    pub spread: Spread,
    /// Seed of random pauses.
    pub seed: u64,
}

/// What decides when a user begins a page.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pacing {
    /// As soon as the user's last one is complete: a closed loop.
    Closed,
    /// The same, but between two of its connections a user pauses.
    Pauses(Pause),
    /// When the schedule says so, by a user that is free; latency then counts from the schedule too.
    Open(Rate),
    /// When it began in the workload's trace, so many times as fast; latency then counts from that too. Every user
    /// makes its requests once.
    Recorded(f64),
}

impl Pacing {
    /// The same with this seed of what is random in it.
    pub fn seeded(self, seed: u64) -> Pacing {
        match self {
            Pacing::Pauses(pause) => Pacing::Pauses(Pause { seed, ..pause }),
            Pacing::Open(rate) => Pacing::Open(Rate { seed, ..rate }),
            Pacing::Closed | Pacing::Recorded(_) => self,
        }
    }
}

/// How long a user's TLS session lasts (Mraz et al. 2002, section 1 and Figure 2). When it is up, the user closes its
/// connections and begins with a full handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionLimits {
    /// From its first connection, in nanoseconds.
    pub lifetime_ns: Option<u64>,
    /// Number of requests under one session.
    pub requests: Option<u32>,
    /// The first session of each client has a part of it behind it already, each client another: as if they had come at
    /// different times, so that renewals are spread. Otherwise all begin, and so renew, together.
    pub staggered: bool,
}

/// What ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Until {
    /// Each of these users so many times: a block of equal work.
    Laps(u64),
    /// The users over and over until this much time has passed, in nanoseconds; what is in flight then has
    /// [`Connections::timeout_ns`] to complete.
    Elapsed(u64),
    /// The users over and over until this many connections were made; what is in flight then completes.
    ConnectionsMade(u64),
    /// The users over and over until this many requests were begun; what is in flight then completes.
    Requests(u64),
}

/// The server that is loaded.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct LoadTarget {
    /// Address to which clients connect.
    pub address: SocketAddr,
    /// Value of the Host header.
    pub host: String,
    /// TLS settings; `None` is plain HTTP. They are compiled, and so left out where a plan is written: that writes its
    /// settings beside it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub tls: Option<Arc<tlsdyno_tls::Config>>,
    /// Without TLS: the server is known to speak HTTP/2 (RFC 9113 section 3.3). With TLS it chooses.
    pub prior_knowledge: bool,
}

impl LoadTarget {
    /// Whether the server may choose HTTP/2, or is known to speak it: then requests are made in it.
    pub fn offers_http2(&self) -> bool {
        match &self.tls {
            Some(config) => config.settings().alpn.iter().any(|name| name == HTTP2),
            None => self.prior_knowledge,
        }
    }

    /// How much of a real client's work is done for its TLS; `None` without TLS.
    pub fn effort(&self) -> Option<Effort> {
        self.tls.as_ref().map(|config| config.settings().effort)
    }
}

/// One run of the engine. What is large and shared, the workload and the body, is left out where a plan is written.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Plan {
    /// The server that is loaded.
    pub target: LoadTarget,
    /// Addresses from which clients connect, and the path to the server.
    pub route: Route,
    /// The content of every request body, as long as the objects with a body say; `None`: zeros.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub body: Option<Arc<[u8]>>,
    /// Objects, users and their order.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub workload: Arc<Workload>,
    /// Which of the workload's users take part.
    pub users: Range<u32>,
    /// How many connections users open, and what happens on each.
    pub connections: Connections,
    /// Requests at once on a connection where the server chooses HTTP/2, if it allows so many.
    pub streams: u32,
    /// Pages that a user has under way at once, as far as its connection carries them: requests that have nothing to do
    /// with each other. 1: a page waits for the one before it.
    pub pages_at_once_count: u32,
    /// How long their phases may take.
    pub timeouts: Timeouts,
    /// Which connections resume a session.
    pub resumption: Resumption,
    /// How long a user's session lasts.
    pub session_limits: SessionLimits,
    /// What decides when a user begins a page.
    pub pacing: Pacing,
    /// What ends the run.
    pub until: Until,
    /// How far requests may get ahead of each other in the order of the workload's trace: the newest presented is less
    /// than so many places from the oldest unserved (our reading of Coarfa et al. 2006 section 2.2.2, which says "the
    /// last request served"). `None`: users know nothing of each other.
    pub window: Option<u32>,
    /// Which redirects are followed; `None`: none, they are answers like others.
    pub redirects: Option<Redirects>,
    /// How fast each client receives; `None`: as fast as the server sends. Each client has one connection at a time.
    pub rated: Option<Rated>,
    /// Each request carries its place in the trace, in the header `Trace-Index`.
    pub numbered: bool,
    /// Cut the run into slices of this length, in nanoseconds.
    pub slice_ns: Option<u64>,
    /// Time from the beginning on in which nothing counts, in nanoseconds, a part of [`Until::Elapsed`]: clients
    /// connect all at once, which is no part of a load on kept connections. Then what completes until the deadline
    /// counts, and nothing after it. 0: none, and what is under way at the deadline counts too. The beginning is the
    /// first connection, or the moment that was named for it, so that several loops count in the same time.
    pub lead_in_ns: u64,
    /// Which part of the load this is ([`Plan::part`]); by default all of it. Written plans are whole.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub share: Share,
}

impl Plan {
    /// All users of the workload once, in a closed loop, without resumption.
    pub fn new(target: LoadTarget, workload: Arc<Workload>, connections: Connections) -> Plan {
        Plan {
            target,
            route: Route::default(),
            body: None,
            users: 0..workload.users.len() as u32,
            workload,
            connections,
            streams: 1,
            pages_at_once_count: 1,
            timeouts: Timeouts::default(),
            resumption: Resumption::Never,
            session_limits: SessionLimits::default(),
            pacing: Pacing::Closed,
            until: Until::Laps(1),
            window: None,
            redirects: None,
            rated: None,
            numbered: false,
            slice_ns: None,
            lead_in_ns: 0,
            share: Share::default(),
        }
    }

    /// Whether the plan can be run.
    pub fn check(&self) -> Result<(), &'static str> {
        self.workload.check(&self.users)?;
        self.check_order()?;
        self.check_connections()?;
        self.check_http2()?;
        self.check_rated()?;
        self.check_pacing()
    }

    /// What keeps to the order of a trace, and what cannot do so with it.
    fn check_order(&self) -> Result<(), &'static str> {
        if (self.window.is_some() || self.numbered) && self.workload.order.len() != self.workload.requests.len() {
            return Err("its workload is no trace, and so has no order to keep to or to number by");
        }
        if self.window == Some(0) {
            return Err("the window must let at least one request in");
        }
        if self.window.is_some() && self.pacing != Pacing::Closed {
            return Err("a window over the order of a trace is for a closed loop");
        }
        let keeps_order = self.window.is_some() || matches!(self.pacing, Pacing::Recorded(_));
        if keeps_order && matches!(self.until, Until::Requests(_)) {
            return Err("a number of requests would end a trace in the middle of its order");
        }
        if self.lead_in_ns > 0 {
            let is_simple = self.window.is_none() && self.redirects.is_none() && self.slice_ns.is_none();
            if self.pacing != Pacing::Closed || !is_simple {
                return Err("a lead-in is for a closed loop, without window, redirects and slices");
            }
            if !matches!(self.until, Until::Elapsed(elapsed_ns) if elapsed_ns > self.lead_in_ns) {
                return Err("a lead-in is a part of the time that the run takes");
            }
        }
        Ok(())
    }

    /// Numbers of connections, their phases and bodies, and what sessions they resume.
    fn check_connections(&self) -> Result<(), &'static str> {
        let connections = &self.connections;
        if connections.total == 0 || connections.per_user == 0 || connections.requests_each == Some(0) {
            return Err("numbers of connections and of requests on each must be at least 1");
        }
        if connections.total > self.route.connections_max(CONNECTIONS_MAX) {
            return Err(
                "one source address has no more than 65,535 ports, and so connections; name more of them (--source)",
            );
        }
        let differs = |body: &Arc<[u8]>| {
            let mut sizes = self.workload.objects.iter().map(|object| object.body_bytes);
            sizes.any(|bytes| bytes > 0 && bytes != body.len() as u64)
        };
        if self.body.as_ref().is_some_and(differs) {
            return Err("a request body has another length than its content");
        }
        if connections.timeout_ns == 0 || self.timeouts.iter().any(|timeout_ns| timeout_ns == 0) {
            return Err("the time-out must not be zero");
        }
        if let Resumption::Share(share) | Resumption::ShareOfEach(share) = self.resumption
            && !(0.0..=1.0).contains(&share)
        {
            return Err("the share of resumed connections must be between 0 and 1");
        }
        if self.session_limits.requests == Some(0) {
            return Err("a session must be good for at least one request");
        }
        Ok(())
    }

    /// Several requests at once, and what goes with HTTP/1.1 only.
    fn check_http2(&self) -> Result<(), &'static str> {
        if !(1..=STREAMS_MAX).contains(&self.streams) || self.pages_at_once_count == 0 {
            return Err("a connection carries from 1 to 1,000 requests at once");
        }
        let settings = self.target.tls.as_ref().map(|tls| tls.settings());
        if self.target.offers_http2() && (self.rated.is_some() || settings.is_some_and(|settings| settings.early_data))
        {
            return Err("early data and clients that receive at a rate are for HTTP/1.1");
        }
        Ok(())
    }

    /// Clients that receive at a rate.
    fn check_rated(&self) -> Result<(), &'static str> {
        let Some(rated) = self.rated else { return Ok(()) };
        if rated.bits_per_second == 0 || rated.keep_bits_per_second > rated.bits_per_second {
            return Err("a rate at which clients receive is above 0, and they cannot keep more than that");
        }
        let is_simple = self.window.is_none() && self.redirects.is_none() && self.connections.per_user == 1;
        if self.pacing != Pacing::Closed || !is_simple || !matches!(self.until, Until::Elapsed(_)) {
            return Err("clients receive at a rate in a closed loop of a given time, each over one connection at a \
                        time, without window and redirects");
        }
        Ok(())
    }

    /// The rate of an open loop, and the speed of a trace that is played at its own times.
    fn check_pacing(&self) -> Result<(), &'static str> {
        let is_rate = |rate: f64| rate > 0.0 && rate <= RATE_MAX;
        match self.pacing {
            Pacing::Open(rate) if !is_rate(rate.per_second) => {
                Err("the rate must be above 0 and at most ten million a second")
            }
            Pacing::Recorded(speed) if self.workload.at_ms.len() != self.workload.requests.len() || !is_rate(speed) => {
                Err("its workload is no trace with times to keep to, or the speed is not above 0 and at most ten \
                     million")
            }
            _ => Ok(()),
        }
    }
}

impl Workload {
    /// Whether these users have requests, and all that they refer to is there.
    fn check(&self, users: &Range<u32>) -> Result<(), &'static str> {
        let Some(users) = self.users.get(users.start as usize..users.end as usize) else {
            return Err("it names users that the workload does not have");
        };
        if users.iter().all(|user| user.requests.is_empty()) {
            return Err("its users have no requests");
        }
        let requests = |user: &User| self.requests.get(user.requests.start as usize..user.requests.end as usize);
        if users.iter().any(|user| requests(user).is_none()) {
            return Err("a user has requests that the workload does not have");
        }
        if self.requests.iter().any(|request| request.object as usize >= self.objects.len()) {
            return Err("a request is for an object that the workload does not have");
        }
        Ok(())
    }
}
