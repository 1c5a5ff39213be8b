//! How far the requests of a replayed trace may get ahead of each other: Coarfa, Druschel, Wallach 2006, section 2.2.2.
//!
//! Requests have places in the order of the trace. The distance from the oldest request that is not served yet to the
//! newest that was presented stays below a limit. The paper says "the last request served"; that it means the oldest
//! one not served is our reading.

use std::collections::VecDeque;
use std::ops::Range;

use super::outcome::WindowUse;
use super::plan::{User, Workload};

/// The window over a run's requests.
#[derive(Debug)]
pub struct Window {
    /// Place of each request among those of the run, by its index less `first`.
    places: Vec<u32>,
    first: u32,
    limit: u64,
    /// The oldest request that is not served.
    oldest: u64,
    /// Whether each from there on is served; the first is not. No longer than the largest distance.
    served: VecDeque<bool>,
    largest: u64,
    stalls: u64,
    stalled: bool,
}

impl Window {
    /// The window over the requests of these users of a workload that has an order.
    pub fn new(workload: &Workload, users: Range<u32>, limit: u32) -> Window {
        let users: &[User] = &workload.users[users.start as usize..users.end as usize];
        let ranges = users.iter().map(|user| &user.requests).filter(|requests| !requests.is_empty());
        let first = ranges.clone().map(|requests| requests.start).min().unwrap_or(0);
        let end = ranges.map(|requests| requests.end).max().unwrap_or(0);
        let mut in_order: Vec<u32> = (first..end).collect();
        in_order.sort_unstable_by_key(|request| workload.order[*request as usize]);
        let mut places = vec![0; in_order.len()];
        for (place, request) in (0..).zip(in_order) {
            places[(request - first) as usize] = place;
        }
        Window {
            places,
            first,
            limit: u64::from(limit),
            oldest: 0,
            served: VecDeque::new(),
            largest: 0,
            stalls: 0,
            stalled: false,
        }
    }

    /// The place of a request, in the `lap`-th time that the trace is replayed.
    pub fn place(&self, lap: u64, request: u32) -> u64 {
        lap * self.places.len() as u64 + u64::from(self.places[(request - self.first) as usize])
    }

    /// Whether the request at this place may be presented now.
    pub fn admits(&self, place: u64) -> bool {
        place < self.oldest + self.limit
    }

    /// The request at this place is presented.
    pub fn presented(&mut self, place: u64) {
        // One that was served before it could be presented failed with its connection.
        self.largest = self.largest.max(place.saturating_sub(self.oldest));
    }

    /// The request at this place is served, or has failed: nothing waits for it any longer.
    pub fn served(&mut self, place: u64) {
        let at = (place - self.oldest) as usize;
        if at >= self.served.len() {
            self.served.resize(at + 1, false);
        }
        self.served[at] = true;
        while self.served.front() == Some(&true) {
            self.served.pop_front();
            self.oldest += 1;
        }
    }

    /// Whether connections have nothing to do because the window is closed; each time that begins, counts as a stall.
    pub fn note_stall(&mut self, stalled: bool) {
        self.stalls += u64::from(stalled && !self.stalled);
        self.stalled = stalled;
    }

    pub fn report(&self) -> WindowUse {
        let limit = (self.limit < u64::from(u32::MAX)).then_some(self.limit);
        WindowUse { limit, largest_distance: self.largest, stalls: self.stalls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(order: &[u32], limit: u32) -> Window {
        let count = order.len() as u32;
        let users = vec![User { requests: 0..count }];
        Window::new(&Workload { order: order.to_vec(), users, ..Workload::default() }, 0..1, limit)
    }

    #[test]
    fn it_moves_when_the_oldest_is_served() {
        let mut window = window(&[0, 1, 2, 3, 4, 5], 3);
        assert!(window.admits(2) && !window.admits(3));
        window.presented(2);
        window.served(2);
        window.served(1);
        assert!(!window.admits(3));
        window.served(0);
        assert!(window.admits(5) && !window.admits(6));
        assert_eq!(window.report(), WindowUse { limit: Some(3), largest_distance: 2, stalls: 0 });
    }

    #[test]
    fn places_are_among_the_requests_of_the_run_and_laps_follow_each_other() {
        let window = window(&[70, 10, 40], 1);
        assert_eq!([0, 1, 2].map(|request| window.place(0, request)), [2, 0, 1]);
        assert_eq!(window.place(2, 1), 6);
    }

    #[test]
    fn a_stall_counts_once() {
        let mut window = window(&[0], 1);
        [true, true, false, true].into_iter().for_each(|stalled| window.note_stall(stalled));
        assert_eq!(window.report().stalls, 2);
    }
}
