//! Files of Rust that no crate reaches through its `mod` items.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::files::{File, within_crates};
use super::finding::Finding;

/// Files that no root reaches.
pub fn unreached(files: &[File]) -> Vec<Finding> {
    let reached = reached_from(files, |path| is_product_root(path) || is_other_root(path), false);
    let rust = files.iter().filter(|file| file.is_rust() && !reached.contains(file.path.as_str()));
    rust.map(|file| Finding::new(&file.path, 1, "no `mod` item reaches this file; remove it or declare it")).collect()
}

/// Files that are part of a library or a program, not only of its tests.
pub fn of_product(files: &[File]) -> BTreeSet<&str> {
    reached_from(files, is_product_root, true)
}

fn reached_from(files: &[File], is_root: impl Fn(&str) -> bool, product_only: bool) -> BTreeSet<&str> {
    let by_path: BTreeMap<&str, &File> =
        files.iter().filter(|file| file.is_rust()).map(|file| (&*file.path, file)).collect();
    let mut reached: BTreeSet<&str> = by_path.keys().copied().filter(|path| is_root(path)).collect();
    let mut open: Vec<&str> = reached.iter().copied().collect();
    while let Some(path) = open.pop() {
        for target in modules_of(by_path[path], product_only) {
            if let Some((found, _)) = by_path.get_key_value(target.as_str())
                && reached.insert(found)
            {
                open.push(found);
            }
        }
    }
    reached
}

fn is_product_root(path: &str) -> bool {
    let parts: Vec<&str> = within_crates(path).split('/').collect();
    matches!(parts[..], [_, "src", "lib.rs" | "main.rs"] | [_, "src", "bin", _])
}

/// Build scripts, tests, examples, benchmarks, fuzz targets and what is handed to rustc by hand.
fn is_other_root(path: &str) -> bool {
    let parts: Vec<&str> = within_crates(path).split('/').collect();
    match parts[..] {
        [_, "build.rs"] => true,
        [_, folder, ref below @ ..] => {
            let is_target = ["tests", "examples", "benches", "fuzz_targets"].contains(&folder);
            (is_target && (below.len() == 1 || below[1..] == ["main.rs"])) || below.ends_with(&["src", "main.rs"])
        }
        _ => false,
    }
}

/// The files that the `mod` items of this one may mean.
fn modules_of(file: &File, product_only: bool) -> Vec<String> {
    let code = if product_only { file.product_code() } else { file.code() };
    let mut found = Vec::new();
    let mut path_of_next = None;
    for (line, original) in code.lines().zip(file.text.lines()) {
        let line = line.trim();
        if line.starts_with("#[path") {
            path_of_next = original.split('"').nth(1).map(str::to_owned);
        } else if let Some(name) = declared(line) {
            found.extend(candidates(&file.path, name, path_of_next.take().as_deref()));
        }
    }
    found
}

/// `name` of `pub(crate) mod name;`.
fn declared(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("mod ")?;
    let visible = before.is_empty() || (before.starts_with("pub") && before.ends_with(' '));
    rest.strip_suffix(';').filter(|name| visible && name.chars().all(|one| one.is_alphanumeric() || one == '_'))
}

fn candidates(path: &str, name: &str, named: Option<&str>) -> Vec<String> {
    let path = Path::new(path);
    let folder = path.parent().unwrap_or(Path::new(""));
    if let Some(named) = named {
        return vec![normal(&folder.join(named))];
    }
    let stem = path.file_stem().unwrap_or_default();
    let is_top = ["mod", "lib", "main"].iter().any(|top| stem == *top) || is_other_root(&path.to_string_lossy());
    let below = if is_top { folder.to_owned() } else { folder.join(stem) };
    vec![normal(&below.join(format!("{name}.rs"))), normal(&below.join(name).join("mod.rs"))]
}

/// The path with each `..` resolved.
fn normal(path: &Path) -> String {
    let mut parts = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Vec<File> {
        let files = [
            ("a/src/lib.rs", "pub mod b;\npub(crate) mod c;\n#[cfg(test)]\nmod probe;\n// mod dead;\n"),
            ("a/src/b.rs", "mod d;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n"),
            ("a/src/b/d.rs", ""),
            ("a/src/b_tests.rs", ""),
            ("a/src/c/mod.rs", "mod e;\n"),
            ("a/src/c/e.rs", ""),
            ("a/src/probe.rs", ""),
            ("a/src/dead.rs", "mod deader;\n"),
            ("a/src/dead/deader.rs", ""),
            ("a/build.rs", ""),
            ("a/tests/one.rs", "mod place;\n#[path = \"../../b/shared.rs\"]\nmod shared;\n"),
            ("a/tests/place/mod.rs", ""),
            ("a/tests/two/main.rs", "mod three;\n"),
            ("a/tests/two/three.rs", ""),
            ("b/shared.rs", ""),
        ];
        files.map(|(path, text)| File::new(path, text)).to_vec()
    }

    #[test]
    fn what_no_crate_declares_is_found_with_what_hangs_on_it() {
        let found: Vec<String> = unreached(&workspace()).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["a/src/dead.rs", "a/src/dead/deader.rs"]);
    }

    #[test]
    fn modules_of_tests_are_no_part_of_the_product() {
        let files = workspace();
        let product: Vec<&str> = of_product(&files).into_iter().collect();
        assert_eq!(product, ["a/src/b.rs", "a/src/b/d.rs", "a/src/c/e.rs", "a/src/c/mod.rs", "a/src/lib.rs"]);
    }
}
