//! Lines of code by folder: neither blank, comment nor test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::files::File;
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
    folder.trim_start_matches("crates/").trim_end_matches(if folder == "native/src/" { "/" } else { "/src/" })
}

/// Where the product's Rust stands.
pub fn rust_folders(files: &[File]) -> impl Iterator<Item = &str> {
    crates(files).into_iter().filter(|folder| *folder != "xtask/src/")
}

/// Its folders are counted one by one, too.
const BENCH: &str = "crates/bench/src/";

/// A part of the workspace with its lines of code.
pub struct Part<'a> {
    /// As it stands in the table, for example `bench`.
    pub title: &'a str,
    /// Lines of code.
    pub lines: usize,
    /// The same for each folder of `crates/bench/src`; empty for other parts.
    pub folders: BTreeMap<&'a str, usize>,
}

/// Counts each part.
pub fn parts<'a>(files: &'a [File]) -> Vec<Part<'a>> {
    let product = of_product(files);
    let counted: Vec<(&File, usize)> =
        files.iter().filter(|file| is_counted(file, &product)).map(|file| (file, lines_of_code(file))).collect();
    let part = |(title, folder, language): (&'a str, &str, Language)| {
        let of_part =
            || counted.iter().filter(|(file, _)| file.path.starts_with(folder) && file.language == Some(language));
        let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
        for (file, lines) in of_part().filter(|_| folder == BENCH) {
            *folders.entry(folder_of(&file.path[folder.len()..])).or_default() += lines;
        }
        Part { title, lines: of_part().map(|(_, lines)| lines).sum(), folders }
    };
    let rust = crates(files).into_iter().map(|folder| (title(folder), folder, Language::Rust));
    rust.chain(OTHERS).map(part).collect()
}

/// Each part with its lines of code.
pub fn table(files: &[File]) -> String {
    let mut text = String::new();
    for part in parts(files) {
        let _ = writeln!(text, "{:>7}  {}", part.lines, part.title);
        for (name, lines) in part.folders {
            let _ = writeln!(text, "{:>7}    {name}", format!("({lines})"));
        }
    }
    text
}

/// `run` of `kinds/ablation/subject.rs` and of `cmd/run.rs`.
fn folder_of(below: &str) -> &str {
    match below.split_once('/') {
        Some((folder, _)) => folder,
        None => "files of its own",
    }
}

fn is_counted(file: &File, product: &BTreeSet<&str>) -> bool {
    let is_test = file.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"));
    !is_test && (!file.is_rust() || product.contains(file.path.as_str()))
}

/// Those of one file.
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
            ("crates/bench/src/lib.rs", "mod g;\nmod h;\n"),
            ("crates/bench/src/g/mod.rs", "fn g() {}\nfn i() {}\n"),
            ("crates/bench/src/h.rs", "fn h() {}\n"),
            ("native/shim/a.c", "/* a */\nint a;\n"),
            ("native/tests/b.c", "int b;\n"),
            ("experiments/papers/a.toml", "# Why\n\na = 1\n"),
        ];
        let table = table(&files.map(|(path, text)| File::new(path, text)));
        let of =
            |title: &str| table.lines().find(|line| line.ends_with(&format!(" {title}"))).unwrap().trim().to_owned();
        assert_eq!(of("wire"), "6  wire", "{table}");
        assert_eq!(of("bench"), "5  bench");
        assert_eq!(of("g"), "(2)    g");
        assert_eq!(of("files of its own"), "(3)    files of its own");
        assert_eq!(of("native"), "1  native");
        assert_eq!(of("experiments"), "1  experiments");
    }
}
