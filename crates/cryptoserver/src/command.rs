//! `tlsdyno cryptoserver`: the service, its agent, and what a web server loads.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZero;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Subcommand;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustls_pki_types::ServerName;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::{interrupt, open_files, output};
use tlsdyno_engine::time::Time;

use crate::agent::Agent;
use crate::batch::Settings;
use crate::identity::Own;
use crate::keys::Keys;
use crate::link;
use crate::service::{Limits, Service};
use crate::{batch_keys, front_end};

/// Hold private keys on another machine than the web servers, and sign their handshakes over mutual TLS
///
/// It signs what handshakes of TLS 1.2 and 1.3 ask for and nothing else. Web servers load a stub in place of the key,
/// and a provider that asks the agent on their machine. `docs/CRYPTOSERVER.md` has it step by step.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  tlsdyno cryptoserver --key site.key --cert keys.pem --cert-key keys.key --client-ca agents.pem
  tlsdyno cryptoserver agent --to keys1:8401 --to keys2:8401 --socket /run/tlsdyno/keys.sock \\
      --cert agent.pem --cert-key agent.key --server-ca keys-ca.pem
  tlsdyno cryptoserver front-end /etc/tlsdyno/keys --certificate site.pem --socket /run/tlsdyno/keys.sock"
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    service: ServiceArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// On a web server's machine: carry what its provider asks for to cryptoservers
    Agent(AgentArgs),
    /// Write what a web server loads: the provider, an openssl.cnf, and a stub in place of each private key
    FrontEnd {
        /// Where to
        directory: PathBuf,
        /// The certificates that the web server sends (PEM); no private key is needed here
        #[arg(long = "certificate", value_name = "FILE", required = true)]
        certificates: Vec<PathBuf>,
        /// The agent's socket
        #[arg(long, value_name = "PATH")]
        socket: PathBuf,
    },
    /// Make RSA keys and certificates that decrypt in batches: one modulus, public exponents 3, 5, 7 and so on
    ///
    /// For experiments: who breaks one of them has broken all. The certificates are signed by themselves.
    BatchKeys {
        /// Where to; files that are there are not replaced
        directory: PathBuf,
        /// The name that the certificates are for
        #[arg(long)]
        name: String,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=8))]
        count: u8,
        /// Bits of the modulus
        #[arg(long, default_value_t = 2048, value_parser = parse_bits)]
        bits: u32,
    },
}

fn parse_bits(text: &str) -> Result<u32, String> {
    let bits = text.parse().ok().filter(|bits| [2048, 3072, 4096].contains(bits));
    bits.ok_or_else(|| "a cryptoserver takes RSA keys of 2048, 3072 or 4096 bits".to_owned())
}

#[derive(Debug, clap::Args)]
struct ServiceArgs {
    /// Private keys of sites (PEM, without a passphrase); RSA or ECDSA
    #[arg(long = "key", value_name = "FILE", required = true)]
    keys: Vec<PathBuf>,
    /// Where agents connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8401")]
    listen: SocketAddr,
    #[command(flatten)]
    own: Own,
    /// Whose certificates agents must have (PEM)
    #[arg(long, value_name = "FILE", required = true)]
    client_ca: Option<PathBuf>,
    /// Revocation lists (PEM), one of each authority: no agent whose certificate is in one is let in
    #[arg(long, value_name = "FILE")]
    crl: Option<PathBuf>,
    /// Also decrypt pre-master secrets, for static RSA of TLS 1.2
    ///
    /// Whoever takes an agent's key can then read recorded connections of static RSA. Leave it off unless old clients
    /// need it.
    #[arg(long)]
    allow_decryption: bool,
    /// Decrypt up to so many together, by keys of one modulus (`batch-keys` makes them)
    ///
    /// Then one exponentiation serves all of them (Shacham and Boneh 2001).
    #[arg(long, value_name = "N", requires = "allow_decryption", value_parser = clap::value_parser!(u8).range(2..=8))]
    batch: Option<u8>,
    /// How long a decryption may wait for others; 0ms: only while all CPUs decrypt
    #[arg(long, value_name = "TIME", requires = "batch", default_value = "2ms", value_parser = parse_wait)]
    batch_wait: Time,
    /// Most operations in a second for each agent, known by its public key
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    rate: u32,
    /// Most connections of agents, a quarter of them by one key; an agent has as many as its --connections
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Print a line of metrics in each so many seconds; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    metrics_every: u32,
    /// Print the address that agents can connect to on standard output first
    #[arg(long)]
    print_address: bool,
}

#[derive(Debug, clap::Args)]
struct AgentArgs {
    /// A cryptoserver, NAME:PORT; a further one is asked where those before it cannot be reached
    #[arg(long = "to", value_name = "NAME:PORT", required = true)]
    to: Vec<String>,
    /// Where the provider asks
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    #[command(flatten)]
    own: Own,
    /// Whose certificates cryptoservers must have (PEM)
    #[arg(long, value_name = "FILE")]
    server_ca: PathBuf,
    /// Connections to each cryptoserver, which works on so many requests at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,
    /// Permissions of the socket, octal: who may ask
    ///
    /// The web server's workers must be of its group, which is the agent's.
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = |text: &str| u32::from_str_radix(text, 8))]
    socket_mode: u32,
    /// Most connections of the provider
    #[arg(long, value_name = "N", default_value_t = 2048)]
    max_connections: u32,
    /// Print a line of metrics in each so many seconds; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    metrics_every: u32,
}

