//! The experiment as data: what TOML files hold and what flags build (`--print-experiment` shows it).
//!
//! Every table refuses unknown keys, so that a typing error never silently measures something else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Effort, Group, Stage, StageSet, Suite, Version};

use super::job::{ReuseSpec, WorkloadSpec};
use crate::servers::{CertificateKind, CommandSpec, SessionCache, TicketKeys};

/// One experiment: a question, a server, a workload and the configurations that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What the experiment is to answer, one sentence.
    pub question: String,
    /// The server under test.
    #[serde(default)]
    pub server: Server,
    /// TLS as the server is configured and as the client offers it.
    #[serde(default)]
    pub tls: Tls,
    /// What is requested.
    #[serde(default = "default_workload")]
    pub workload: WorkloadSpec,
    /// How it is requested.
    #[serde(default)]
    pub load: Load,
    /// How long and where it is measured.
    #[serde(default)]
    pub measure: Measure,
    /// What is compared. Empty: the untouched server, each stage off, all stages off, plain HTTP.
    #[serde(default, rename = "configuration")]
    pub configurations: Vec<ConfigurationModel>,
    /// Named shares of the cost of a hit, in the order of the report. Empty: what each configuration with one stage off saves.
    #[serde(default, rename = "share", skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareModel>,
    /// Questions that two configurations answer.
    #[serde(default, rename = "comparison", skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ComparisonModel>,
    /// Remedies that are ranked by what they gain over the untouched server.
    #[serde(default, rename = "remedy", skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<RemedyModel>,
    /// What a paper published for the same configurations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperModel>,
}

/// A share of the cost of a hit: what the step from one configuration to another saves, relative to the untouched server
/// (Coarfa et al. 2006 section 3, Amdahl's law): `T_as_is * (1/T_on - 1/T_off)`, and `(c_on - c_off) / c_as_is` for CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareModel {
    /// Name in tables, for example `RSA`.
    pub name: String,
    /// The configuration that still has the cost.
    pub on: String,
    /// The one that has it no more. `None`: the whole cost of `on` is the share (what is left at the end).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
}

/// Two configurations that answer a question: which one serves more hits per second?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparisonModel {
    /// The question, for example `An accelerator or a faster CPU?`.
    pub question: String,
    /// One configuration.
    pub a: String,
    /// The other.
    pub b: String,
}

/// A remedy: a configuration that somebody could really run, or the bound of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemedyModel {
    /// What to do, for example `ECDSA certificate`.
    pub name: String,
    /// The configuration that has it.
    pub configuration: String,
    /// The configuration that it improves; `None`: the untouched server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// It cannot be had, it bounds what can: for example plain data for kernel or hardware TLS.
    #[serde(default)]
    pub bound: bool,
}

/// What a paper published, beside which ours is printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaperModel {
    /// Authors, year, figure or table.
    pub source: String,
    /// The paper's machines, in the order of the numbers below.
    pub machines: Vec<String>,
    /// Hits per second by configuration (our name) for each machine. NaN where illegible.
    pub hits_per_s: BTreeMap<String, Vec<f64>>,
    /// Shares in per cent by share (our name) for each machine.
    pub shares_percent: BTreeMap<String, Vec<f64>>,
    /// What is not as in the paper, one sentence each.
    pub differences: Vec<String>,
}

/// The server under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Which server.
    #[serde(default)]
    pub kind: ServerName,
    /// `command` only: the command line, with `{port}`, `{docroot}`, `{dir}`, `{certificate}` and `{key}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// `command` only: where it listens, for example `127.0.0.1:{port}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `command` only: where it serves the same objects without TLS. Without it no plain-HTTP share is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_address: Option<String>,
    /// Let a server with no-op stages listen beyond loopback: a total break of its TLS for everybody who can reach it.
    #[serde(default)]
    pub allow_insecure_listen: bool,
}

