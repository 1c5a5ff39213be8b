//! What the record of an array experiment holds beside its blocks.

use serde::{Deserialize, Serialize};

use crate::array::file::ArrayExperiment;

/// The array experiment of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayRecord {
    /// The experiment.
    pub experiment: ArrayExperiment,
    /// What pages cost in it.
    pub scale: PageScale,
}

/// What a page costs beside a full handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageScale {
    /// What a page takes of the transaction server, nanoseconds.
    pub transaction_ns: u64,
    /// CPU time of a machine that ends TLS for a connection with a full handshake and one page, by which pages were
    /// scaled, nanoseconds; 0: they were not.
    pub full_handshake_cpu_ns: u64,
}
