//! Throughput over the percentage of reuse (Mraz et al. 2002): `tlsdyno reuse`.

pub mod command;
pub mod file;
pub mod log;
pub mod page;
pub mod subject;
pub mod summary;