/// A server driver by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerName {
    /// `tlsdyno serve`.
    #[default]
    Builtin,
    /// The distribution's nginx with a generated configuration.
    Nginx,
    /// The distribution's Apache with mod_ssl and the event MPM.
    #[serde(rename = "apache")]
    ApacheEvent,
    /// The same with the prefork MPM.
    #[serde(rename = "apache-prefork")]
    ApachePrefork,
    /// HAProxy, ending TLS in front of a plain server of ours.
    Haproxy,
    /// The distribution's lighttpd with mod_openssl.
    Lighttpd,
    /// The user's own command line.
    Command,
}

impl ServerName {
    /// The name in experiments and reports.
    pub const fn name(self) -> &'static str {
        match self {
            ServerName::Builtin => "builtin",
            ServerName::Nginx => "nginx",
            ServerName::ApacheEvent => "apache",
            ServerName::ApachePrefork => "apache-prefork",
            ServerName::Haproxy => "haproxy",
            ServerName::Lighttpd => "lighttpd",
            ServerName::Command => "command",
        }
    }
}

/// TLS settings of an experiment. Names as people type them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// `1.2` or `1.3`.
    pub version: String,
    /// OpenSSL or IANA name; `None`: the client's order, AES-128-GCM first as browsers do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// `X25519`, `P-256`, `P-384`.
    pub group: String,
    /// `rsa-2048`, `rsa-3072`, `rsa-4096`, `p-256`, `p-384`.
    pub certificate: String,
    /// Session tickets on the server (TLS 1.3: stateless tickets).
    pub tickets: bool,
    /// Where the keys of the tickets come from.
    pub ticket_keys: TicketKeys,
    /// Session cache on the server (TLS 1.2 IDs; TLS 1.3: stateful tickets where tickets are off).
    pub session_cache: SessionCache,
    /// Early data: the client sends its first request with the hello when it resumes (TLS 1.3), and the server takes it.
    pub early_data: bool,
    /// The client offers encrypt-then-MAC (CBC suites of TLS 1.2).
    pub encrypt_then_mac: bool,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            version: "1.3".to_owned(),
            suite: None,
            group: "X25519".to_owned(),
            certificate: "rsa-2048".to_owned(),
            tickets: true,
            ticket_keys: TicketKeys::Own,
            session_cache: SessionCache::Shared,
            early_data: false,
            encrypt_then_mac: true,
        }
    }
}

impl Tls {
    /// The version, parsed.
    pub fn version(&self) -> Result<Version> {
        Ok(self.version.parse()?)
    }

    /// The suites the client offers, parsed: the one asked for, or all of the version with AES-128-GCM first.
    pub fn suites(&self) -> Result<Vec<Suite>> {
        let version = self.version()?;
        match &self.suite {
            Some(name) => {
                let suite: Suite = name.parse()?;
                ensure!(
                    suite.version() == version,
                    "suite {suite} belongs to TLS {}, but the experiment asks for TLS {version}; \
                     choose --tls {} or another --suite",
                    suite.version(),
                    suite.version()
                );
                Ok(vec![suite])
            }
            None => Ok(Suite::ALL.iter().copied().filter(|suite| suite.version() == version).collect()),
        }
    }

    /// The key-agreement group, parsed.
    pub fn group(&self) -> Result<Group> {
        Ok(self.group.parse()?)
    }

    /// The group asked for, and the curve of an ECDSA certificate, which TLS 1.2 needs in the list too: OpenSSL picks a certificate only
    /// if the client named its curve.
    pub fn groups(&self) -> Result<Vec<Group>> {
        let mut groups = vec![self.group()?];
        if let Some(curve) = self.certificate.strip_prefix("p-") {
            let curve = format!("P-{curve}").parse()?;
            if !groups.contains(&curve) {
                groups.push(curve);
            }
        }
        Ok(groups)
    }

    /// Whether the server keeps or hands out sessions that can be resumed.
    pub fn is_resumable(&self) -> bool {
        self.tickets || self.session_cache != SessionCache::Off
    }
}

