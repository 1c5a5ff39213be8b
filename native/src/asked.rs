//! A program of ours that is asked: a line goes to its standard input, and lines come back.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use tlsdyno_base::affinity::on_cpu;

use crate::write_file;

pub struct Program {
    pub name: &'static str,
    pub file: &'static str,
    pub image: &'static [u8],
}

/// The running program. It ends when this value is dropped.
#[derive(Debug)]
pub struct Asked {
    name: &'static str,
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        // It may be in the middle of an answer that nobody reads any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Asked {
    /// Unpacks it into `directory` and starts it on `cpu`. Answers its first line too, the version of its library.
    pub fn start<A: AsRef<OsStr>>(
        &Program { name, file, image }: &Program,
        directory: &Path,
        arguments: impl IntoIterator<Item = A>,
        cpu: usize,
    ) -> Result<(Asked, String)> {
        let path = directory.join(file);
        write_file(&path, image, 0o700)?;
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = on_cpu(cpu, || command.spawn().with_context(|| format!("start the {name}")))?;
        let commands = child.stdin.take().with_context(|| format!("the {name} has no input"))?;
        let replies = BufReader::new(child.stdout.take().with_context(|| format!("the {name} has no output"))?);
        let mut asked = Asked { name, child, commands, replies };
        let first = asked.line()?;
        Ok((asked, first))
    }

    /// Sends a line. Fails where the program has ended.
    pub fn ask(&mut self, line: &str) -> Result<()> {
        writeln!(self.commands, "{line}")
            .and_then(|()| self.commands.flush())
            .with_context(|| format!("ask the {}", self.name))
    }

    /// The next line that it says. One that begins with `! ` is a reason, and an error.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.replies.read_line(&mut line).with_context(|| format!("read what the {} says", self.name))?;
        if line.is_empty() {
            bail!("the {} has ended: {}", self.name, self.child.wait()?);
        }
        match line.trim_end().strip_prefix("! ") {
            Some(reason) => bail!("{reason}"),
            None => Ok(line.trim_end().to_owned()),
        }
    }

    pub fn unknown(&self, line: &str) -> String {
        format!("the {} said \"{line}\"", self.name)
    }
}
