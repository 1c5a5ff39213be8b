//! Percent reuse that a log would give, by session lifetime.

use serde::{Deserialize, Serialize};

/// Percent reuse (1 − full handshakes / hits) by session lifetime and limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reuse {
    /// Most requests of a session, for each column; `None`: no limit.
    pub limits: Vec<Option<u32>>,
    /// One row for each lifetime, ascending.
    pub rows: Vec<Row>,
}

/// Percent reuse at one session lifetime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Lifetime of a session, seconds.
    pub lifetime_s: u32,
    /// Reuse where the lifetime counts from the full handshake, for each limit, per cent of hits.
    pub percent_by_limit: Vec<f64>,
    /// Reuse where the lifetime counts from the user's last request (TLS 1.3 tickets), without limit, per cent of hits.
    pub percent_renewed: f64,
}
