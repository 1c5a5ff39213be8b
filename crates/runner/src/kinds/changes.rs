//! What `tlsdyno run` changes of an experiment that is in a file.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use tlsdyno_base::choice::choice;
use tlsdyno_record::model::{CertificateKind, Measure, ServerName};

use super::flags::FarArgs;

/// The shortest time of --quick, seconds: that of commands.
const QUICK_LEAST_S: f64 = 15.0;

/// Flags of `tlsdyno run`, each instead of what the file says.
#[derive(clap::Args, Clone, Debug)]
pub struct Changes {
    /// Bound on the measuring time, for example 90 or 3m, instead of the file's
    #[arg(short, short_alias = 'd', long, alias = "duration", value_name = "TIME")]
    #[arg(value_parser = crate::kinds::flags::seconds)]
    pub time: Option<f64>,
    /// A first look: a tenth of the file's measuring time, and no less than 15 seconds
    #[arg(long, conflicts_with = "time")]
    pub quick: bool,
    /// Server under test, instead of the file's
    #[arg(long, value_parser = choice(ServerName::configured()))]
    pub server: Option<ServerName>,
    /// The OpenSSL of the server under test by its prefix, or twice, two that are compared, instead of the file's
    #[arg(long, value_name = "PREFIX", num_args = 1)]
    pub library: Vec<PathBuf>,
    /// Certificate, instead of the file's
    #[arg(long, value_name = "TYPE", value_parser = choice(CertificateKind::ALL))]
    pub cert: Option<CertificateKind>,
    /// Seed of the order of blocks, instead of the file's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Let servers without stages listen at --address: workers and this machine are served, and who sits between can
    /// read and forge everything
    #[arg(long, requires = "remote")]
    pub allow_insecure_listen: bool,
    /// Workers that make the load.
    #[command(flatten, next_help_heading = "Several machines")]
    pub far: FarArgs,
}

impl Changes {
    pub fn change(&self, measure: &mut Measure) {
        let quick_s = (measure.time_s / 10.0).max(QUICK_LEAST_S).min(measure.time_s);
        measure.time_s = self.time.unwrap_or(if self.quick { quick_s } else { measure.time_s });
        measure.seed = self.seed.or(measure.seed);
    }

    /// Refuses workers for an experiment called `name` that this machine measures alone
    /// ([`tlsdyno_base::fault::Fault::Usage`]).
    pub fn refuse_workers(&self, name: &str) -> Result<()> {
        ensure_fault!(
            Usage,
            !self.far.workers.are_given(),
            "{name} is measured from this machine only; workers make the load of experiments that compare servers, \
             arrays, clusters and curves over reuse, and of URLs"
        );
        Ok(())
    }

    /// Refuses libraries for an experiment called `name` that is not about one server.
    pub fn refuse_libraries(&self, name: &str) -> Result<()> {
        ensure!(self.library.is_empty(), "--library is for experiments with one server, which {name} is not");
        Ok(())
    }
}
