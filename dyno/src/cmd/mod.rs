//! The subcommands, one file each: `Args` (clap) and `run`, which answers the exit code.

pub mod ablate;
pub mod array;
pub mod cli;
pub mod cluster;
pub mod compare;
pub mod completions;
pub mod dispatch;
pub mod doctor;
pub mod flags;
pub mod list;
pub mod load;
pub mod man;
pub mod other_tools;
pub mod probe;
pub mod profile;
pub mod report;
pub mod reuse;
pub mod run;
pub mod scoreboard;
pub mod serve;
pub mod supervise;
pub mod trace;
pub mod worker;

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::foreign::harmless_json;
use crate::time::Time;

/// Prints what a subcommand answers.
fn print(text: impl AsRef<[u8]>) -> Result<()> {
    std::io::stdout().write_all(text.as_ref()).context("failed to print")
}

/// Parses a time with or without its unit, in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    text.parse::<Time>().map(|time| time.0.as_secs_f64())
}

/// An answer as one JSON object.
fn json_of(answer: &impl Serialize) -> Result<String> {
    Ok(harmless_json(&serde_json::to_string_pretty(answer)?).into_owned() + "\n")
}
