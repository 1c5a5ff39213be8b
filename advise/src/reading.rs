//! What can be told of an installed server without a request: from its configuration, its certificates and its log.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tlsdyno_base::units::{format_count, format_tenths};
use tlsdyno_record::model::ServerName;
use tlsdyno_record::model::workload::ReplaySpec;
use tlsdyno_servers::installed::{AccessLog, Facts, Installed};
use tlsdyno_servers::{driver_of, programs};
use tlsdyno_traffic::trace::{LogScan, scan_log};

use crate::certificate::Certificate;

/// A log that is longer is read only if it is named.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Variables of nginx's log formats that tell what no log in the combined format does.
const TELLING: [&str; 3] = ["$ssl_session_reused", "$connection_requests", "$ssl_protocol"];
/// The line that adds them.
pub(crate) const LOG_FORMAT: &str = "log_format tls '$remote_addr - $remote_user [$time_local] \"$request\" $status \
                                     $body_bytes_sent \"$http_referer\" \"$http_user_agent\" $ssl_protocol \
                                     $ssl_session_reused $connection_requests';";

/// What was read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub path: PathBuf,
    pub host: Option<String>,
    pub others: Vec<String>,
    pub facts: Facts,
    /// Of each file of certificates, or why it cannot be read.
    pub certificates: Vec<Result<Certificate, String>>,
    /// What nginx says of itself and of its OpenSSL.
    pub version: String,
    /// The log, or why none was read.
    pub log: Result<LogScan, String>,
}

impl Reading {
    /// Of the server of this host in nginx's configuration. `trace`: its log, where it is another than the
    /// configuration names.
    ///
    /// # Errors
    /// The configuration, or the log that was named, cannot be read.
    pub fn of(path: &Path, asked: Option<&str>, trace: Option<&Path>) -> Result<Reading> {
        let installed = Installed::read(path)?;
        let choice = installed.choice(asked);
        let facts = installed.facts(choice.host.as_deref());
        let certificate = |path: &String| match path.contains('$') {
            true => Err(format!("{path}: chosen for each connection")),
            false => Certificate::read(Path::new(path)).map_err(|error| format!("{path}: {error:#}")),
        };
        let log = match trace {
            Some(path) => Ok(scan_log(path, &[], &ReplaySpec::default())?),
            None => log_of(&facts.access_logs),
        };
        let program = driver_of(ServerName::Nginx).package.context("nginx has a package")?.require("");
        let version = program.map_or_else(|error| error.to_string(), |program| version_of(&program));
        Ok(Reading {
            path: path.to_owned(),
            certificates: facts.certificates.iter().map(certificate).collect(),
            host: choice.host,
            others: choice.others,
            facts,
            version,
            log,
        })
    }

