//! `tlsdyno cluster`: several servers behind dispatchers, under traffic that offers its sessions again. Flags build the
//! same experiment that TOML files hold.

use std::path::PathBuf;

use anyhow::Result;
use tlsdyno_ablation::Ablation;
use tlsdyno_base::choice::{defaults_of, flags_of};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::model::Tls;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_runner::kinds::flags::{FarArgs, NetworkArgs, RepeatArgs, ServerTlsArgs, TimeArgs};
use tlsdyno_runner::kinds::perform::OutputArgs;
use tlsdyno_runner::kinds::{AnyExperiment, find};
use tlsdyno_workloads::flags::WorkloadChoice;

use crate::cluster::Clusters;
use crate::cluster::file::{Cluster, ClusterExperiment, Traffic, default_workload};

/// Requests of a user of the single object; it only matters that blocks can be cut anywhere.
const REQUESTS_PER_USER: u32 = 4;
/// Users of the single object: more than any experiment uses up.
const USERS: u32 = 200_000;

/// What each way of dispatching makes of a cluster: throughput, latency, sessions kept, balance, CPU
///
/// Starts several servers with caches of their own and a dispatcher of each policy before them, sweeps the share of
/// connections that offer a session again, and compares the policies with the first one in paired rounds
/// (Apostolopoulos et al. 2000, Figure 9). Where servers share CPUs each has a quota of CPU time, so that the cluster
/// has a defined capacity.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno cluster --server nginx --backends 3 --policies round-robin,session --reuse 0,50,80,100
  tlsdyno cluster --policies round-robin,source-address,session --behind-one-address 0,100 --reuse 80
  tlsdyno cluster --server apache --tls 1.2 --no-tickets --sessions own,memcached --policies haproxy-stick,session
  tlsdyno cluster --plain --workload specweb96 --policies round-robin,least-connections,lard
  tlsdyno cluster --config apostolopoulos-2000-fig9")]
pub struct Args {
    /// Take everything from this TOML file, or from an experiment that comes with tlsdyno (`tlsdyno run` does the
    /// same)
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = flags_of::<Flags>())]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten, next_help_heading = "Several machines")]
    far: FarArgs,
}

/// What a file says instead.
#[derive(clap::Args, Clone, Debug)]
struct Flags {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    traffic: Traffic,
    /// Size of the one object that is requested
    #[arg(long, value_name = "BYTES", default_value_t = 7168, conflicts_with = "workload", help_heading = "Traffic")]
    size: u64,
    /// Many objects instead of one; which sessions are offered again --reuse alone decides
    #[arg(long, value_enum, help_heading = "Traffic")]
    workload: Option<WorkloadChoice>,
    #[command(flatten)]
    tls: ServerTlsArgs,
    /// How long servers keep a session, whole seconds [default: an hour]
    #[arg(long, value_name = "SECONDS", help_heading = "TLS")]
    session_timeout: Option<u32>,
    #[command(flatten)]
    time: TimeArgs<60, 20>,
    #[command(flatten)]
    repeat: RepeatArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

pub fn run(args: &Args) -> Result<Exit> {
    let mut experiment = match &args.config {
        None => args.flags.experiment(),
        Some(which) => find::<ClusterExperiment>(&[&Ablation, &Clusters], which, "a cluster").or_fault(Fault::Input)?,
    };
    args.far.give(&mut experiment.workers, &mut experiment.cluster.address);
    experiment.perform(&args.output)
}

impl Default for Cluster {
    fn default() -> Cluster {
        defaults_of::<Args>().flags.cluster
    }
}

impl Default for Traffic {
    fn default() -> Traffic {
        defaults_of::<Args>().flags.traffic
    }
}

impl Default for ClusterExperiment {
    fn default() -> ClusterExperiment {
        ClusterExperiment { workload: default_workload(), ..defaults_of::<Args>().flags.experiment() }
    }
}

impl Flags {
    fn experiment(&self) -> ClusterExperiment {
        let names: Vec<&str> = self.cluster.policies.iter().map(|policy| policy.name()).collect();
        let question = match &names[..] {
            [first, others @ ..] if !others.is_empty() => format!(
                "What does {} make of a cluster of {} servers, beside {first}?",
                others.join(" or "),
                self.cluster.backends
            ),
            one => format!("What does {} make of a cluster of {} servers?", one.concat(), self.cluster.backends),
        };
        ClusterExperiment {
            question,
            cluster: self.cluster.clone(),
            tls: Tls { session_timeout_s: self.session_timeout, ..self.tls.tls() },
            workload: self.workload_spec(),
            traffic: self.traffic.clone(),
            measure: self.repeat.measure(self.time.seconds()),
            workers: None,
            network: self.network.network,
            comparisons: Vec::new(),
            paper: None,
        }
    }

    fn workload_spec(&self) -> WorkloadSpec {
        match self.workload {
            None => WorkloadSpec::Url {
                path: "/object".to_owned(),
                bytes: Some(self.size),
                users: USERS,
                requests_per_user: REQUESTS_PER_USER,
            },
            // Short users, so that blocks can be cut where the time allows.
            Some(WorkloadChoice::Specweb96) => default_workload(),
            Some(workload) => workload.spec(None, 0.1, 1),
        }
    }
}
