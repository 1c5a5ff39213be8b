//! What no compiler checks: lines and files that are too long, what was left undone, files that nothing reaches,
//! imports against the order of folders, numbers without a unit.

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

/// The folders of dyno/src and the files in its root, each of which may import only what stands before it.
/// docs/ARCHITECTURE.md says what each is for.
const ORDER: [&str; 21] = [
    "foreign",
    "fault",
    "interrupt",
    "time",
    "random",
    "distribution",
    "histogram",
    "open_files",
    "units",
    "native",
    "model",
    "trace",
    "dispatch",
    "servers",
    "load",
    "store",
    "stats",
    "run",
    "report",
    "exit",
    "cmd",
];

/// What is looked at.
#[derive(clap::Args)]
pub struct Arguments {
    /// Count lines of code instead.
    ///
    /// A line of code is one that is neither blank, comment nor test. Comment: nothing but a comment stands on it.
    /// Test: files below a folder `tests`, files `tests.rs`, `*_tests.rs`, items under `#[cfg(test)]`, and files that
    /// only such items reach. Lines in brackets are parts of the number above them.
    #[arg(long, conflicts_with_all = ["strict", "list"])]
    count: bool,
    /// Fail for lines that are too long, too
    #[arg(long)]
    strict: bool,
    /// Print each line that is too long, instead of their number
    #[arg(long)]
    list: bool,
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
    let faults = [
        length::long_files(files),
        undone::marks(files),
        reach::unreached(files),
        imports::against_order(files, &ORDER),
        units::unitless(files),
    ]
    .concat();
    let mut text = String::new();
    for finding in faults.iter().chain(long.iter().filter(|_| list)) {
        let _ = writeln!(text, "{finding}");
    }
    let limit = length::COLUMNS;
    let _ = writeln!(text, "{} lines of source are longer than {limit} columns", long.len());
    let _ = writeln!(text, "{} lines of prose are, which is no fault", length::long_prose(files));
    (text, faults.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlsdyno::workspace;

    /// Looked for without git: the tests also run where the source is no checkout.
    fn sources_below(directory: &str, files: &mut Vec<File>) {
        for entry in std::fs::read_dir(workspace().join(directory)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{directory}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                sources_below(&path, files);
            } else if path.ends_with(".rs") {
                files.push(File::new(&path, &std::fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }

    #[test]
    fn folders_of_this_tree_import_only_what_stands_before_them() {
        let mut files = Vec::new();
        sources_below("dyno/src", &mut files);
        let found = imports::against_order(&files, &ORDER);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
        for name in ORDER {
            let (file, folder) = (format!("dyno/src/{name}.rs"), format!("dyno/src/{name}/"));
            let is_there = files.iter().any(|one| one.path == file || one.path.starts_with(&folder));
            assert!(is_there, "ORDER names `{name}`, which is gone: take it out");
        }
    }
}
