//! What files import from each other: a folder of crates/runner/src may import only what stands before it in an order,
//! and the files of a crate must not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::count::rust_folders;
use super::files::File;
use super::finding::Finding;
use super::reach::of_product;

const RUNNER: &str = "crates/runner/src/";
/// Crates that are state machines: their parts know each other.
const MACHINES: [&str; 3] = ["crates/engine/src/", "crates/tls/src/", "crates/wire/src/"];
/// A file whose module documentation has such a line may be in a circle: the line says why.
const EXPLAINED: &str = "//! Circle: ";

/// `[run, preflight]` for `run/preflight/mod.rs`. lib.rs and main.rs are the root, which may use everything.
type Module = Vec<String>;

/// The files of the product, without its tests, and which names each makes known from elsewhere.
struct Sources<'f> {
    files: BTreeMap<Module, (&'f File, &'f str)>,
    reexports: BTreeMap<Module, Module>,
}

/// Every import of a folder that does not stand before the importing one, and every folder that has no place in
/// `order`.
pub fn against_order(files: &[File], order: &[&str]) -> Vec<Finding> {
    let sources = Sources::of(files, RUNNER, &of_product(files));
    let place = |folder: &str| order.iter().position(|one| *one == folder);
    let mut found = Vec::new();
    let mut without_place = BTreeSet::new();
    for (module, (file, code)) in &sources.files {
        let Some(own) = place(&module[0]) else {
            if without_place.insert(&module[0]) {
                let what = format!("`{}` has no place yet in ORDER (xtask/src/tidy/mod.rs); give it one", module[0]);
                found.push(Finding::new(&file.path, 1, what));
            }
            continue;
        };
        for (line, target) in imports(code, module) {
            let Some(to) = target.first().filter(|to| place(to).is_some_and(|place| place > own)) else {
                continue;
            };
            let what = format!(
                "`{}` imports from `{to}`, which stands after it (ORDER in xtask/src/tidy/mod.rs); move what both need \
                 to a folder that stands before both",
                module[0]
            );
            found.push(Finding::new(&file.path, line, what));
        }
    }
    found.dedup();
    found
}

/// Files of one crate that import each other in a circle. What a file imports from the files below it does not count,
/// for it is made of them.
pub fn circles(files: &[File]) -> Vec<Finding> {
    let product = of_product(files);
    let roots = rust_folders(files).filter(|root| !MACHINES.contains(root));
    roots.flat_map(|root| circles_below(files, root, &product)).collect()
}

fn circles_below(files: &[File], root: &str, product: &BTreeSet<&str>) -> Vec<Finding> {
    let sources = Sources::of(files, root, product);
    let mut edges: BTreeMap<&Module, BTreeMap<&Module, usize>> = BTreeMap::new();
    for (module, (_, code)) in sources.files.iter().filter(|(_, (file, _))| !file.text.contains(EXPLAINED)) {
        for (line, target) in imports(code, module) {
            if let Some(to) = sources.file_of(&target)
                && !to.starts_with(module)
            {
                edges.entry(module).or_default().entry(to).or_insert(line);
            }
        }
    }
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for module in sources.files.keys().filter(|module| edges.contains_key(module)) {
        let Some(circle) = circle(&edges, module).filter(|circle| circle.iter().all(|one| !told.contains(one))) else {
            continue;
        };
        let names: Vec<String> = circle.iter().chain([&module]).map(|one| one.join("/")).collect();
        let what = format!(
            "a circle of files: {}; move what both need to a file of its own, or say in a line `{EXPLAINED}…` why it \
             is there",
            names.join(" → ")
        );
        found.push(Finding::new(&sources.files[module].0.path, edges[module][circle[1]], what));
        told.extend(circle);
    }
    found
}

/// The shortest way from a file back to itself.
fn circle<'m>(edges: &BTreeMap<&'m Module, BTreeMap<&'m Module, usize>>, start: &'m Module) -> Option<Vec<&'m Module>> {
    let mut open = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = open.pop_front() {
        for next in edges.get(way[way.len() - 1]).into_iter().flat_map(BTreeMap::keys) {
            if *next == start {
                return Some(way);
            }
            if seen.insert(*next) {
                open.push_back([way.as_slice(), &[*next]].concat());
            }
        }
    }
    None
}

