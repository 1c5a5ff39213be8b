//! `tlsdyno run FILE.toml` for files of this program's kinds.

use anyhow::Result;
use tlsdyno_base::exit::Exit;
pub use tlsdyno_bench::kinds::commands::run::Args;

use crate::KINDS;

pub fn run(args: &Args) -> Result<Exit> {
    args.perform(&KINDS)
}