/// How the workload is requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Most connections open at once.
    pub connections: u32,
    /// Most connections of one user.
    pub per_user: u32,
    /// All connections of a page open at once, instead of waiting for the first handshake (costs more full handshakes).
    pub all_at_once: bool,
    /// Requests per connection; `None`: as the workload's pages and users say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_connection: Option<u32>,
    /// Share of connections that resume, in per cent; `None`: as the workload's users do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse_percent: Option<f64>,
    /// `honest`, `lean`, `floor`.
    pub effort: String,
    /// Time-out of a connection without progress, milliseconds.
    pub timeout_ms: u64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            connections: 64,
            per_user: 4,
            all_at_once: false,
            requests_per_connection: None,
            reuse_percent: None,
            effort: Effort::Lean.to_string(),
            timeout_ms: 10_000,
        }
    }
}

impl Load {
    /// When connections resume.
    pub fn reuse(&self) -> Result<ReuseSpec> {
        Ok(match self.reuse_percent {
            None => ReuseSpec::Always,
            Some(0.0) => ReuseSpec::Never,
            Some(percent) => {
                ensure!((0.0..=100.0).contains(&percent), "reuse must lie between 0 and 100 %, not {percent}");
                ReuseSpec::Share(percent / 100.0)
            }
        })
    }
}

/// How long and where it is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Bound on the measuring time (warm-up and blocks), seconds.
    pub time_s: f64,
    /// Seed of the order of blocks; `None`: drawn, and kept in the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// CPU of the server; `None`: chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<usize>,
    /// CPU of the load; `None`: chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_cpu: Option<usize>,
}

impl Default for Measure {
    fn default() -> Measure {
        Measure { time_s: 180.0, seed: None, server_cpu: None, load_cpu: None }
    }
}

/// What a configuration changes of [`Tls`]. What is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsChange {
    /// See [`Tls::version`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// See [`Tls::suite`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// See [`Tls::group`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// See [`Tls::certificate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// See [`Tls::tickets`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tickets: Option<bool>,
    /// See [`Tls::ticket_keys`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket_keys: Option<TicketKeys>,
    /// See [`Tls::session_cache`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_cache: Option<SessionCache>,
    /// See [`Tls::early_data`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_data: Option<bool>,
}

impl TlsChange {
    /// `tls` with the changes.
    pub fn applied(&self, tls: &Tls) -> Tls {
        let change = self.clone();
        Tls {
            version: change.version.unwrap_or_else(|| tls.version.clone()),
            suite: change.suite.or_else(|| tls.suite.clone()),
            group: change.group.unwrap_or_else(|| tls.group.clone()),
            certificate: change.certificate.unwrap_or_else(|| tls.certificate.clone()),
            tickets: change.tickets.unwrap_or(tls.tickets),
            ticket_keys: change.ticket_keys.unwrap_or(tls.ticket_keys),
            session_cache: change.session_cache.unwrap_or(tls.session_cache),
            early_data: change.early_data.unwrap_or(tls.early_data),
            encrypt_then_mac: tls.encrypt_then_mac,
        }
    }

    fn is_none(&self) -> bool {
        *self == TlsChange::default()
    }
}

/// Processors of the server, real or emulated by a quota of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// How many. The server gets as many workers.
    #[serde(default = "one")]
    pub count: u32,
    /// Speed of each as part of a real one, 0 to 1: a quota of CPU time (control groups).
    #[serde(default = "whole")]
    pub speed: f64,
}

fn one() -> u32 {
    1
}

fn whole() -> f64 {
    1.0
}

impl Default for Processors {
    fn default() -> Processors {
        Processors { count: 1, speed: 1.0 }
    }
}

/// An emulated cryptographic accelerator: private-key operations cost the CPU nothing, but take time in one of its engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Operations it does at the same time.
    #[serde(default = "one")]
    pub engines: u32,
    /// Microseconds of one operation in one engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_us: Option<f64>,
    /// Instead: the rate of the whole accelerator as a multiple of the rate of one CPU of the server under test, measured before.
    /// The AXL300 of Coarfa et al. 2006 did about 4 times what the CPU beside it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_rates: Option<f64>,
    /// The server goes on while an operation runs, where it can (HAProxy); otherwise its worker waits.
    #[serde(default)]
    pub asynchronous: bool,
}