impl<'f> Sources<'f> {
    fn of(files: &'f [File], root: &str, product: &BTreeSet<&str>) -> Sources<'f> {
        let of_root = files.iter().filter(|file| file.path.starts_with(root) && product.contains(file.path.as_str()));
        let files: BTreeMap<Module, (&File, &str)> =
            of_root.map(|file| (module_of(&file.path[root.len()..]), (file, file.product_code()))).collect();
        let files: BTreeMap<_, _> = files.into_iter().filter(|(module, _)| !module.is_empty()).collect();
        let mut reexports = BTreeMap::new();
        for (module, (_, code)) in &files {
            for (at, _) in code.match_indices(" use ").filter(|(at, _)| is_public(&code[..*at])) {
                for (_, path) in leaves(code, at + " use ".len()) {
                    let target = absolute(&path, module);
                    let name = target.last().cloned();
                    reexports.insert([module.as_slice(), name.as_slice()].concat(), target);
                }
            }
        }
        Sources { files, reexports }
    }

    /// The file that a path leads to, by way of what others make known.
    fn file_of(&self, path: &[String]) -> Option<&Module> {
        let (module, _) = (1..=path.len()).rev().find_map(|length| self.files.get_key_value(&path[..length]))?;
        let name = path.get(..=module.len()).and_then(|name| self.reexports.get(name));
        name.filter(|target| target.as_slice() != path).and_then(|target| self.file_of(target)).or(Some(module))
    }
}

fn module_of(path: &str) -> Module {
    let parts = path.trim_end_matches(".rs").split('/');
    parts.filter(|part| !["mod", "lib", "main"].contains(part)).map(str::to_owned).collect()
}

/// Whether `pub` or `pub(crate)` stands at the end.
fn is_public(before: &str) -> bool {
    before.ends_with("pub")
        || (before.ends_with(')') && before.rfind("pub(").is_some_and(|at| !before[at..].contains('\n')))
}

/// The paths from the crate's root or from modules above, as modules from the root on and a name; the line of each.
fn imports(code: &str, module: &[String]) -> Vec<(usize, Module)> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|start| code.match_indices(start));
    let mut found = Vec::new();
    for (at, _) in starts.filter(|(at, _)| begins_path(code, *at)) {
        for (at, path) in leaves(code, at) {
            found.push((code[..at].matches('\n').count() + 1, absolute(&path, module)));
        }
    }
    found
}

/// Not the end of a longer name, and not a further `super` of a path that was followed already.
fn begins_path(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|one: char| one.is_alphanumeric() || one == '_' || one == ':')
}

/// The path from the crate's root on.
fn absolute(path: &[String], module: &[String]) -> Module {
    let levels = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first().map(String::as_str) {
        Some("crate") => (&[][..], &path[1..]),
        Some("self") => (module, &path[1..]),
        _ => (&module[..module.len().saturating_sub(levels)], &path[levels..]),
    };
    let rest = rest.strip_suffix(&["self".to_owned()]).unwrap_or(rest);
    [base, rest].concat()
}

/// The paths that begin at `at`, one for each name of a group in braces, and where each ends.
fn leaves(code: &str, at: usize) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    add_leaves(code, at, &[], &mut found);
    found
}

