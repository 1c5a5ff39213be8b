//! What an experiment says, as data: what TOML files hold and what flags build (`--print-experiment` shows it), and the
//! job that the load process gets, or workers on other machines. It knows no other folder; what contradicts itself, or
//! what a server cannot do, is refused later (`run/check.rs`).
//!
//! Every table refuses unknown keys, so that a typing error never silently measures something else.

mod certificate;
mod change_limit;
mod configuration;
mod experiment;
mod foreign_traffic;
pub mod job;
mod library;
mod load;
mod machine;
mod method;
mod network;
pub mod packed;
mod paper;
mod policy;
mod question;
mod questions;
pub mod remedy;
mod secrets;
mod sentences;
mod server;
mod sessions;
pub mod tls;
pub mod worker;
mod workers;
pub mod workload;

pub use certificate::CertificateKind;
pub use change_limit::{ChangeLimit, ComparedQuantity};
pub use configuration::{Accelerator, Batch, Card, ConfigurationModel, Processors};
pub use experiment::Experiment;
pub use foreign_traffic::ForeignTraffic;
pub use library::name_on_second;
pub use load::{Load, Measure};
pub use machine::{Machine, speed_beside};
pub use method::{COUNTED_CODE, Method};
pub use network::{Line, Network};
pub use paper::{Paper, PublishedNumber, Quantity};
pub use policy::Policy;
pub use question::Question;
pub use questions::{ComparisonModel, RemedyModel, ShareClaimModel, ShareModel};
pub use remedy::RemedyId;
pub use secrets::{without_secrets, without_value};
pub use server::{ClientModel, Server, ServerName};
pub use sessions::{SessionCache, TicketKeys};
pub use tls::{Tls, TlsChange};
pub use workers::{Engine, Listen, OnLoss, WorkersModel, place_of_load};

/// Whether a value is what it is where nothing is said: files and records leave it out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
