//! Lines of code by part: neither blank, comment nor test.

use std::collections::BTreeSet;

use super::files::{File, within_crates};
use super::reach::of_product;
use super::source::Language;

/// What is counted beside crates: the title, where its files are, and what they are written in. C is counted by itself,
/// as all of `native`, whose Rust is `native/src`.
const OTHERS: [(&str, &str, Language); 3] = [
    ("native", "native/", Language::C),
    ("experiments", "experiments/", Language::Toml),
    ("scripts", "scripts/", Language::Shell),
];

/// Where the Rust of each crate stands. That of the fuzz targets is tests.
fn crates(files: &[File]) -> BTreeSet<&str> {
    let folder = |file: &'_ File| file.path.find("/src/").filter(|end| !title(&file.path[..*end]).contains('/'));
    let rust = files.iter().filter(|file| file.is_rust() && !file.path.starts_with("fuzz/"));
    rust.filter_map(|file| Some(&file.path[..folder(file)? + "/src/".len()])).collect()
}

/// The title of a crate by its folder: `native` is that of the C.
fn title(folder: &str) -> &str {
    within_crates(folder).trim_end_matches(if folder == "native/src/" { "/" } else { "/src/" })
}

/// Where the product's Rust stands.
pub fn rust_folders(files: &[File]) -> impl Iterator<Item = &str> {
    crates(files).into_iter().filter(|folder| *folder != "xtask/src/")
}

/// A part of the workspace with its lines of code.
pub struct Part<'a> {
    /// As it stands in the table, for example `runner`.
    pub title: &'a str,
    pub lines: usize,
}

pub fn parts<'a>(files: &'a [File]) -> Vec<Part<'a>> {
    let product = of_product(files);
    let counted: Vec<(&File, usize)> =
        files.iter().filter(|file| is_counted(file, &product)).map(|file| (file, lines_of_code(file))).collect();
    let part = |(title, folder, language): (&'a str, &str, Language)| {
        let of_part =
            counted.iter().filter(|(file, _)| file.path.starts_with(folder) && file.language == Some(language));
        Part { title, lines: of_part.map(|(_, lines)| lines).sum() }
    };
    let rust = crates(files).into_iter().map(|folder| (title(folder), folder, Language::Rust));
    rust.chain(OTHERS).map(part).collect()
}

fn is_counted(file: &File, product: &BTreeSet<&str>) -> bool {
    let is_test = file.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"));
    !is_test && (!file.is_rust() || product.contains(file.path.as_str()))
}

fn lines_of_code(file: &File) -> usize {
    file.product_code().lines().filter(|line| !line.trim().is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_do_not_count() {
        let lib =
            "//! A crate.\n\nmod a; // declared\n/* not\n this */\nmod b;\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}";
        let files = [
            ("crates/wire/src/lib.rs", lib),
            ("crates/wire/src/a.rs", "const A: &str = \"\n// in a string\n\";\n"),
            ("crates/wire/src/b.rs", "#[cfg(test)]\nmod tests;\nfn d() {}\n"),
            ("crates/wire/src/b/tests.rs", "fn e() {}\n"),
            ("crates/wire/tests/f.rs", "fn f() {}\n"),
            ("native/shim/a.c", "/* a */\nint a;\n"),
            ("native/tests/b.c", "int b;\n"),
            ("experiments/papers/a.toml", "# Why\n\na = 1\n"),
        ];
        let files = files.map(|(path, text)| File::new(path, text));
        let counted = parts(&files).into_iter().map(|part| (part.title, part.lines)).collect::<Vec<_>>();
        assert_eq!(counted, [("wire", 6), ("native", 1), ("experiments", 1), ("scripts", 0)]);
    }
}
