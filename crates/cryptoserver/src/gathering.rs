//! Who waits for a batch, and when it begins. It knows no clock and no thread.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Requests that wait, a line for each member: two blocks of the same public exponent cannot be told apart afterwards,
/// so that a batch takes one of each line at most.
#[derive(Debug)]
pub struct Gathering<T> {
    lines: Vec<VecDeque<(Instant, T)>>,
    batch: usize,
    wait: Duration,
}

impl<T> Gathering<T> {
    /// For so many members; a batch has at most `batch` requests, and the first of them waits no longer than `wait`.
    pub fn new(members: usize, batch: usize, wait: Duration) -> Gathering<T> {
        Gathering { lines: (0..members).map(|_| VecDeque::new()).collect(), batch, wait }
    }

    /// A request by this member's key. Whether the next batch is due at another time since.
    pub fn add(&mut self, member: usize, now: Instant, request: T) -> bool {
        let (fronts, due) = (self.fronts().count(), self.due());
        self.lines[member].push_back((now, request));
        due.is_none() || (fronts < self.batch && self.fronts().count() == self.batch)
    }

    /// When the next batch begins; `None` where nobody waits.
    pub fn due(&self) -> Option<Instant> {
        let oldest = self.fronts().map(|(since, _)| since).min()?;
        Some(if self.fronts().count() >= self.batch { oldest } else { oldest + self.wait })
    }

    /// The next batch, in the order of the members: those who have waited longest.
    pub fn take(&mut self) -> Vec<(usize, T)> {
        let mut members: Vec<(Instant, usize)> = self.fronts().collect();
        members.sort_unstable();
        members.truncate(self.batch);
        members.sort_unstable_by_key(|(_, member)| *member);
        members.into_iter().filter_map(|(_, member)| Some((member, self.lines[member].pop_front()?.1))).collect()
    }

    fn fronts(&self) -> impl Iterator<Item = (Instant, usize)> {
        self.lines.iter().enumerate().filter_map(|(member, line)| Some((line.front()?.0, member)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WAIT: Duration = Duration::from_millis(2);

    #[test]
    fn a_batch_begins_when_it_is_full_or_its_first_has_waited() {
        let (mut gathering, began) = (Gathering::new(4, 2, WAIT), Instant::now());
        let at = |us| began + Duration::from_micros(us);
        assert_eq!(gathering.due(), None);
        assert!(gathering.add(3, at(0), 'a'));
        assert!(!gathering.add(3, at(10), 'b'), "the same member again");
        assert_eq!(gathering.due(), Some(at(2000)));
        assert!(gathering.add(1, at(20), 'c'), "it is full");
        assert_eq!(gathering.due(), Some(at(0)));
        assert!(!gathering.add(0, at(30), 'd'));
        assert_eq!(gathering.take(), [(1, 'c'), (3, 'a')], "the oldest, by members");
        assert_eq!(gathering.take(), [(0, 'd'), (3, 'b')]);
        assert_eq!((gathering.due(), gathering.take()), (None, vec![]));
    }

    proptest! {
        #[test]
        fn every_request_is_taken_once_and_no_batch_has_two_of_a_member(
            members in proptest::collection::vec(0..8usize, 0..60), batch in 1..9usize,
        ) {
            let (mut gathering, now) = (Gathering::new(8, batch, WAIT), Instant::now());
            for (number, member) in members.iter().enumerate() {
                gathering.add(*member, now + Duration::from_nanos(number as u64), number);
            }
            let mut taken = Vec::new();
            while gathering.due().is_some() {
                let one = gathering.take();
                prop_assert!(!one.is_empty() && one.len() <= batch);
                prop_assert!(one.windows(2).all(|pair| pair[0].0 < pair[1].0));
                prop_assert!(one.iter().all(|(member, number)| members[*number] == *member));
                taken.extend(one.into_iter().map(|(_, number)| number));
            }
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..members.len()).collect::<Vec<_>>());
        }
    }
}
