//! `tlsdyno report` for records of this program's kinds.

use anyhow::Result;
use tlsdyno_base::exit::Exit;
pub use tlsdyno_bench::kinds::commands::report::Args;

use crate::KINDS;

pub fn run(args: &Args) -> Result<Exit> {
    args.show(&KINDS, &args.record()?)
}
