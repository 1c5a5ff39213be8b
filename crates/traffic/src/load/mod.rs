//! The load process: from a URL or a job file to plans of the engine, and from their outcomes to records, tables and
//! JSON.

pub mod bisect;
pub mod client;
pub mod diagnosis;
pub mod limit;
pub mod options;
pub mod places;
pub mod plan;
pub mod redirects;
pub mod screen;
pub mod shape;
pub mod sweep;
pub mod threads;
pub mod urls;
pub mod values;
pub mod warning;
pub mod window_search;
pub mod workload;

pub use tlsdyno_base::{permission, url};
