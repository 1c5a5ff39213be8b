//! Who makes a load, if that is not this machine: workers, and what starts them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, defaults_of};
use tlsdyno_engine::time::Time;
use tlsdyno_tls::{named, serde_by_name};

/// Who makes the load, if that is not this machine: flags of a command line, or a table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersModel {
    /// Have so many workers make the load, each an exact share of it; they are `tlsdyno worker` processes that dial
    /// this one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), group = "remote")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,

    /// Start a worker on each of these machines by ssh, which must work without a password. This program is copied
    /// there if it is not there yet; the coordinator stays on loopback, workers reach it through ssh
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    #[arg(group = "remote", conflicts_with_all = ["workers", "launch", "engine", "listen"])]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,

    /// The ssh of --on, with options
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "on")]
    pub ssh: String,

    /// Start workers by this shell command: {address}, {token_file} and {worker} (from 1) are filled in. It is run for
    /// each of them, or with {workers} in it (how many there are) once for all
    #[arg(long, value_name = "COMMAND", requires = "workers")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<String>,

    /// Have an engine start the workers
    #[arg(long, value_name = "ENGINE", requires = "workers", conflicts_with = "launch")]
    #[arg(value_parser = choice(Engine::ALL))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,

    /// The image of the pods of --engine kubernetes, with this version of tlsdyno as entry point
    #[arg(long, value_name = "IMAGE", required_if_eq("engine", "kubernetes"), requires = "engine")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// Wait for workers at this address of this machine [default: loopback, a port of the system's choice]
    #[arg(long, value_name = "ADDRESS[:PORT]", requires = "workers")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Listen>,

    /// Also write the token file here, for workers that something else starts; it is removed in the end
    #[arg(long, value_name = "FILE", requires = "workers")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,

    /// How long to wait until all workers have joined
    #[arg(long, default_value = "1m", value_name = "TIME", requires = "remote")]
    pub join_within: Time,

    /// When a worker is lost in mid-run. What it did does not count either way, and the exit code is 8
    #[arg(long, default_value_t, value_name = "WHAT", requires = "remote", value_parser = choice(OnLoss::ALL))]
    pub on_loss: OnLoss,
}

impl Default for WorkersModel {
    fn default() -> WorkersModel {
        defaults_of()
    }
}

impl WorkersModel {
    /// How many workers are wanted.
    pub fn count(&self) -> usize {
        self.workers.map_or(self.on.len(), |count| count as usize)
    }

    /// Whether others than this machine make the load.
    pub fn are_given(&self) -> bool {
        self.count() > 0
    }

    /// The address of this machine by which they reach it, as far as that is said.
    pub fn reach(&self) -> Option<IpAddr> {
        self.listen.map(|listen| listen.0.ip()).filter(|ip| !ip.is_loopback())
    }

    /// Whether something of tlsdyno's own places them on other machines.
    pub fn are_elsewhere(&self) -> bool {
        !self.on.is_empty() || self.engine.is_some()
    }

    /// These workers, if any are wanted.
    pub fn given(&self) -> Option<WorkersModel> {
        self.are_given().then(|| self.clone())
    }
}

/// Where a load runs, in words: on a CPU of this machine, which has their coordinator if workers make it.
pub fn place_of_load(workers: Option<&WorkersModel>, cpu: usize) -> String {
    match workers.map(WorkersModel::count) {
        None => format!("load on CPU {cpu}"),
        Some(1) => format!("load by a worker, its coordinator on CPU {cpu}"),
        Some(count) => format!("load by {count} workers, their coordinator on CPU {cpu}"),
    }
}

named! {
    /// What starts and places workers.
    pub enum Engine: "engine" {
        /// One `srun`; partition and account by its variables (`SLURM_PARTITION=…`)
        Slurm = "slurm",
        /// An Indexed Job by kubectl, removed at the end
        Kubernetes = "kubernetes",
    }
}

named! {
    /// What becomes of a run that loses a worker.
    #[derive(Default)]
    pub enum OnLoss: "what to do on a loss" {
        /// The others stop, and what they measured is printed
        #[default]
        Stop = "stop",
        /// The others go on, with a smaller load
        GoOn = "go-on",
    }
}

/// Where workers are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

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

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_by_name!(Listen);
