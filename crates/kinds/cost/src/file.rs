//! What a cost experiment says: what TOML files hold and what the flags of `tlsdyno cost` build.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Deserializer, Serialize};
use tlsdyno_base::permission;
use tlsdyno_base::url::Url;
use tlsdyno_record::model::{Measure, OnLoss, WorkersModel, without_secrets};

use crate::LABELS;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostExperiment {
    pub question: String,
    pub cost: Cost,
    #[serde(default)]
    pub measure: Measure,
}

/// The server, what is requested of it, and units of its owner's site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
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
    /// TLS address of `server_command`, for example `127.0.0.1:{port}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
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
    /// The server does not speak HTTP/1.1: only handshakes are measured.
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
    /// The worker beside a server on another machine, which reads its CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersModel>,
    /// Hosts besides this machine that may be loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub may_load: Vec<String>,
}

impl CostExperiment {
    /// Refuses what cannot be measured, with the remedy.
    pub fn check(&self) -> Result<()> {
        let cost = &self.cost;
        let is_started = cost.server_command.is_some();
        ensure!(
            is_started == cost.url.is_empty(),
            "name either the URL of a server that runs, or a --server-command that starts one"
        );
        ensure!(is_started == cost.address.is_some(), "a server command needs its --address, and nothing else does");
        ensure!(!is_started || cost.pid.is_none(), "--pid is for a server that runs already");
        if let Some(workers) = &cost.workers {
            ensure!(
                cost.against.is_empty() && !is_started,
                "a worker reads the CPU time of one server that runs; leave --against and --server-command out"
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
        ensure!(cost.against.len() < LABELS.len(), "{} servers at most are compared in one run", LABELS.len());
        for url in cost.urls() {
            let parts = Url::parse(url)?;
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
        Ok(())
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
            pages: hide_all(&self.pages),
            ..self.clone()
        }
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
    Url::parse(url)?.resolve().with_context(|| format!("failed to find {url}"))
}
