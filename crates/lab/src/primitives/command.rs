//! `tlsdyno profile primitives`: throughput of the primitives of a server's own OpenSSL by size of a call. Flags build
//! the same experiment that TOML files hold.

use anyhow::Result;
use tlsdyno_base::exit::Exit;
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::kinds::flags::{RepeatArgs, ServerArgs, TimeArgs};
use tlsdyno_runner::kinds::perform::OutputArgs;

use crate::primitives::file::{Algorithm, Primitives, PrimitivesExperiment};

/// Flags of `tlsdyno profile primitives`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The server whose OpenSSL is measured, which is started to see which libraries it maps, and ended.
    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten, next_help_heading = "Primitives")]
    primitives: Primitives,
    /// Also RC4, DES, 3DES and MD5, where the library has them
    #[arg(long, conflicts_with = "algorithms", help_heading = "Primitives")]
    legacy: bool,

    /// `--quick` does without `openssl speed`.
    #[command(flatten)]
    time: TimeArgs<90, 15>,
    #[command(flatten)]
    repeat: RepeatArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args) -> Result<Exit> {
    args.experiment().perform(&args.output)
}

impl Args {
    fn experiment(&self) -> PrimitivesExperiment {
        let mut primitives = self.primitives.clone();
        primitives.check &= !self.time.quick;
        if self.legacy {
            primitives.algorithms = Algorithm::ALL.to_vec();
        }
        PrimitivesExperiment {
            question: "What do the primitives of this server's OpenSSL do in a second, by size of a call?".to_owned(),
            primitives,
            server: self.server.server(),
            measure: self.repeat.measure(self.time.seconds()),
            paper: None,
        }
    }
}
