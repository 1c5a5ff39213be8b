//! When failures are so many that going on only does harm: the rule by which a run gives up. Knows neither sockets nor
//! clocks.

use super::limits::{
    FAILURES_IN_A_ROW_MAX, RESOURCE_FAILURES_IN_A_ROW_MAX, STORM_FAILURES_PER_WINDOW, STORM_WINDOW_ENDS,
};
use super::outcome::ErrorKind;

/// Counts how requests and connections ended, and tells when it is a storm of errors.
#[derive(Debug, Default)]
pub struct StormWatch {
    failures_in_a_row: u64,
    resource_failures_in_a_row: u64,
    window_ends: u32,
    window_failures: u32,
    storm: bool,
}

impl StormWatch {
    /// A response is complete, whatever it says: the server lives.
    pub fn answered(&mut self) {
        self.failures_in_a_row = 0;
        self.resource_failures_in_a_row = 0;
        self.ended(0);
    }

    pub fn failed(&mut self, kind: ErrorKind) {
        self.failures_in_a_row += 1;
        if kind.is_local() {
            self.resource_failures_in_a_row += 1;
        }
        self.storm |= self.failures_in_a_row >= FAILURES_IN_A_ROW_MAX
            || self.resource_failures_in_a_row >= RESOURCE_FAILURES_IN_A_ROW_MAX;
        self.ended(1);
    }

    /// Whether the run should give up.
    pub fn is_on(&self) -> bool {
        self.storm
    }

    fn ended(&mut self, failures: u32) {
        self.window_ends += 1;
        self.window_failures += failures;
        if self.window_ends == STORM_WINDOW_ENDS {
            self.storm |= self.window_failures >= STORM_FAILURES_PER_WINDOW;
            self.window_ends = 0;
            self.window_failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(ends: impl IntoIterator<Item = Option<ErrorKind>>) -> bool {
        let mut watch = StormWatch::default();
        for end in ends {
            match end {
                Some(kind) => watch.failed(kind),
                None => watch.answered(),
            }
        }
        watch.is_on()
    }

    #[test]
    fn failures_without_an_answer_between_them_are_a_storm() {
        let refused = |count| std::iter::repeat_n(Some(ErrorKind::Refused), count);
        assert!(!watch(refused(999)));
        assert!(watch(refused(1000)));
        assert!(!watch(refused(500).chain(std::iter::repeat_n(None, 150)).chain(refused(500))));
        let no_ports = |count| std::iter::repeat_n(Some(ErrorKind::Ports), count);
        assert!(!watch(no_ports(299)));
        assert!(watch(no_ports(300)), "each waits for 10 ms");
    }

    #[test]
    fn nine_failures_of_ten_are_a_storm_and_eight_are_not() {
        let mixed = |answers| {
            (0..10_000).map(move |index| (index % 10 >= answers).then_some(ErrorKind::Reset)).collect::<Vec<_>>()
        };
        assert!(watch(mixed(1)));
        assert!(!watch(mixed(2)));
    }
}
