//! Pages of a stated cost: the transaction server of Mraz, Witting and Dantzig (2002), whose pages are built anew for
//! each request, one after the other.

use tlsdyno_sys::{monotonic_ns, thread_cpu_ns};

/// Stamps that a worker keeps at most; 24 bytes each.
pub const STAMPS_MAX: usize = 1 << 20;

/// CPU time and waiting time that a page costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// CPU time that the worker spends on it, nanoseconds. Meanwhile it does nothing else, as in a server without
    /// threads.
    pub cpu_ns: u64,
    /// Time that it takes besides, nanoseconds, as on a machine behind the server: the worker goes on, but the next
    /// page is not begun.
    pub wait_ns: u64,
    /// Keep the times of each page.
    pub stamps: bool,
}

/// When a page was asked for and built, nanoseconds on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When the request was complete, nanoseconds of the monotonic clock.
    pub asked_ns: u64,
    /// It was begun, when the page before was done.
    pub begun_ns: u64,
    /// When the page was built, by the same clock.
    pub done_ns: u64,
}

/// Builds the pages of a worker, in the order of their requests.
#[derive(Debug)]
pub struct Builder {
    transaction: Transaction,
    /// When the last page that was asked for will be done.
    free_ns: u64,
    stamps: Vec<Stamp>,
}

impl Builder {
    pub fn new(transaction: Transaction) -> Builder {
        Builder { transaction, free_ns: 0, stamps: Vec::new() }
    }

    /// Builds a page that is asked for now. Answers when it is done.
    pub fn build(&mut self) -> u64 {
        let asked_ns = monotonic_ns();
        spend(self.transaction.cpu_ns);
        self.schedule(asked_ns, monotonic_ns())
    }

    /// When a page is done whose CPU time was spent between these times.
    fn schedule(&mut self, asked_ns: u64, spent_ns: u64) -> u64 {
        let begun_ns = asked_ns.max(self.free_ns);
        self.free_ns = spent_ns.max(self.free_ns) + self.transaction.wait_ns;
        if self.transaction.stamps && self.stamps.len() < STAMPS_MAX {
            self.stamps.push(Stamp { asked_ns, begun_ns, done_ns: self.free_ns });
        }
        self.free_ns
    }

    /// The times of the pages, as far as they were kept.
    pub fn into_stamps(self) -> Vec<Stamp> {
        self.stamps
    }
}

fn spend(cpu_ns: u64) {
    if cpu_ns == 0 {
        return;
    }
    let until_ns = thread_cpu_ns() + cpu_ns;
    while thread_cpu_ns() < until_ns {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_built_one_after_the_other() {
        let mut builder = Builder::new(Transaction { cpu_ns: 0, wait_ns: 7, stamps: true });
        // Two at once, then one after a pause.
        assert_eq!([100, 101, 200].map(|now_ns| builder.schedule(now_ns, now_ns)), [107, 114, 207]);
        let stamps = builder.into_stamps();
        assert_eq!(stamps[1], Stamp { asked_ns: 101, begun_ns: 107, done_ns: 114 });
        assert_eq!(stamps[2].begun_ns, 200);
    }

    #[test]
    fn cpu_time_is_spent() {
        let before_ns = thread_cpu_ns();
        let mut builder = Builder::new(Transaction { cpu_ns: 3_000_000, wait_ns: 0, stamps: false });
        let done_ns = builder.build();
        assert!(thread_cpu_ns() - before_ns >= 3_000_000 && done_ns <= monotonic_ns());
        assert!(builder.into_stamps().is_empty());
    }
}
