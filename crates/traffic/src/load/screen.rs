//! A load run while it lasts, on standard error, because the result goes to standard output: a screen or a line that
//! renews itself on a terminal, plain lines now and then elsewhere.
//!
//! The screen is inline: it stands below what the terminal showed before, and the result takes its place. Unlike the
//! terminal's alternate screen that keeps the command, and the lines of a sweep, in sight, and leaves nothing behind if
//! the process is killed but a hidden cursor.

#[cfg(feature = "screen")]
mod draw;
#[cfg(feature = "screen")]
mod heading;
#[cfg(feature = "screen")]
mod inline;
#[cfg(feature = "screen")]
mod latencies;
mod line;
#[cfg(feature = "screen")]
mod view;
#[cfg(not(feature = "screen"))]
mod without;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use anyhow::Result;
use tlsdyno_engine::load::{Outcome, Plan, watch};

use super::threads::Crew;
#[cfg(feature = "screen")]
use inline::Screen;
#[cfg(not(feature = "screen"))]
use without::Screen;

const RENEWED: Duration = Duration::from_millis(500);

/// How often it is looked whether the run is over or a key was pressed.
const LOOKED: Duration = Duration::from_millis(20);

/// The flag that says what is shown.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Flag {
    /// What is shown on standard error while it lasts
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    progress: Form,
}

/// What is shown while a run lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Throughput, resumption, latency by phase and errors (key q ends the run, as Ctrl-C does; NO_COLOR takes the
    /// colours); `line` where standard input or standard error is no terminal, in the background, and with
    /// TERM=dumb
    #[default]
    Screen,
    /// One line that renews itself on a terminal, and a line every 10 s elsewhere
    Line,
    /// Nothing
    None,
}

#[derive(Clone, Copy, Debug)]
pub struct Display<'a> {
    form: Form,
    url: &'a str,
    crew: &'a dyn Crew,
    logged: bool,
}

impl<'a> Display<'a> {
    pub fn new(flag: Flag, url: &'a str, crew: &'a dyn Crew) -> Display<'a> {
        Display { form: flag.progress, url, crew, logged: true }
    }

    /// The same for the steps of a sweep, whose own lines tell how it goes where there is no terminal.
    pub fn of_steps(flag: Flag, url: &'a str, crew: &'a dyn Crew) -> Display<'a> {
        Display { logged: false, ..Display::new(flag, url, crew) }
    }

    /// Runs the plan; another thread shows how it goes where somebody watches. `stop` ends it, and so does
    /// the key.
    pub fn run(&self, plan: &Plan, stop: &AtomicBool) -> Result<Outcome> {
        let shown = self.form != Form::None && (self.logged || std::io::stderr().is_terminal());
        if !shown {
            return self.crew.run(plan, stop, Vec::new());
        }
        let screen = if self.form == Form::Screen { Screen::open(self.url, plan) } else { None };
        let (mut watcher, watched) = watch(screen.is_some(), self.crew.count());
        let done = &AtomicBool::new(false);
        thread::scope(|scope| {
            let display = scope.spawn(move || match screen {
                Some(screen) => screen.show(&mut watcher, done, stop),
                None => line::show(&mut watcher, done, stop),
            });
            let ended = EndOnDrop(done, display.thread().clone());
            let outcome = self.crew.run(plan, stop, watched);
            drop(ended);
            // A display that failed must not take with it what was measured.
            let _ = display.join();
            outcome
        })
    }
}

/// Ends the display also where the run panics: its scope waits for the display.
struct EndOnDrop<'a>(&'a AtomicBool, Thread);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}
