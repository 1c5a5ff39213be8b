//! The clients and their command lines.

use std::path::PathBuf;

use super::operation::{Operation, TCP};
use super::server::Server;
use crate::{process, tlsdyno};

/// Connections of every client: so many that events come in batches.
const CONNECTIONS: &str = "256";

/// How much tlsdyno's client does of a real one's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Honest,
    Lean,
    Floor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Wrk,
    H2load,
    Oha,
    Ab,
    Bombardier,
    TlsPerf,
    Own(Effort),
    /// tlsdyno without TLS, beside handshakes: the floor under every client.
    OwnBareTcp,
}

/// The clients in the order of the table, with their names.
const ALL: [(Client, &str); 10] = [
    (Client::Wrk, "wrk"),
    (Client::H2load, "h2load"),
    (Client::Oha, "oha"),
    (Client::Ab, "ab"),
    (Client::Bombardier, "bombardier"),
    (Client::TlsPerf, "tls-perf"),
    (Client::Own(Effort::Honest), "tlsdyno honest"),
    (Client::Own(Effort::Lean), "tlsdyno lean"),
    (Client::Own(Effort::Floor), "tlsdyno floor"),
    (Client::OwnBareTcp, "tlsdyno, bare TCP"),
];

impl Client {
    /// The clients that can do an operation at all, in the order of the table.
    pub fn of(operation: &Operation) -> Vec<Client> {
        ALL.into_iter().map(|(client, _)| client).filter(|client| client.can(operation)).collect()
    }

    fn can(self, operation: &Operation) -> bool {
        let has_tls = operation.version.is_some();
        let has_http2 = operation.streams.is_some();
        match self {
            Client::H2load => true,
            Client::Own(effort) if has_http2 => effort == Effort::Honest,
            _ if has_http2 => false,
            Client::Wrk => true,
            // These are linked to TLS libraries of their own, whose groups are theirs.
            Client::Oha => operation.group.is_none(),
            // They never resume.
            Client::Ab | Client::Bombardier => operation.group.is_none() && !operation.resumes,
            // It makes handshakes only, and those of TLS 1.3 it does not resume.
            Client::TlsPerf => matches!(operation.name, "ecdsa" | "rsa" | "ticket12"),
            Client::Own(_) => has_tls,
            Client::OwnBareTcp => !has_tls || operation.name == "ecdsa",
        }
    }

    pub fn name(self) -> &'static str {
        ALL.into_iter().find(|(client, _)| *client == self).map_or("", |(_, name)| name)
    }

    /// Whether each connection carries a request that the server counts and logs.
    pub fn makes_requests(self) -> bool {
        self != Client::TlsPerf
    }

    pub fn source(self) -> &'static str {
        match self {
            Client::Wrk | Client::H2load | Client::Ab => "scripts/install-packages bench",
            Client::Oha => "scripts/install-packages bench, or cargo install oha --locked",
            Client::Bombardier => {
                "scripts/install-packages bench, or go install github.com/codesenberg/bombardier@v1.2.6"
            }
            Client::TlsPerf => "no distribution or registry carries it; C sources: github.com/tempesta-tech/tls-perf",
            Client::Own(_) | Client::OwnBareTcp => "cargo build --release -p tlsdyno",
        }
    }

    /// Where its program is: in PATH, or where cargo, Go and distributions install programs.
    pub fn program(self) -> Option<PathBuf> {
        match self {
            Client::Own(_) | Client::OwnBareTcp => tlsdyno::built().ok(),
            _ => process::find(self.name()),
        }
    }

    /// Its words after the program. h2load never ends when it is told a time and the server closes, and so gets a
    /// number.
    pub fn arguments(self, operation: &Operation, server: &Server, seconds: u32) -> Vec<String> {
        let operation = if self == Client::OwnBareTcp { &TCP } else { operation };
        let url = server.url(operation);
        let (time, time_s) = (seconds.to_string(), format!("{seconds}s"));
        let number = (seconds * operation.per_second).to_string();
        let close: &[&str] = if operation.keeps { &[] } else { &["-H", "Connection: close"] };
        let ca = server.ca_file();
        let words = match self {
            Client::Wrk => [&["-t1", "-c", CONNECTIONS, "-d", &time], close, &[&url]].concat(),
            Client::H2load => {
                // It offers no others than these or those of its own list.
                let group = operation.group.map(|group| ["--groups", group]);
                let group = group.as_ref().map_or(&[][..], |words| &words[..]);
                let protocol = operation.streams.map_or(vec!["--h1"], |streams| vec!["-m", streams]);
                [&protocol[..], &["-t1", "-c", CONNECTIONS, "-n", &number], group, close, &[&url]].concat()
            }
            // Not `--insecure`: that leaves out the server's signature too, which every other peer checks.
            Client::Oha => {
                let close: &[&str] = if operation.keeps { &[] } else { &["--disable-keepalive"] };
                [&["--no-tui", "--cacert", &ca, "-c", CONNECTIONS, "-z", &time_s], close, &[&url]].concat()
            }
            Client::Ab => {
                let keep: &[&str] = if operation.keeps { &["-k"] } else { &[] };
                [&["-q", "-r", "-c", CONNECTIONS, "-t", &time, "-n", "10000000"], keep, &[&url]].concat()
            }
            Client::Bombardier => [&["-k", "-c", CONNECTIONS, "-d", &time_s], close, &[&url]].concat(),
            Client::TlsPerf => {
                let version = operation.version.expect("tls-perf is for operations with TLS");
                let tickets: &[&str] = if operation.resumes { &["--tickets", "on"] } else { &[] };
                let port = server.port(operation).to_string();
                let whole = [&["-q", "-l", CONNECTIONS, "-t", "1", "-T", &time, "--tls", version], tickets].concat();
                return owned(&[&whole[..], &["127.0.0.1", &port]].concat());
            }
            Client::Own(effort) => return own(Some(effort), operation, server, &url, &time),
            Client::OwnBareTcp => return own(None, operation, server, &url, &time),
        };
        owned(&words)
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// tlsdyno waits 4 ms before each look for events, so that it works in batches as a client does that has no time left.
fn own(effort: Option<Effort>, operation: &Operation, server: &Server, url: &str, time: &str) -> Vec<String> {
    let mut words = vec!["load", url, "--connections", CONNECTIONS, "--batch", "4ms", "--json", "--duration", time];
    let ca = server.ca_file();
    if let Some(version) = operation.version {
        words.extend(["--tls", version, "--suite", operation.suite]);
    }
    if let Some(group) = operation.group {
        words.extend(["--group", group]);
    }
    match effort {
        Some(Effort::Honest) => words.extend(["--effort", "honest", "--ca-file", &ca]),
        Some(Effort::Lean) => words.extend(["--effort", "lean"]),
        Some(Effort::Floor) => words.extend(["--effort", "floor"]),
        None => {}
    }
    words.push(if operation.keeps { "--keep-alive" } else { "--close" });
    words.extend(operation.streams.iter().flat_map(|streams| ["--http2", "--streams", streams]));
    if operation.resumes {
        words.extend(["--reuse", "100%"]);
    }
    owned(&words)
}
