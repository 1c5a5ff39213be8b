//! The cost of fixed work of ours at a moment of a run.

use serde::{Deserialize, Serialize};
use tlsdyno_tls::named;

named! {
    /// A kind of fixed work. Records hold their costs by position: add new ones behind.
    pub enum FixedWork: "work" {
        /// A signature by RSA-2048, as our client's library makes it.
        Rsa2048 = "RSA-2048 signature",
        /// A signature by P-256.
        P256 = "P-256 signature",
        /// An agreement by X25519.
        X25519 = "X25519",
        /// Integer multiplications and exclusive ors, four chains of one each.
        Multiplication = "four multiplications",
        /// A load from memory that no cache holds.
        Memory = "load from memory",
        /// One byte through the kernel's loopback and back.
        Loopback = "loopback round trip",
    }
}

/// CPU time of each kind of fixed work, picoseconds, in the order of [`FixedWork::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference(pub [u64; FixedWork::ALL.len()]);

impl Reference {
    /// CPU time of one operation, picoseconds.
    pub fn ps(&self, of: FixedWork) -> u64 {
        self.0[of as usize]
    }
}
