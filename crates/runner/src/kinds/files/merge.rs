//! How a file and what it extends become one table. docs/FORMAT.md tells users the rules.

use std::borrow::Cow;
use std::mem;
use std::ops::Range;

use tlsdyno_record::model::RemedyId;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::source::EXTENDS;

/// Arrays whose entries have names, and the key that holds the name. All other arrays are replaced as a whole.
const NAMED: [(&str, &str); 5] = [
    ("configuration", "name"),
    ("share", "name"),
    ("claim", "question"),
    ("comparison", "question"),
    ("remedy", "name"),
];

/// References between entries: the array referred to, the array that refers to it, and the keys.
const MENTIONS: [(&str, &str, &[&str]); 5] = [
    ("share", "claim", &["shares", "above"]),
    ("configuration", "configuration", &["repeat_of"]),
    ("configuration", "share", &["on", "off"]),
    ("configuration", "comparison", &["a", "b"]),
    ("configuration", "remedy", &["configuration", "over"]),
];

/// The tables of a paper's numbers, by the array whose names are their keys.
const NUMBERS: [(&str, &str); 3] =
    [("configuration", "hits_per_s"), ("configuration", "percent_of_plain"), ("share", "shares_percent")];

/// Place in the file, and what cannot be merged there with the remedy.
pub type MergeFault = (Range<usize>, String);

/// Merges `own` over `base`; fails where `own` leaves out or renames what `base` does not have.
pub fn merge<'t>(mut base: DeTable<'t>, mut own: DeTable<'t>) -> Result<DeTable<'t>, MergeFault> {
    own.remove(EXTENDS);
    [&mut base, &mut own].into_iter().for_each(name_remedies);
    if let Some(without) = own.remove("without") {
        leave_all_out(&mut base, without)?;
    }
    if let Some(renamed) = own.remove("rename") {
        rename_all(&mut base, renamed)?;
    }
    overlay(&mut base, own);
    Ok(base)
}

/// Names remedies by their ids where a file has their titles.
fn name_remedies(table: &mut DeTable) {
    let Some(DeValue::Array(entries)) = table.get_mut("remedy").map(Spanned::get_mut) else { return };
    for name in entries.iter_mut().filter_map(|entry| match entry.get_mut() {
        DeValue::Table(entry) => entry.get_mut("name"),
        _ => None,
    }) {
        let id = name.get_ref().as_str().and_then(|text| text.parse::<RemedyId>().ok());
        id.into_iter().for_each(|id| *name.get_mut() = DeValue::String(id.name().into()));
    }
}

/// As [`name_remedies`], for a path, in which more may follow the name.
fn with_id(path: &str) -> Cow<'_, str> {
    let mut ends = [path.len()].into_iter().chain(path.rmatch_indices('.').map(|(dot, _)| dot));
    let id = |end: usize| path[..end].strip_prefix("remedy.")?.parse::<RemedyId>().ok().map(|id| (id, end));
    ends.find_map(id).map_or(path.into(), |(id, end)| format!("remedy.{id}{}", &path[end..]).into())
}

/// Merges key by key; `own` wins.
fn overlay<'t>(base: &mut DeTable<'t>, own: DeTable<'t>) {
    for (key, value) in own {
        match base.get_mut(key.get_ref().as_ref()) {
            None => {
                base.insert(key, value);
            }
            Some(inherited) => {
                let below = mem::replace(inherited.get_mut(), DeValue::Boolean(false));
                let span = value.span();
                *inherited = Spanned::new(span, merged(key.get_ref(), below, value.into_inner()));
            }
        }
    }
}

fn merged<'t>(key: &str, base: DeValue<'t>, own: DeValue<'t>) -> DeValue<'t> {
    match (base, own) {
        (DeValue::Table(mut base), DeValue::Table(own)) if !is_of_another_kind(&base, &own) => {
            overlay(&mut base, own);
            DeValue::Table(base)
        }
        (DeValue::Array(base), DeValue::Array(own)) => match name_key(key) {
            Some(name_key) => DeValue::Array(merged_entries(base, own, name_key)),
            None => DeValue::Array(own),
        },
        (_, own) => own,
    }
}

