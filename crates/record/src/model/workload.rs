//! Which workload a job is about: a description from which two processes make the same.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tlsdyno_base::foreign::quoted;
use tlsdyno_tls::named;

/// A reproducible description of a workload (`crates/workloads` makes the workload from it).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkloadSpec {
    /// Synthetic, to the aggregates of Coarfa et al. 2006 section 2.2.1.
    Ecommerce {
        /// Number of users (sessions).
        users: u32,
        /// Seed of the random choices.
        seed: u64,
    },
    /// Synthetic, to the aggregates of the department trace, Coarfa et al. 2006 section 2.2.2.
    Department {
        /// 1.0 is the paper's size: 100,000 hits, about 11,000 sessions, corpus about 530 MB.
        scale: f64,
        /// Seed of the random choices.
        seed: u64,
    },
    /// An access log in common or combined format, plain or gzip.
    Trace {
        /// Path of the log.
        path: PathBuf,
        /// Client addresses, prefixes (`10.0.0.0/8`) or user-agent substrings that are left out; `crawlers` is a
        /// preset.
        #[serde(default)]
        exclude: Vec<String>,
        /// How its lines are read as traffic.
        #[serde(default)]
        replay: ReplaySpec,
    },
    /// Synthetic: the files of SPECweb96, Apostolopoulos et al. 2000.
    Specweb96 {
        /// Number of users.
        users: u32,
        /// Seed of the random choices.
        seed: u64,
        /// Requests of each user. Of every hundred requests exactly as many go to each class of files as published;
        /// blocks can be cut between users.
        #[serde(default = "hundred", skip_serializing_if = "is_hundred")]
        requests_per_user: u32,
    },
    /// Synthetic: files, popularity, connections and handshakes by the rules of SPECweb99_SSL.
    Specweb99 {
        /// Number of users, of 100 requests each.
        users: u32,
        /// Seed of the random choices.
        seed: u64,
        /// Directories of 36 files, 4.9 MB each.
        directories: u32,
        /// Path of the server's page that dynamic requests are for; without one they are for files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dynamic: Option<String>,
    },
    /// Synthetic: 25 objects in two pages, Mraz et al. 2002 section 4.5.
    Cdnow {
        /// Number of users, of 25 requests each.
        users: u32,
    },
    /// What a browser recorded (HTTP Archive).
    Har {
        /// Path of the recording.
        path: PathBuf,
        /// How it is replayed.
        #[serde(flatten)]
        har: HarSpec,
    },
    /// One object over and over: `tlsdyno load URL`.
    Url {
        /// Path and query.
        path: String,
        /// Size of the object if the docroot is ours; `None` for anybody's server.
        bytes: Option<u64>,
        /// Number of users.
        users: u32,
        /// Requests each user makes before it starts anew.
        requests_per_user: u32,
    },
    /// Objects that an own server has by itself, files or what applications answer: each user asks for all of them in
    /// this order, with the headers that a browser sends.
    Paths {
        /// Path and query of each, and behind a blank the status that it answers with where that is not 200.
        paths: Vec<String>,
        /// Number of users.
        users: u32,
        /// Requests of each user, on the average, over a connection with one handshake; the users together walk through
        /// the list over and over. `None`: each asks for all of it, and for [`HITS_LEAST`] objects at least.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hits_per_handshake: Option<f64>,
    },
}

/// A user of a short list asks for so many objects at least.
pub const HITS_LEAST: u32 = 12;
/// Users of a list, as long as they make no more than [`REQUESTS_MOST`].
const USERS_OF_A_LIST: f64 = 20_000.0;
/// Requests of a list's users together.
const REQUESTS_MOST: f64 = 4e6;

/// The requests of a user who asks for the whole list, over and over until there are enough.
pub const fn hits_of_paths(paths: u32) -> u32 {
    if paths == 0 { HITS_LEAST } else { paths * HITS_LEAST.div_ceil(paths) }
}

/// Requests of a SPECweb96 user unless a file says otherwise.
pub const fn hundred() -> u32 {
    100
}

fn is_hundred(requests: &u32) -> bool {
    *requests == hundred()
}

impl WorkloadSpec {
    /// Objects of an own server, with so many hits for each handshake.
    pub fn of_paths(paths: Vec<String>, hits_per_handshake: Option<f64>) -> WorkloadSpec {
        let each = hits_per_handshake.unwrap_or_else(|| f64::from(hits_of_paths(paths.len() as u32)));
        let users = USERS_OF_A_LIST.min(REQUESTS_MOST / each).max(1.0) as u32;
        WorkloadSpec::Paths { paths, users, hits_per_handshake }
    }

    /// What a list of paths, or a single one, takes for granted of hits and handshakes, where nobody has said it.
    pub fn assumption(&self) -> Option<String> {
        let (hits, of) = match self {
            WorkloadSpec::Paths { paths, hits_per_handshake: None, .. } => {
                let hits = hits_of_paths(paths.len() as u32);
                let times = match hits / paths.len().max(1) as u32 {
                    1 => String::new(),
                    times => format!(" {times} times"),
                };
                let of = match paths.len() {
                    1 => format!("the one path{times}"),
                    all => format!("all {all} paths{times}"),
                };
                (hits, of)
            }
            WorkloadSpec::Url { bytes: None, requests_per_user, .. } => {
                let times =
                    if *requests_per_user == 1 { "once".to_owned() } else { format!("{requests_per_user} times") };
                (*requests_per_user, format!("the one path {times}"))
            }
            _ => return None,
        };
        let hits = if hits == 1 { "1 hit".to_owned() } else { format!("{hits} hits") };
        Some(format!(
            "each new connection asks for {of}: {hits} per handshake. If your log says otherwise, give \
             --hits-per-handshake"
        ))
    }

