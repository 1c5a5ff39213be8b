//! The flags by which workers on other machines make a load, and getting these together.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tlsdyno_engine::load::Plan;

use crate::fault::{Fault, OrFault, fault_of};
use crate::interrupt;
use crate::load::threads::Threads;
use crate::machines::coordinator::OnLoss;
use crate::machines::crew::Workers;
use crate::machines::kubernetes::Pods;
use crate::machines::launch::{self, Launched};
use crate::machines::slurm;
use crate::machines::ssh::Ssh;
use crate::servers::listening::is_loopback;
use crate::time::Time;

/// How often Kubernetes is asked whether its pods can start.
const ASKED: Duration = Duration::from_secs(2);

/// Who makes the load, if that is not this process.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Have so many workers make the load, each an exact share of it; they are `tlsdyno worker` processes that dial
    /// this one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[arg(group = "remote", conflicts_with_all = ["cpu", "job", "against"])]
    workers: Option<u32>,

    /// Start a worker on each of these machines by ssh, which must work without a password. This program is copied
    /// there if it is not there yet; the coordinator stays on loopback, workers reach it through ssh
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    #[arg(group = "remote", conflicts_with_all = ["workers", "cpu", "job", "against", "launch", "engine", "listen"])]
    on: Vec<String>,

    /// The ssh of --on, with options
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "on")]
    ssh: String,

    /// Start workers by this shell command: {address}, {token_file} and {worker} (from 1) are filled in. It is run for
    /// each of them, or with {workers} in it (how many there are) once for all
    #[arg(long, value_name = "COMMAND", requires = "workers", conflicts_with = "threads")]
    launch: Option<String>,

    /// Have an engine start the workers
    #[arg(long, value_enum, value_name = "ENGINE", requires = "workers", conflicts_with = "launch")]
    engine: Option<EngineName>,

    /// The image of the pods of --engine kubernetes, with this version of tlsdyno as entry point
    #[arg(long, value_name = "IMAGE", required_if_eq("engine", "kubernetes"), requires = "engine")]
    image: Option<String>,

    /// Print what --engine kubernetes would make, and end
    #[arg(long, requires = "image")]
    print_manifest: bool,

    /// Wait for workers at this address of this machine [default: loopback, a port of the system's choice]
    #[arg(long, value_name = "ADDRESS[:PORT]", requires = "workers")]
    listen: Option<Listen>,

    /// Also write the token file here, for workers that something else starts
    #[arg(long, value_name = "FILE", requires = "workers")]
    token_file: Option<PathBuf>,

    /// How long to wait until all workers have joined
    #[arg(long, default_value = "1m", value_name = "TIME", requires = "remote")]
    join_within: Time,

    /// When a worker is lost in mid-run. What it did does not count either way, and the exit code is 8
    #[arg(long, value_enum, default_value_t, value_name = "WHAT", requires = "remote")]
    on_loss: OnLoss,
}

/// The value of --engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineName {
    /// One `srun`; partition and account by its variables (`SLURM_PARTITION=…`)
    Slurm,
    /// An Indexed Job by kubectl, removed at the end
    Kubernetes,
}

/// The value of --listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listen(SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let address = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0)));
        match address {
            Ok(address) if address.ip().is_unspecified() => {
                Err(format!("`{text}` is every address of this machine; name the one by which workers reach it"))
            }
            Ok(address) => Ok(Listen(address)),
            Err(_) => Err(format!("`{text}` is no address; write 192.0.2.1, 192.0.2.1:7000 or [2001:db8::1]:7000")),
        }
    }
}

/// Workers that have joined, and what started them.
#[derive(Debug)]
pub struct Gathered {
    /// They make the load.
    pub workers: Workers,
    launched: Launched,
}

impl Drop for Gathered {
    fn drop(&mut self) {
        // What started them is ended afterwards, with what is left of them.
        self.workers.dismiss();
    }
}

impl Flags {
    /// How many workers are wanted.
    pub fn count(&self) -> usize {
        self.workers.map_or(self.on.len(), |count| count as usize)
    }

    /// Whether others than this process make the load.
    pub fn are_given(&self) -> bool {
        self.count() > 0
    }

    /// What engines give each worker: the hosts that the user answers for, and its loops.
    fn arguments(&self, may_load: &[String], threads: Option<Threads>) -> Vec<String> {
        let mut arguments: Vec<String> =
            may_load.iter().flat_map(|host| ["--may-load".to_owned(), host.clone()]).collect();
        arguments.extend(threads.iter().flat_map(|threads| ["--threads".to_owned(), threads.to_string()]));
        arguments
    }

