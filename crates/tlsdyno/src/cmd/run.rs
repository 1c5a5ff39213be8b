//! `tlsdyno run FILE.toml`.

use anyhow::Result;
pub use tlsdyno_runner::kinds::commands::run::Args;

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::kinds::{KINDS, files};
use crate::satellites;

/// Runs the experiment, or becomes the satellite that does.
pub fn run(args: &Args) -> Result<Exit> {
    if let Some(file) = args.file() {
        satellites::hand_on_kind(|key| files::has(file, key).or_fault(Fault::Input))?;
    }
    args.perform(&KINDS)
}
