//! Files by a pattern, as `include` directives have them.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The files of a pattern with `*` and `?` in any part of its path, in the order of their names. Hidden ones only where
/// the pattern begins with a dot.
pub fn files(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let name = part.as_os_str().to_string_lossy();
        if !matches!(part, Component::Normal(_)) || !name.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        found = found.iter().flat_map(|directory| matching(directory, &name)).collect();
    }
    found.retain(|path| path.is_file());
    found
}

fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let name_of = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    let is_shown = |name: &String| pattern.starts_with('.') || !name.starts_with('.');
    let mut names: Vec<String> =
        entries.filter_map(name_of).filter(|name| is_shown(name) && matches(name, pattern)).collect();
    names.sort_unstable();
    names.into_iter().map(|name| directory.join(name)).collect()
}

/// Whether a name matches a pattern.
fn matches(name: &str, pattern: &str) -> bool {
    let mut rests = pattern.chars();
    match rests.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = rests.as_str();
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(&name[at..], rest))
        }
        Some(expected) => {
            let mut characters = name.chars();
            let first = characters.next();
            first.is_some_and(|first| expected == '?' || first == expected)
                && matches(characters.as_str(), rests.as_str())
        }
    }
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
        ] {
            assert_eq!(matches(name, pattern), is, "{name} {pattern}");
        }
        let place = tempfile::tempdir().unwrap();
        for name in ["b", "a", ".hidden"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let names = |pattern: &str| files(&place.path().join(pattern)).len();
        assert_eq!([names("*"), names("a"), names("c"), names(".*"), names("?")], [2, 1, 0, 1, 2]);
    }
}