    /// The manifest of --print-manifest, if it is asked for.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn manifest(&self, may_load: &[String], threads: Option<Threads>) -> Result<Option<String>> {
        let Some(image) = self.image.as_ref().filter(|_| self.print_manifest) else { return Ok(None) };
        let arguments = self.arguments(may_load, threads);
        let address = self.listen.map_or("COORDINATOR:PORT".to_owned(), |listen| listen.0.to_string());
        let (name, workers) = (&name_of_job()?, self.count());
        let pods = Pods { name, image, address: &address, workers, arguments: &arguments };
        Ok(Some(serde_json::to_string_pretty(&pods.manifest(None))? + "\n"))
    }
}

/// One that no other load has, on this machine or another: whoever takes it away again takes it by its name.
fn name_of_job() -> Result<String> {
    let mut bytes = [0; 8];
    openssl::rand::rand_bytes(&mut bytes).context("failed to name the job")?;
    Ok(format!("tlsdyno-{:016x}", u64::from_le_bytes(bytes)))
}

/// Gets the workers together that the flags ask for, which will have to make this load.
///
/// # Errors
/// They cannot be started, do not come, or could not make it.
pub fn gather(
    flags: &Flags,
    plan: &Plan,
    may_load: &[String],
    threads: Option<Threads>,
    stop: &AtomicBool,
) -> Result<Gathered> {
    let count = flags.count();
    let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let listen = flags.listen.map_or(loopback, |listen| listen.0);
    Workers::check(plan, count).or_fault(Fault::Usage)?;
    if (flags.engine.is_some() || !flags.on.is_empty()) && is_loopback(plan.target.address.ip()) {
        tell!("warning: {} is each worker's own machine", plan.target.address);
    }
    let workers = Workers::listen(listen, count, flags.on_loss).or_fault(Fault::Environment)?;
    let (socket, token) = (workers.address(), workers.token());
    let address = socket.to_string();
    if let Some(path) = &flags.token_file {
        token.write(path).or_fault(Fault::Usage)?;
    }
    let arguments = flags.arguments(may_load, threads);
    let (name, image) = (name_of_job()?, flags.image.clone().unwrap_or_default());
    let pods = Pods { name: &name, image: &image, address: &address, workers: count, arguments: &arguments };
    let launched = match (&flags.launch, flags.engine, &flags.token_file) {
        _ if !flags.on.is_empty() => {
            let ssh = Ssh { command: &flags.ssh, hosts: &flags.on, arguments: &arguments };
            launch::run(ssh.orders(socket, token)?)
        }
        (Some(template), ..) => launch::by_template(template, &address, token, count),
        (None, Some(EngineName::Slurm), _) => {
            let program = std::env::current_exe().context("failed to find this program")?;
            let order = slurm::order(&program.to_string_lossy(), &address, count, &arguments, token);
            launch::run(vec![order])
        }
        (None, Some(EngineName::Kubernetes), _) => launch::run(vec![pods.order(token)]),
        (None, None, Some(path)) => {
            tell!("waiting for {count} workers: tlsdyno worker --join {address} --token-file {}", path.display());
            Ok(Launched::default())
        }
        (None, None, None) => {
            let error = anyhow!(
                "nothing starts the {count} workers; give --launch COMMAND or --engine, or --token-file FILE and start \
                 them yourself"
            );
            return Err(Fault::Usage.of(error));
        }
    };
    let mut gathered = Gathered { workers, launched: launched.or_fault(Fault::Environment)? };
    let Gathered { workers, launched } = &mut gathered;
    let mut asked = Instant::now();
    let is_well = || {
        interrupt::check(stop).context("stopped before all workers had joined")?;
        launched.check()?;
        if flags.engine == Some(EngineName::Kubernetes) && asked.elapsed() > ASKED {
            asked = Instant::now();
            if let Some(why) = pods.hopeless() {
                return Err(Fault::Environment.of(anyhow!(why)));
            }
        }
        Ok(())
    };
    let all = workers.gather(Duration::from_nanos(flags.join_within.nanoseconds()?), is_well);
    if let Err(error) = all.or_fault(Fault::Unreachable) {
        let said = if fault_of(&error) == Some(Fault::Unreachable) { launched.said() } else { String::new() };
        let error = if said.is_empty() { error } else { error.context(format!("what starts workers wrote: {said}")) };
        return Err(error);
    }
    Ok(gathered)
}
