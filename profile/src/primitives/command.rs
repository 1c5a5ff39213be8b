//! `tlsdyno profile primitives`: throughput of the primitives of a server's own OpenSSL by size of a call. Flags build
//! the same experiment that TOML files hold.

use anyhow::Result;
use tlsdyno_base::choice::choice;
use tlsdyno_base::exit::Exit;
use tlsdyno_bench::kinds::AnyExperiment;
use tlsdyno_bench::kinds::flags::{RepeatArgs, ServerArgs, TimeArgs};
use tlsdyno_bench::kinds::perform::OutputArgs;

use crate::primitives::file::{Algorithm, Primitives, PrimitivesExperiment};

/// Flags of `tlsdyno profile primitives`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The server whose OpenSSL is measured, which is started to see which libraries it maps, and ended.
    #[command(flatten)]
    server: ServerArgs,

    /// Bytes of each call, ascending
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = Primitives::default().sizes_bytes)]
    #[arg(help_heading = "Primitives")]
    sizes: Vec<u64>,
    /// Which primitives [default: those of today's TLS]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = choice(Algorithm::ALL))]
    #[arg(help_heading = "Primitives")]
    algorithms: Vec<Algorithm>,
    /// Also RC4, DES, 3DES and MD5, where the library has them
    #[arg(long, conflicts_with = "algorithms", help_heading = "Primitives")]
    legacy: bool,
    /// Write no TLS records beside bare primitives
    #[arg(long, help_heading = "Primitives")]
    no_records: bool,
    /// Do not run `openssl speed` in turn, which takes a second for each primitive in each round; --quick does not
    #[arg(long, help_heading = "Primitives")]
    no_check: bool,

    /// `--quick` does without `openssl speed`.
    #[command(flatten)]
    time: TimeArgs<90, 15>,
    #[command(flatten)]
    repeat: RepeatArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Measures primitives.
pub fn run(args: &Args) -> Result<Exit> {
    args.experiment().perform(&args.output)
}

impl Args {
    fn experiment(&self) -> PrimitivesExperiment {
        let chosen = match (self.algorithms.is_empty(), self.legacy) {
            (false, _) => self.algorithms.clone(),
            (true, true) => Algorithm::ALL.to_vec(),
            (true, false) => Algorithm::usual().collect(),
        };
        PrimitivesExperiment {
            question: "What do the primitives of this server's OpenSSL do in a second, by size of a call?".to_owned(),
            primitives: Primitives {
                algorithms: chosen,
                sizes_bytes: self.sizes.clone(),
                records: !self.no_records,
                check: !self.no_check && !self.time.quick,
            },
            server: self.server.server(),
            measure: self.repeat.measure(self.time.seconds()),
            paper: None,
        }
    }
}
