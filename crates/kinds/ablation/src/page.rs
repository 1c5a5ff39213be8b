//! An experiment with one server as a page.

mod accelerators;
pub mod answer;
mod between_runs;
pub mod charts;
pub mod compared;
mod document;
mod findings;
mod libraries;
mod machines;
mod methods;
pub mod published;
pub mod remedies;
pub mod text;
mod traffic;

pub use document::{document, so_far};
