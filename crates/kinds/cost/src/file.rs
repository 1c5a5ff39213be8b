//! What a cost experiment says: what TOML files hold and what the flags of `tlsdyno cost` build.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Deserializer, Serialize};
use tlsdyno_base::exchange::{Reach, Turn};
use tlsdyno_base::permission;
use tlsdyno_base::protocol::{self, Protocol, unescaped};
use tlsdyno_base::url::Url;
use tlsdyno_record::model::{self, CertificateKind, OnLoss, WorkersModel, without_secrets};
use tlsdyno_tls::{Group, Version, named};
use tlsdyno_wire::answer::Answer;

use crate::LABELS;
use crate::steps::{Step, StepId};

/// How many times as long a server under valgrind may take.
const SLOWER_UNDER_VALGRIND: u32 = 30;
/// In place of bytes that may be a login.
const NOT_TOLD: &str = "…";
/// Where connections may stay while the server's memory is read.
pub(crate) const STATES: [Reach; 4] = [Reach::Tcp, Reach::Flight, Reach::Finished, Reach::Answered];
/// Least number of connections of a rising series.
pub(crate) const CONNECTIONS_LEAST: u32 = 64;

named! {
    /// What of the server is measured.
    #[derive(Default)]
    pub enum Measure: "measure" {
        /// CPU time.
        #[default]
        Time = "time",
        /// Memory of open connections.
        Memory = "memory",
        /// Locked instructions and calls that take locks.
        Locks = "locks",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostExperiment {
    pub question: String,
    pub cost: Cost,
    #[serde(default)]
    pub measure: model::Measure,
}

/// The server, what is requested of it, and units of its owner's site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    #[serde(skip_serializing_if = "Measure::is_time")]
    pub measure: Measure,
    /// Empty where a command starts the server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The process with its children; `None`: whichever process listens at the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// URLs of further servers, measured beside the first; a file may hold one without a list.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_several")]
    pub against: Vec<String>,
    /// The process of each; empty: whichever listens there.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_several")]
    pub against_pid: Vec<u32>,
    /// Starts the first server; `{port}` and `{dir}` are filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_command: Option<String>,
    /// TLS address of `server_command`, for example `127.0.0.1:{port}`; with a scheme unless it speaks HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Servers that are started, in place of a URL or behind `server_command`.
    #[serde(rename = "server", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Started>,
    /// Only the life of a connection is measured: no other choices, and no TLS 1.2 beside TLS 1.3.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub only_life: bool,
    /// The only group that the client offers, where a step does not name another; `None`: X25519 first, as browsers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// Paths of further pages of the server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain_url: Option<String>,
    /// Requests a second of the reader's site, for costs in CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// On the reader's site, for each connection; `None`: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits_per_handshake: Option<f64>,
    /// Limit of connections a second; `None`: as many as the server takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_per_s: Option<f64>,
    /// What is asked in place of a page, with escapes such as `\r`; the last bytes of its answer, or their number. A
    /// record holds none of them, as they may be a login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_bytes: Option<u64>,
    /// Only handshakes are measured: the server speaks neither HTTP/1.1 nor a protocol with a request of ours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_request: bool,
    /// Empty: the client sends no such extension.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alpn: Vec<String>,
    /// PEM, with its chain, for servers that ask their clients for one; `client_key` is its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
    /// Where connections stay while memory is read; empty: in each of [`STATES`], at a server that runs `Finished`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<Reach>,
    /// Most connections that are open at once while memory is read; `None`: 8,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Servers that run may keep the memory that our connections took.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_grow: bool,
    /// The worker beside a server on another machine, which reads its CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersModel>,
    /// Hosts besides this machine that may be loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub may_load: Vec<String>,
}

/// A server that is started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// What it is called in place of its address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its version and that of its library, for readers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Stays in the foreground; `{port}`, `{dir}`, `{docroot}` and `{configuration}` are filled in.
    pub command: String,
    /// For example `127.0.0.1:{port}`, or `imap://127.0.0.1:{port}`.
    pub address: String,
    /// A certificate is made for it: `{certificate}`, `{key}` and `{pem}` are filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateKind>,
    /// The text of its configuration, with the same placeholders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
}

impl Measure {
    fn is_time(&self) -> bool {
        *self == Measure::Time
    }
}

