//! Runs the commands that start workers, and ends what it ran.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use shell_words::quote;
use tlsdyno_base::fault::Fault;
use tlsdyno_base::foreign::visible;
use tlsdyno_base::until::until;

use super::token::Token;

/// How long commands have to end by themselves when their workers were told to, before they are ended.
const GRACE: Duration = Duration::from_secs(5);

/// How long commands have to end after SIGTERM, before they are killed.
const GRACE_AFTER_ASKED: Duration = Duration::from_secs(2);

/// Pause between two checks whether they have ended.
const LOOKED: Duration = Duration::from_millis(20);

/// Of what a command wrote, so many bytes are shown when it failed.
const SHOWN_BYTES: u64 = 2000;

#[derive(Clone, Debug, Default)]
pub struct Order {
    pub command: Vec<String>,
    /// What it gets on standard input, which then ends.
    pub input: Vec<u8>,
    /// The command that ends the workers, where ending this one does not.
    pub undo: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Launched {
    started: Vec<Started>,
    /// Has the token file.
    _directory: Option<tempfile::TempDir>,
}

#[derive(Debug)]
struct Started {
    child: Child,
    order: Order,
    output: std::fs::File,
    ended: Option<ExitStatus>,
}

/// A command of --launch: `{address}`, `{token_file}`, `{worker}` and `{workers}` stand for what they say. It is run
/// for each worker, or, if it has `{workers}`, once for all.
pub fn by_template(template: &str, address: &str, token: &Token, workers: usize) -> Result<Launched> {
    let directory = tempfile::tempdir().context("make a directory for the token file")?;
    let token_file = directory.path().join("token");
    token.write(&token_file)?;
    let runs = if template.contains("{workers}") { 1 } else { workers };
    let orders = (1..=runs).map(|worker| {
        let command = template
            .replace("{address}", address)
            .replace("{token_file}", &quote(&token_file.to_string_lossy()))
            .replace("{worker}", &worker.to_string())
            .replace("{workers}", &workers.to_string());
        Order { command: vec!["/bin/sh".to_owned(), "-c".to_owned(), command], ..Order::default() }
    });
    let mut launched = run(orders.collect())?;
    launched._directory = Some(directory);
    Ok(launched)
}

/// Runs the commands.
pub fn run(orders: Vec<Order>) -> Result<Launched> {
    let mut launched = Launched::default();
    for order in orders {
        launched.started.push(start(order)?);
    }
    Ok(launched)
}

/// Runs a command that undoes another. It may wait for somebody who does not answer: then it is ended.
fn undo(command: &[String]) -> Result<()> {
    let mut undoing = run(vec![Order { command: command.to_vec(), ..Order::default() }])?;
    ensure!(undoing.wait(GRACE), "it took more than {} s", GRACE.as_secs());
    let one = &mut undoing.started[0];
    ensure!(one.ended.is_some_and(|status| status.success()), "{}", one.output());
    Ok(())
}

fn start(order: Order) -> Result<Started> {
    let output = tempfile::tempfile().context("make a file for what a command writes")?;
    let (program, arguments) = order.command.split_first().context("there is no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        // Ctrl-C is for the coordinator: workers first tell what they measured.
        .process_group(0)
        .spawn()
        .with_context(|| format!("failed to run `{program}`; is it installed?"))?;
    // A command that does not want it has gone already, and says why itself.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(&order.input));
    Ok(Started { child, order, output, ended: None })
}

impl Launched {
    pub fn check(&mut self) -> Result<()> {
        for started in &mut self.started {
            if started.has_ended()
                && let Some(status) = started.ended
                && !status.success()
            {
                let how = match status.signal() {
                    Some(signal) => format!("was ended by signal {signal}"),
                    None => format!("ended with code {}", status.code().unwrap_or_default()),
                };
                let output = started.output();
                let output =
                    if output.is_empty() { "and wrote nothing".to_owned() } else { format!("and wrote: {output}") };
                let command = shell_words::join(&started.order.command);
                let error = anyhow!("the command that starts workers {how} {output} (it is `{command}`)");
                return Err(Fault::Environment.wrap(error));
            }
        }
        Ok(())
    }

    pub fn output(&mut self) -> String {
        let all: Vec<String> =
            self.started.iter_mut().map(Started::output).filter(|output| !output.is_empty()).collect();
        all.join("; ")
    }

    fn wait(&mut self, time: Duration) -> bool {
        let have_ended = || anyhow::Ok(self.started.iter_mut().all(Started::has_ended));
        until(time, LOOKED, have_ended, |ended| *ended).unwrap_or_default()
    }
}

impl Drop for Launched {
    /// Leaves nothing running: workers were told to go, what starts them ends with them, and what does not is ended.
    fn drop(&mut self) {
        // What is still being made cannot be removed yet.
        if self.started.iter().any(|started| !started.order.undo.is_empty()) {
            self.wait(GRACE);
        }
        for command in self.started.iter().map(|started| &started.order.undo).filter(|undo| !undo.is_empty()) {
            if let Err(why) = undo(command) {
                tell!("warning: `{}` failed, and may have left something: {why:#}", command.join(" "));
            }
        }
        for (signal, grace) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE_AFTER_ASKED)] {
            if self.wait(grace) {
                return;
            }
            for started in self.started.iter().filter(|started| started.ended.is_none()) {
                // Not waited for yet, so that its number is its own.
                let _ = kill_process_group(Pid::from_child(&started.child), signal);
            }
        }
        self.wait(GRACE_AFTER_ASKED);
    }
}

impl Started {
    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().unwrap_or(None);
        }
        self.ended.is_some()
    }

    fn output(&mut self) -> String {
        let mut text = Vec::new();
        let length = self.output.metadata().map_or(0, |file| file.len());
        // What cannot be read is not shown.
        let _ = self.output.seek(SeekFrom::Start(length.saturating_sub(SHOWN_BYTES)));
        let _ = self.output.read_to_end(&mut text);
        visible(String::from_utf8_lossy(&text).trim()).to_string()
    }
}
