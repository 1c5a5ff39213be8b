//! `tlsdyno profile primitives`: throughput of the primitives of a server's own OpenSSL by size of a call. Flags build
//! the same experiment that TOML files hold.

use anyhow::Result;

use crate::choice::choice;
use crate::exit::Exit;
use crate::kinds::AnyExperiment;
use crate::kinds::flags::RepeatArgs;
use crate::kinds::perform::OutputArgs;
use crate::kinds::primitives::file::{Algorithm, Primitives, PrimitivesExperiment};
use crate::model::{Server, ServerName};

/// Measuring time unless --time says otherwise, seconds.
const TIME_S: f64 = 90.0;
/// Of --quick, seconds.
const QUICK_S: f64 = 15.0;

/// Flags of `tlsdyno profile primitives`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The server whose OpenSSL is measured: it is started to see which libraries it maps, and ended
    #[arg(long, default_value_t, value_parser = choice(ServerName::configured()), help_heading = "Server")]
    server: ServerName,
    /// Your own server: a command line that stays in the foreground, as for `tlsdyno profile`
    #[arg(long, value_name = "COMMAND", requires = "address", conflicts_with = "server", help_heading = "Server")]
    server_command: Option<String>,
    /// Where the server command listens: 127.0.0.1:{port}, or a fixed 127.0.0.1:8443
    #[arg(long, value_name = "IP:PORT", requires = "server_command", help_heading = "Server")]
    address: Option<String>,

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
    /// Do not run `openssl speed` in turn, which takes a second for each primitive in each round
    #[arg(long, help_heading = "Primitives")]
    no_check: bool,

    /// Bound on the measuring time, for example 90 or 3m
    #[arg(short, short_alias = 'd', long, alias = "duration", value_name = "TIME")]
    #[arg(value_parser = crate::kinds::flags::seconds, default_value_t = TIME_S, help_heading = "Measuring")]
    time: f64,
    /// A first look: 15 seconds of measuring, without `openssl speed`
    #[arg(long, conflicts_with = "time", help_heading = "Measuring")]
    quick: bool,
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
        let kind = if self.server_command.is_some() { ServerName::Command } else { self.server };
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
                check: !self.no_check && !self.quick,
            },
            server: Server {
                kind,
                command: self.server_command.clone(),
                address: self.address.clone(),
                ..Server::default()
            },
            measure: self.repeat.measure(if self.quick { QUICK_S } else { self.time }),
            paper: None,
        }
    }
}
