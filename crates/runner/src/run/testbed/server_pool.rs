//! Servers of one configuration beside the one that runs, where each is to be measured once.

use std::collections::VecDeque;

/// Further servers like the running one.
#[derive(Debug)]
pub struct ServerPool<T> {
    unmeasured: VecDeque<T>,
    measured: Vec<T>,
    running_is_measured: bool,
}

impl<T> Default for ServerPool<T> {
    fn default() -> ServerPool<T> {
        ServerPool { unmeasured: VecDeque::new(), measured: Vec::new(), running_is_measured: false }
    }
}

impl<T> ServerPool<T> {
    pub fn add(&mut self, new: impl IntoIterator<Item = T>) {
        self.unmeasured.extend(new);
    }

    /// Number of servers that were not measured yet.
    pub fn unmeasured(&self) -> usize {
        self.unmeasured.len()
    }

    /// The running server was measured, and will not run again.
    pub fn running_is_measured(&mut self) {
        self.running_is_measured = true;
    }

    /// Replaces the running server by one that was not measured. The running one joins the pool if it was not measured
    /// either. Returns whether there was one.
    pub fn swap_in(&mut self, running: &mut Option<T>) -> bool {
        let Some(next) = self.unmeasured.pop_front() else { return false };
        let before = running.replace(next);
        match std::mem::take(&mut self.running_is_measured) {
            true => self.measured.extend(before),
            false => self.unmeasured.extend(before),
        }
        true
    }

    /// Removes the servers that are no longer needed.
    pub fn take_measured(&mut self) -> Vec<T> {
        std::mem::take(&mut self.measured)
    }

    pub fn take_all(&mut self) -> Vec<T> {
        self.measured.drain(..).chain(self.unmeasured.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_measured_twice() {
        let mut pool = ServerPool::default();
        let mut running = Some(0);
        assert!(!pool.swap_in(&mut running));
        pool.add([1, 2]);
        // A warm-up.
        assert!(pool.swap_in(&mut running));
        assert_eq!((running, pool.unmeasured()), (Some(1), 2));
        let mut measured = Vec::new();
        while pool.swap_in(&mut running) {
            pool.running_is_measured();
            measured.extend(running);
        }
        assert_eq!(measured, [2, 0, 1]);
        assert_eq!(pool.take_measured(), [2, 0], "the last one runs");
        pool.add([3]);
        assert!(pool.swap_in(&mut running));
        assert_eq!((running, pool.take_all()), (Some(3), vec![1]));
    }
}
