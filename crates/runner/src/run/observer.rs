//! Whom an experiment tells how far it is.

use std::time::Duration;

use tlsdyno_record::store::Record;

use super::schedule::Schedule;

pub trait Observer {
    /// A step of the preparation begins.
    fn step(&mut self, text: &str);
    /// Remark for the reader before measuring.
    fn tell(&mut self, text: &str) {
        self.step(text);
    }
    /// The preflight of a configuration has ended.
    fn preflight(&mut self, name: &str, passed: usize, failed: &[String]);
    /// A failure that does not stop the experiment.
    fn warn(&mut self, text: &str);
    fn measuring(&mut self, schedule: &Schedule, configurations: usize, left: Duration);
    /// `elapsed` of the measuring `time` is over.
    fn progress(&mut self, elapsed: Duration, time: Duration, text: &str);
    /// Receives what was measured so far.
    fn interim(&mut self, _record: &Record) {}
    fn finished(&mut self);
}
