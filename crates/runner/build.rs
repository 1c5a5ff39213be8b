//! Lists the repository's experiments and recipes of stacks, which `src/kinds/files.rs` embeds.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let experiments =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../experiments");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    list_experiments(&experiments, &["modern", "papers"], &out.join("experiments.rs"));
    list_experiments(&experiments, &["bases"], &out.join("bases.rs"));
    list_experiments(&experiments, &["stacks", "stacks/parts"], &out.join("recipes.rs"));
}

/// Writes a Rust array of name (`papers/coarfa-2006-fig7`) and text of every experiment in these folders.
fn list_experiments(folder: &Path, groups: &[&str], list: &Path) {
    let mut entries = String::new();
    for group in groups {
        // Relative, so that nothing old stays in a checkout that was moved with what was built of it.
        println!("cargo::rerun-if-changed=../../experiments/{group}");
        for path in files_ending(&folder.join(group), "toml") {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let file = format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../../experiments/{group}/{name}.toml\")");
            entries.push_str(&format!("(\"{group}/{name}\", include_str!({file})),\n"));
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
