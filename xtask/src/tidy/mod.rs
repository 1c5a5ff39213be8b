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

use anyhow::{Result, bail};

use files::File;
use finding::Finding;

/// The folders of dyno/src and the files in its root, each of which may import only what stands before it.
/// docs/ARCHITECTURE.md says what each is for.
const ORDER: [&str; 23] = [
    "foreign",
    "choice",
    "fault",
    "interrupt",
    "time",
    "random",
    "distribution",
    "histogram",
    "open_files",
    "process_tree",
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

/// Folders that still have lines that are too long, or circles of files. No line is added here.
const UNFINISHED: [&str; 5] = ["dyno/src/load/", "dyno/src/model/", "dyno/src/report/", "dyno/src/run/", "native/"];

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
    /// Fail for lines that are too long and for circles of files, too, where a folder has none any more
    #[arg(long)]
    strict: bool,
    /// Print each of these lines and circles, instead of their number
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
    let (text, faults) = report(&files, arguments);
    print!("{text}");
    if faults > 0 {
        bail!("the source is not tidy; what is above must go");
    }
    Ok(())
}

/// What was found, and how much of it must not be.
fn report(files: &[File], arguments: &Arguments) -> (String, usize) {
    let mut faults = [
        length::long_files(files),
        undone::marks(files),
        reach::unreached(files),
        imports::against_order(files, &ORDER),
        units::unitless(files),
    ]
    .concat();
    let (long, circles) = (length::long_lines(files), imports::circles(files));
    let counts = format!(
        "{} lines of source are longer than {} columns, {} circles of files\n{} lines of prose are longer, which is no \
         fault\n",
        long.len(),
        length::COLUMNS,
        circles.len(),
        length::long_prose(files)
    );
    let is_unfinished = |finding: &Finding| UNFINISHED.iter().any(|folder| finding.path.starts_with(folder));
    let (new, left): (Vec<_>, Vec<_>) =
        [long, circles].concat().into_iter().partition(|finding| arguments.strict && !is_unfinished(finding));
    faults.extend(new);
    let listed = left.iter().filter(|_| arguments.list);
    let text = faults.iter().chain(listed).map(|finding| format!("{finding}\n")).collect::<String>() + &counts;
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
    fn long_lines_are_faults_where_a_folder_has_none_any_more() {
        let long = format!("#![allow({})]\n", "x".repeat(length::COLUMNS));
        let files = ["wire/src/lib.rs", "dyno/src/report/main.rs"].map(|path| File::new(path, &long));
        let faults = |strict| report(&files[..1], &Arguments { count: false, strict, list: false }).1;
        assert_eq!(faults(true), faults(false) + 1);
        let (text, _) = report(&files, &Arguments { count: false, strict: true, list: false });
        assert!(text.contains("wire/src/lib.rs:1: 1") && !text.contains("dyno/src/report/main.rs:1: 1"), "{text}");
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
