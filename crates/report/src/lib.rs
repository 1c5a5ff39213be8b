//! A report as data, and how it is shown: as text for a terminal, as Markdown, or as one self-contained page. What
//! experiments there are is known elsewhere.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod charts;
pub mod document;
pub mod html;
pub mod markdown;
pub mod rows;
pub mod terminal;
