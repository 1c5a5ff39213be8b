//! What can be told of an installed server without a request: from its configuration, its certificates and its log.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tlsdyno_ablation::command::installed_server;
use tlsdyno_base::units::{format_count, format_tenths};
use tlsdyno_installed::{AccessLog, Facts, session_line};
use tlsdyno_record::model::ServerName;
use tlsdyno_record::model::remedy::KEPT_S;
use tlsdyno_record::model::workload::ReplaySpec;
use tlsdyno_workloads::{LogScan, scan_log};

use crate::certificate::Certificate;

/// Maximum size of a log that is read without being named, bytes.
const LOG_BYTES_MAX: u64 = 256 << 20;
#[derive(Debug)]
pub(crate) struct Reading {
    pub path: PathBuf,
    pub server: ServerName,
    pub host: Option<String>,
    pub others: Vec<String>,
    pub facts: Facts,
    /// For each file of certificates its first one, or why it cannot be read.
    pub certificates: Vec<Result<Certificate, String>>,
    /// The program's version, and that of its OpenSSL.
    pub version: String,
    /// The log, or why none was read. Connections are taken to end after the server's keep-alive time.
    pub log: Result<LogScan, String>,
    /// Hits per connection by the log, if connections were kept for [`KEPT_S`].
    pub hits_if_kept: Option<f64>,
    pub cpus: usize,
}

impl Reading {
    /// `kind`: server that the configuration is for, if known. `asked`: the host. `trace`: the log, where it is another
    /// than the configuration names. Fails where the configuration, or the named log, cannot be read.
    pub fn of(path: &Path, kind: Option<ServerName>, asked: Option<&str>, trace: Option<&Path>) -> Result<Reading> {
        let installed = installed_server::read(path, kind)?;
        let choice = installed.site.chosen(asked)?;
        let facts = installed.site.facts(choice.host.as_deref());
        let certificate = |path: &String| match path.contains('$') {
            true => Err(format!("{path}: chosen for each connection")),
            false => Certificate::read(Path::new(path)).map_err(|error| format!("{path}: {error:#}")),
        };
        let kept_s = facts.keep_alive_s.unwrap_or(KEPT_S);
        let log = match trace {
            Some(path) => Ok(scan(path, kept_s, asked)?),
            None => log_of(&facts.access_logs, kept_s, asked),
        };
        let log = log.and_then(|log| match log.read.cannot_tell() {
            Some(why) => Err(format!("{} is not used: {why}", log.workload)),
            None => Ok(log),
        });
        let longer =
            log.as_ref().ok().filter(|_| kept_s < KEPT_S).map(|log| scan(Path::new(&log.workload), KEPT_S, asked));
        let hits_if_kept = longer.transpose()?.map(|log| log.hits_per_connection);
        let version = installed.version();
        Ok(Reading {
            path: path.to_owned(),
            server: installed.server,
            certificates: facts.certificates.iter().map(certificate).collect(),
            host: choice.host,
            others: choice.others,
            facts,
            version,
            log,
            hits_if_kept,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    pub fn known_certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.iter().flatten()
    }

    pub fn openssl(&self) -> Option<[u32; 2]> {
        version_behind(&self.version, "OpenSSL ")
    }

    /// `[1, 22]` of `nginx/1.22.1`.
    pub fn nginx(&self) -> Option<[u32; 2]> {
        version_behind(&self.version, "nginx/")
    }

    /// By the log, for each connection.
    pub fn hits_per_handshake(&self) -> Option<f64> {
        self.log.as_ref().ok().map(|log| log.hits_per_connection)
    }

    pub fn mean_rate_per_s(&self) -> Option<f64> {
        let log = self.log.as_ref().ok()?;
        let (from, to) = log.read.time_range_s?;
        (to > from).then(|| log.hits as f64 / (to - from) as f64)
    }

    /// Names with their values, the most important one for the advice first.
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
        told.push(("versions", or(protocols, &format!("{}'s own choice", self.server.name()))));
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
            let how = if kept { "on connections that are kept" } else { "on a new connection each" };
            told.push(("behind it", format!("requests are passed on {how}")));
        }
        told.push(("log", self.told_log()));
        told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub fn brief(&self) -> String {
        let certificates: Vec<String> = self.known_certificates().map(|of| of.key.to_string()).collect();
        let Facts { protocols, session_cache, tickets, .. } = &self.facts;
        let hits = self.hits_per_handshake().map_or("not known".to_owned(), format_tenths);
        format!(
            "{}: {}; {}; session cache {session_cache}, tickets {}; hits per handshake {hits}",
            self.version,
            certificates.join(" and "),
            if protocols.is_empty() { "versions by default".to_owned() } else { protocols.join(" and ") },
            if *tickets { "on" } else { "off" },
        )
    }

    fn told_hits(&self) -> String {
        match &self.log {
            Ok(log) => {
                let closed = match (self.facts.keep_alive_s, log.keep_alive_s) {
                    (Some(0), _) => "as the server closes each connection".to_owned(),
                    (Some(_), seconds) => {
                        format!("as the server closes connections after {seconds} s without a request")
                    }
                    (None, seconds) => format!("if clients close connections after {seconds} s without a request"),
                };
                format!(
                    "{} by the log, {closed}; {} for each full handshake",
                    format_tenths(log.hits_per_connection),
                    format_tenths(log.hits_per_full_handshake)
                )
            }
            Err(why) => format!("not known ({why}): name a log with --trace, or say it with --hits-per-handshake"),
        }
    }

    fn told_log(&self) -> String {
        let lacks = match session_line(self.server, &self.facts.access_logs) {
            Some(_) if !self.facts.access_logs.is_empty() => {
                "; it does not say which connections resumed a session: see the line below"
            }
            _ => "",
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
}

/// `keep_alive_s`: time without a request after which a connection ends; `asked`: the site whose requests count.
fn scan(path: &Path, keep_alive_s: u32, asked: Option<&str>) -> Result<LogScan> {
    scan_log(path, &[], &ReplaySpec { keep_alive_s, site: asked.map(str::to_owned), ..ReplaySpec::default() })
}

/// `[3, 0]` of `OpenSSL 3.0.11`; the last one counts.
fn version_behind(text: &str, name: &str) -> Option<[u32; 2]> {
    let (_, rest) = text.rsplit_once(name)?;
    let mut numbers = rest.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??])
}

/// The first log that exists and is not too long.
fn log_of(logs: &[AccessLog], keep_alive_s: u32, asked: Option<&str>) -> Result<LogScan, String> {
    let log = logs.first().ok_or("the configuration names no log")?;
    let path = Path::new(&log.path);
    if log.path == "syslog" {
        return Err("it logs to syslog: name the file with --trace".to_owned());
    }
    let bytes = std::fs::metadata(path).map_err(|error| format!("{}: {error}", log.path))?.len();
    if bytes > LOG_BYTES_MAX {
        return Err(format!("{} has {} MiB; name it with --trace to have it read", log.path, bytes >> 20));
    }
    if bytes == 0 {
        return Err(format!("{} is empty", log.path));
    }
    scan(path, keep_alive_s, asked).map_err(|error| format!("{error:#}"))
}
