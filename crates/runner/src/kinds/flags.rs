//! Flags that several experiments have.

use std::net::IpAddr;
use std::ops::RangeBounds;
use std::path::PathBuf;

use anyhow::Result;
use tlsdyno_base::choice::choice;
use tlsdyno_engine::serve::Transaction;
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::{CertificateKind, Measure, Network, Server, ServerName, SessionCache, Tls, WorkersModel};
use tlsdyno_servers::Library;
use tlsdyno_tls::{Suite, Version};
use tlsdyno_workloads::flags::absolute;

/// TLS as servers are configured and clients offer it.
#[derive(clap::Args, Clone, Debug)]
pub struct TlsArgs {
    /// TLS version
    #[arg(long, value_name = "VERSION", default_value_t = Version::Tls13)]
    #[arg(value_parser = choice(Version::ALL), help_heading = "TLS")]
    tls: Version,
    /// Cipher suite by OpenSSL or IANA name, for example AES128-SHA [default: AES-128-GCM first, as browsers list
    /// them]
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    suite: Option<Suite>,
    /// No session tickets are issued: sessions by ID in TLS 1.2, stateful tickets in TLS 1.3
    #[arg(long, help_heading = "TLS")]
    no_tickets: bool,
}

impl TlsArgs {
    pub fn with(&self, certificate: Option<CertificateKind>) -> Tls {
        Tls { version: self.tls, suite: self.suite, certificate, tickets: !self.no_tickets, ..Tls::default() }
    }
}

/// A server that is measured by itself.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    /// The server
    #[arg(long, default_value_t, value_parser = choice(ServerName::configured()), help_heading = "Server")]
    server: ServerName,
    /// Your own server and configuration: a command line that stays in the foreground; {port} {docroot} {dir}
    /// {certificate} {key} are filled in, also in files that it names (as copies: write absolute paths there)
    #[arg(long, value_name = "COMMAND", requires = "address", conflicts_with = "server", help_heading = "Server")]
    server_command: Option<String>,
    /// Where the server command listens: 127.0.0.1:{port}, or a fixed 127.0.0.1:8443 (then no other server stands
    /// beside it: a profile has no column `removed`)
    #[arg(long, value_name = "IP:PORT", requires = "server_command", help_heading = "Server")]
    address: Option<String>,
}

impl ServerArgs {
    pub fn server(&self) -> Server {
        let kind = if self.server_command.is_some() { ServerName::Command } else { self.server };
        let (command, address) = (self.server_command.clone(), self.address.clone());
        Server { kind, command, address, ..Server::default() }
    }
}

/// What may be asked behind the copy of an installed configuration.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ApplicationArgs {
    /// Ask the applications behind it for real, as often as the load leads there: thousands of requests a second.
    /// Without it each is asked once for each request (GET and HEAD, by plain HTTP), and its answers are replayed;
    /// others are not asked
    #[arg(long)]
    pub ask_backend: bool,
    /// What is always so without --ask-backend
    #[arg(long, hide = true, conflicts_with = "ask_backend")]
    replay_backend: bool,
    /// You may ask the applications on this other machine (repeatable)
    #[arg(long = "i-may-load-this", value_name = "HOST")]
    pub may_load: Vec<String>,
}

impl ApplicationArgs {
    /// As words of a command line; empty: no flag was given.
    pub fn words(&self) -> Vec<String> {
        let hosts = self.may_load.iter().map(|host| format!("--i-may-load-this={host}"));
        self.ask_backend.then(|| "--ask-backend".to_owned()).into_iter().chain(hosts).collect()
    }
}

/// TLS of a server that is measured by itself.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerTlsArgs {
    #[command(flatten)]
    tls: TlsArgs,
    /// Certificate [default: rsa-2048, of your own server the one that it has]
    #[arg(long, value_name = "TYPE", value_parser = choice(CertificateKind::ALL), help_heading = "TLS")]
    cert: Option<CertificateKind>,
    /// Where each server keeps its sessions (resumption by ID in TLS 1.2, stateful tickets in TLS 1.3 with
    /// --no-tickets) [default: shared, of your own server as it is]
    #[arg(long, value_name = "CACHE", value_parser = choice(SessionCache::ALL), help_heading = "TLS")]
    session_cache: Option<SessionCache>,
    /// HTTP/2 as browsers speak it: servers take it, clients offer it (ALPN), and a user has one connection
    #[arg(long, help_heading = "TLS")]
    http2: bool,
}

impl ServerTlsArgs {
    pub fn tls(&self) -> Tls {
        Tls { session_cache: self.session_cache, http2: self.http2, ..self.tls.with(self.cert) }
    }
}

/// What is between the load and the servers.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct NetworkArgs {
    /// Connect through a network of this delay (of a packet and its answer together), loss (of the packets of each way)
    /// and bandwidth, for example 'delay=50ms,loss=1%,rate=56kbit'; see docs/LOAD.md. Needs root
    #[arg(long, value_name = "NETWORK", conflicts_with = "remote", help_heading = "Load")]
    pub network: Option<Network>,
}

/// Workers that make the load in place of this machine, and where servers listen for them.
#[derive(clap::Args, Clone, Debug)]
pub struct FarArgs {
    /// The address of this machine on which servers listen for workers elsewhere: whoever reaches it can connect
    /// [default: that of --listen]
    #[arg(long, value_name = "IP", requires = "remote")]
    pub address: Option<IpAddr>,
    /// Who they are.
    #[command(flatten)]
    pub workers: WorkersModel,
}

