//! `tlsdyno probe`: what users far away feel. A robot connects to sites again and again, after Goldberg, Buff and
//! Schmitt (1998): TCP alone, a full handshake with a GET, a resumed one with a GET.

mod connection;
mod fault;
pub mod measure;
pub mod nagios;
pub mod round;
pub mod site;

pub use fault::FaultKind;
pub use measure::measure;
pub use round::{Resumption, Round};
pub use site::{Site, SiteOptions};
