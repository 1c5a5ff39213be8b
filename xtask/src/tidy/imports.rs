//! Which folder of dyno/src imports from which: each may import only what stands before it in an order.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::files::File;
use super::finding::Finding;
use super::reach::of_product;
use super::source::without_tests;

const ROOT: &str = "dyno/src/";

/// One path in the source that leads into another folder.
#[derive(Clone, Debug, PartialEq)]
struct Import {
    from: String,
    to: String,
    path: String,
    line: usize,
}

/// Every import of a folder that does not stand before the importing one. Folders without a place in `order` are left
/// alone.
pub fn against_order(files: &[File], order: &[&str]) -> Vec<Finding> {
    let place = |folder: &str| order.iter().position(|one| *one == folder);
    let mut found = Vec::new();
    for import in imports(files) {
        if let (Some(from), Some(to)) = (place(&import.from), place(&import.to))
            && to > from
        {
            let what = format!("`{}` imports from `{}`, which stands after it", import.from, import.to);
            found.push(Finding::new(&import.path, import.line, what));
        }
    }
    found
}

/// Pairs of folders that import each other, with the number of imports each way; the fewer second.
fn circles(files: &[File]) -> Vec<(String, String, usize, usize)> {
    let mut numbers: BTreeMap<(String, String), usize> = BTreeMap::new();
    for import in imports(files) {
        *numbers.entry((import.from, import.to)).or_default() += 1;
    }
    let mut found = Vec::new();
    for ((from, to), forth) in &numbers {
        if let Some(back) = numbers.get(&(to.clone(), from.clone()))
            && (forth, from) > (back, to)
        {
            found.push((from.clone(), to.clone(), *forth, *back));
        }
    }
    found
}

/// All of it in words.
pub fn report(files: &[File], order: &[&str]) -> String {
    let mut text = String::new();
    for finding in against_order(files, order) {
        let _ = writeln!(text, "{finding}");
    }
    for (a, b, forth, back) in circles(files) {
        let _ = writeln!(text, "{a} and {b} import each other: {forth} times, and {back} times back:");
        for import in imports(files).into_iter().filter(|one| one.from == b && one.to == a) {
            let _ = writeln!(text, "  {}:{}", import.path, import.line);
        }
    }
    let mut folders: Vec<String> = imports(files).into_iter().flat_map(|one| [one.from, one.to]).collect();
    folders.sort();
    folders.dedup();
    folders.retain(|folder| !order.contains(&folder.as_str()));
    let _ = writeln!(text, "without a place in the order ({}): {}", order.join(", "), folders.join(", "));
    text
}

/// Those of the product, without its tests.
fn imports(files: &[File]) -> Vec<Import> {
    let product = of_product(files);
    let files = files.iter().filter(|file| file.path.starts_with(ROOT) && product.contains(file.path.as_str()));
    files.flat_map(imports_of).collect()
}

fn imports_of(file: &File) -> Vec<Import> {
    let module = module_of(&file.path[ROOT.len()..]);
    let Some(from) = module.first().cloned() else { return Vec::new() };
    let code = without_tests(&file.code());
    let mut found = Vec::new();
    for (at, target) in paths(&code, &module).into_iter().filter(|(_, target)| *target != from) {
        let line = code[..at].matches('\n').count() + 1;
        found.push(Import { from: from.clone(), to: target, path: file.path.clone(), line });
    }
    found
}

/// `experiment/model/mod.rs` is `[experiment, model]`; lib.rs and main.rs are the root, which may use everything.
fn module_of(below: &str) -> Vec<String> {
    let parts = below.trim_end_matches(".rs").split('/').filter(|part| !["mod", "lib", "main"].contains(part));
    parts.map(str::to_owned).collect()
}

/// The folders that paths from the crate's root or from modules above lead to, with the place of each.
fn paths(code: &str, module: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if begins_path(code, at) {
            found.extend(names_at(code, at + "crate::".len()));
        }
    }
    for (at, _) in code.match_indices("super::") {
        if begins_path(code, at) {
            let after = code[at..].trim_start_matches("super::");
            let levels = (code.len() - at - after.len()) / "super::".len();
            // Fewer levels stay in the folder.
            if levels == module.len() {
                found.extend(names_at(code, code.len() - after.len()));
            }
        }
    }
    found
}