    /// The requests are for what the server has anyway, not for files made for it.
    pub fn is_servers_own(&self) -> bool {
        match self {
            WorkloadSpec::Url { .. } | WorkloadSpec::Paths { .. } => true,
            WorkloadSpec::Trace { replay, .. } => replay.names == NamesSpec::AsRecorded,
            WorkloadSpec::Har { har, .. } => har.names == NamesSpec::AsRecorded,
            _ => false,
        }
    }

    /// How far requests may get ahead of each other in the order of the log, if the workload is one and that is
    /// bounded.
    pub fn window(&self) -> Option<u32> {
        match self {
            WorkloadSpec::Trace { replay, .. } => Some(replay.window).filter(|window| *window > 0),
            _ => None,
        }
    }
}

/// How a browser's recording is replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HarSpec {
    /// Users, each of which visits all its pages.
    pub users: u32,
    /// The site whose requests are replayed, `https://HOST[:PORT]`; `None`: that of the first request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Names under which objects are requested.
    pub names: NamesSpec,
    /// See [`ReplaySpec::send_methods`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub send_methods: Vec<SentMethod>,
}

named! {
    /// A method by which a request may change something.
    pub enum SentMethod: "method" {
        /// what forms send
        Post = "POST",
        /// puts an object there
        Put = "PUT",
        /// changes an object
        Patch = "PATCH",
        /// deletes an object
        Delete = "DELETE",
        /// asks what may be done
        Options = "OPTIONS",
    }
}

impl Default for HarSpec {
    fn default() -> Self {
        Self { users: 1_000, origin: None, names: NamesSpec::default(), send_methods: Vec::new() }
    }
}

/// Under which names the objects of a log or recording are requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamesSpec {
    /// Names of files made for the objects, which `workloads::write_docroot` writes.
    #[default]
    Files,
    /// Names as recorded, from a server that has such objects; what it answers may differ in length.
    AsRecorded,
}

/// How the lines of an access log are read as traffic (docs/WORKLOADS.md gives the reasons for the defaults).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplaySpec {
    /// The order within one user's requests.
    pub order: OrderSpec,
    /// When a user's session is forgotten, so that its next handshake is full.
    pub sessions: SessionsSpec,
    /// A user's connection closes after this long without a request, seconds; 0: after each request. 75 is nginx's
    /// default `keepalive_timeout`.
    pub keep_alive_s: u32,
    /// Names under which objects are requested.
    #[serde(skip_serializing_if = "crate::model::is_default")]
    pub names: NamesSpec,
    /// Of a server's own objects, methods beside GET and HEAD that are asked, without a body; others are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub send_methods: Vec<SentMethod>,
    /// How far requests may get ahead of each other in the order of the log; 0: as far as their users come. 10,000 was
    /// enough for 60 clients in Coarfa et al. 2006 section 2.2.2.
    pub window: u32,
    /// Which field of a line is the client; `None`: the address or name before the time, or that of X-Forwarded-For
    /// where a proxy's stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_field: Option<ClientField>,
    /// Lines that name another site than this one are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only so many bytes of the file are read; `None`: all there are. A log that a server still writes to is the same
    /// for every process only up to here (`workloads::make` fills it in).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bytes: Option<u64>,
}

impl Default for ReplaySpec {
    fn default() -> Self {
        Self {
            order: OrderSpec::Total,
            sessions: SessionsSpec::LifetimeS(300),
            keep_alive_s: 75,
            names: NamesSpec::Files,
            send_methods: Vec::new(),
            window: 10_000,
            client_field: None,
            site: None,
            first_bytes: None,
        }
    }
}

/// Which field of a log's line is the client: words, texts in quotation marks and what stands in square brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrWord", into = "NumberOrWord")]
pub enum ClientField {
    /// The field of this number, from 1.
    Number(u32),
    /// The last field of the line.
    Last,
}

/// How a file writes a [`ClientField`].
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(u32),
    Word(String),
}

impl std::str::FromStr for ClientField {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientField, String> {
        match (text, text.parse()) {
            ("last", _) => Ok(ClientField::Last),
            (_, Ok(number)) if number > 0 => Ok(ClientField::Number(number)),
            _ => Err(format!("`{}` is no field of a line; write its number from 1, or last", quoted(text))),
        }
    }
}

impl TryFrom<NumberOrWord> for ClientField {
    type Error = String;

    fn try_from(read: NumberOrWord) -> Result<ClientField, String> {
        match read {
            NumberOrWord::Number(number) => number.to_string().parse(),
            NumberOrWord::Word(word) => word.parse(),
        }
    }
}

impl From<ClientField> for NumberOrWord {
    fn from(field: ClientField) -> NumberOrWord {
        match field {
            ClientField::Number(number) => NumberOrWord::Number(number),
            ClientField::Last => NumberOrWord::Word("last".to_owned()),
        }
    }
}

/// The order within one user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderSpec {
    /// One after the other, as in the log (Coarfa et al. 2006 section 2.2.2).
    Total,
    /// A document and the embedded objects that follow it within two seconds are one page: fetched together over
    /// several connections.
    Pages,
}

/// When a user of an access log forgets its TLS session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionsSpec {
    /// Never: only the first handshake of an address is full (Coarfa et al. 2006 section 2.2.2).
    PerAddress,
    /// After this long without a request, seconds. 300 is nginx's default `ssl_session_timeout` and mod_ssl's
    /// `SSLSessionCacheTimeout`.
    LifetimeS(u32),
}
