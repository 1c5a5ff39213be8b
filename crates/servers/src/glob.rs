//! Files by a pattern, as `include` directives have them (`glob(3)`). The crate `glob` compares names; the walk is
//! ours, for the crate takes no directories whose names are not UTF-8.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};

/// The files of a pattern with `*`, `?` and `[…]` in any part of its path, in the order of their names. Hidden ones
/// only where the pattern begins with a dot.
pub fn files(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let name = part.as_os_str();
        if !matches!(part, Component::Normal(_)) || !is_pattern(name) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        found = found.iter().flat_map(|directory| matching(directory, &name.to_string_lossy())).collect();
    }
    found.retain(|path| path.is_file());
    found
}

/// Whether a name stands for any number of files, none included.
pub fn is_pattern(name: impl AsRef<OsStr>) -> bool {
    name.as_ref().as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<_> = names.filter(|name| matches(&name.to_string_lossy(), pattern)).collect();
    names.sort_unstable();
    names.into_iter().map(|name| directory.join(name)).collect()
}

/// Whether a name matches a pattern. What is no pattern (`[` without its end) means itself.
fn matches(name: &str, pattern: &str) -> bool {
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::default() };
    let shell = Pattern::new(&pattern.replace("[^", "[!"));
    shell.map_or(name == pattern, |shell| shell.matches_with(name, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shells() {
        for (name, pattern, is) in [
            ("default", "*", true),
            ("a.conf", "*.conf", true),
            ("a.conf.old", "*.conf", false),
            ("ab", "?b", true),
            ("b", "?b", false),
            ("", "*", true),
            ("10-site", "[0-9]*", true),
            ("site", "[0-9]*", false),
            ("site", "[!0-9]*", true),
            ("site", "[^0-9]*", true),
            ("]", "[]a]", true),
            ("[a", "[a", true),
        ] {
            assert_eq!(matches(name, pattern), is, "{name} {pattern}");
        }
        let place = tempfile::tempdir().unwrap();
        for name in ["b", "a", ".hidden"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let names = |pattern: &str| files(&place.path().join(pattern)).len();
        assert_eq!([names("*"), names("a"), names("c"), names(".*"), names("?"), names("[ab]")], [2, 1, 0, 1, 2, 2]);
    }
}
