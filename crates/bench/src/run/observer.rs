//! Whom an experiment tells how far it is.

use std::time::Duration;

use tlsdyno_record::store::Record;

use super::schedule::Schedule;

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
    /// Measuring begins; so much of its time is left.
    fn measuring(&mut self, schedule: &Schedule, configurations: usize, left: Duration);
    /// So much of the measuring time is over.
    fn progress(&mut self, elapsed: Duration, time: Duration, text: &str);
    /// What was measured so far.
    fn interim(&mut self, _record: &Record) {}
    /// Everything is done or was stopped.
    fn finished(&mut self);
}
