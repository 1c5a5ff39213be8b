//! Notes of what was left undone: they belong into the list of issues.

use super::files::File;
use super::finding::Finding;

/// Put together here, so that this file is none of those that hold them.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Every mark in source.
pub fn marks(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.language.is_some()) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(mark) = MARKS.into_iter().find(|mark| holds_word(line, mark)) {
                found.push(Finding::new(&file.path, index + 1, format!("{mark}: do it, or write an issue")));
            }
        }
    }
    found
}

fn holds_word(line: &str, word: &str) -> bool {
    let is_part = |character: Option<char>| character.is_some_and(|one| one.is_alphanumeric() || one == '_');
    line.match_indices(word)
        .any(|(at, _)| !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_words() {
        let of = |line: &str| marks(&[File::new("a.rs", line)]).len();
        for mark in MARKS {
            assert_eq!(of(&format!("// {mark}: later")), 1, "{mark}");
            assert_eq!(of(&format!("mktemp {mark}{mark}")), 0, "{mark}");
        }
        assert!(marks(&[File::new("a.md", MARKS[0])]).is_empty(), "prose may speak of them");
    }
}
