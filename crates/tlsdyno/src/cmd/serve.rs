//! `tlsdyno serve`: the built-in server.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use tlsdyno_engine::serve::{self, Docroot, Listener, STAMPS_MAX, Settings, Stamp, TlsSettings, Transaction};
use tlsdyno_tls::{Group, Suite, Version};

use crate::choice::choice;
use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::kinds::flags::parse_transaction;
use crate::listening;
use crate::model::CertificateKind;
use crate::servers::database::{DatabasePages, fill};
use crate::servers::{RunDirectory, certificates};

/// Serve a directory of static files over HTTPS and HTTP
///
/// The built-in server of experiments: HTTP/1.1, TLS 1.2 and 1.3 through the system's OpenSSL. It reads the directory
/// once, at start. Without --listen and --listen-plain it serves HTTPS on a free loopback port. Ends on Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to serve
    #[arg(long, value_name = "DIR", required_unless_present = "origin")]
    docroot: Option<PathBuf>,
    /// Pass requests on to this server, over plain HTTP on connections that are kept, instead of serving files: a proxy
    /// that ends TLS. Requests with a body are refused
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["docroot", "transaction"])]
    origin: Option<SocketAddr>,
    /// Each page is a row of PostgreSQL, asked for with one SELECT for each request: libpq's settings of a database on
    /// this machine ('host=/run/postgresql dbname=site'). Its table tlsdyno_pages is made of the directory at start
    #[arg(long, value_name = "SETTINGS", requires = "docroot")]
    database: Option<String>,
    /// Serve HTTPS here; port 0: a free one. May be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Serve plain HTTP here; port 0: a free one. May be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_plain: Vec<SocketAddr>,
    /// Certificate chain (PEM); without it one is made for this run
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key (PEM) of --certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Kind of the certificate that is made
    #[arg(long, value_name = "KIND", default_value_t = CertificateKind::P256)]
    #[arg(value_parser = choice(CertificateKind::ALL), conflicts_with = "certificate")]
    cert: CertificateKind,
    /// TLS versions
    #[arg(long, value_name = "VERSION", value_delimiter = ',', value_parser = choice(Version::ALL))]
    tls: Vec<Version>,
    /// Cipher suites, best first, by OpenSSL or IANA name
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    suite: Vec<Suite>,
    /// Groups, best first; hybrids with ML-KEM need OpenSSL 3.5 or later
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = choice(Group::ALL))]
    group: Vec<Group>,
    /// Neither issue nor accept session tickets
    #[arg(long)]
    no_tickets: bool,
    /// Keep no sessions
    #[arg(long)]
    no_session_cache: bool,
    /// How long a session can be resumed [default: OpenSSL's two hours]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    session_timeout: Option<u32>,
    /// Refuse encrypt-then-MAC (TLS 1.2 CBC suites)
    #[arg(long)]
    no_encrypt_then_mac: bool,
    /// Take early data (TLS 1.3): requests that come with the hello, and may be replayed
    #[arg(long)]
    early_data: bool,
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Print each address on standard output as a line of JSON
    #[arg(long)]
    print_address: bool,
    /// Append a line for each request: session reused (r or .), protocol, cipher, number of the request on its
    /// connection
    #[arg(long, value_name = "FILE")]
    session_log: Option<PathBuf>,
    /// Each page costs so much, one after the other for each worker, with TLS and without: 7ms or wait:7ms takes this
    /// time beside the worker, as on a machine behind it; cpu:2ms its CPU time; cpu:2ms+wait:5ms both (the transaction
    /// server of Mraz et al. 2002)
    #[arg(long, value_name = "COST", value_parser = parse_transaction)]
    transaction: Option<Transaction>,
    /// Write when each page was asked for, begun and done, as CSV in nanoseconds, when the server ends
    #[arg(long, value_name = "FILE", requires = "transaction")]
    stamps: Option<PathBuf>,
    /// Allow addresses that other hosts can reach
    #[arg(long)]
    allow_insecure_listen: bool,
}

/// A line of `--print-address`.
#[derive(Serialize)]
struct Address {
    address: SocketAddr,
    tls: bool,
}