/// One configuration that is compared with the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationModel {
    /// Name in tables and records.
    pub name: String,
    /// Stages replaced by no-ops.
    #[serde(default)]
    pub noop: Vec<String>,
    /// Plain HTTP instead of TLS.
    #[serde(default)]
    pub plain_http: bool,
    /// Load the provider although no stage is off: what the instrument itself costs.
    #[serde(default)]
    pub idle_provider: bool,
    /// Preload the shim although no stage is off: what the instrument itself costs.
    #[serde(default)]
    pub idle_shim: bool,
    /// What the paper calls it, where that is another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// TLS settings that differ from the experiment's.
    #[serde(default, skip_serializing_if = "TlsChange::is_none")]
    pub tls: TlsChange,
    /// Processors of the server, where they differ from one whole real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Processors>,
    /// An emulated accelerator for private-key operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// CPU time burnt in addition by each private-key operation, microseconds: a known cost, to calibrate the instrument with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burn_us: Option<f64>,
}

impl ConfigurationModel {
    /// The untouched server.
    pub fn as_is() -> ConfigurationModel {
        ConfigurationModel {
            name: "as is".to_owned(),
            noop: Vec::new(),
            plain_http: false,
            idle_provider: false,
            idle_shim: false,
            label: None,
            tls: TlsChange::default(),
            processors: None,
            accelerator: None,
            burn_us: None,
        }
    }

    /// Exactly these stages replaced.
    pub fn without(name: &str, stages: impl IntoIterator<Item = Stage>) -> ConfigurationModel {
        let noop = stages.into_iter().map(|stage| stage.name().to_owned()).collect();
        ConfigurationModel { name: name.to_owned(), noop, ..ConfigurationModel::as_is() }
    }

    /// The same server without TLS.
    pub fn plain_http() -> ConfigurationModel {
        ConfigurationModel { name: "plain HTTP".to_owned(), plain_http: true, ..ConfigurationModel::as_is() }
    }

    /// The replaced stages, parsed.
    pub fn stages(&self) -> Result<StageSet> {
        self.noop
            .iter()
            .map(|name| name.parse::<Stage>())
            .collect::<Result<StageSet, _>>()
            .with_context(|| format!("configuration `{}`", self.name))
    }

    /// Whether the provider is loaded into the server.
    pub fn needs_provider(&self) -> bool {
        self.idle_provider
            || self.accelerator.is_some()
            || self.burn_us.is_some()
            || self.stages().is_ok_and(|stages| !stages.provider().is_empty())
    }

    /// Whether the shim is preloaded into the server.
    pub fn needs_shim(&self) -> bool {
        self.idle_shim || self.stages().is_ok_and(|stages| !stages.shim().is_empty())
    }

    /// Whether it is the server exactly as the experiment's other tables describe it.
    pub fn is_untouched(&self) -> bool {
        let untouched = ConfigurationModel::as_is();
        ConfigurationModel { name: untouched.name.clone(), label: None, ..self.clone() } == untouched
    }
}

fn default_workload() -> WorkloadSpec {
    WorkloadSpec::Ecommerce { users: 20_000, seed: 1 }
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            question: "What does each TLS component cost this server?".to_owned(),
            server: Server::default(),
            tls: Tls::default(),
            workload: default_workload(),
            load: Load::default(),
            measure: Measure::default(),
            configurations: Vec::new(),
            shares: Vec::new(),
            comparisons: Vec::new(),
            remedies: Vec::new(),
            paper: None,
        }
    }
}

impl Experiment {
    /// Reads an experiment file, which lies in `directory`: relative paths in it are relative to the file.
    pub fn from_toml(text: &str, directory: &Path) -> Result<Experiment> {
        let mut experiment: Experiment = toml::from_str(text)?;
        if let WorkloadSpec::Trace { path, .. } = &mut experiment.workload {
            *path = directory.join(&*path);
        }
        experiment.check()?;
        experiment.fill();
        Ok(experiment)
    }

