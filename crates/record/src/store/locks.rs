//! What a server did with locks, by places in its code.

use serde::{Deserialize, Serialize};

/// What code does with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockOperation {
    /// A locked instruction: no other processor reaches its memory meanwhile.
    Instruction,
    /// A call of a function that takes a lock which readers share.
    Read,
    /// A call of a function that takes such a lock for its caller alone.
    Write,
    /// A call of a function that takes a mutex.
    Mutex,
}

/// How often one function did one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSite {
    /// What it did.
    pub operation: LockOperation,
    /// Name of the file with the code that executes the instruction, or calls.
    pub object: String,
    /// Of a call the nearest function above it that has a name and is no lock of a library itself.
    pub function: String,
    /// Number of times.
    pub count: u64,
}
