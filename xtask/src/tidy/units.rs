//! Numbers on disk have their unit in the name (CONTRIBUTING.md). What was named before this was checked is in
//! `unitless.txt`, whose names must not change because old records hold them.

use super::count::rust_folders;
use super::files::File;
use super::finding::Finding;

/// The fields that are numbers without a unit in their names and may keep them. No line is added here.
const FROZEN: &str = include_str!("unitless.txt");

/// Endings that say what is counted or measured; what stands behind the underscore may be the whole name.
const UNITS: &str = "_ns _ps _us _ms _s _seconds _bytes _kib _mib _kbit _percent _fraction _ratio _hz _mhz _kilobytes \
                     _per_h _per_s _per_second _per_hit _per_call _per_handshake _percent_of_offered _of_unit _times \
                     _count _number _cpus _cpu _id";

/// Numbers in serialised structures without a unit, and frozen names that are no longer there.
pub fn unitless(files: &[File]) -> Vec<Finding> {
    check(files, FROZEN)
}

fn check(files: &[File], frozen: &str) -> Vec<Finding> {
    let frozen: Vec<&str> = frozen.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let folders: Vec<&str> = rust_folders(files).collect();
    let product = files.iter().filter(|file| file.is_rust() && folders.iter().any(|of| file.path.starts_with(of)));
    let numbers: Vec<(&File, Number)> =
        product.flat_map(|file| numbers_of(file).into_iter().map(move |of| (file, of))).collect();
    let mut found = Vec::new();
    for (file, number) in &numbers {
        if !frozen.contains(&number.field.as_str()) && !says_what(number) {
            let what = format!("the number `{}` is on disk; end its name in its unit or `_count`", number.field);
            found.push(Finding::new(&file.path, number.line, what));
        }
    }
    for name in frozen.iter().filter(|name| !numbers.iter().any(|(_, number)| number.field == **name)) {
        found.push(Finding::new(
            "xtask/src/tidy/unitless.txt",
            1,
            format!("`{name}` is gone from the source; take it out"),
        ));
    }
    found
}

/// A number that is written to disk.
#[derive(Debug, PartialEq)]
struct Number {
    field: String,
    line: usize,
    is_whole: bool,
}

/// A count is a whole number with a name in the plural.
fn says_what(number: &Number) -> bool {
    UNITS.split(' ').any(|unit| number.field.ends_with(unit) || number.field == unit[1..])
        || (number.is_whole && number.field.ends_with('s'))
}

/// The numbers in this file's structures that derive `Serialize`.
fn numbers_of(file: &File) -> Vec<Number> {
    let code = file.product_code();
    let mut found = Vec::new();
    let mut serialised = false;
    let mut within = false;
    for (index, line) in code.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("#[derive(") {
            serialised = line.contains("Serialize");
        } else if line.starts_with("#[cfg_attr(") {
            serialised |= line.contains("Serialize");
        } else if line.contains("struct ") {
            within = std::mem::take(&mut serialised);
        } else if line == "}" {
            within = false;
        } else if within && let Some((field, whole)) = number(line) {
            found.push(Number { field: field.to_owned(), line: index + 1, is_whole: whole });
        }
    }
    found
}

/// The name of a field that holds a number, or several, and whether they are whole.
fn number(line: &str) -> Option<(&str, bool)> {
    let (before, kind) = line.strip_suffix(',')?.split_once(": ")?;
    let field = before.rsplit(' ').next()?;
    let inner = kind.trim_start_matches("Option<").trim_start_matches("Vec<").trim_start_matches('[');
    let inner = inner.split(['>', ';', ']']).next()?;
    match inner {
        "f64" | "f32" => Some((field, false)),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => Some((field, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(fields: &str, frozen: &str) -> Vec<String> {
        let text = format!("#[derive(Debug, Serialize)]\n#[serde(default)]\npub struct Block {{\n{fields}\n}}\n");
        check(&[File::new("crates/tlsdyno/src/store/record.rs", &text)], frozen)
            .into_iter()
            .map(|one| one.to_string())
            .collect()
    }

    #[test]
    fn a_number_says_its_unit_or_what_is_counted() {
        assert!(found("    pub wall_ns: u64,\n    pub hits: u64,\n    pub shares_percent: Vec<f64>,", "").is_empty());
        assert!(found("    pub name: String,\n    pub limits: Option<Limits>,", "").is_empty());
        let said =
            found("    /// Steal.\n    pub steal: f64,\n    pub weights: [f64; 3],\n    delay: Option<u32>,", "");
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("crates/tlsdyno/src/store/record.rs:5: the number `steal`"), "{said:?}");
    }

    #[test]
    fn old_names_stay_and_their_list_only_shrinks() {
        assert!(found("    pub steal: f64,", "# Old.\nsteal\n").is_empty());
        let said = found("    pub steal_percent: f64,", "steal\n");
        assert!(said.len() == 1 && said[0].contains("`steal` is gone"), "{said:?}");
    }

    #[test]
    fn what_is_not_written_may_be_named_freely() {
        let text =
            "#[derive(Debug)]\nstruct A {\n    total: f64,\n}\n#[derive(Serialize)]\nstruct B {\n    of: String,\n}\n";
        assert!(check(&[File::new("crates/tlsdyno/src/a.rs", text)], "").is_empty());
    }
}
