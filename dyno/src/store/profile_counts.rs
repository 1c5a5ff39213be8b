//! What the profiler counts in a server: calls and their times by class of functions.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub};

use serde::{Deserialize, Serialize};
use tlsdyno_tls::Stage;

/// The classes of functions in their order within a slot: stage, name, whether its calls are short.
pub const CLASSES: [(Stage, &str, bool); 22] = [
    (Stage::Authentication, "sign", false),
    (Stage::Authentication, "verify", false),
    (Stage::Authentication, "rsa_decrypt", false),
    (Stage::Authentication, "sign_around", false),
    (Stage::KeyAgreement, "key_generate", false),
    (Stage::KeyAgreement, "key_derive", false),
    (Stage::KeyAgreement, "key_validate", false),
    (Stage::KeyAgreement, "key_decode", false),
    (Stage::KeyAgreement, "encapsulate", false),
    (Stage::KeyAgreement, "decapsulate", false),
    (Stage::KeyAgreement, "key_around", true),
    (Stage::Cipher, "cipher", false),
    (Stage::Cipher, "cipher_key", false),
    (Stage::Cipher, "cipher_around", true),
    (Stage::Mac, "record_hmac", false),
    (Stage::Mac, "record_hmac_around", true),
    (Stage::Digest, "digest", true),
    (Stage::Digest, "digest_around", true),
    (Stage::Kdf, "derive", false),
    (Stage::Kdf, "hmac", false),
    (Stage::Kdf, "kdf_around", true),
    (Stage::Randomness, "generate", false),
];

/// What calls are timed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// CPU time of the calling thread: exact whatever else runs, and dear to read.
    Thread,
    /// The processor's own counter, which runs at one rate: what interrupts a call is in its time.
    Counter,
}

impl Clock {
    /// What it is, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Thread => "CPU clock of the thread",
            Clock::Counter => "invariant counter of the processor",
        }
    }
}

/// What was done in one class of functions. On disk an array of its fields in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct ClassCount {
    /// Calls.
    pub calls: u64,
    /// Calls of them that were timed.
    pub timed_count: u64,
    /// Nanoseconds of those, without reading the clock.
    pub ns: u64,
    /// Bytes that all of them worked on, where the function has a length.
    pub bytes: u64,
}

impl ClassCount {
    /// Nanoseconds of all calls, where some stand for the others.
    pub fn all_ns(&self) -> f64 {
        self.ns as f64 * self.calls as f64 / self.timed_count.max(1) as f64
    }
}

impl From<ClassCount> for [u64; 4] {
    fn from(ClassCount { calls, timed_count: timed, ns, bytes }: ClassCount) -> [u64; 4] {
        [calls, timed, ns, bytes]
    }
}

impl From<[u64; 4]> for ClassCount {
    fn from([calls, timed, ns, bytes]: [u64; 4]) -> ClassCount {
        ClassCount { calls, timed_count: timed, ns, bytes }
    }
}

/// What was done in each class of functions. Subtract two snapshots to get what happened between them. On disk an
/// object with the classes that have calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, ClassCount>", into = "BTreeMap<String, ClassCount>")]
pub struct ProfileCounts(pub [ClassCount; CLASSES.len()]);

impl ProfileCounts {
    /// Every class with its stage and name.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, &'static str, &ClassCount)> {
        CLASSES.iter().zip(&self.0).map(|(&(stage, name, _), count)| (stage, name, count))
    }

    /// Nanoseconds of a stage.
    pub fn ns_of(&self, stage: Stage) -> f64 {
        self.iter().filter(|(of, ..)| *of == stage).map(|(.., count)| count.all_ns()).sum()
    }

    /// Calls of all classes, and how many of them were timed.
    pub fn calls(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(calls, timed), count| (calls + count.calls, timed + count.timed_count))
    }
}

impl Sub<&ProfileCounts> for ProfileCounts {
    type Output = ProfileCounts;

    /// What happened after `earlier`. Counts only grow, so this is never negative for snapshots in order.
    fn sub(mut self, earlier: &ProfileCounts) -> ProfileCounts {
        for (count, before) in self.0.iter_mut().zip(&earlier.0) {
            *count = ClassCount {
                calls: count.calls.saturating_sub(before.calls),
                timed_count: count.timed_count.saturating_sub(before.timed_count),
                ns: count.ns.saturating_sub(before.ns),
                bytes: count.bytes.saturating_sub(before.bytes),
            };
        }
        self
    }
}

impl AddAssign<&ProfileCounts> for ProfileCounts {
    fn add_assign(&mut self, other: &ProfileCounts) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            count.calls += more.calls;
            count.timed_count += more.timed_count;
            count.ns += more.ns;
            count.bytes += more.bytes;
        }
    }
}

impl From<ProfileCounts> for BTreeMap<String, ClassCount> {
    fn from(counts: ProfileCounts) -> BTreeMap<String, ClassCount> {
        let called = counts.iter().filter(|(.., count)| count.calls > 0);
        called.map(|(_, name, count)| (name.to_owned(), *count)).collect()
    }
}

impl From<BTreeMap<String, ClassCount>> for ProfileCounts {
    fn from(named: BTreeMap<String, ClassCount>) -> ProfileCounts {
        let count = |&(_, name, _): &(Stage, &str, bool)| named.get(name).copied().unwrap_or_default();
        ProfileCounts(std::array::from_fn(|index| count(&CLASSES[index])))
    }
}
