//! What no compiler checks: lines, functions, files and parts that are too long, what was left undone, files that
//! nothing reaches, imports against the order of folders, numbers without a unit; documents that are too long, and dead
//! links.

mod budget;
mod count;
mod files;
mod finding;
mod imports;
mod length;
mod prose;
mod reach;
mod source;
mod undone;
mod units;

use anyhow::{Result, ensure};

use files::File;
use finding::Finding;

/// The folders of crates/runner/src, each of which may import only what stands before it.
/// docs/ARCHITECTURE.md says what each is for.
const ORDER: [&str; 3] = ["run", "report", "kinds"];

/// What is looked at.
#[derive(clap::Args)]
pub struct Arguments {
    /// Count lines of code instead.
    ///
    /// A line of code is one that is neither blank, comment nor test. Comment: nothing but a comment stands on it.
    /// Test: files below a folder `tests`, files `tests.rs`, `*_tests.rs`, items under `#[cfg(test)]`, and files that
    /// only such items reach. The budgets of groups of parts are in xtask/src/tidy/budgets.txt.
    #[arg(long)]
    count: bool,
}

/// Looks at all files of the workspace.
///
/// # Errors
/// Something was found that must not be.
pub fn run(arguments: &Arguments) -> Result<()> {
    let files = files::of_workspace()?;
    if arguments.count {
        print!("{}", budget::table(&files));
        return Ok(());
    }
    let faults = faults(&files);
    for fault in &faults {
        println!("{fault}");
    }
    println!("{} lines of prose are longer than {}, which is no fault", length::long_prose(&files), length::COLUMNS);
    ensure!(faults.is_empty(), "the source is not tidy; what is above must go");
    Ok(())
}

fn faults(files: &[File]) -> Vec<Finding> {
    [
        budget::exceeded(files),
        length::long_files(files),
        length::long_functions(files),
        length::long_lines(files),
        undone::marks(files),
        reach::unreached(files),
        imports::against_order(files, &ORDER),
        imports::circles(files),
        units::unitless(files),
        prose::faults(files),
    ]
    .concat()
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
    fn long_lines_are_faults() {
        let of_length = |length| format!("#![allow({})]\n", "x".repeat(length - "#![allow()]".len()));
        let found = |length| faults(&[File::new("crates/wire/src/lib.rs", &of_length(length))]).len();
        assert_eq!(found(length::COLUMNS + 1), found(length::COLUMNS) + 1);
    }

    #[test]
    fn folders_of_this_tree_import_only_what_stands_before_them() {
        let mut files = Vec::new();
        sources_below("crates/runner/src", &mut files);
        let found = imports::against_order(&files, &ORDER);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
        for name in ORDER {
            let (file, folder) = (format!("crates/runner/src/{name}.rs"), format!("crates/runner/src/{name}/"));
            let is_there = files.iter().any(|one| one.path == file || one.path.starts_with(&folder));
            assert!(is_there, "ORDER names `{name}`, which is gone: take it out");
        }
    }
}
