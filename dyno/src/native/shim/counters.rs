//! How connections began, by the shim's count.

use std::fmt;
use std::ops::Sub;

use super::layout;

/// What the server's connections were, by the shim's count. Subtract two snapshots to get those between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShimCounters {
    pub(super) counts: [u64; layout::COUNTERS.len()],
}

impl ShimCounters {
    /// The count under `name` (see [`layout::COUNTERS`]); `None` if there is no such counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(candidate, _)| *candidate == name).map(|(_, count)| count)
    }

    /// Connections that were set up, in whatever way.
    pub fn connections(&self) -> u64 {
        self.counts[..layout::KINDS].iter().sum()
    }

    /// Every counter: name, count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        layout::COUNTERS.into_iter().zip(self.counts)
    }
}

impl Sub for ShimCounters {
    type Output = ShimCounters;

    /// The counts after `earlier`. Counters only grow, so this is never negative for snapshots in order.
    fn sub(self, earlier: ShimCounters) -> ShimCounters {
        let mut difference = self;
        for (count, before) in difference.counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        difference
    }
}

impl fmt::Display for ShimCounters {
    /// The counters that are not zero, `name=count`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, count) in self.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{name}={count}")?;
            separator = " ";
        }
        Ok(())
    }
}
