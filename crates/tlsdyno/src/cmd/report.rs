//! `tlsdyno report`: a record once more, as table, HTML, JSON or CSV.

use anyhow::Result;
pub use tlsdyno_runner::kinds::commands::report::Args;

use crate::exit::Exit;
use crate::kinds::KINDS;
use crate::satellites;

/// Prints and writes what was asked for, or becomes the satellite that does.
pub fn run(args: &Args) -> Result<Exit> {
    let record = args.record()?;
    satellites::hand_on_kind(|field| Ok(record.kind_part.field() == field))?;
    args.show(&KINDS, &record)
}
