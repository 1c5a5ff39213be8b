//! Names of servers that clients ask for.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most names that are kept: a client may make up any.
const MOST: usize = 1024;

/// Hellos by the server that they ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    hellos: BTreeMap<String, u64>,
    /// Hellos with other names, which were rare.
    pub other_hellos: u64,
}

impl Names {
    /// No hello was counted.
    pub fn is_empty(&self) -> bool {
        self.hellos.is_empty()
    }

    /// Names in small letters with their hellos, the most frequent first; an empty one is of hellos without a name.
    pub fn most_frequent(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<(&str, u64)> = self.hellos.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        all.sort_by_key(|(_, count)| Reverse(*count));
        all
    }

    pub(crate) fn add(&mut self, other: &Names) {
        self.other_hellos += other.other_hellos;
        other.hellos.iter().for_each(|(name, count)| self.count(name, *count));
    }

    /// Where there is no room, the rarer half goes.
    pub(crate) fn count(&mut self, name: &str, count: u64) {
        if self.hellos.len() >= MOST && !self.hellos.contains_key(name) {
            let median = self.most_frequent()[MOST / 2].1;
            self.other_hellos += self.hellos.values().filter(|count| **count <= median).sum::<u64>();
            self.hellos.retain(|_, count| *count > median);
        }
        *self.hellos.entry(name.to_owned()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_names_stay_whatever_else_comes() {
        let mut names = Names::default();
        for number in 0..100_000_u64 {
            names.count(&format!("random-{number}.example"), 1);
            names.count(["often.example", "oftener.example", "oftener.example"][number as usize % 3], 1);
        }
        let all = names.most_frequent();
        assert_eq!(all[..2], [("oftener.example", 66_666), ("often.example", 33_334)]);
        assert!(all.len() <= MOST && all[2..].iter().all(|(_, count)| *count == 1));
        assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>() + names.other_hellos, 200_000);
        let mut twice = names.clone();
        twice.add(&names);
        assert_eq!(twice.most_frequent()[0], ("oftener.example", 133_332));
    }
}
