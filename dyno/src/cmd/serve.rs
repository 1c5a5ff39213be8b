//! `tlsdyno serve`: the built-in server.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use tlsdyno_engine::serve::{self, Docroot, Listener, TlsSettings};
use tlsdyno_tls::{Group, Suite, Version};

use crate::choice::choice;
use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::model::CertificateKind;
use crate::servers::{CertificateFiles, RunDirectory, certificates, listening};

/// Serve a directory of static files over HTTPS and HTTP
///
/// The built-in server of experiments: HTTP/1.1, TLS 1.2 and 1.3 through the system's OpenSSL. It reads the directory
/// once, at start. Without --listen and --listen-plain it serves HTTPS on a free loopback port. Ends on Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to serve
    #[arg(long, value_name = "DIR")]
    docroot: PathBuf,
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

/// Serves until Ctrl-C or SIGTERM.
pub fn run(args: &Args) -> Result<Exit> {
    let (tls_addresses, plain_addresses) = addresses(args).or_fault(Fault::Usage)?;
    let docroot = Arc::new(Docroot::load(&args.docroot).or_fault(Fault::Input)?);
    // Made before the listeners and kept until the end: the files of a certificate made for this run are in it.
    let made = made_certificate(args, &tls_addresses)?;
    let workers =
        bind(args, &tls_addresses, &plain_addresses, made.as_ref().map(|(_, files)| files)).or_fault(Fault::Server)?;
    let log = args.session_log.as_ref().map(open_log).transpose().or_fault(Fault::Usage)?;
    announce(args, &workers[0], made.as_ref().map(|(_, files)| files))?;
    serve_all(&workers, &docroot, log.as_ref()).or_fault(Fault::Server)?;
    Ok(Exit::Done)
}

/// TLS and plain addresses, checked.
fn addresses(args: &Args) -> Result<(Vec<SocketAddr>, Vec<SocketAddr>)> {
    let mut tls = args.listen.clone();
    if tls.is_empty() && args.listen_plain.is_empty() {
        tls.push(SocketAddr::from(([127, 0, 0, 1], 0)));
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

fn made_certificate(args: &Args, tls_addresses: &[SocketAddr]) -> Result<Option<(RunDirectory, CertificateFiles)>> {
    if args.certificate.is_some() || tls_addresses.is_empty() {
        return Ok(None);
    }
    let directory = RunDirectory::create().or_fault(Fault::Environment)?;
    let files = certificates::create(args.cert, directory.path())?;
    Ok(Some((directory, files)))
}

/// Listeners for each worker. Each has sockets of its own on the same addresses, among which the kernel distributes
/// connections; the TLS context, and so the sessions, are common to all.
fn bind(
    args: &Args,
    tls_addresses: &[SocketAddr],
    plain_addresses: &[SocketAddr],
    made: Option<&CertificateFiles>,
) -> Result<Vec<Vec<Listener>>> {
    let context = match (&args.certificate, &args.key, made) {
        (Some(certificate), Some(key), _) => Some(settings(args, certificate.clone(), key.clone()).context()?),
        (_, _, Some(made)) => Some(settings(args, made.chain.clone(), made.key.clone()).context()?),
        _ => None,
    };
    if context.is_none() && !tls_addresses.is_empty() {
        bail!("there is no certificate for {}", tls_addresses[0]);
    }
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

fn settings(args: &Args, certificate: PathBuf, key: PathBuf) -> TlsSettings {
    TlsSettings {
        certificate,
        key,
        versions: args.tls.clone(),
        suites: args.suite.clone(),
        groups: args.group.clone(),
        tickets: !args.no_tickets,
        session_cache: !args.no_session_cache,
        encrypt_then_mac: !args.no_encrypt_then_mac,
        early_data: args.early_data,
    }
}

fn open_log(path: &PathBuf) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Tells where it listens: programs on standard output, people on standard error.
fn announce(args: &Args, listeners: &[Listener], made: Option<&CertificateFiles>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    for listener in listeners {
        let address = Address { address: listener.socket.local_addr()?, tls: listener.tls.is_some() };
        if args.print_address {
            writeln!(output, "{}", serde_json::to_string(&address)?).context("failed to print")?;
        } else {
            let scheme = if address.tls { "https" } else { "http" };
            eprintln!("serving {} at {scheme}://{}/", args.docroot.display(), address.address);
        }
    }
    if let (Some(made), false) = (made, args.print_address) {
        eprintln!("the certificate is signed by {}", made.ca.display());
    }
    output.flush().context("failed to print")
}

/// Runs every worker until a signal, or until one of them fails.
fn serve_all(workers: &[Vec<Listener>], docroot: &Arc<Docroot>, log: Option<&File>) -> Result<()> {
    let (stop, stopped) = UnixStream::pair().context("make the stop signal")?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, stop.try_clone()?).context("handle signals")?;
    }
    let work = |listeners: &[Listener]| -> Result<()> {
        let log = log.map(File::try_clone).transpose()?;
        let result = serve::run(listeners, docroot, log, &stopped);
        // One for all: a server with a missing worker would be measured as if it were whole.
        let _ = (&stop).write_all(b"s");
        result.context("the server's loop failed")
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers[1..].iter().map(|listeners| scope.spawn(|| work(listeners))).collect();
        // The first worker is this thread: the C library's allocator is at its best in the main thread.
        let first = work(&workers[0]);
        threads.into_iter().fold(first, |result, thread| {
            let joined = thread
                .join()
                .unwrap_or_else(|_| bail!("a worker of the built-in server panicked; its message is above"));
            result.and(joined)
        })
    })
}
