//! Targets of proxies that stand in variables: `set $backend http://127.0.0.1:8080; proxy_pass $backend;`. Those that
//! are servers of the same configuration become names of groups, which nginx looks up while it runs.

use std::collections::BTreeMap;

use super::reader::{Block, Directive};
use super::targets::any_target;
use super::text::{value, word_of};

/// The values that variables of `http` can have, where a proxy's target is in one.
pub(super) fn all(http: &[Directive]) -> Vec<String> {
    let mut values = Vec::new();
    if any_target(http, &|target| target.contains('$')) {
        gather(http, &mut values);
    }
    values
}

fn gather(directives: &[Directive], values: &mut Vec<String>) {
    for directive in directives {
        match directive.name.as_str() {
            "set" => values.extend(directive.values().nth(1)),
            "map" => values.extend(directive.inner().iter().filter_map(Directive::first)),
            _ => gather(directive.inner(), values),
        }
    }
}

/// A value that leads to a group.
pub(super) struct InGroup {
    /// The value with the group's name in place of an address.
    pub(super) value: String,
    /// The group's name.
    pub(super) group: String,
    /// Where its server is.
    pub(super) address: String,
}

/// Puts what `in_group` makes of such values in their place, and adds the groups.
pub(super) fn adapt(http: &mut Vec<Directive>, in_group: &dyn Fn(&str) -> Option<InGroup>) {
    if !any_target(http, &|target| target.contains('$')) {
        return;
    }
    let mut groups = BTreeMap::new();
    replace(http, &mut |word| {
        if let Some(InGroup { value, group, address }) = in_group(&value(word)) {
            *word = word_of(&value);
            groups.insert(group, address);
        }
    });
    http.extend(groups.into_iter().map(|(group, address)| {
        let server = Directive::of("server", vec![word_of(&address)]);
        Directive { block: Some(Block::Directives(vec![server])), ..Directive::of("upstream", vec![group]) }
    }));
}

fn replace(directives: &mut [Directive], change: &mut dyn FnMut(&mut String)) {
    for directive in directives {
        let Directive { name, arguments, block } = directive;
        match (name.as_str(), block) {
            ("set", _) => arguments.get_mut(1).into_iter().for_each(&mut *change),
            ("map", Some(Block::Directives(lines))) => {
                lines.iter_mut().filter_map(|line| line.arguments.first_mut()).for_each(&mut *change);
            }
            (_, Some(Block::Directives(inner))) => replace(inner, change),
            _ => {}
        }
    }
}
