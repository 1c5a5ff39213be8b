//! `tlsdyno probe`: what users far away feel. A robot connects to sites again and again, after Goldberg, Buff and
//! Schmitt (1998): TCP alone, a full handshake with a GET, a resumed one with a GET.

pub mod buckets;
mod connection;
pub mod entry;
mod fault;
mod kept;
pub mod measure;
pub mod measures;
pub mod nagios;
pub mod robot;
pub mod round;
pub mod schedule;
pub mod simulation;
pub mod site;
pub mod spool;
pub mod store;
pub mod summary;
mod virtual_round;

pub use fault::{Fault, FaultKind};
pub use kept::{AGES_S, Keeping};
pub use measure::measure;
pub use round::{Kept, Resumption, Round};
pub use site::{Site, SiteOptions, SiteSpec};
