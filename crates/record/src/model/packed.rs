//! A plan of the engine as it is written, for the load process and for workers on other machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tlsdyno_engine::load::Plan;
use tlsdyno_tls::Settings;

/// A plan whose large parts are data that are named by their hash. It names no file of the machine that made it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedPlan {
    /// The plan without workload, body and TLS settings.
    pub plan: Plan,
    /// Client-side TLS, without the trusted roots and the client's certificate; `None` is plain HTTP. The time at which
    /// certificates must be valid is that of the machine that made it, so that all judge alike.
    pub tls: Option<Settings>,
    /// Hash of the trusted roots, if there are any.
    pub roots: Option<String>,
    /// Hash of the content of request bodies.
    pub body: Option<String>,
    /// Hash of the workload.
    pub workload: String,
}

impl PackedPlan {
    /// Hashes of the data that the plan names.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        self.roots.iter().chain(&self.body).chain([&self.workload])
    }
}

/// Data by their hash.
pub type Data = BTreeMap<String, Arc<[u8]>>;
