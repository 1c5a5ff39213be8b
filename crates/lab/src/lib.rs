//! What only figures of papers and comparisons need: `tlsdyno scoreboard`, `profile primitives`, weeks of a probe in
//! virtual time, and `stacks`.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod primitives;
pub mod probe_weeks;
mod profile;
mod scoreboard;
pub mod stacks;

use tlsdyno_ablation::Ablation;
use tlsdyno_advise::Advised;
use tlsdyno_base::help::Below;
use tlsdyno_base::program::Program;
use tlsdyno_base::subcommand::subcommand;
use tlsdyno_cluster::array::Arrays;
use tlsdyno_cluster::cluster::Clusters;
use tlsdyno_cost::Costs;
use tlsdyno_load::Loads;
use tlsdyno_profile::profile::Profiles;
use tlsdyno_profile::steps::StepByStep;
use tlsdyno_runner::kinds::commands::{report, run};
use tlsdyno_runner::kinds::table::Table;

use crate::primitives::PrimitivesOfLibraries;
use crate::probe_weeks::ProbeWeeks;
use crate::stacks::Stacks;

/// The kinds of all programs: a paper has figures of several. A file of stacks says what is measured of each as a file
/// of costs does.
pub static KINDS: Table = Table(&[
    &Ablation,
    &Stacks,
    &Costs,
    &Clusters,
    &Arrays,
    &Loads,
    &Profiles,
    &PrimitivesOfLibraries,
    &StepByStep,
    &ProbeWeeks,
    &Advised,
]);

/// What `-h` shows below `tlsdyno profile`.
const BELOW: Below =
    &[("primitives", &["server", "server_command", "sizes", "algorithms", "legacy", "time", "quick", "json"])];

pub fn program() -> Program {
    Program {
        shared: vec![
            subcommand!("run", run::Args, |args: &run::Args| args.perform(&KINDS)),
            subcommand!("report", report::Args, |args: &report::Args| args.show(&KINDS, &args.record()?)),
        ],
        below: BELOW,
        ..Program::satellite(
            "tlsdyno-lab",
            vec![
                subcommand!("profile", profile),
                subcommand!("scoreboard", scoreboard),
                subcommand!("stacks", stacks::command),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tlsdyno_runner::kinds::files::{EMBEDDED, find};

    use super::*;

    #[test]
    fn every_experiment_that_comes_along_is_understood() {
        for (name, _) in EMBEDDED {
            find(KINDS.0, Path::new(name)).unwrap();
        }
        assert!(EMBEDDED.iter().any(|(name, _)| *name == "modern/coarfa-fig8"));
    }
}
