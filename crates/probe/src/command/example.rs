//! `tlsdyno probe example`: files to start from, so that the installed program has them too.

use anyhow::Result;
use tlsdyno_base::choice::choice;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::output::print;
use tlsdyno_tls::named;

/// Print a file to start from: a configuration, units for systemd, a dashboard for Grafana
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which one
    #[arg(value_parser = choice(Example::ALL))]
    file: Example,
}

named! {
    /// The files.
    pub enum Example: "example" {
        /// Sites and settings for `tlsdyno probe --config`.
        Config = "config",
        /// The robot as a service of systemd.
        Robot = "robot.service",
        /// The served page and metrics as a service of systemd.
        Serve = "serve.service",
        /// One round at each site, for a timer.
        Once = "once.service",
        /// The timer of `once.service`.
        Timer = "once.timer",
        /// A dashboard for Grafana over Prometheus.
        Dashboard = "dashboard.json",
    }
}

/// A configuration with all of its keys.
pub const CONFIG: &str = include_str!("../../../../packaging/probe/sites.toml");

impl Example {
    fn text(self) -> &'static str {
        match self {
            Example::Config => CONFIG,
            Example::Robot => include_str!("../../../../packaging/probe/tlsdyno-probe.service"),
            Example::Serve => include_str!("../../../../packaging/probe/tlsdyno-probe-serve.service"),
            Example::Once => include_str!("../../../../packaging/probe/tlsdyno-probe-once.service"),
            Example::Timer => include_str!("../../../../packaging/probe/tlsdyno-probe-once.timer"),
            Example::Dashboard => include_str!("../../../../packaging/probe/grafana-dashboard.json"),
        }
    }
}

pub fn run(args: &Args) -> Result<Exit> {
    print(args.file.text())?;
    Ok(Exit::Done)
}
