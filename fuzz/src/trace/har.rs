//! What the fuzz target of a browser's recordings runs; in `crates/workloads/src/` the tests do it with the inputs
//! that are kept.

use super::document;

/// Any bytes are a recording or a fault; pages and batches hold every exchange, and none is empty.
pub fn har(bytes: &[u8]) {
    let Ok(found) = document::parse(bytes) else { return };
    for page in &found.pages {
        assert!(!page.is_empty() && page.iter().all(|batch| !batch.is_empty()));
        assert_eq!(page[0].len(), 1, "the document comes alone");
    }
    for exchange in found.pages.iter().flatten().flatten() {
        assert!(exchange.target.starts_with('/') && (100..600).contains(&exchange.status));
        assert!(exchange.ended_ms >= exchange.began_ms);
    }
}
