//! Lines between `.if` and `.endif`, which HAProxy takes or leaves as it reads them: decided by its own word (`-cc`),
//! for which it reads no file.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::reader::{Section, plain};
use tlsdyno_servers::haproxy::PACKAGE;

/// Whether a condition is met behind these sections, whose `setenv` it sees.
pub(super) fn is_met(condition: &str, sections: &[Section]) -> Result<bool> {
    let program =
        PACKAGE.installed().with_context(|| format!("`.if {condition}` is for a HAProxy that is installed"))?;
    let mut command = Command::new(program);
    for words in
        sections.iter().flat_map(|section| &section.lines).map(|line| &line.words).filter(|words| words.len() > 2)
    {
        let is_free = words[0] == "presetenv" && std::env::var_os(plain(&words[1])).is_none();
        if words[0] == "setenv" || is_free {
            command.env(plain(&words[1]), plain(&words[2]));
        }
    }
    let output = command.arg("-cc").arg(condition).output().context("run haproxy")?;
    let message = [output.stdout, output.stderr].concat();
    match output.status.code() {
        Some(0) => Ok(true),
        // Versions before 2.4 do not know the flag, and say so.
        Some(1) if message.is_empty() => Ok(false),
        _ => {
            bail!("HAProxy cannot tell whether `.if {condition}` is met: {}", String::from_utf8_lossy(&message).trim())
        }
    }
}
