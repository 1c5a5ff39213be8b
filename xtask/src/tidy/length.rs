//! Lines and files that are too long to read.

use super::files::File;
use super::finding::Finding;

/// Columns of a line, as rustfmt.toml has them.
pub const COLUMNS: usize = 120;
/// Lines of a file.
const LINES: usize = 600;
/// Longer ones that were there before this was checked. No line is added here.
const FROZEN: [&str; 1] = ["native/tests/vectors.c"];

/// Lines of source with more than [`COLUMNS`].
pub fn long_lines(files: &[File]) -> Vec<Finding> {
    let source = files.iter().filter(|file| file.language.is_some());
    source
        .flat_map(|file| {
            let columns = file.text.lines().map(|line| line.chars().count()).enumerate();
            let long = columns.filter(|(_, columns)| *columns > COLUMNS);
            long.map(|(line, columns)| {
                Finding::new(&file.path, line + 1, format!("{columns} columns, at most {COLUMNS}"))
            })
        })
        .collect()
}

/// How many lines of prose have more.
pub fn long_prose(files: &[File]) -> usize {
    let prose = files.iter().filter(|file| file.path.ends_with(".md"));
    prose.flat_map(|file| file.text.lines()).filter(|line| line.chars().count() > COLUMNS).count()
}

/// Source files with more than [`LINES`].
pub fn long_files(files: &[File]) -> Vec<Finding> {
    let source = files.iter().filter(|file| file.language.is_some() && !FROZEN.contains(&file.path.as_str()));
    let lengths = source.map(|file| (file, file.text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > LINES);
    long.map(|(file, lines)| Finding::new(&file.path, lines, format!("{lines} lines, at most {LINES}; split the file")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters_and_only_source_is_held_to_them() {
        let (fits, long) = ("é".repeat(COLUMNS), "é".repeat(COLUMNS + 1));
        let text = format!("{fits}\n{long}\n");
        let files = ["a.rs", "b.h", "c.toml", "d.sh", "e.md", "f.txt"].map(|path| File::new(path, &text));
        let found = long_lines(&files);
        assert_eq!(
            found.iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(),
            ["a.rs", "b.h", "c.toml", "d.sh"]
        );
        assert!(found.iter().all(|finding| finding.line == 2));
        assert_eq!(long_prose(&files), 1);
    }

    #[test]
    fn a_file_may_be_just_as_long_as_allowed() {
        let file = |lines| File::new("a.rs", &"x\n".repeat(lines));
        assert!(long_files(&[file(LINES)]).is_empty());
        assert_eq!(long_files(&[file(LINES + 1)]).len(), 1);
    }
}
