//! Samples of where threads spent their CPU time, counted by what they were doing: in a stage, in the kernel for a
//! system call, in one of the libraries outside of stages, or in the server's own code.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tlsdyno_tls::{named, serde_by_name};

use super::stacks::Stacks;

/// CPU time between two samples of a thread, nanoseconds: no divisor of what servers do in rhythm.
pub const PERIOD_NS: u64 = 97_000;
/// What was called in libssl, where no function of the stack has a name.
pub const NO_ENTRANCE: &str = "functions without a name";
/// The kernel's time where it is not sampled.
const UNSEEN_KERNEL: &str = "not seen, by what is missing";

named! {
    /// Where a sample was, in the order of reports.
    pub enum Area: "area" {
        /// Within a call into the provider: a stage.
        Stages = "stages",
        /// In the kernel, by what it was asked for.
        Kernel = "kernel",
        /// In libcrypto, outside of stages.
        Libcrypto = "libcrypto",
        /// In libssl.
        Libssl = "libssl",
        /// In the C library: allocation, copying.
        Memory = "C library",
        /// In the program itself and its other libraries.
        Server = "server",
        /// In the profiler's own library.
        Instrument = "instrument",
        /// Nobody knows.
        Unknown = "unknown",
    }
}

/// An area, and a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Area in which the server was seen.
    pub area: Area,
    /// Name of the part.
    pub part: String,
}

impl Group {
    /// A part of an area.
    pub fn of(area: Area, part: impl Into<String>) -> Group {
        Group { area, part: part.into() }
    }

    /// Whether its name says what was done, not only that nothing is known.
    pub fn is_named(&self) -> bool {
        let vague = ["other", "other system calls", NO_ENTRANCE, UNSEEN_KERNEL];
        self.area != Area::Unknown && !vague.contains(&self.part.as_str())
    }

    /// The kernel, where only time outside of it is sampled.
    pub fn unseen_kernel() -> Group {
        Group::of(Area::Kernel, UNSEEN_KERNEL)
    }
}

impl FromStr for Group {
    type Err = String;

    /// From a record: `libssl/SSL_read`.
    fn from_str(text: &str) -> Result<Group, String> {
        let found = text.split_once('/').and_then(|(area, part)| Some(Group::of(area.parse().ok()?, part)));
        found.ok_or_else(|| format!("`{text}` is no group of samples"))
    }
}

serde_by_name!(Group);

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.area.name(), self.part)
    }
}

/// Samples of some threads, as far as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Samples by group.
    pub groups: BTreeMap<Group, u64>,
    /// Samples outside of stages and kernel, by function: `libssl.so.3 SSL_do_handshake`.
    pub functions: BTreeMap<String, u64>,
    /// Samples by stack.
    pub stacks: Stacks,
    /// Samples that found no room in the ring.
    pub lost_count: u64,
}

impl Samples {
    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.groups.values().sum()
    }

    /// Adds samples that would have been in the kernel, had it been seen.
    pub fn add_unseen_kernel(&mut self, count: u64) {
        *self.groups.entry(Group::unseen_kernel()).or_default() += count;
        self.stacks.count += count;
    }

    /// Adds the samples of another time.
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
