//! Whom an experiment tells how far it is.

use std::time::Duration;

use super::schedule::Schedule;
use crate::store::Record;

/// What the runner tells while it works.
pub trait Observer {
    /// A step of the preparation began.
    fn step(&mut self, text: &str);
    /// Something that the reader should know before anything is measured.
    fn tell(&mut self, text: &str) {
        self.step(text);
    }
    /// The preflight of a configuration is done.
    fn preflight(&mut self, name: &str, passed: usize, failed: &[String]);
    /// Something went wrong that does not stop the experiment.
    fn warn(&mut self, text: &str);
    /// Measuring began.
    fn measuring(&mut self, schedule: &Schedule, configurations: usize);
    /// This part of the measuring time is over, 0 to 1, with the time left.
    fn progress(&mut self, done: f64, left: Duration, text: &str);
    /// What was measured so far.
    fn interim(&mut self, _record: &Record) {}
    /// Everything is done or was stopped.
    fn finished(&mut self);
}