pub fn run(args: &Args) -> Result<Exit> {
    let (tls_addresses, plain_addresses) = addresses(args).or_fault(Fault::Usage)?;
    let docroot = args.docroot.as_deref().map(Docroot::load).transpose().or_fault(Fault::Input)?;
    let mut docroot = docroot.unwrap_or_default();
    if let Some(database) = &args.database {
        fill(database, &docroot).or_fault(Fault::Environment)?;
        docroot = docroot.as_pages();
    }
    let docroot = Arc::new(docroot);
    // Before the listeners, and kept until the end: the files of a certificate made for this run are in it.
    let identity = if tls_addresses.is_empty() { None } else { Some(Identity::of(args)?) };
    let workers = bind(args, &tls_addresses, &plain_addresses, identity.as_ref()).or_fault(Fault::Server)?;
    let log = args.session_log.as_ref().map(open_log).transpose().or_fault(Fault::Usage)?;
    let transaction = args.transaction.map(|cost| Transaction { stamps: args.stamps.is_some(), ..cost });
    // What cannot be written in the end had better be known now.
    let file = args.stamps.as_ref().map(create).transpose().or_fault(Fault::Usage)?;
    announce(args, &workers[0], identity.as_ref())?;
    let pages = Pages { docroot, transaction, origin: args.origin, database: args.database.as_deref() };
    let stamps = serve_all(&workers, &pages, log.as_ref()).or_fault(Fault::Server)?;
    if let Some(file) = file {
        write_stamps(file, &stamps).context("failed to write --stamps").or_fault(Fault::Environment)?;
    }
    Ok(Exit::Done)
}

fn create(path: &PathBuf) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// The times of the pages of each worker as CSV.
fn write_stamps(file: File, workers: &[Vec<Stamp>]) -> Result<()> {
    let mut out = BufWriter::new(file);
    writeln!(out, "worker,asked_ns,begun_ns,done_ns")?;
    for (worker, stamps) in workers.iter().enumerate() {
        for stamp in stamps {
            writeln!(out, "{worker},{},{},{}", stamp.asked_ns, stamp.begun_ns, stamp.done_ns)?;
        }
        if stamps.len() == STAMPS_MAX {
            tell!("warning: worker {worker} kept the times of its first {STAMPS_MAX} pages only");
        }
    }
    Ok(out.flush()?)
}

fn addresses(args: &Args) -> Result<(Vec<SocketAddr>, Vec<SocketAddr>)> {
    let mut tls = args.listen.clone();
    if tls.is_empty() && args.listen_plain.is_empty() {
        tls.push(SocketAddr::from(([127, 0, 0, 1], 0)));
    }
    let beyond = tls.iter().find(|address| !listening::is_loopback(address.ip()));
    if let (Some(address), true) = (beyond, args.cert.is_small_rsa()) {
        bail!(
            "{address} can be reached from other hosts, whom certificate {} does not protect: it is for experiments; \
             listen on 127.0.0.1, or choose --cert rsa-2048",
            args.cert
        );
    }
    for address in tls.iter().chain(&args.listen_plain) {
        if !args.allow_insecure_listen && !listening::is_loopback(address.ip()) {
            bail!(
                "{address} can be reached from other hosts, and this server is a subject of experiments; listen on \
                 127.0.0.1, or give --allow-insecure-listen if this network is isolated"
            );
        }
    }
    Ok((tls, args.listen_plain.clone()))
}

struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    /// Where it was made for this run, and the root that vouches for it.
    made: Option<(RunDirectory, PathBuf)>,
}

impl Identity {
    fn of(args: &Args) -> Result<Identity> {
        if let (Some(certificate), Some(key)) = (&args.certificate, &args.key) {
            return Ok(Identity { certificate: certificate.clone(), key: key.clone(), made: None });
        }
        let directory = RunDirectory::create().or_fault(Fault::Environment)?;
        let files = certificates::create(args.cert, directory.path())?;
        Ok(Identity { certificate: files.chain, key: files.key, made: Some((directory, files.ca)) })
    }
}

/// Listeners for each worker. Each has sockets of its own on the same addresses, among which the kernel distributes
/// connections; the TLS context, and so the sessions, are common to all.
fn bind(
    args: &Args,
    tls_addresses: &[SocketAddr],
    plain_addresses: &[SocketAddr],
    identity: Option<&Identity>,
) -> Result<Vec<Vec<Listener>>> {
    let context = identity.map(|identity| settings(args, identity).context()).transpose()?;
    let mut workers: Vec<Vec<Listener>> = (0..args.workers).map(|_| Vec::new()).collect();
    let both = tls_addresses.iter().map(|address| (address, context.clone()));
    for (address, tls) in both.chain(plain_addresses.iter().map(|address| (address, None))) {
        let mut address = *address;
        for worker in &mut workers {
            let socket =
                serve::bind(address, args.workers > 1).with_context(|| format!("cannot listen on {address}"))?;
            // Where the port was left open, the first socket decides it for all.
            address = socket.local_addr()?;
            worker.push(Listener { socket, tls: tls.clone() });
        }
    }
    Ok(workers)
}

