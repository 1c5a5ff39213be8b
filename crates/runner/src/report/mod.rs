//! Showing what was measured: each kind of record becomes a [`document::Document`], which is rendered for the terminal
//! or as one self-contained page; JSON and CSV are made of the record itself.

pub mod cells;
pub mod charts;
pub mod circumstances;
mod method;
pub mod published;
pub mod render;
pub mod scoreboard;
pub mod text;
pub mod workload;

pub mod document {
    pub use super::method::{Method, Rounds};
    pub use tlsdyno_report::document::*;
}

pub use render::terminal::Style;
pub use render::{csv, html, json, terminal};