    /// The certificates that could be read.
    pub fn known_certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.iter().flatten()
    }

    /// Requests for each connection, by the log.
    pub fn hits_per_handshake(&self) -> Option<f64> {
        self.log.as_ref().ok().map(|log| log.hits_per_connection)
    }

    /// Requests a second, on average over the log.
    pub fn mean_rate_per_s(&self) -> Option<f64> {
        let log = self.log.as_ref().ok()?;
        let (from, to) = log.read.time_range_s?;
        (to > from).then(|| log.hits as f64 / (to - from) as f64)
    }

    /// Names with their values, the one first that decides every advice.
    pub fn told(&self) -> Vec<(String, String)> {
        let Facts { protocols, groups, ciphers, keep_alive: [keep, requests], .. } = &self.facts;
        let or = |list: &[String], otherwise: &str| match list {
            [] => otherwise.to_owned(),
            list => list.join(", "),
        };
        let on = |is: bool| if is { "on" } else { "off" };
        let mut told = vec![("hits per handshake", self.told_hits())];
        told.push(("server", format!("{} of {}", self.host.as_deref().unwrap_or("the default"), self.path.display())));
        if !self.others.is_empty() {
            told.push(("other servers", format!("{} (--host NAME)", self.others.join(", "))));
        }
        told.push(("program", self.version.clone()));
        let of = |certificate: &Result<Certificate, String>| match certificate {
            Ok(certificate) => certificate.told(),
            Err(why) => why.clone(),
        };
        told.extend(self.certificates.iter().map(|certificate| ("certificate", of(certificate))));
        told.push(("versions", or(protocols, "nginx's own choice")));
        told.push(("groups", or(groups, "OpenSSL's own choice")));
        if !ciphers.is_empty() {
            told.push(("ciphers to TLS 1.2", ciphers.clone()));
        }
        let Facts { session_cache, session_timeout, tickets, ticket_key_files, early_data, .. } = &self.facts;
        let keys = if *ticket_key_files > 0 { ", with keys from files" } else { "" };
        told.push((
            "sessions",
            format!(
                "cache {session_cache}, for {session_timeout}; tickets {}{keys}; early data {}",
                on(*tickets),
                on(*early_data)
            ),
        ));
        told.push((
            "connections",
            format!("kept for {keep}, for up to {requests} requests; HTTP/2 {}", on(self.facts.http2)),
        ));
        told.push(("stapling", on(self.facts.stapling).to_owned()));
        if let Some(kept) = self.facts.passes_on {
            let how = if kept { "on connections that an upstream keeps" } else { "on a new connection each" };
            told.push(("behind it", format!("requests are passed on {how}")));
        }
        told.push(("log", self.told_log()));
        told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn told_hits(&self) -> String {
        match &self.log {
            Ok(log) => format!(
                "{} by the log (connections that close after {} s without a request); {} for each full handshake",
                format_tenths(log.hits_per_connection),
                log.keep_alive_s,
                format_tenths(log.hits_per_full_handshake)
            ),
            Err(_) => "not known: name a log with --trace, or say it with --hits-per-handshake".to_owned(),
        }
    }

    fn told_log(&self) -> String {
        let telling = |log: &AccessLog| TELLING.iter().filter(|variable| log.format.contains(**variable)).count();
        let tells = self.facts.access_logs.iter().map(telling).max().unwrap_or(0);
        let lacks = if tells < TELLING.len() && !self.facts.access_logs.is_empty() {
            "; it does not say which connections resumed a session: see the line of log_format below"
        } else {
            ""
        };
        match &self.log {
            Ok(log) => {
                let rate =
                    self.mean_rate_per_s().map_or(String::new(), |rate| format!(", {rate:.3} hits/s on average"));
                format!(
                    "{} hits of {} users in {}{rate}{lacks}",
                    format_count(log.hits),
                    format_count(log.users),
                    log.workload
                )
            }
            Err(why) => format!("{why}{lacks}"),
        }
    }

    /// Whether the log lacks what would tell of sessions.
    pub fn lacks_telling_log(&self) -> bool {
        let all = |log: &AccessLog| TELLING.iter().all(|variable| log.format.contains(variable));
        !self.facts.access_logs.iter().any(all)
    }
}

/// The first log that is there and not too long.
fn log_of(logs: &[AccessLog]) -> Result<LogScan, String> {
    let log = logs.first().ok_or("the configuration names no log")?;
    let path = Path::new(&log.path);
    let bytes = std::fs::metadata(path).map_err(|error| format!("{}: {error}", log.path))?.len();
    if bytes > LOG_BYTES_MAX {
        return Err(format!("{} has {} MiB; name it with --trace to have it read", log.path, bytes >> 20));
    }
    if bytes == 0 {
        return Err(format!("{} is empty", log.path));
    }
    scan_log(path, &[], &ReplaySpec::default()).map_err(|error| format!("{error:#}"))
}

/// `nginx version: nginx/1.22.1`, `built with OpenSSL 3.0.11 19 Sep 2023`.
fn version_of(program: &Path) -> String {
    let said = programs::output_of(program, &["-V"]);
    let version = said.lines().find_map(|line| line.strip_prefix("nginx version: ")).unwrap_or("nginx");
    let library = said.lines().find(|line| line.starts_with("built with")).unwrap_or_default();
    format!("{version} {library}").trim_end().to_owned()
}