/// Answers where the path ends.
fn add_leaves(code: &str, mut at: usize, before: &[String], found: &mut Vec<(usize, Vec<String>)>) -> usize {
    let mut path = before.to_vec();
    let after_blanks = |at: usize| code.len() - code[at..].trim_start().len();
    loop {
        at = after_blanks(at);
        if code[at..].starts_with('{') {
            while !code[at..].starts_with('}') && at + 1 < code.len() {
                at = after_blanks(add_leaves(code, at + 1, &path, found));
            }
            return at + 1;
        }
        let name: String = code[at..].chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect();
        at += name.len();
        path.extend((!name.is_empty()).then_some(name));
        match code[at..].strip_prefix("::") {
            Some(_) => at += 2,
            None => break,
        }
    }
    if path.len() > before.len() {
        found.push((at, path));
    }
    // `as` and another name.
    at + code[at..].find([',', '}', ';']).unwrap_or(code.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: [&str; 4] = ["exit", "model", "store", "cmd"];
    const AFTER: &str = "which stands after it (ORDER in xtask/src/tidy/mod.rs); move what both need to a folder that \
                         stands before both";

    fn workspace(changed: &str, text: &str) -> Vec<File> {
        let files = [
            ("crates/runner/src/lib.rs", "pub mod model;\npub mod store;\npub mod cmd;\nmod exit;\n"),
            ("crates/runner/src/model/mod.rs", "mod deep;\n"),
            ("crates/runner/src/model/deep.rs", ""),
            ("crates/runner/src/store/mod.rs", ""),
            ("crates/runner/src/cmd/mod.rs", "use crate::store::Store;\nuse crate::model::Model;\n"),
            ("crates/runner/src/exit.rs", ""),
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
            found("crates/runner/src/store/mod.rs", "use crate::model::{self, Model};\nuse crate::exit::Exit;\n")
                .is_empty()
        );
    }

    #[test]
    fn what_stands_after_is_told_with_its_line() {
        let said = found(
            "crates/runner/src/store/mod.rs",
            "//! use crate::cmd;\nuse crate::{\n    model::Model,\n    cmd::{self, run},\n};\n",
        );
        assert_eq!(said, [format!("crates/runner/src/store/mod.rs:4: `store` imports from `cmd`, {AFTER}")]);
        let said = found("crates/runner/src/model/mod.rs", "fn f() {\n    crate::store::open();\n}\nmod deep;\n");
        assert_eq!(said, [format!("crates/runner/src/model/mod.rs:2: `model` imports from `store`, {AFTER}")]);
    }

    #[test]
    fn paths_upwards_count_where_they_leave_the_folder() {
        assert!(
            found("crates/runner/src/model/deep.rs", "use super::store;\n").is_empty(),
            "a module of that name in the folder"
        );
        assert_eq!(found("crates/runner/src/model/deep.rs", "use super::super::store::Store;\n").len(), 1);
        assert_eq!(found("crates/runner/src/model/deep.rs", "use super::super::{store::Store, cmd};\n").len(), 2);
        assert_eq!(found("crates/runner/src/model/mod.rs", "mod deep;\nuse super::store;\n").len(), 1);
    }

    fn circles_of(changes: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![
            File::new("crates/runner/src/lib.rs", "mod a;\n"),
            File::new("crates/runner/src/a/mod.rs", "mod b;\nmod c;\npub(crate) use b::{B, deep::D};\nuse c::C;\n"),
            File::new("crates/runner/src/a/b.rs", "mod deep;\nuse super::A;\n"),
            File::new("crates/runner/src/a/b/deep.rs", "use super::B;\n"),
            File::new("crates/runner/src/a/c.rs", "use super::B;\n"),
        ];
        for (path, text) in changes {
            files.iter_mut().find(|file| file.path == *path).unwrap().text = (*text).to_owned();
        }
        circles(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_import_each_other_are_told_unless_one_says_why() {
        assert!(circles_of(&[]).is_empty(), "a file and those that it is made of are no circle");
        let back = "crates/runner/src/a/b.rs";
        let said = circles_of(&[(back, "mod deep;\nuse std::fmt;\nuse super::{\n    A,\n    c::C as Other,\n};\n")]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("crates/runner/src/a/b.rs:5: a circle of files: a/b → a/c → a/b;"), "{said:?}");
        assert!(circles_of(&[(back, "//! Circle: b and c are one thing.\nmod deep;\nuse super::c::C;\n")]).is_empty());
        let by_another_name = [(back, "mod deep;\n"), ("crates/runner/src/a/b/deep.rs", "use crate::a::c::C;\n")];
        assert!(circles_of(&by_another_name).is_empty());
        let to_deep = [by_another_name.as_slice(), &[("crates/runner/src/a/c.rs", "use crate::a::D;\n")]].concat();
        assert_eq!(circles_of(&to_deep).len(), 1, "through what the folder makes known");
    }

    #[test]
    fn tests_and_visibility_are_no_imports() {
        let text = "pub(crate) fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::cmd::run;\n}\n";
        assert!(found("crates/runner/src/model/mod.rs", text).is_empty());
    }

    #[test]
    fn every_folder_needs_a_place() {
        let found: Vec<String> =
            against_order(&workspace("", ""), &ORDER[1..]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["crates/runner/src/exit.rs:1: `exit` has no place yet in ORDER (xtask/src/tidy/mod.rs); give it one"]
        );
    }
}
