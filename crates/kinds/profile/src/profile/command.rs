//! `tlsdyno profile`: where the time of a handshake goes, timed inside the unmodified server.

use anyhow::Result;
use tlsdyno_base::choice::choice;
use tlsdyno_base::exit::Exit;
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::{Measure, Tls};
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::kinds::flags::{RepeatArgs, ServerArgs, ServerTlsArgs, TimeArgs};
use tlsdyno_runner::kinds::perform::OutputArgs;
use tlsdyno_tls::Group;

use crate::profile::file::{Profile, ProfileExperiment, TIME_S, object};
use crate::steps;

/// Where the time of a handshake goes, timed inside the server, for full and resumed handshakes
///
/// A library that wraps OpenSSL's default provider and changes nothing times the calls into it. Slices in which it does
/// alternate with slices in which it does not, so that its own cost is a number in the same report. The same stages are
/// removed in a server beside it, unless --no-removed says otherwise. docs/PROFILE.md says what can be seen so.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  tlsdyno profile --server nginx --tls 1.3 --cert p-256
  tlsdyno profile --server nginx --tls 1.2 --keys rsa-512,rsa-1024,rsa-2048,p-256 --chain 1,2,3
  tlsdyno profile --server nginx --events 5
  tlsdyno profile primitives --server nginx --legacy
  tlsdyno profile --server haproxy --tls 1.2 --quick --no-removed
  tlsdyno profile --server-command 'nginx -p {dir} -c /path/nginx.conf' --address 127.0.0.1:{port}")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    profile: ProfileArgs,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Action {
    /// Throughput of the primitives of a server's own OpenSSL by size of a call, beside that of `openssl speed`
    Primitives,
}

#[derive(clap::Args, Clone, Debug)]
struct ProfileArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// The object that is requested, by its path on the server command
    #[arg(long, value_name = "PATH", requires = "server_command", conflicts_with = "size", help_heading = "Server")]
    path: Option<String>,

    #[command(flatten)]
    tls: ServerTlsArgs,
    /// Key-agreement group; hybrids with ML-KEM need a server on OpenSSL 3.5 or later
    #[arg(long, value_name = "NAME", default_value_t = Group::X25519)]
    #[arg(value_parser = choice(Group::ALL), help_heading = "TLS")]
    group: Group,

    /// Size of the object that each connection requests, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1024, help_heading = "Load")]
    size: u64,

    #[command(flatten)]
    profile: Profile,
    #[command(flatten)]
    time: TimeArgs<TIME_S, 20>,
    /// Length of the slices in which calls are timed, and of those between them, for example 5ms
    #[arg(long, value_name = "TIME", help_heading = "Measuring")]
    slice: Option<Time>,
    #[command(flatten)]
    repeat: RepeatArgs,
    #[command(flatten)]
    steps: steps::command::StepArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args) -> Result<Exit> {
    match &args.action {
        Some(Action::Primitives) => unreachable!("tlsdyno-lab is started for it"),
        None => {
            let (profile, output) = (args.profile.experiment(), &args.profile.output);
            let of = profile.clone();
            match args.profile.steps.experiment(of.server, of.tls, of.profile.effort, of.measure) {
                Some(steps) => steps.perform(output),
                None => profile.perform(output),
            }
        }
    }
}

impl ProfileArgs {
    fn experiment(&self) -> ProfileExperiment {
        let workload = match &self.path {
            Some(path) => object(path, None),
            None => object("/object", Some(self.size)),
        };
        ProfileExperiment {
            profile: self.profile.clone(),
            server: self.server.server(),
            tls: Tls { group: self.group, ..self.tls.tls() },
            workload,
            measure: Measure {
                slice_us: self.slice.map(|slice| slice.0.as_micros() as u64),
                ..self.repeat.measure(self.time.seconds())
            },
            ..ProfileExperiment::default()
        }
    }
}