impl CostExperiment {
    /// Refuses what cannot be measured, with the remedy.
    pub fn check(&self) -> Result<()> {
        let cost = &self.cost;
        let is_started = cost.server_command.is_some() || cost.url.is_empty() && !cost.servers.is_empty();
        ensure!(
            is_started == cost.url.is_empty(),
            "name either the URL of a server that runs, or a --server-command that starts one"
        );
        let has_command = cost.server_command.is_some();
        ensure!(has_command == cost.address.is_some(), "a server command needs its --address, and nothing else does");
        ensure!(!is_started || cost.pid.is_none(), "--pid is for a server that runs already");
        if let Some(workers) = &cost.workers {
            ensure!(
                cost.against.is_empty() && cost.started().is_empty(),
                "a worker reads the CPU time of one server that runs; leave --against and commands out"
            );
            ensure!(
                workers.count() == 1 && workers.engine.is_none(),
                "the CPU time of a server comes from one worker on its machine: --on HOST, or --workers 1"
            );
            ensure!(workers.on_loss == OnLoss::Stop, "nothing goes on without the worker; leave --on-loss out");
            ensure!(
                cost.pid.is_none() || !workers.on.is_empty(),
                "--pid reaches a worker of --on; to another one its own --cpu-of says which process"
            );
        }
        ensure!(
            cost.against_pid.is_empty() || cost.against_pid.len() == cost.against.len(),
            "--against-pid is given for each --against, in the same order, or for none"
        );
        let servers = cost.urls().count() + cost.started().len();
        ensure!(servers <= LABELS.len(), "{} servers at most are compared in one run", LABELS.len());
        for url in cost.urls() {
            let parts = Url::parse_any(url)?;
            ensure!(parts.tls, "{url} is plain HTTP; give the server's https:// URL");
            permission::check(&parts.host, resolved(url)?, &cost.may_load)?;
        }
        if let Some(url) = &cost.plain_url {
            let parts = Url::parse(url)?;
            ensure!(!parts.tls, "{url} is not plain HTTP; give the http:// URL of the same pages");
            permission::check(&parts.host, resolved(url)?, &cost.may_load)?;
        }
        for (number, flag) in [
            (cost.rate_per_s, "--rate: a number of requests a second"),
            (cost.hits_per_handshake, "--hits-per-handshake: a number of requests"),
            (cost.at_most_per_s, "--at-most: a number of connections a second"),
        ] {
            ensure!(number.is_none_or(|number| number.is_finite() && number > 0.0), "{flag} above 0");
        }
        ensure!(cost.hits_per_handshake.is_none_or(|hits| hits >= 1.0), "a handshake serves one request at least");
        let is_path = |page: &String| page.starts_with('/') && !page.contains([' ', '\r', '\n']);
        ensure!(cost.pages.iter().all(is_path), "--page is a path that begins with a slash, without blanks");
        ensure!(!cost.no_request || cost.pages.is_empty(), "--page needs requests: leave --no-request out");
        ensure!(cost.client_certificate.is_some() == cost.client_key.is_some(), "a client certificate needs its key");
        cost.check_asked()?;
        cost.check_memory()?;
        cost.check_locks()
    }
}

impl Cost {
    /// As a record keeps it, which may be given to others.
    pub fn without_secrets(&self) -> Cost {
        let hide = |text: &Option<String>| text.as_deref().map(without_secrets);
        let hide_all = |texts: &[String]| texts.iter().map(|text| without_secrets(text)).collect();
        Cost {
            url: without_secrets(&self.url),
            against: hide_all(&self.against),
            plain_url: hide(&self.plain_url),
            server_command: hide(&self.server_command),
            servers: self.servers.iter().map(Started::without_secrets).collect(),
            pages: hide_all(&self.pages),
            request: self.request.as_ref().map(|_| NOT_TOLD.to_owned()),
            answer_until: self.answer_until.as_ref().map(|_| NOT_TOLD.to_owned()),
            ..self.clone()
        }
    }

    /// The bytes that a person gives, and how their answer ends.
    fn asked(&self) -> Result<Option<Turn>> {
        let Some(request) = &self.request else {
            let is_left_out = self.answer_until.is_none() && self.answer_bytes.is_none();
            ensure!(is_left_out, "--answer-until and --answer-bytes are of the answer to a --request");
            return Ok(None);
        };
        let say = unescaped(request).context("--request")?;
        let answer = match (&self.answer_until, self.answer_bytes) {
            (Some(last), None) if !last.is_empty() => Answer::Until(unescaped(last).context("--answer-until")?.into()),
            (None, Some(bytes @ 1..)) => Answer::Bytes(bytes),
            _ => bail!("say where the answer to --request ends: --answer-until '\\r\\n', or --answer-bytes N above 0"),
        };
        Ok(Some(Turn { say, answer: Some(answer) }))
    }

    /// What is said over TLS to a server that does not speak HTTP; `None`: it does.
    pub(crate) fn turns(&self, url: &Url) -> Result<Option<Vec<Turn>>> {
        Ok(match (self.asked()?, url.protocol) {
            (Some(asked), Some(protocol)) => Some(protocol.turns_with(asked)),
            (Some(asked), None) => Some(vec![asked]),
            (None, protocol) => protocol.map(Protocol::turns),
        })
    }

    /// Of a server that can be asked nothing without a login, the handshakes alone.
    pub(crate) fn for_url(&self, url: &Url) -> Result<Cost> {
        let is_mute = self.turns(url)?.is_some_and(|turns| turns.is_empty());
        Ok(Cost { no_request: self.no_request || is_mute, ..self.clone() })
    }

    /// The servers that are started, the first ones of all.
    pub fn started(&self) -> Vec<Started> {
        let named = self.server_command.clone().zip(self.address.clone());
        let of_command = named.map(|(command, address)| Started { command, address, ..Started::default() });
        of_command.into_iter().chain(self.servers.iter().cloned()).collect()
    }

