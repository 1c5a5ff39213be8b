//! How many machines a site needs: `tlsdyno cluster`, `array` and `plan`.

#![forbid(unsafe_code)]

use tlsdyno_ablation::Ablation;
use tlsdyno_base::program::Program;
use tlsdyno_base::subcommand::subcommand;
use tlsdyno_cluster::array::Arrays;
use tlsdyno_cluster::cluster::Clusters;
use tlsdyno_runner::kinds::commands::{report, run};
use tlsdyno_runner::kinds::table::Table;

/// The kinds of this program. Its files may extend an ablation's.
static KINDS: Table = Table(&[&Ablation, &Clusters, &Arrays]);

pub fn program() -> Program {
    let plan = subcommand!("plan", tlsdyno_plan::command).with_short_help(
        &["from", "rate", "reuse", "requests_per_connection", "servers", "proxies", "policy", "json", "markdown"],
        "tlsdyno plan --from last --rate 2000 --reuse 70",
    );
    let of_kinds = KINDS.0[1..].iter().flat_map(|kind| kind.commands());
    Program {
        shared: vec![
            subcommand!("run", run::Args, |args: &run::Args| args.perform(&KINDS)),
            subcommand!("report", report::Args, |args: &report::Args| args.show(&KINDS, &args.record()?)),
        ],
        ..Program::satellite("tlsdyno-sizes", of_kinds.chain([plan]).collect())
    }
}
