//! What commands print on standard output, and times as command lines have them.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::foreign::harmless_json;
use crate::time::Time;

/// Prints what a command answers.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    std::io::stdout().write_all(text.as_ref()).context("failed to print")
}

/// Parses a time with or without its unit, in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    text.parse::<Time>().map(|time| time.0.as_secs_f64())
}

/// An answer as one JSON object.
pub fn json_of(answer: &impl Serialize) -> Result<String> {
    Ok(harmless_json(&serde_json::to_string_pretty(answer)?).into_owned() + "\n")
}