impl FarArgs {
    /// Replaces the workers and the address of an experiment by those that are given.
    pub fn give(&self, workers: &mut Option<WorkersModel>, address: &mut Option<IpAddr>) {
        if let Some(given) = self.workers.given() {
            *address = self.address.or(given.reach()).or(*address);
            *workers = Some(given);
        }
    }
}

/// For how long is measured: `TIME_S` seconds unless --time says otherwise, `QUICK_S` by --quick.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct TimeArgs<const TIME_S: u32, const QUICK_S: u32> {
    // Not by `default_value_t`, which keeps one value for all numbers that this type is made with.
    #[arg(short, short_alias = 'd', long, alias = "duration", value_name = "TIME", value_parser = seconds)]
    #[arg(help = format!("Bound on the measuring time, for example 90 or 3m [default: {TIME_S}]"))]
    #[arg(help_heading = "Measuring")]
    time: Option<f64>,
    /// A first look is enough.
    #[arg(long, conflicts_with = "time", help_heading = "Measuring")]
    #[arg(help = format!("A first look: {QUICK_S} seconds of measuring"))]
    pub quick: bool,
}

impl<const TIME_S: u32, const QUICK_S: u32> TimeArgs<TIME_S, QUICK_S> {
    pub fn seconds(&self) -> f64 {
        if self.quick { f64::from(QUICK_S) } else { self.time.unwrap_or(f64::from(TIME_S)) }
    }
}

/// What must be the same for a run to be repeated.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct RepeatArgs {
    /// Seed of what is random in the order of blocks and slices, and in arrivals
    #[arg(long, value_name = "N", help_heading = "Measuring")]
    seed: Option<u64>,
    /// CPU of the server; where there are several, of the first: others follow on what is free
    #[arg(long, value_name = "CPU", help_heading = "Measuring")]
    server_cpu: Option<usize>,
    /// CPU of the load
    #[arg(long, value_name = "CPU", help_heading = "Measuring")]
    load_cpu: Option<usize>,
}

impl RepeatArgs {
    /// `time_s`: duration of measuring, seconds.
    pub fn measure(&self, time_s: f64) -> Measure {
        let RepeatArgs { seed, server_cpu, load_cpu } = *self;
        Measure { time_s, seed, server_cpu, load_cpu, ..Measure::default() }
    }
}

/// Absolute paths of installations of OpenSSL; fails where a prefix holds none.
pub fn libraries(prefixes: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let library = |prefix: &PathBuf| -> Result<PathBuf> {
        Library::at(prefix)?;
        absolute(prefix, "library")
    };
    prefixes.iter().map(library).collect()
}

/// Parses the value of --transaction.
pub fn parse_transaction(text: &str) -> Result<Transaction, String> {
    let mut transaction = Transaction::default();
    for part in text.split('+') {
        let (what, time) = part.split_once(':').unwrap_or(("wait", part));
        let time: Time = time.parse()?;
        let cost = match what {
            "cpu" => &mut transaction.cpu_ns,
            "wait" => &mut transaction.wait_ns,
            other => return Err(format!("`{other}` is no cost of a page; write cpu:2ms, wait:5ms, or both with a +")),
        };
        if *cost > 0 {
            return Err(format!("`{what}` stands there twice"));
        }
        *cost = time.0.as_nanos() as u64;
    }
    if transaction == Transaction::default() {
        return Err("a page that costs nothing is what there is without --transaction".to_owned());
    }
    Ok(transaction)
}

/// In seconds, from a text with or without a unit.
pub fn seconds(text: &str) -> Result<f64, String> {
    text.parse::<Time>().map(|time| time.0.as_secs_f64())
}

/// Parser of a finite number in a range; `what` names the number with its range in errors.
pub fn number(
    what: &'static str,
    range: impl RangeBounds<f64> + Clone,
) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && range.contains(number));
        number.ok_or_else(|| format!("`{text}` is not {what}"))
    }
}

/// Requests or connections a second.
pub fn rate(text: &str) -> Result<f64, String> {
    number("a number a second, from 0.001 to a billion", 1e-3..=1e9)(text)
}

/// Requests for each connection.
pub fn requests_each(text: &str) -> Result<f64, String> {
    number("a number of requests from 1 to 65,535", 1.0..=65_535.0)(text)
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::{TimeArgs, rate, requests_each};

    #[test]
    fn each_command_has_its_own_time() {
        fn seconds<const TIME_S: u32>(words: &[&str]) -> f64 {
            let command = TimeArgs::<TIME_S, 15>::augment_args(Command::new("c"));
            let given = command.try_get_matches_from([&["c"], words].concat()).unwrap();
            TimeArgs::<TIME_S, 15>::from_arg_matches(&given).unwrap().seconds()
        }
        assert_eq!([seconds::<60>(&[]), seconds::<180>(&[]), seconds::<90>(&[])], [60.0, 180.0, 90.0]);
        assert_eq!([seconds::<180>(&["--time", "2m"]), seconds::<180>(&["--quick"])], [120.0, 15.0]);
    }

    #[test]
    fn numbers_are_finite_and_in_their_range() {
        for wrong in ["nan", "inf", "-inf", "1e400", "1e12", "0", "-1", ""] {
            assert!(rate(wrong).unwrap_err().contains("from 0.001 to a billion"), "{wrong}");
            assert!(requests_each(wrong).is_err(), "{wrong}");
        }
        assert_eq!((rate("2000"), requests_each("1")), (Ok(2000.0), Ok(1.0)));
    }
}
