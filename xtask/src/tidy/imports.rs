//! Which folder of dyno/src imports from which: each may import only what stands before it in an order.

use std::collections::BTreeMap;

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

/// Every import of a folder that does not stand before the importing one, and every folder that has no place in
/// `order`.
pub fn against_order(files: &[File], order: &[&str]) -> Vec<Finding> {
    let place = |folder: &str| order.iter().position(|one| *one == folder);
    let mut found = without_place(files, order);
    for import in imports(files) {
        if let (Some(from), Some(to)) = (place(&import.from), place(&import.to))
            && to > from
        {
            let what = format!(
                "`{}` imports from `{}`, which stands after it (ORDER in xtask/src/tidy/mod.rs); move what both need \
                 to a folder that stands before both",
                import.from, import.to
            );
            found.push(Finding::new(&import.path, import.line, what));
        }
    }
    found
}

/// Each folder that `order` leaves out, once.
fn without_place(files: &[File], order: &[&str]) -> Vec<Finding> {
    let mut first_files: BTreeMap<String, &str> = BTreeMap::new();
    for file in of_root(files) {
        if let Some(folder) = module_of(&file.path[ROOT.len()..]).first() {
            first_files.entry(folder.clone()).or_insert(&file.path);
        }
    }
    first_files.retain(|folder, _| !order.contains(&folder.as_str()));
    let what = |folder: &str| format!("`{folder}` has no place yet in ORDER (xtask/src/tidy/mod.rs); give it one");
    first_files.iter().map(|(folder, path)| Finding::new(path, 1, what(folder))).collect()
}

/// Those of the product, without its tests.
fn imports(files: &[File]) -> Vec<Import> {
    of_root(files).flat_map(imports_of).collect()
}

fn of_root(files: &[File]) -> impl Iterator<Item = &File> {
    let product = of_product(files);
    files.iter().filter(move |file| file.path.starts_with(ROOT) && product.contains(file.path.as_str()))
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

/// `run/preflight/mod.rs` is `[run, preflight]`; lib.rs and main.rs are the root, which may use everything.
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

    const ORDER: [&str; 4] = ["exit", "model", "store", "cmd"];
    const AFTER: &str = "which stands after it (ORDER in xtask/src/tidy/mod.rs); move what both need to a folder that \
                         stands before both";

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
        assert_eq!(said, [format!("dyno/src/store/mod.rs:4: `store` imports from `cmd`, {AFTER}")]);
        let said = found("dyno/src/model/mod.rs", "fn f() {\n    crate::store::open();\n}\nmod deep;\n");
        assert_eq!(said, [format!("dyno/src/model/mod.rs:2: `model` imports from `store`, {AFTER}")]);
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
    fn every_folder_needs_a_place() {
        let found: Vec<String> =
            against_order(&workspace("", ""), &ORDER[1..]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["dyno/src/exit.rs:1: `exit` has no place yet in ORDER (xtask/src/tidy/mod.rs); give it one"]
        );
    }
}
