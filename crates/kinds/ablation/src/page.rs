//! An experiment with one server as a page.

mod accelerators;
pub mod answer;
mod between_runs;
mod document;
mod findings;
mod libraries;
mod machines;
mod methods;
pub mod remedies;
mod traffic;

pub use document::{document, so_far};