/// A workload of another kind has other keys: nothing of the inherited one fits.
fn is_of_another_kind(base: &DeTable, own: &DeTable) -> bool {
    let kind = |table: &DeTable| table.get("kind").and_then(|kind| kind.get_ref().as_str().map(str::to_owned));
    kind(own).is_some_and(|own| kind(base).is_some_and(|base| base != own))
}

/// Entries of the same name are merged where the inherited one stands, others appended. A name that `own` has twice
/// stays there twice, so that the experiment's check refuses it.
fn merged_entries<'t>(base: DeArray<'t>, own: DeArray<'t>, name_key: &str) -> DeArray<'t> {
    let mut entries: Vec<Spanned<DeValue>> = base.into_iter().collect();
    let mut free = vec![true; entries.len()];
    for entry in own {
        let name = name_of(&entry, name_key);
        let inherited =
            name.and_then(|name| (0..free.len()).find(|&at| free[at] && is_named(&entries[at], name_key, name)));
        match inherited {
            None => entries.push(entry),
            Some(at) => {
                free[at] = false;
                let below = mem::replace(entries[at].get_mut(), DeValue::Boolean(false));
                let span = entry.span();
                entries[at] = Spanned::new(span, merged("", below, entry.into_inner()));
            }
        }
    }
    entries.into_iter().collect()
}

fn name_key(array: &str) -> Option<&'static str> {
    NAMED.iter().find(|(name, _)| *name == array).map(|(_, key)| *key)
}

fn name_of<'v>(entry: &'v Spanned<DeValue>, name_key: &str) -> Option<&'v str> {
    entry.get_ref().as_table()?.get(name_key)?.get_ref().as_str()
}

fn is_named(entry: &Spanned<DeValue>, name_key: &str, name: &str) -> bool {
    name_of(entry, name_key) == Some(name)
}

/// `without = ["remedy", "configuration.no cipher", "paper.hits_per_s"]`.
fn leave_all_out(base: &mut DeTable, without: Spanned<DeValue>) -> Result<(), MergeFault> {
    let span = without.span();
    let DeValue::Array(paths) = without.into_inner() else {
        let message =
            "`without` takes a list of what is not inherited, for example [\"remedy\", \"configuration.no cipher\"]";
        return Err((span, message.to_owned()));
    };
    for path in paths {
        let span = path.span();
        let fault = |message: String| (span.clone(), message);
        let path = &*with_id(path.get_ref().as_str().ok_or_else(|| fault("`without` takes texts".to_owned()))?);
        for (array, name) in named_at(base, path) {
            forget_numbers(base, &array, &name);
        }
        if !leave_out(base, path) {
            return Err(fault(format!("`without` names `{path}`, which is not in what this file extends")));
        }
    }
    Ok(())
}

/// Entries that are left out by `path`: one, or all of an array.
fn named_at(base: &DeTable, path: &str) -> Vec<(String, String)> {
    let (array, wanted) = path.split_once('.').map_or((path, None), |(array, name)| (array, Some(name)));
    let Some(key) = name_key(array) else { return Vec::new() };
    let entries = base.get(array).and_then(|value| value.get_ref().as_array()).into_iter().flat_map(|all| all.iter());
    let names = entries.filter_map(|entry| name_of(entry, key));
    names.filter(|name| wanted.is_none_or(|wanted| wanted == *name)).map(|name| (array.into(), name.into())).collect()
}

/// Removes the entry at `path`. Keys may contain dots, so that the longest match is taken.
fn leave_out(table: &mut DeTable, path: &str) -> bool {
    if table.remove(path).is_some() {
        return true;
    }
    path.rmatch_indices('.').any(|(dot, _)| {
        let (key, rest) = (&path[..dot], &path[dot + 1..]);
        match table.get_mut(key).map(Spanned::get_mut) {
            Some(DeValue::Table(below)) => leave_out(below, rest),
            Some(DeValue::Array(entries)) => name_key(key).is_some_and(|of| leave_out_entry(entries, of, rest)),
            _ => false,
        }
    })
}

