//! What can be told of an installed server without a request: from its configuration, its certificates and its log.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tlsdyno_base::units::{format_count, format_tenths};
use tlsdyno_bench::kinds::ablation::command::installed_server;
use tlsdyno_record::model::ServerName;
use tlsdyno_record::model::workload::ReplaySpec;
use tlsdyno_servers::installed::{AccessLog, Facts};
use tlsdyno_servers::programs;
use tlsdyno_traffic::trace::{LogScan, scan_log};

use crate::certificate::Certificate;

/// A log that is longer is read only if it is named.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// What tells more than a log in the combined format does: words of a server's formats, and the line that adds them.
struct Telling {
    words: [&'static str; 3],
    line: &'static str,
}

/// Of lighttpd nothing: it has no variable for resumption.
fn telling_of(server: ServerName) -> Option<Telling> {
    match server {
        ServerName::Nginx => Some(Telling {
            words: ["$ssl_session_reused", "$connection_requests", "$ssl_protocol"],
            line: "log_format tls '$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                   \"$http_referer\" \"$http_user_agent\" $ssl_protocol $ssl_session_reused $connection_requests';",
        }),
        ServerName::ApacheEvent | ServerName::ApachePrefork => Some(Telling {
            words: ["%{SSL_SESSION_RESUMED}x", "%k", "%{SSL_PROTOCOL}x"],
            line: "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\" \
                   %{SSL_PROTOCOL}x %{SSL_SESSION_RESUMED}x %k\" tls",
        }),
        // Its own format has no place for what `log-format` can say: this is the combined one.
        ServerName::Haproxy => Some(Telling {
            words: ["ssl_fc_is_resumed", "http_first_req", "%sslv"],
            line: "log-format \"%ci - - [%trl] %{+Q}r %ST %B - - %sslv %[ssl_fc_is_resumed] %[http_first_req]\"",
        }),
        _ => None,
    }
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub path: PathBuf,
    pub server: ServerName,
    pub host: Option<String>,
    pub others: Vec<String>,
    pub facts: Facts,
    /// Of each file of certificates, or why it cannot be read.
    pub certificates: Vec<Result<Certificate, String>>,
    /// What the program says of itself, and which OpenSSL it runs with.
    pub version: String,
    /// The log, or why none was read.
    pub log: Result<LogScan, String>,
}

impl Reading {
    /// Of the server of this host. `kind`: whose configuration it is, where that is said. `trace`: its log, where it is
    /// another than the configuration names.
    ///
    /// # Errors
    /// The configuration, or the log that was named, cannot be read.
    pub fn of(path: &Path, kind: Option<ServerName>, asked: Option<&str>, trace: Option<&Path>) -> Result<Reading> {
        let installed = installed_server::read(path, kind)?;
        let choice = installed.site.chosen(asked)?;
        let facts = installed.site.facts(choice.host.as_deref());
        let certificate = |path: &String| match path.contains('$') {
            true => Err(format!("{path}: chosen for each connection")),
            false => Certificate::read(Path::new(path)).map_err(|error| format!("{path}: {error:#}")),
        };
        let log = match trace {
            Some(path) => Ok(scan_log(path, &[], &ReplaySpec::default())?),
            None => log_of(&facts.access_logs),
        };
        let log = log.and_then(|log| match log.read.cannot_tell() {
            Some(why) => Err(format!("{} is not used: {why}", log.workload)),
            None => Ok(log),
        });
        let version = installed.program().map_or_else(|error| error.to_string(), |program| version_of(&program));
        Ok(Reading {
            path: path.to_owned(),
            server: installed.server,
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

    /// What the server is, in a line.
    pub fn brief(&self) -> String {
        let certificates: Vec<&str> = self.known_certificates().map(|of| of.key.as_str()).collect();
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
            Ok(log) => format!(
                "{} by the log (connections that close after {} s without a request); {} for each full handshake",
                format_tenths(log.hits_per_connection),
                log.keep_alive_s,
                format_tenths(log.hits_per_full_handshake)
            ),
            Err(why) => format!("not known ({why}): name a log with --trace, or say it with --hits-per-handshake"),
        }
    }

    fn told_log(&self) -> String {
        let lacks = match self.missing_log_line() {
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

    /// The line for a log that tells of sessions, where none does.
    pub fn missing_log_line(&self) -> Option<&'static str> {
        let Telling { words, line } = telling_of(self.server)?;
        let all = |log: &AccessLog| words.iter().all(|word| log.format.contains(word));
        (!self.facts.access_logs.iter().any(all)).then_some(line)
    }
}

/// The first log that is there and not too long.
fn log_of(logs: &[AccessLog]) -> Result<LogScan, String> {
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
    scan_log(path, &[], &ReplaySpec::default()).map_err(|error| format!("{error:#}"))
}

/// `nginx/1.22.1, OpenSSL 3.0.11`: the last is the library that it says it runs with, or else that of the system.
fn version_of(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let flag = match &*name {
        "nginx" => "-V",
        "haproxy" => "-vv",
        _ => "-v",
    };
    let said = programs::output_of(program, &[flag]);
    let first = said.lines().next().unwrap_or(&name);
    let version = first.trim_start_matches("nginx version: ").trim_start_matches("Server version: ");
    let version = version.split(" - ").next().unwrap_or(version);
    let number = |line: &str| {
        let (_, rest) = line.rsplit_once("OpenSSL ")?;
        rest.split_whitespace().next().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
    };
    let of_system = || number(&programs::output_of(&programs::find("openssl")?, &["version"]));
    let number = said.lines().filter_map(number).next_back().or_else(of_system);
    number.map_or_else(|| version.to_owned(), |number| format!("{version}, OpenSSL {number}"))
}