/// Not the end of a longer name, and not a further `super` of a path that was followed already.
fn begins_path(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|one: char| one.is_alphanumeric() || one == '_' || one == ':')
}

/// The first names of what stands at `at`: one, or those of a group in braces.
fn names_at(code: &str, at: usize) -> Vec<(usize, String)> {
    let rest = &code[at..];
    if !rest.starts_with('{') {
        return name_at(code, at).into_iter().collect();
    }
    let mut found = Vec::new();
    let mut depth = 0;
    for (offset, one) in rest.char_indices() {
        match one {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (one == '{' || one == ',') {
            let next = &rest[offset + 1..];
            found.extend(name_at(code, at + offset + 1 + (next.len() - next.trim_start().len())));
        }
    }
    found
}

fn name_at(code: &str, at: usize) -> Option<(usize, String)> {
    let name: String = code[at..].chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect();
    let is_module = name.starts_with(|one: char| one.is_lowercase()) && name != "self";
    is_module.then_some((at, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: [&str; 3] = ["model", "store", "cmd"];

    fn workspace(changed: &str, text: &str) -> Vec<File> {
        let files = [
            ("dyno/src/lib.rs", "pub mod model;\npub mod store;\npub mod cmd;\nmod exit;\n"),
            ("dyno/src/model/mod.rs", "mod deep;\n"),
            ("dyno/src/model/deep.rs", ""),
            ("dyno/src/store/mod.rs", ""),
            ("dyno/src/cmd/mod.rs", "use crate::store::Store;\nuse crate::model::Model;\n"),
            ("dyno/src/exit.rs", ""),
        ];
        files.map(|(path, old)| File::new(path, if path == changed { text } else { old })).to_vec()
    }

    fn found(changed: &str, text: &str) -> Vec<String> {
        against_order(&workspace(changed, text), &ORDER).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_stands_before_may_be_imported() {
        assert!(found("", "").is_empty());
        assert!(
            found("dyno/src/store/mod.rs", "use crate::model::{self, Model};\nuse crate::exit::Exit;\n").is_empty()
        );
    }

    #[test]
    fn what_stands_after_is_told_with_its_line() {
        let said = found(
            "dyno/src/store/mod.rs",
            "//! use crate::cmd;\nuse crate::{\n    model::Model,\n    cmd::{self, run},\n};\n",
        );
        assert_eq!(said, ["dyno/src/store/mod.rs:4: `store` imports from `cmd`, which stands after it"]);
        let said = found("dyno/src/model/mod.rs", "fn f() {\n    crate::store::open();\n}\nmod deep;\n");
        assert_eq!(said, ["dyno/src/model/mod.rs:2: `model` imports from `store`, which stands after it"]);
    }

    #[test]
    fn paths_upwards_count_where_they_leave_the_folder() {
        assert!(
            found("dyno/src/model/deep.rs", "use super::store;\n").is_empty(),
            "a module of that name in the folder"
        );
        assert_eq!(found("dyno/src/model/deep.rs", "use super::super::store::Store;\n").len(), 1);
        assert_eq!(found("dyno/src/model/deep.rs", "use super::super::{store::Store, cmd};\n").len(), 2);
        assert_eq!(found("dyno/src/model/mod.rs", "mod deep;\nuse super::store;\n").len(), 1);
    }

    #[test]
    fn tests_and_visibility_are_no_imports() {
        let text = "pub(crate) fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::cmd::run;\n}\n";
        assert!(found("dyno/src/model/mod.rs", text).is_empty());
    }

    #[test]
    fn folders_that_import_each_other_are_told() {
        let files =
            workspace("dyno/src/store/mod.rs", "use crate::cmd::run;\nuse crate::cmd::list;\nuse crate::exit::Exit;\n");
        assert_eq!(circles(&files), [("store".to_owned(), "cmd".to_owned(), 2, 1)]);
        let text = report(&files, &ORDER);
        assert!(
            text.contains("store and cmd import each other: 2 times, and 1 times back:\n  dyno/src/cmd/mod.rs:1"),
            "{text}"
        );
        assert!(text.ends_with("(model, store, cmd): exit\n"), "{text}");
    }
}