fn leave_out_entry(entries: &mut DeArray, name_key: &str, path: &str) -> bool {
    if entries.iter().any(|entry| is_named(entry, name_key, path)) {
        let all = mem::replace(entries, DeArray::new());
        *entries = all.into_iter().filter(|entry| !is_named(entry, name_key, path)).collect();
        return true;
    }
    path.rmatch_indices('.').any(|(dot, _)| {
        let entry = entries.iter_mut().find(|entry| is_named(entry, name_key, &path[..dot]));
        match entry.map(Spanned::get_mut) {
            Some(DeValue::Table(below)) => leave_out(below, &path[dot + 1..]),
            _ => false,
        }
    })
}

/// Applies `change` to each table of a paper's numbers whose keys are the names of `array`.
fn in_numbers<'t>(base: &mut DeTable<'t>, array: &str, mut change: impl FnMut(&mut DeTable<'t>)) {
    let Some(paper) = table_in(base, "paper") else { return };
    for (_, numbers) in NUMBERS.iter().filter(|(of, _)| *of == array) {
        table_in(paper, numbers).into_iter().for_each(&mut change);
    }
}

fn table_in<'b, 't>(table: &'b mut DeTable<'t>, key: &str) -> Option<&'b mut DeTable<'t>> {
    match table.get_mut(key)?.get_mut() {
        DeValue::Table(below) => Some(below),
        _ => None,
    }
}

fn forget_numbers(base: &mut DeTable, array: &str, name: &str) {
    in_numbers(base, array, |numbers| drop(numbers.remove(name)));
}

/// `[rename]`, for example `"configuration.no RSA" = "no public key"`.
fn rename_all<'t>(base: &mut DeTable<'t>, renamed: Spanned<DeValue<'t>>) -> Result<(), MergeFault> {
    let span = renamed.span();
    let DeValue::Table(names) = renamed.into_inner() else {
        let message = "`rename` is a table, for example \"configuration.no cipher\" = \"plain text\"";
        return Err((span, message.to_owned()));
    };
    for (path, new) in names {
        let fault = |message: String| (path.span(), message);
        let path = with_id(path.get_ref());
        let DeValue::String(_) = new.get_ref() else {
            return Err(fault("`rename` takes texts".to_owned()));
        };
        let Some((array, old)) = path.split_once('.').filter(|(array, _)| name_key(array).is_some()) else {
            return Err(fault(format!(
                "`rename` names `{path}`; only entries have names to change, for example `configuration.no cipher`"
            )));
        };
        if !rename(base, array, old, &new) {
            return Err(fault(format!("`rename` names `{path}`, which is not in what this file extends")));
        }
    }
    Ok(())
}

/// Renames an entry of `array`, and every reference to it.
fn rename<'t>(base: &mut DeTable<'t>, array: &str, old: &str, new: &Spanned<DeValue<'t>>) -> bool {
    let Some(key) = name_key(array) else { return false };
    let found = replace_in(base, array, &[key], old, new);
    for (_, mentioning, keys) in MENTIONS.iter().filter(|(mentioned, ..)| *mentioned == array) {
        replace_in(base, mentioning, keys, old, new);
    }
    if let DeValue::String(name) = new.get_ref() {
        in_numbers(base, array, |numbers| {
            if let Some(row) = numbers.remove(old) {
                numbers.insert(Spanned::new(new.span(), name.clone()), row);
            }
        });
    }
    found
}

