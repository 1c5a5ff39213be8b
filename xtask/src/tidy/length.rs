//! Lines, functions and files that are too long to read.

use super::files::File;
use super::finding::Finding;
use super::source::item_length;

/// Columns of a line, as rustfmt.toml has them.
pub const COLUMNS: usize = 120;
/// Lines of code of a function, its signature and its last brace among them.
const FUNCTION_LINES: usize = 60;
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

/// Functions in Rust with more lines of code than [`FUNCTION_LINES`].
pub fn long_functions(files: &[File]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.is_rust());
    rust.flat_map(|file| {
        let long = functions(file.code()).filter(|(_, lines)| *lines > FUNCTION_LINES);
        long.map(|(line, lines)| {
            let what = format!("a function of {lines} lines, at most {FUNCTION_LINES}; divide it by purpose");
            Finding::new(&file.path, line, what)
        })
    })
    .collect()
}

/// The line on which each function begins, and how many lines of code it has.
fn functions(code: &str) -> impl Iterator<Item = (usize, usize)> {
    let is_word = |(at, _): &(usize, &str)| !code[..*at].ends_with(|last: char| last.is_alphanumeric() || last == '_');
    code.match_indices("fn ").filter(is_word).map(|(at, _)| {
        let item = &code[at..at + item_length(&code[at..])];
        let lines = item.lines().filter(|line| !line.trim().is_empty()).count();
        (code[..at].matches('\n').count() + 1, lines)
    })
}

/// How many lines of prose have more than [`COLUMNS`].
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
    fn blanks_and_comments_do_not_make_a_function_long() {
        let found = |lines: usize| {
            let body = "    a([0; 3]);\n\n    // Why.\n".repeat(lines - 2);
            let text =
                format!("extern {{ fn c(); }}\n\nfn d(of: fn(u8)) {{}}\n\npub fn e() {{\n{body}}}\n\nfn f() {{}}\n");
            long_functions(&[File::new("a.rs", &text), File::new("a.c", &text)])
        };
        assert!(found(FUNCTION_LINES).is_empty());
        let [long] = found(FUNCTION_LINES + 1).try_into().unwrap();
        assert_eq!((long.path.as_str(), long.line), ("a.rs", 5));
    }

    #[test]
    fn a_file_may_be_just_as_long_as_allowed() {
        let file = |lines| File::new("a.rs", &"x\n".repeat(lines));
        assert!(long_files(&[file(LINES)]).is_empty());
        assert_eq!(long_files(&[file(LINES + 1)]).len(), 1);
    }
}