    /// The experiment as a file that [`Experiment::from_toml`] reads back.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// The configurations of `ablate`: the untouched server, each stage off, all off, and plain HTTP where it can be had.
    pub fn ablation(stages: &[Stage], plain_http: bool) -> Vec<ConfigurationModel> {
        let mut configurations = vec![ConfigurationModel::as_is()];
        configurations.extend(
            stages.iter().map(|stage| ConfigurationModel::without(&format!("no {}", spoken(*stage)), [*stage])),
        );
        if stages.len() > 1 {
            configurations.push(ConfigurationModel::without("all off", stages.iter().copied()));
        }
        if plain_http {
            configurations.push(ConfigurationModel::plain_http());
        }
        configurations
    }

    /// Fills in the configurations where the experiment names none.
    pub fn fill(&mut self) {
        if self.configurations.is_empty() {
            self.configurations = Experiment::ablation(&Stage::PROVIDER, self.has_plain_http());
        }
    }

    /// Whether the server can serve the same objects without TLS.
    pub fn has_plain_http(&self) -> bool {
        self.server.kind != ServerName::Command || self.server.plain_address.is_some()
    }

    /// Checks everything that can be known before anything is started.
    pub fn check(&self) -> Result<()> {
        self.tls.suites()?;
        self.tls.group()?;
        self.load.reuse()?;
        self.load.effort.parse::<Effort>()?;
        ensure!(self.load.connections > 0, "at least one connection is needed (--connections)");
        ensure!(self.load.per_user > 0, "at least one connection per user is needed (--per-user)");
        ensure!(
            self.measure.time_s >= 1.0 && self.measure.time_s.is_finite(),
            "measuring for {} s is too short; give at least 1 s (--time)",
            self.measure.time_s
        );
        self.check_certificate()?;
        self.check_server()?;
        self.check_configurations()
    }

    fn check_certificate(&self) -> Result<()> {
        let certificate: CertificateKind = self.tls.certificate.parse()?;
        let rsa_certificate = certificate.is_rsa();
        let Some(suite) = &self.tls.suite else {
            return Ok(());
        };
        let suite: Suite = suite.parse()?;
        use tlsdyno_tls::suite::KeyExchange;
        match suite.key_exchange() {
            KeyExchange::EcdheEcdsa if rsa_certificate => {
                bail!("suite {suite} needs an ECDSA certificate; choose --cert p-256 or p-384")
            }
            KeyExchange::EcdheRsa | KeyExchange::Rsa if !rsa_certificate => {
                bail!("suite {suite} needs an RSA certificate; choose --cert rsa-2048, rsa-3072 or rsa-4096")
            }
            _ => Ok(()),
        }
    }

    fn check_server(&self) -> Result<()> {
        if self.server.kind != ServerName::Command {
            ensure!(self.server.command.is_none(), "a server command goes with server kind `command`");
            return Ok(());
        }
        ensure!(self.server.command.is_some(), "server kind `command` needs the command line (--server-command)");
        let address = self.server.address.as_deref();
        let address = address.context("the server command needs its address (--address 127.0.0.1:{port})")?;
        let serves_ours = self.command_spec().mentions("{docroot}");
        ensure!(
            serves_ours || matches!(self.workload, WorkloadSpec::Url { .. }),
            "the server command must serve the workload's objects: put {{docroot}} where its document root goes, \
             or name one of its own objects with --path"
        );
        self.check_ports(address)?;
        for text in [Some(address), self.server.plain_address.as_deref()].into_iter().flatten() {
            let example = text.replace("{port}", "1").replace("{plain_port}", "2");
            example.parse::<SocketAddr>().with_context(|| {
                format!(
                    "`{text}` is not an address; expected IP:PORT, for example 127.0.0.1:8443 or 127.0.0.1:{{port}}"
                )
            })?;
        }
        Ok(())
    }

