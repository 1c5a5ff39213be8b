//! Stacks that begin alike, as a tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The samples in a function as it was called from those above it, and below it what it called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stacks {
    /// Samples, those of the functions below included.
    pub count: u64,
    /// The functions that it called.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub callees: BTreeMap<String, Stacks>,
}

impl Stacks {
    /// Adds a sample: the outermost function first.
    pub fn add_stack(&mut self, names: &[String]) {
        self.count += 1;
        if let Some((first, rest)) = names.split_first() {
            self.callees.entry(first.clone()).or_default().add_stack(rest);
        }
    }

    /// Adds the samples of another time.
    pub fn add(&mut self, other: &Stacks) {
        self.count += other.count;
        for (name, below) in &other.callees {
            self.callees.entry(name.clone()).or_default().add(below);
        }
    }

    /// The stacks without functions that have fewer samples: their callers have them.
    #[must_use]
    pub fn pruned(self, least: u64) -> Stacks {
        let kept = self.callees.into_iter().filter(|(_, below)| below.count >= least);
        Stacks { count: self.count, callees: kept.map(|(name, below)| (name, below.pruned(least))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_that_begin_alike_share_their_beginning() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let mut stacks = Stacks::default();
        stacks.add_stack(&of(&["main", "read"]));
        stacks.add_stack(&of(&["main", "write", "kernel"]));
        stacks.add_stack(&of(&["main"]));
        let text = [
            r#"{"count":3,"callees":{"main":{"count":3,"callees":{"read":{"count":1},"#,
            r#""write":{"count":1,"callees":{"kernel":{"count":1}}}}}}}"#,
        ];
        assert_eq!(serde_json::to_string(&stacks).unwrap(), text.concat());
        let mut twice = stacks.clone();
        twice.add(&stacks);
        assert_eq!((twice.count, twice.callees["main"].callees["read"].count), (6, 2));
        assert!(twice.pruned(3).callees["main"].callees.is_empty());
    }
}
