//! What a command answers, on standard output.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::exit::Exit;
use crate::foreign::harmless_json;

/// Prints what a command answers.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).context("failed to print")
}

/// Prints an answer where nothing else is to be done.
pub fn answer(text: impl AsRef<[u8]>) -> Result<Exit> {
    print(text).map(|()| Exit::Done)
}

/// An answer as one JSON object, ending in a line feed.
pub fn json_of(answer: &impl Serialize) -> Result<String> {
    Ok(harmless_json(&serde_json::to_string_pretty(answer)?).into_owned() + "\n")
}