fn settings(args: &Args, identity: &Identity) -> TlsSettings {
    TlsSettings {
        certificate: identity.certificate.clone(),
        key: identity.key.clone(),
        versions: args.tls.clone(),
        suites: args.suite.clone(),
        groups: args.group.clone(),
        tickets: !args.no_tickets,
        session_cache: !args.no_session_cache,
        session_timeout_s: args.session_timeout,
        encrypt_then_mac: !args.no_encrypt_then_mac,
        early_data: args.early_data,
    }
}

fn open_log(path: &PathBuf) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Tells where it listens: programs on standard output, people on standard error.
fn announce(args: &Args, listeners: &[Listener], identity: Option<&Identity>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    for listener in listeners {
        let address = Address { address: listener.socket.local_addr()?, tls: listener.tls.is_some() };
        if args.print_address {
            writeln!(output, "{}", serde_json::to_string(&address)?).context("failed to print")?;
        } else {
            let scheme = if address.tls { "https" } else { "http" };
            let what = match (&args.docroot, args.origin) {
                (Some(docroot), _) => docroot.display().to_string(),
                (None, origin) => origin.map_or(String::new(), |origin| format!("http://{origin}/")),
            };
            tell!("serving {what} at {scheme}://{}/", address.address);
        }
    }
    if let Some(Identity { made: Some((_, ca)), .. }) = identity
        && !args.print_address
    {
        tell!("the certificate is signed by {}", ca.display());
    }
    output.flush().context("failed to print")
}

/// Where pages come from, and what they cost.
struct Pages<'a> {
    docroot: Arc<Docroot>,
    transaction: Option<Transaction>,
    origin: Option<SocketAddr>,
    database: Option<&'a str>,
}

/// Runs every worker until a signal, or until one of them fails.
/// Answers the times of the pages of each worker.
fn serve_all(workers: &[Vec<Listener>], pages: &Pages<'_>, log: Option<&File>) -> Result<Vec<Vec<Stamp>>> {
    let &Pages { ref docroot, transaction, origin, database } = pages;
    let (stop, stopped) = UnixStream::pair().context("make the stop signal")?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, stop.try_clone()?).context("handle signals")?;
    }
    let work = |listeners: &[Listener]| -> Result<Vec<Stamp>> {
        let asked = database.map(DatabasePages::connect).transpose()?;
        let pages = asked.map(|pages| Box::new(pages) as Box<dyn serve::Pages>);
        let settings = Settings { session_log: log.map(File::try_clone).transpose()?, transaction, origin, pages };
        let result = serve::run(listeners, docroot, settings, &stopped);
        // One for all: a server with a missing worker would be measured as if it were whole.
        let _ = (&stop).write_all(b"s");
        result.context("the server's loop failed")
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers[1..].iter().map(|listeners| scope.spawn(|| work(listeners))).collect();
        // The first worker is this thread: the C library's allocator is at its best in the main thread.
        let first = work(&workers[0]);
        let join = |thread: ScopedJoinHandle<'_, _>| {
            let panicked = || bail!("a worker of the built-in server panicked; its message is above");
            thread.join().unwrap_or_else(|_| panicked())
        };
        // All are joined before the first failure is told.
        let all: Vec<Result<Vec<Stamp>>> = std::iter::once(first).chain(threads.into_iter().map(join)).collect();
        all.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_a_page_are_read_as_people_type_them() {
        let cost = |text: &str| parse_transaction(text).map(|cost| (cost.cpu_ns, cost.wait_ns));
        assert_eq!(cost("7ms"), Ok((0, 7_000_000)));
        assert_eq!(cost("cpu:2ms+wait:5ms"), Ok((2_000_000, 5_000_000)));
        assert!(cost("disk:5ms").unwrap_err().contains("cpu:2ms"));
        assert!(cost("7ms+wait:1ms").unwrap_err().contains("twice"));
        assert!(cost("0ms").unwrap_err().contains("costs nothing") && cost("x").is_err());
    }
}