    /// Either every port is chosen by us and told to the command, or every port is fixed and servers take turns on it: a mixture would
    /// be waited for at the wrong place, or collide with itself.
    fn check_ports(&self, address: &str) -> Result<()> {
        let command = self.command_spec();
        let ports = ["{port}", "{plain_port}"];
        let chosen = |text: &str| ports.iter().any(|port| text.contains(port));
        for text in [Some(address), self.server.plain_address.as_deref()].into_iter().flatten() {
            for port in ports.iter().filter(|port| text.contains(*port)) {
                ensure!(
                    command.mentions(port),
                    "the address `{text}` uses {port}, but neither the server command nor a file that it names does: put {port} \
                     where its port goes, or give the fixed port that it listens on"
                );
            }
            ensure!(
                chosen(text) == chosen(address),
                "`{address}` and `{text}` mix a chosen port with a fixed one: write {{port}} in --address and {{plain_port}} in \
                 --plain-address (and both in --server-command), or fixed ports in both"
            );
        }
        ensure!(
            chosen(address) || !ports.iter().any(|port| command.mentions(port)),
            "the server command uses {{port}}, but the address `{address}` is fixed: write {{port}} in --address too, or the fixed \
             port in --server-command"
        );
        Ok(())
    }

    /// The server command as its driver sees it.
    pub fn command_spec(&self) -> CommandSpec {
        let server = self.server.clone();
        CommandSpec {
            command: server.command.unwrap_or_default(),
            address: server.address.unwrap_or_default(),
            plain_address: server.plain_address,
        }
    }

    fn check_configurations(&self) -> Result<()> {
        let untouched = |model: &&ConfigurationModel| model.is_untouched();
        ensure!(
            self.configurations.is_empty() || self.configurations.iter().filter(untouched).count() == 1,
            "an experiment needs exactly one configuration without any change (name = \"as is\") to compare the others with"
        );
        for (index, configuration) in self.configurations.iter().enumerate() {
            check_combination(configuration.stages()?)
                .with_context(|| format!("configuration `{}`", configuration.name))?;
            let name = &configuration.name;
            ensure!(
                !(configuration.plain_http && (configuration.needs_provider() || configuration.needs_shim())),
                "configuration `{name}`: plain HTTP has no TLS stages to switch off"
            );
            ensure!(
                self.configurations[..index].iter().all(|other| other.name != *name),
                "two configurations are named `{name}`"
            );
            for other in &self.configurations[..index] {
                let same = setting(other)? == setting(configuration)?;
                ensure!(!same, "configurations `{}` and `{name}` are the same setting; leave one out", other.name);
            }
        }
        Ok(())
    }
}

/// A configuration without what does not change what is measured: names, the order of stages, and the idle provider or shim where a
/// stage that is off loads it in any case.
fn setting(model: &ConfigurationModel) -> Result<ConfigurationModel> {
    let stages = model.stages()?;
    Ok(ConfigurationModel {
        name: String::new(),
        label: None,
        noop: stages.iter().map(|stage| stage.name().to_owned()).collect(),
        idle_provider: model.needs_provider(),
        idle_shim: model.needs_shim(),
        ..model.clone()
    })
}

/// Which stages of the shim go together (docs/NOOP.md).
fn check_combination(off: StageSet) -> Result<()> {
    let without = |stage| off.contains(stage);
    ensure!(
        !without(Stage::Handshake) || without(Stage::Marshalling),
        "a skeleton handshake agrees on no keys, so its data must travel in plain: switch `marshalling` off too"
    );
    ensure!(
        !without(Stage::RoundTrip)
            || without(Stage::Marshalling) && (without(Stage::Handshake) || without(Stage::SessionCache)),
        "fast resumption (`round_trip` off) needs `marshalling` off, and `handshake` or `session_cache`"
    );
    ensure!(
        !without(Stage::Setup) || off.shim() == StageSet::NONE.with(Stage::Setup),
        "a minimal set-up has neither handshake nor sessions: switch no other stage of the shim off with `setup`"
    );
    Ok(())
}

