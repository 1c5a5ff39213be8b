//! Lists the repository's experiments, which `src/kinds/files.rs` embeds.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let experiments = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../experiments");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    list_experiments(&experiments, &["modern", "papers"], &out.join("experiments.rs"));
    list_experiments(&experiments, &["bases"], &out.join("bases.rs"));
}

/// Writes a Rust array of name (`papers/coarfa-2006-fig7`) and text of every experiment in these folders.
fn list_experiments(folder: &Path, groups: &[&str], list: &Path) {
    let folder = folder.canonicalize().expect("the repository has experiments");
    let mut entries = String::new();
    for group in groups {
        let group_folder = folder.join(group);
        println!("cargo::rerun-if-changed={}", group_folder.display());
        for path in files_ending(&group_folder, "toml") {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            entries.push_str(&format!("(\"{group}/{name}\", include_str!({:?})),\n", path.display().to_string()));
        }
    }
    std::fs::write(list, format!("[\n{entries}]")).expect("the output directory can be written");
}

fn files_ending(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == end))
        .collect();
    files.sort();
    files
}
