//! What no compiler checks: lines and files that are too long, what was left undone, files that nothing reaches,
//! numbers without a unit.

mod count;
mod files;
mod finding;
mod imports;
mod length;
mod reach;
mod source;
mod undone;
mod units;

use std::fmt::Write as _;

use anyhow::{Result, bail};

use files::File;
use finding::Finding;

/// The folders of dyno/src, each of which may import only what stands before it. Folders that are not here have no
/// place yet.
const ORDER: [&str; 9] = ["model", "trace", "servers", "load", "store", "stats", "run", "report", "cmd"];

/// What is looked at.
#[derive(clap::Args)]
pub struct Arguments {
    /// Count lines of code instead.
    ///
    /// A line of code is one that is neither blank, comment nor test. Comment: nothing but a comment stands on it.
    /// Test: files below a folder `tests`, files `tests.rs`, `*_tests.rs`, items under `#[cfg(test)]`, and files that
    /// only such items reach. Lines in brackets are parts of the number above them.
    #[arg(long, conflicts_with_all = ["strict", "list", "imports"])]
    count: bool,
    /// Fail for lines that are too long, too
    #[arg(long)]
    strict: bool,
    /// Print each line that is too long, instead of their number
    #[arg(long)]
    list: bool,
    /// Print what the folders of dyno/src import against their order, and the pairs that import each other, instead
    #[arg(long)]
    imports: bool,
}

/// Looks at all files of the workspace.
///
/// # Errors
/// Something was found that must not be.
pub fn run(arguments: &Arguments) -> Result<()> {
    let files = files::of_workspace()?;
    if arguments.count {
        print!("{}", count::table(&files));
        return Ok(());
    }
    if arguments.imports {
        print!("{}", imports::report(&files, &ORDER));
        return Ok(());
    }
    let long = length::long_lines(&files);
    let (text, faults) = report(&files, &long, arguments.list);
    print!("{text}");
    if faults > 0 || (arguments.strict && !long.is_empty()) {
        bail!("the source is not tidy; what is above must go");
    }
    Ok(())
}

/// What was found, and how much of it must not be.
fn report(files: &[File], long: &[Finding], list: bool) -> (String, usize) {
    let faults =
        [length::long_files(files), undone::marks(files), reach::unreached(files), units::unitless(files)].concat();
    let mut text = String::new();
    for finding in faults.iter().chain(long.iter().filter(|_| list)) {
        let _ = writeln!(text, "{finding}");
    }
    let limit = length::COLUMNS;
    let _ = writeln!(text, "{} lines of source are longer than {limit} columns", long.len());
    let _ = writeln!(text, "{} lines of prose are, which is no fault", length::long_prose(files));
    (text, faults.len())
}