    fn check_asked(&self) -> Result<()> {
        let asks = self.asked()?.is_some();
        ensure!(
            !asks || !self.no_request && self.pages.is_empty(),
            "--request is what is asked; leave --no-request and --page out"
        );
        let mut schemes: Vec<String> = self.started().iter().map(|started| started.address().0.to_owned()).collect();
        schemes.extend(self.urls().filter_map(|url| Some(url.split_once("://")?.0.to_lowercase())));
        for scheme in schemes.iter().filter(|scheme| *scheme != "https") {
            protocol::of_scheme(scheme)?;
            ensure!(self.pages.is_empty(), "--page is of HTTP: leave it out with {scheme}, or give --request");
        }
        Ok(())
    }

    fn check_locks(&self) -> Result<()> {
        if self.measure != Measure::Locks {
            return Ok(());
        }
        self.is_not_of_time("--locks")?;
        ensure!(
            self.urls().next().is_none(),
            "locks are counted of servers that are started under valgrind: give --server-command and --address, and \
             --against-command for others, in place of URLs"
        );
        Ok(())
    }

    fn is_not_of_time(&self, flag: &str) -> Result<()> {
        let is_of_time = !self.pages.is_empty() || self.plain_url.is_some() || self.rate_per_s.is_some();
        ensure!(!is_of_time, "--page, --plain-url and --rate are about CPU time; leave them or {flag} out");
        Ok(())
    }

    fn check_memory(&self) -> Result<()> {
        if self.measure != Measure::Memory {
            let is_left_out = self.states.is_empty() && self.connections.is_none() && !self.may_grow;
            ensure!(is_left_out, "--state, --connections and --i-may-grow-this are about memory: give --memory");
            return Ok(());
        }
        self.is_not_of_time("--memory")?;
        ensure!(
            self.workers.is_none(),
            "memory is read on this machine only: run tlsdyno on the server's, without --on"
        );
        ensure!(
            self.may_grow || self.urls().next().is_none(),
            "a server that runs keeps the memory that thousands of connections take, until it is started anew. If that \
             may be, add --i-may-grow-this; else start a server by --server-command"
        );
        ensure!(
            self.urls().next().is_none() || self.states.len() <= 1,
            "a server that runs has kept the memory of one state when the next one is measured: give one --state"
        );
        let known = STATES.map(Reach::name).join(", ");
        ensure!(self.states.iter().all(|state| STATES.contains(state)), "connections stay in one of {known}");
        ensure!(
            !self.no_request || !self.states.contains(&Reach::Answered),
            "--state answered needs requests: leave --no-request out"
        );
        let is_enough = self.connections.is_none_or(|most| most >= CONNECTIONS_LEAST);
        ensure!(is_enough, "--connections: {CONNECTIONS_LEAST} or more, for a slope");
        Ok(())
    }

    /// The connections that are tried, and measured if the server takes them. `is_started`: it was started for that.
    pub(crate) fn steps(&self, version: Version, is_started: bool) -> Vec<Step> {
        match self.measure {
            Measure::Time => Step::all(version, &self.pages, self.plain_url.is_some()),
            Measure::Locks => Step::counted(version, self.no_request),
            Measure::Memory => {
                let usual = if is_started { &STATES[..] } else { &[Reach::Finished] };
                let states = if self.states.is_empty() { usual } else { &self.states };
                states.iter().map(|state| StepId::new(version, *state).step()).collect()
            }
        }
    }

    /// How many times as long as usual a server may take.
    pub(crate) fn slower(&self) -> u32 {
        if self.measure == Measure::Locks { SLOWER_UNDER_VALGRIND } else { 1 }
    }

    /// URLs of servers that are already running.
    pub fn urls(&self) -> impl Iterator<Item = &String> {
        Some(&self.url).filter(|url| !url.is_empty()).into_iter().chain(&self.against)
    }

    /// Connections a second of the reader's site.
    pub fn connections_per_s(&self) -> Option<f64> {
        Some(self.rate_per_s? / self.hits_per_handshake.unwrap_or(1.0))
    }
}

impl Started {
    /// Scheme and place of its address.
    pub(crate) fn address(&self) -> (&str, &str) {
        self.address.split_once("://").unwrap_or(("https", &self.address))
    }

    /// Its URL, once it listens there.
    pub(crate) fn url(&self, address: SocketAddr) -> Result<Url> {
        Url::parse_any(&format!("{}://{address}/", self.address().0))
    }

    fn without_secrets(&self) -> Started {
        let configuration = self.configuration.as_deref().map(without_secrets);
        Started { command: without_secrets(&self.command), configuration, ..self.clone() }
    }
}

fn one_or_several<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given<T> {
        One(T),
        Several(Vec<T>),
    }
    Ok(match Given::deserialize(from)? {
        Given::One(value) => vec![value],
        Given::Several(values) => values,
    })
}

pub(crate) fn resolved(url: &str) -> Result<SocketAddr> {
    Url::parse_any(url)?.resolve().with_context(|| format!("failed to find {url}"))
}
