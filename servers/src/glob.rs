//! Files by a pattern, as `include` directives have them (`glob(3)`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

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
        found = found.iter().flat_map(|directory| matching(directory, name.as_bytes())).collect();
    }
    found.retain(|path| path.is_file());
    found
}

/// Whether a name stands for any number of files, none included.
pub fn is_pattern(name: impl AsRef<OsStr>) -> bool {
    name.as_ref().as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

fn matching(directory: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_shown = |name: &OsString| pattern.starts_with(b".") || !name.as_bytes().starts_with(b".");
    let mut names: Vec<OsString> = entries
        .map(|entry| entry.file_name())
        .filter(|name| is_shown(name) && matches(name.as_bytes(), pattern))
        .collect();
    names.sort_unstable();
    names.into_iter().map(|name| directory.join(name)).collect()
}

/// Whether a name matches a pattern.
fn matches(name: &[u8], pattern: &[u8]) -> bool {
    let Some((expected, behind)) = pattern.split_first() else { return name.is_empty() };
    if *expected == b'*' {
        return (0..=name.len()).any(|at| matches(&name[at..], behind));
    }
    let Some((first, rest)) = name.split_first() else { return false };
    let (is, behind) = match expected {
        b'?' => (true, behind),
        b'[' => one_of(behind, *first).unwrap_or((*first == b'[', behind)),
        b'\\' if !behind.is_empty() => (behind[0] == *first, &behind[1..]),
        expected => (expected == first, behind),
    };
    is && matches(rest, behind)
}

/// Whether a byte is one of those that the pattern names behind its `[`, and what stands behind the `]`; `None`: there
/// is no such, and the `[` means itself.
fn one_of(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, set) = match pattern.split_first() {
        Some((b'!' | b'^', rest)) => (true, rest),
        _ => (false, pattern),
    };
    // A bracket that stands first is one of the set.
    let end = 1 + set.iter().skip(1).position(|byte| *byte == b']')?;
    let (mut set, behind) = (&set[..end], &set[end + 1..]);
    let mut is_in = false;
    while let Some((&from, rest)) = set.split_first() {
        let (to, rest) = match rest {
            [b'-', to, rest @ ..] => (*to, rest),
            rest => (from, rest),
        };
        is_in |= (from..=to).contains(&byte);
        set = rest;
    }
    Some((is_in != negated, behind))
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
            ("]", "[]a]", true),
            ("[a", "[a", true),
            ("*", "\\*", true),
            ("a", "\\*", false),
        ] {
            assert_eq!(matches(name.as_bytes(), pattern.as_bytes()), is, "{name} {pattern}");
        }
        let place = tempfile::tempdir().unwrap();
        for name in ["b", "a", ".hidden"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let names = |pattern: &str| files(&place.path().join(pattern)).len();
        assert_eq!([names("*"), names("a"), names("c"), names(".*"), names("?"), names("[ab]")], [2, 1, 0, 1, 2, 2]);
    }
}