fn spoken(stage: Stage) -> String {
    stage.name().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_fill_in_the_whole_ablation() {
        let experiment = Experiment::from_toml("question = \"q\"", Path::new("/")).unwrap();
        let names: Vec<_> = experiment.configurations.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.first(), Some(&"as is"));
        assert_eq!(names.last(), Some(&"plain HTTP"));
        assert_eq!(names.len(), 2 + Stage::PROVIDER.len() + 1);
        assert!(names.contains(&"no key agreement"));
    }

    #[test]
    fn an_experiment_survives_the_round_trip_through_toml() {
        let mut experiment =
            Experiment { measure: Measure { seed: Some(7), ..Measure::default() }, ..Experiment::default() };
        experiment.fill();
        let text = experiment.to_toml().unwrap();
        assert_eq!(Experiment::from_toml(&text, Path::new("/")).unwrap(), experiment);
    }

    #[test]
    fn every_table_refuses_unknown_keys() {
        for table in ["", "[server]\n", "[tls]\n", "[load]\n", "[measure]\n", "[[configuration]]\nname = \"a\"\n"] {
            let text = format!("question = \"q\"\n{table}surprise = 1\n");
            let error = Experiment::from_toml(&text, Path::new("/")).unwrap_err().to_string();
            assert!(error.contains("surprise"), "{table}: {error}");
        }
    }

    #[test]
    fn impossible_combinations_are_refused_with_the_remedy() {
        let with = |edit: &dyn Fn(&mut Experiment)| {
            let mut experiment = Experiment::default();
            edit(&mut experiment);
            format!("{:#}", experiment.check().unwrap_err())
        };
        assert!(with(&|e| e.tls.suite = Some("AES128-SHA".into())).contains("--tls 1.2"));
        assert!(
            with(&|e| {
                e.tls.version = "1.2".into();
                e.tls.suite = Some("AES128-SHA".into());
                e.tls.certificate = "p-256".into();
            })
            .contains("--cert rsa-2048")
        );
        assert!(with(&|e| e.tls.certificate = "dsa".into()).contains("rsa-2048"));
        assert!(with(&|e| e.server.kind = ServerName::Command).contains("--server-command"));
        let ports = |command: &str, address: &str, plain: Option<&str>| {
            with(&|e| {
                e.server.kind = ServerName::Command;
                e.server.command = Some(format!("{command} {{docroot}}"));
                e.server.address = Some(address.to_owned());
                e.server.plain_address = plain.map(str::to_owned);
            })
        };
        assert!(ports("x", "127.0.0.1:{port}", None).contains("put {port} where its port goes"));
        assert!(ports("x {port}", "127.0.0.1:{port}", Some("127.0.0.1:80")).contains("mix a chosen port"));
        assert!(ports("x {port}", "127.0.0.1:{port}", Some("127.0.0.1:{plain_port}")).contains("put {plain_port}"));
        assert!(ports("x {port}", "127.0.0.1:443", None).contains("is fixed: write {port} in --address"));
        assert!(with(&|e| e.load.reuse_percent = Some(101.0)).contains("between 0 and 100"));
        assert!(with(&|e| e.measure.time_s = 0.1).contains("--time"));
        assert!(with(&|e| e.configurations = vec![ConfigurationModel::as_is(); 2]).contains("exactly one"));
        let twice = ConfigurationModel::without("x", [Stage::Kdf]);
        let configurations = [ConfigurationModel::as_is(), twice.clone(), twice];
        assert!(with(&|e| e.configurations = configurations.to_vec()).contains("two configurations"));
        let renamed = ConfigurationModel { name: "y".into(), idle_provider: true, ..configurations[1].clone() };
        let configurations = [configurations[0].clone(), configurations[1].clone(), renamed];
        assert!(with(&|e| e.configurations = configurations.to_vec()).contains("`x` and `y` are the same"));
    }
}
