//! What an experiment asks of its server: who loads it, what is started, and what the answer is about.

use super::{Experiment, ForeignTraffic, Machine, Method};

/// The one question of an experiment. Whatever else it has is common to all: several methods, shares, comparisons (of
/// builds too), remedies. What does not go together is refused once (`run/check/beside.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Question<'a> {
    /// What stages cost while somebody else loads the server: all configurations are modes of one.
    ForeignTraffic(&'a ForeignTraffic),
    /// In which stage a hit costs more on a second library.
    Libraries,
    /// What stages take in instructions: nothing is timed.
    Counts,
    /// What the configurations serve on emulated machines.
    Machines(&'a [Machine]),
    /// What stages cost, or remedies gain, in CPU time.
    Costs,
}

impl Experiment {
    /// The question that the experiment asks.
    pub fn asks(&self) -> Question<'_> {
        match &self.foreign_traffic {
            Some(traffic) => Question::ForeignTraffic(traffic),
            None if self.configurations.iter().any(|model| model.library.is_some()) => Question::Libraries,
            None if self.methods.iter().all(|method| *method == Method::Counting) => Question::Counts,
            None if !self.machines.is_empty() => Question::Machines(&self.machines),
            None => Question::Costs,
        }
    }

    /// Whether the experiment uses this method.
    pub fn uses(&self, method: Method) -> bool {
        self.methods.contains(&method)
    }
}
