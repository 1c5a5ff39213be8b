//! Samples, counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::groups::Group;
use super::stacks::Stacks;

/// What the library of the profiler has between libcrypto and its provider: stages by trampoline.
pub type Trampolines = Vec<Option<&'static str>>;

/// Samples of some threads, as far as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// By group.
    pub groups: BTreeMap<Group, u64>,
    /// Of those outside of stages and kernel, by function: `libssl.so.3 SSL_do_handshake`.
    pub functions: BTreeMap<String, u64>,
    /// By stack.
    pub stacks: Stacks,
    /// Samples that found no room.
    pub lost_count: u64,
}

impl Samples {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.groups.values().sum()
    }

    /// Adds samples that would have been in the kernel, had it been seen.
    pub fn add_unseen_kernel(&mut self, count: u64) {
        *self.groups.entry(Group::unseen_kernel()).or_default() += count;
        self.stacks.count += count;
    }

    /// Adds those of another time.
    pub fn add(&mut self, other: &Samples) {
        for (group, count) in &other.groups {
            *self.groups.entry(group.clone()).or_default() += count;
        }
        for (name, count) in &other.functions {
            *self.functions.entry(name.clone()).or_default() += count;
        }
        self.stacks.add(&other.stacks);
        self.lost_count += other.lost_count;
    }
}
