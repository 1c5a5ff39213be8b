//! `tlsdyno cost`: what TLS costs a server that runs, on any TLS library. Flags build the same experiment that TOML
//! files hold.

use std::path::PathBuf;

use anyhow::Result;
use tlsdyno_base::choice::choice;
use tlsdyno_base::exchange::Reach;
use tlsdyno_base::exit::Exit;
use tlsdyno_record::model::{self, WorkersModel};
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::kinds::flags::{TimeArgs, rate, requests_each};
use tlsdyno_runner::kinds::perform::OutputArgs;
use tlsdyno_tls::Group;

use crate::file::{CONNECTIONS_LEAST, Cost, CostExperiment, Measure, STATES, Started};

/// Connections of a first look at memory.
const QUICK_CONNECTIONS: u32 = 1_000;
/// Bound on all series of connections, seconds: how many there are is given.
const MEMORY_TIME_S: f64 = 7_200.0;

/// What TLS costs a server that runs, on any TLS library, from outside
///
/// The client makes connections that go less and less far: TCP alone, a hello that is refused, the server's part of the
/// handshake, a whole one, a request; full and resumed. The server's CPU time is read from /proc for each. The
/// differences are what a signature, a key agreement, a retry or a larger certificate costs this server. Nothing is
/// loaded into it and nothing of it is changed, but its error log tells of the handshakes that were broken off.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno cost https://127.0.0.1:8443/
  tlsdyno cost https://127.0.0.1:8443/ --rate 300 --hits-per-handshake 4
  tlsdyno cost https://127.0.0.1:8443/ --against https://127.0.0.1:9443/ --time 3m
  tlsdyno cost postgres://127.0.0.1/
  tlsdyno cost tls://127.0.0.1:9000 --request 'PING\\r\\n' --answer-until '\\r\\n'
  tlsdyno cost https://big.example/ --i-may-load-this big.example --on big.example
  tlsdyno cost --server-command './caddy run --config Caddyfile' --address 127.0.0.1:8443
  tlsdyno cost --server-command './nginx -c /etc/site.conf' --address 127.0.0.1:8443 --memory
  tlsdyno cost --server-command './nginx -c /etc/site.conf' --address 127.0.0.1:8443 --locks
  tlsdyno cost https://127.0.0.1:8443/ --pid 4711 --markdown")]
pub struct Args {
    /// What to request of a server that runs; its scheme may be postgres, mysql, smtp(s), lmtp, imap(s), pop3(s),
    /// ldap(s), xmpp, ftp(s), amqp(s), mqtts, rediss, or tls for any other
    #[arg(required_unless_present = "server_command")]
    url: Option<String>,
    /// The process that serves it, with its children, for example a container's main process [default: whichever
    /// listens there]
    #[arg(long, value_name = "PID", help_heading = "Server")]
    pid: Option<u32>,
    /// Another server: all are measured in turns and compared with the first (several times)
    #[arg(long, value_name = "URL", help_heading = "Server")]
    against: Vec<String>,
    /// The process of each of --against, in the same order
    #[arg(long, value_name = "PID", requires = "against", help_heading = "Server")]
    against_pid: Vec<u32>,
    /// A command line that starts the server and stays in the foreground; {port} and {dir} are filled in
    #[arg(long, value_name = "COMMAND", requires = "address", conflicts_with = "url", help_heading = "Server")]
    server_command: Option<String>,
    /// Where the server command listens: 127.0.0.1:{port}, or a fixed 127.0.0.1:8443
    #[arg(long, value_name = "IP:PORT", requires = "server_command", help_heading = "Server")]
    address: Option<String>,
    /// A command line that starts another server, measured as with --against (several times)
    #[arg(long, value_name = "COMMAND", requires = "against_address", help_heading = "Server")]
    against_command: Vec<String>,
    /// Where the server of each --against-command listens, in the same order
    #[arg(long, value_name = "IP:PORT", requires = "against_command", help_heading = "Server")]
    against_address: Vec<String>,
    /// You may load this host, which is not this machine
    #[arg(long = "i-may-load-this", value_name = "HOST", help_heading = "Server")]
    may_load: Vec<String>,
    /// Count locked instructions and calls that take locks, under valgrind (x86-64); ends by itself, sooner with --time
    /// below 30 or --quick
    #[arg(long, conflicts_with = "memory", help_heading = "Measuring")]
    locks: bool,
    /// The only group to offer, where a part is not about another one [default: X25519, P-256 and P-384]
    #[arg(long, value_name = "NAME", value_parser = choice(Group::ALL), help_heading = "Connections")]
    group: Option<Group>,
    /// Another page of it, for example /large.bin: what a request of its size costs (several times)
    #[arg(long = "page", value_name = "PATH", help_heading = "Connections")]
    pages: Vec<String>,
    /// Where it serves the same pages without TLS: what TLS adds to a request
    #[arg(long, value_name = "URL", help_heading = "Connections")]
    plain_url: Option<String>,
    /// Ask this in place of a page: bytes, with \r \n \t \0 \\ \xHH. Nobody logs in unless these bytes do
    #[arg(long, value_name = "BYTES", help_heading = "Connections")]
    request: Option<String>,
    /// The bytes with which its answer ends
    #[arg(long, value_name = "BYTES", requires = "request", conflicts_with = "answer_bytes")]
    #[arg(help_heading = "Connections")]
    answer_until: Option<String>,
    /// The length of its answer
    #[arg(long, value_name = "N", requires = "request", help_heading = "Connections")]
    answer_bytes: Option<u64>,
    /// Measure handshakes alone: it does not speak HTTP/1.1
    #[arg(long, help_heading = "Connections")]
    no_request: bool,
    /// ALPN protocol to offer (several times) [default: none]
    #[arg(long, value_name = "NAME", help_heading = "Connections")]
    alpn: Vec<String>,
    /// Certificate, with its chain, for a server that asks its clients for one (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key", help_heading = "Connections")]
    client_cert: Option<PathBuf>,
    /// Key of --client-cert (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", requires = "client_cert", help_heading = "Connections")]
    client_key: Option<PathBuf>,
    /// Most connections a second, where the server limits them [default: as many as it takes, one after the other]
    #[arg(long, value_name = "N", value_parser = rate, help_heading = "Connections")]
    at_most: Option<f64>,
    /// Requests a second of your site: costs are told in CPUs too
    #[arg(long, value_name = "N", value_parser = rate, help_heading = "Your site")]
    rate: Option<f64>,
    /// Requests of your site on each connection [default: 1]
    #[arg(long, value_name = "N", value_parser = requests_each, requires = "rate", help_heading = "Your site")]
    hits_per_handshake: Option<f64>,
    /// What a connection takes of the server's memory, in place of CPU time: idle, after a request, half open
    #[arg(long, conflicts_with = "time", help_heading = "Memory")]
    memory: bool,
    /// Where connections stay (several times) [default: each of them; of a server that runs: finished]
    #[arg(long = "state", value_name = "STATE", value_parser = choice(STATES), requires = "memory")]
    #[arg(help_heading = "Memory")]
    states: Vec<Reach>,
    /// Most connections that are open at once [default: 8000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(CONNECTIONS_LEAST)..))]
    #[arg(requires = "memory", help_heading = "Memory")]
    connections: Option<u32>,
    /// Times that connections rise to that number, each on a server that was started for it [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), requires = "memory")]
    #[arg(help_heading = "Memory")]
    series: Option<u32>,
    /// The servers of these URLs may grow: they keep the memory of our connections until they are started anew
    #[arg(long = "i-may-grow-this", requires = "memory", help_heading = "Memory")]
    may_grow: bool,
    /// One on the server's machine tells the CPU time of its processes.
    #[command(flatten, next_help_heading = "A server on another machine")]
    machines: WorkersModel,
    #[command(flatten)]
    time: TimeArgs<60, 15>,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    /// Servers that are started beside the first.
    fn further(&self) -> Vec<Started> {
        let all = self.against_command.iter().zip(&self.against_address);
        let started = |(command, address): (&String, &String)| {
            let (command, address) = (command.clone(), address.clone());
            Started { command, address, ..Started::default() }
        };
        all.map(started).collect()
    }
}