/// Replaces `old` under `keys` of each entry of `array`. Returns whether there was one.
fn replace_in<'t>(base: &mut DeTable<'t>, array: &str, keys: &[&str], old: &str, new: &Spanned<DeValue<'t>>) -> bool {
    let Some(DeValue::Array(entries)) = base.get_mut(array).map(Spanned::get_mut) else { return false };
    let mut found = false;
    for entry in entries.iter_mut() {
        let DeValue::Table(entry) = entry.get_mut() else { continue };
        for key in keys {
            let Some(value) = entry.get_mut(*key) else { continue };
            let texts = match value.get_mut() {
                DeValue::Array(texts) => texts.iter_mut().collect(),
                _ => vec![value],
            };
            for text in texts.into_iter().filter(|text| text.get_ref().as_str() == Some(old)) {
                *text = new.clone();
                found = true;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use toml::de::Deserializer;
    use toml::{Table, Value};

    use super::*;

    fn merged_texts(base: &str, own: &str) -> Table {
        let [base, own] = [base, own].map(|text| DeTable::parse(text).unwrap().into_inner());
        plain(merge(base, own).unwrap())
    }

    fn plain(table: DeTable) -> Table {
        Table::deserialize(Deserializer::from(Spanned::new(0..0, table))).unwrap()
    }

    fn merged_tables(base: &Table, own: &Table) -> Table {
        merged_texts(&toml::to_string(base).unwrap(), &toml::to_string(own).unwrap())
    }

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    /// Files that name remedies by their titles keep working.
    #[test]
    fn a_remedy_is_found_by_a_title_that_it_had() {
        let base = "remedy = [{ name = \"early-data\", over = \"a\" }, { name = \"TLS 1.3\" }, { name = \"mine\" }]";
        let own = "[[remedy]]\nname = \"early data\"\nbound = true";
        let wanted = "remedy = [{ name = \"early-data\", over = \"a\", bound = true }, { name = \"tls-1.3\" }, \
                      { name = \"mine\" }]";
        assert_eq!(merged_texts(base, own), table(wanted));
        let own = "without = [\"remedy.early data.over\", \"remedy.TLS 1.3\", \"remedy.mine\"]";
        assert_eq!(merged_texts(base, own), table("remedy = [{ name = \"early-data\" }]"));
    }

    const BASE: &str = r#"
question = "q"
share = [{ name = "RSA", on = "as is", off = "no RSA" }, { name = "rest", on = "no RSA" }]
comparison = [{ question = "1.5 times?", a = "as is", b = "no RSA" }]
remedy = [{ name = "RSA", configuration = "no RSA", over = "as is" }]
[workload]
kind = "ecommerce"
users = 5
[[configuration]]
name = "as is"
[[configuration]]
name = "no RSA"
noop = ["authentication"]
tls = { tickets = false, version = "1.2" }
[paper.hits_per_s]
"as is" = [1]
"no RSA" = [2]
[paper.shares_percent]
"RSA" = [3]
"#;

    fn changed(own: &str) -> Table {
        merged_texts(BASE, own)
    }

    #[test]
    fn entries_of_one_name_are_merged_in_place_and_others_appended() {
        let own = "configuration = [{ name = \"new\" }, { name = \"no RSA\", tls = { tickets = true } }]";
        let expected = table(
            "configuration = [{ name = \"as is\" }, \
             { name = \"no RSA\", noop = [\"authentication\"], tls = { tickets = true, version = \"1.2\" } }, \
             { name = \"new\" }]",
        );
        assert_eq!(changed(own)["configuration"], expected["configuration"]);
        let own = "[[comparison]]\nquestion = \"1.5 times?\"\npaper = \"yes\"";
        assert_eq!(changed(own)["comparison"][0]["a"].as_str(), Some("as is"));
    }

    #[test]
    fn a_name_given_twice_stays_twice_for_the_check_to_refuse() {
        let own = "configuration = [{ name = \"no RSA\" }, { name = \"no RSA\" }]";
        assert_eq!(changed(own)["configuration"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_workload_of_another_kind_inherits_nothing() {
        assert_eq!(changed("workload = { kind = \"cdnow\" }")["workload"], Value::Table(table("kind = \"cdnow\"")));
        let same = changed("workload = { users = 6 }");
        assert_eq!(same["workload"], Value::Table(table("kind = \"ecommerce\"\nusers = 6")));
    }

    #[test]
    fn a_configuration_that_is_left_out_takes_its_numbers_along() {
        let left = changed("without = [\"configuration.no RSA\", \"share\", \"remedy.RSA\"]");
        assert_eq!(left["configuration"].as_array().unwrap().len(), 1);
        assert!(left.get("share").is_none() && left["remedy"].as_array().unwrap().is_empty());
        assert_eq!(left["paper"], Value::Table(table("hits_per_s = { \"as is\" = [1] }\nshares_percent = {}")));
    }

    #[test]
    fn names_with_dots_can_be_left_out_and_so_can_keys_of_entries() {
        assert!(changed("without = [\"comparison.1.5 times?\"]")["comparison"].as_array().unwrap().is_empty());
        let left =
            changed("without = [\"configuration.no RSA.tls.tickets\", \"workload.users\", \"paper.hits_per_s\"]");
        assert_eq!(left["configuration"][1]["tls"], Value::Table(table("version = \"1.2\"")));
        assert_eq!(left["workload"], Value::Table(table("kind = \"ecommerce\"")));
        assert!(left["paper"].get("hits_per_s").is_none());
    }

    #[test]
    fn another_name_holds_wherever_the_old_one_stood() {
        let renamed = changed("rename = { \"configuration.no RSA\" = \"no key\", \"share.RSA\" = \"key\" }");
        let expected = BASE.replace("\"no RSA\"", "\"no key\"").replace("{ name = \"RSA\", on", "{ name = \"key\", on");
        let expected = expected.replace("\"RSA\" = [3]", "\"key\" = [3]");
        assert_eq!(renamed, table(&expected), "the remedy of the same name as the share keeps it");
    }

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<bool>().prop_map(Value::Boolean),
            any::<i64>().prop_map(Value::Integer),
            "[a-z ]{0,4}".prop_map(Value::String),
            prop::collection::vec(0..9_i64, 0..3).prop_map(Value::from),
        ]
    }

    /// Entries with unique names, as checked experiments have them.
    fn entries() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[abc]", prop::collection::btree_map("[xyz]", scalar(), 0..3), 0..3).prop_map(
            |entries| {
                let entry = |(name, keys): (String, std::collections::BTreeMap<String, Value>)| {
                    let mut entry: Table = keys.into_iter().collect();
                    entry.insert("name".to_owned(), Value::String(name));
                    Value::Table(entry)
                };
                Value::Array(entries.into_iter().map(entry).collect())
            },
        )
    }

    fn tables() -> impl Strategy<Value = Table> {
        let below = prop::collection::btree_map("[efgh]", scalar(), 0..3);
        let below = below.prop_map(|below| Value::Table(below.into_iter().collect()));
        let scalars = prop::collection::btree_map("[abc]", scalar(), 0..3);
        let tables = prop::collection::btree_map("table[12]", below, 0..3);
        let named = prop::option::of(entries());
        (scalars, tables, named).prop_map(|(scalars, tables, named)| {
            let named = named.map(|named| ("configuration".to_owned(), named));
            scalars.into_iter().chain(tables).chain(named).collect()
        })
    }

    /// Every value of `own` is in `table`; entries are found by their names.
    fn holds(table: &Value, own: &Value) -> bool {
        match (table, own) {
            (Value::Table(table), Value::Table(own)) => {
                own.iter().all(|(key, value)| table.get(key).is_some_and(|found| holds(found, value)))
            }
            (Value::Array(entries), Value::Array(own)) if own.iter().any(Value::is_table) => own
                .iter()
                .all(|entry| entries.iter().any(|found| found["name"] == entry["name"] && holds(found, entry))),
            // An array of entries that adds none leaves those that are there.
            (Value::Array(_), Value::Array(own)) if own.is_empty() => true,
            _ => table == own,
        }
    }

    proptest! {
        #[test]
        fn merging_nothing_changes_nothing(base in tables()) {
            prop_assert_eq!(&merged_tables(&base, &Table::new()), &base);
            prop_assert_eq!(&merged_tables(&Table::new(), &base), &base);
            prop_assert_eq!(&merged_tables(&base, &base), &base);
        }

        #[test]
        fn a_files_own_values_win(base in tables(), own in tables()) {
            let merged = Value::Table(merged_tables(&base, &own));
            prop_assert!(holds(&merged, &Value::Table(own)), "{merged:?}");
        }

        #[test]
        fn what_a_file_does_not_name_is_inherited(base in tables(), own in tables()) {
            let merged = merged_tables(&base, &own);
            for (key, value) in base.iter().filter(|(key, _)| !own.contains_key(*key)) {
                prop_assert_eq!(&merged[key], value);
            }
            prop_assert!(merged.keys().all(|key| base.contains_key(key) || own.contains_key(key)));
        }

        #[test]
        fn a_chain_means_the_same_wherever_it_is_cut(a in tables(), b in tables(), c in tables()) {
            prop_assert_eq!(merged_tables(&merged_tables(&a, &b), &c), merged_tables(&a, &merged_tables(&b, &c)));
        }
    }
}