/// Runs what is asked for.
///
/// # Errors
/// [`Fault::Input`] for files, [`Fault::Usage`] for names, [`Fault::Environment`] for what this machine does not allow.
pub fn run(args: &Args) -> Result<Exit> {
    match &args.action {
        None => serve(&args.service),
        Some(Action::Agent(agent)) => carry(agent),
        Some(Action::FrontEnd { directory, certificates, socket }) => {
            let made = front_end::write(directory, socket, certificates)?;
            let mut text = format!("OPENSSL_CONF={}   in the web server's environment\n", made.openssl_cnf.display());
            for (stub, certificate) in made.stubs.iter().zip(certificates) {
                text += &format!("{}   in place of the key of {}\n", stub.display(), certificate.display());
            }
            output::print(text)?;
            Ok(Exit::Done)
        }
        Some(Action::BatchKeys { directory, name, count, bits }) => {
            let certificates = batch_keys::write(directory, name, *bits, (*count).into())?;
            let lines = certificates
                .iter()
                .map(|path| format!("--key {}   for {}\n", path.with_extension("key").display(), path.display()));
            output::print(lines.collect::<String>())?;
            Ok(Exit::Done)
        }
    }
}

/// Agents give a service up that is silent for a second.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(500);

fn parse_wait(text: &str) -> Result<Time, String> {
    let wait: Time = text.parse()?;
    if wait.0 > BATCH_WAIT_MAX { Err(format!("at most {}ms", BATCH_WAIT_MAX.as_millis())) } else { Ok(wait) }
}

fn serve(args: &ServiceArgs) -> Result<Exit> {
    // A core would hold the keys, and so would what a debugger of the same user reads.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("keep the keys out of cores")?;
    let client_ca = args.client_ca.as_deref().context("--client-ca is missing").or_fault(Fault::Usage)?;
    let side = || args.own.service(client_ca, args.crl.as_deref());
    let mut keys = Keys::read(&args.keys, args.allow_decryption)?;
    if let Some(batch) = args.batch {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        keys.batch(Settings { batch: batch.into(), wait: args.batch_wait.0, threads })?;
    }
    let count = keys.count();
    // Each connection has an event beside its socket, and so has each that has not said yet who it is.
    open_files::make_room("--max-connections", args.max_connections, 4, 64).or_fault(Fault::Environment)?;
    let limits = Limits { connections: args.max_connections, rate: args.rate, metrics_every: args.metrics_every };
    let (stop, hangup) = (interrupt::flag(Exit::Interrupted as i32)?, interrupt::hangup()?);
    let service = Service::new(args.listen, side()?, keys, limits)?;
    let address = service.address()?;
    if args.print_address {
        let _ = output::print(format!("{address}\n"));
    }
    let decrypts = match args.batch {
        Some(batch) => format!(", and decrypts up to {batch} pre-master secrets together"),
        None if args.allow_decryption => ", and decrypts pre-master secrets".to_owned(),
        None => String::new(),
    };
    tell!("signs handshakes by {count} key(s) at {address}{decrypts}");
    service.run(&stop, &hangup, side)?;
    Ok(Exit::Done)
}

fn carry(args: &AgentArgs) -> Result<Exit> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("keep pre-master secrets out of cores")?;
    let side = || args.own.agent(&args.server_ca);
    let tls = side()?;
    let services: Vec<link::Service> = args
        .to
        .iter()
        .map(|to| {
            let (address, name) = resolve(to).or_fault(Fault::Usage)?;
            Ok(link::Service { address, name, tls: tls.clone() })
        })
        .collect::<Result<_>>()?;
    let listener = bind(&args.socket, args.socket_mode).or_fault(Fault::Environment)?;
    let (each, most) = (usize::from(args.connections), args.max_connections as usize);
    let others = 64 + (each * services.len()) as u64;
    open_files::make_room("--max-connections", args.max_connections, 1, others).or_fault(Fault::Environment)?;
    let mut agent = Agent::new(listener, &services, each, most)?;
    let (stop, hangup) = (interrupt::flag(Exit::Interrupted as i32)?, interrupt::hangup()?);
    tell!("carries what is asked at {} to {}", args.socket.display(), args.to.join(", "));
    let result = agent.run(&stop, args.metrics_every, &hangup, side);
    let _ = std::fs::remove_file(&args.socket);
    result.map(|()| Exit::Done)
}

fn resolve(to: &str) -> Result<(SocketAddr, ServerName<'static>)> {
    let (host, _) = to.rsplit_once(':').with_context(|| format!("`{to}` is not NAME:PORT"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|_| anyhow!("`{to}` has no name that a certificate could have"))?;
    let mut addresses = to.to_socket_addrs().with_context(|| format!("no address is known of {to}"))?;
    let address = addresses.next().with_context(|| format!("no address is known of {to}"))?;
    Ok((address, name))
}

/// The socket of an agent that has gone is replaced, and that of one that lives is not.
fn bind(path: &Path, mode: u32) -> Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("failed to listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}
