//! Targets of proxies that stand in variables: `set $backend http://127.0.0.1:8080; proxy_pass $backend;`. Those that
//! are servers of the same configuration become names of groups, which nginx looks up while it runs.

use std::collections::BTreeMap;

use super::reader::{Block, Directive, all, change_all};
use super::targets::all_targets;
use super::text::{value, word_of};

fn are_used(http: &[Directive]) -> bool {
    all_targets(http).any(|target| target.contains('$'))
}

/// The values that variables of `http` can have, where a proxy's target is in one.
pub(super) fn all_values(http: &[Directive]) -> Vec<String> {
    let values = |directive: &Directive| match (directive.name.as_str(), &directive.block) {
        ("set", _) => directive.values().nth(1).into_iter().collect(),
        ("map", Some(Block::Data(lines))) => lines.iter().filter_map(Directive::first).collect(),
        _ => Vec::new(),
    };
    if are_used(http) { all(http).flat_map(values).collect() } else { Vec::new() }
}

/// Whether a target with variables leads to nothing but groups of the copy.
pub(super) fn leads_to_groups(http: &[Directive], target: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = |rest: &str| rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
    let mut names = target.split('$').skip(1).map(|rest| &rest[..end(rest)]);
    let is_group = |value: &String| value.rsplit("://").next().is_some_and(|place| place.starts_with(GROUP));
    names.any(|name| {
        let is_named = |word: Option<String>| word.is_some_and(|word| word.strip_prefix('$') == Some(name));
        let values = |directive: &Directive| match (directive.name.as_str(), &directive.block) {
            ("set", _) if is_named(directive.first()) => directive.values().nth(1).into_iter().collect(),
            ("map", Some(Block::Data(lines))) if is_named(directive.values().nth(1)) => {
                lines.iter().filter_map(Directive::first).collect()
            }
            _ => Vec::new(),
        };
        let values: Vec<String> = all(http).flat_map(values).collect();
        !values.is_empty() && values.iter().all(is_group)
    })
}

/// What names of the copy's groups begin with.
pub(super) const GROUP: &str = "tlsdyno-";

pub(super) struct InGroup {
    /// The value with the group's name in place of an address.
    pub(super) value: String,
    pub(super) group: String,
    pub(super) address: String,
}

/// Puts what `in_group` makes of such values in their place, and adds the groups.
pub(super) fn adapt(http: &mut Vec<Directive>, in_group: &mut dyn FnMut(&str) -> Option<InGroup>) {
    if !are_used(http) {
        return;
    }
    let mut groups = BTreeMap::new();
    let mut adapt_word = |word: &mut String| {
        if let Some(InGroup { value, group, address }) = in_group(&value(word)) {
            *word = word_of(&value);
            groups.insert(group, address);
        }
    };
    change_all(http, &mut |directive| match (directive.name.as_str(), &mut directive.block) {
        ("set", _) => directive.arguments.get_mut(1).into_iter().for_each(&mut adapt_word),
        ("map", Some(Block::Data(lines))) => {
            lines.iter_mut().filter_map(|line| line.arguments.first_mut()).for_each(&mut adapt_word);
        }
        _ => {}
    });
    http.extend(groups.into_iter().map(|(group, address)| {
        let server = Directive::new("server", [word_of(&address)]);
        Directive { block: Some(Block::Directives(vec![server])), ..Directive::new("upstream", [group]) }
    }));
}