pub fn run(args: &Args) -> Result<Exit> {
    tlsdyno_base::ensure_fault!(
        Usage,
        args.against_command.len() == args.against_address.len(),
        "--against-address is given for each --against-command, in the same order"
    );
    let file = |path: &Option<PathBuf>| path.as_deref().map(std::path::absolute).transpose();
    let cost = Cost {
        measure: match (args.memory, args.locks) {
            (true, _) => Measure::Memory,
            (_, true) => Measure::Locks,
            _ => Measure::Time,
        },
        url: args.url.clone().unwrap_or_default(),
        pid: args.pid,
        against: args.against.clone(),
        against_pid: args.against_pid.clone(),
        server_command: args.server_command.clone(),
        address: args.address.clone(),
        servers: args.further(),
        group: args.group,
        pages: args.pages.clone(),
        plain_url: args.plain_url.clone(),
        rate_per_s: args.rate,
        hits_per_handshake: args.hits_per_handshake,
        at_most_per_s: args.at_most,
        request: args.request.clone(),
        answer_until: args.answer_until.clone(),
        answer_bytes: args.answer_bytes,
        no_request: args.no_request,
        alpn: args.alpn.clone(),
        client_certificate: file(&args.client_cert)?,
        client_key: file(&args.client_key)?,
        states: args.states.clone(),
        connections: args.connections.or((args.memory && args.time.quick).then_some(QUICK_CONNECTIONS)),
        may_grow: args.may_grow,
        workers: args.machines.given(),
        may_load: args.may_load.clone(),
        ..Cost::default()
    };
    let is_alone = args.against.is_empty() && args.against_command.is_empty();
    let question = match (cost.measure, is_alone) {
        (Measure::Time, false) => "What does TLS cost each of these servers, from outside?",
        (Measure::Time, true) => "What does TLS cost this server, from outside?",
        (Measure::Memory, false) => "What does a connection take of the memory of each of these servers?",
        (Measure::Memory, true) => "What does a connection take of this server's memory?",
        (Measure::Locks, false) => "How many locks does TLS take in each of these servers?",
        (Measure::Locks, true) => "How many locks does TLS take in this server?",
    };
    let time_s = if args.memory { MEMORY_TIME_S } else { args.time.seconds() };
    let measure = model::Measure { time_s, rounds: args.series, ..model::Measure::default() };
    CostExperiment { question: question.to_owned(), cost, measure }.perform(&args.output)
}
