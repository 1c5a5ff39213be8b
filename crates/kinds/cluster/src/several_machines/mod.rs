//! What experiments with several machines have in common: servers behind dispatchers (`cluster`), and proxies before a
//! server (`array`).

pub mod block;
pub mod placement;
pub mod testbed;
