//! A run cut into slices of equal time: what a chart over time, a live screen and a comparison of two runs are made of.

use hdrhistogram::Histogram;

use super::limits::SLICES_MAX;

/// Counts and latencies of one slice of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Slice {
    /// Its length, in nanoseconds.
    pub elapsed_ns: u64,
    /// Hits in the slice.
    pub hits: u64,
    /// Errors in the slice.
    pub errors: u64,
    /// Redirects followed in the slice.
    #[cfg_attr(feature = "serde", serde(default))]
    pub redirects: u64,
    /// Full handshakes completed in the slice.
    #[cfg_attr(feature = "serde", serde(default))]
    pub handshakes_full: u64,
    /// Resumed handshakes completed in the slice.
    #[cfg_attr(feature = "serde", serde(default))]
    pub handshakes_resumed: u64,
    /// Median latency of its hits (of an open loop: from the intended send time), in nanoseconds; 0 without hits.
    pub latency_ns_p50: u64,
    /// The 99th percentile of the same.
    pub latency_ns_p99: u64,
}

impl Slice {
    /// Adds what another loop did in the same time. Latencies stay as they are: percentiles cannot be added.
    pub fn add_counts(&mut self, other: &Slice) {
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.hits += other.hits;
        self.errors += other.errors;
        self.redirects += other.redirects;
        self.handshakes_full += other.handshakes_full;
        self.handshakes_resumed += other.handshakes_resumed;
    }
}

/// The latencies of a slice: values in nanoseconds, as a histogram of three digits tells them apart, each with its
/// count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SliceLatencies(pub Vec<(u64, u64)>);

/// Counts of a run so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub hits: u64,
    pub errors: u64,
    pub redirects: u64,
    pub full: u64,
    pub resumed: u64,
}

#[derive(Debug)]
pub struct Slices {
    length_ns: u64,
    began_ns: Option<u64>,
    before: Counts,
    latencies: Histogram<u64>,
    done: Vec<Slice>,
    /// The latencies of each, where somebody will want them.
    kept: Option<Vec<SliceLatencies>>,
}

impl Slices {
    /// Slices of this length, in nanoseconds; `latencies` is an empty histogram to use. `keep`: not only percentiles
    /// are wanted in the end, but all latencies.
    pub fn new(length_ns: u64, latencies: Histogram<u64>, keep: bool) -> Slices {
        let (before, done, kept) = (Counts::default(), Vec::new(), keep.then(Vec::new));
        Slices { length_ns, began_ns: None, before, latencies, done, kept }
    }

    pub fn latency(&mut self, nanoseconds: u64) {
        self.latencies.saturating_record(nanoseconds);
    }

    /// Tells the time and the counts so far, which may end a slice.
    pub fn advance(&mut self, now_ns: u64, counts: Counts) {
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        let elapsed_ns = now_ns - began_ns;
        if elapsed_ns < self.length_ns || self.done.len() == SLICES_MAX {
            return;
        }
        let slice = Slice {
            elapsed_ns,
            hits: counts.hits - self.before.hits,
            errors: counts.errors - self.before.errors,
            redirects: counts.redirects - self.before.redirects,
            handshakes_full: counts.full - self.before.full,
            handshakes_resumed: counts.resumed - self.before.resumed,
            latency_ns_p50: self.latencies.value_at_quantile(0.5),
            latency_ns_p99: self.latencies.value_at_quantile(0.99),
        };
        self.done.push(slice);
        if let Some(kept) = &mut self.kept {
            let latencies = self.latencies.iter_recorded();
            kept.push(SliceLatencies(latencies.map(|at| (at.value_iterated_to(), at.count_at_value())).collect()));
        }
        self.began_ns = Some(now_ns);
        self.before = counts;
        self.latencies.reset();
    }

    pub fn last(&self) -> Option<Slice> {
        self.done.last().copied()
    }

    /// The whole slices; a last one that was cut short is not among them.
    pub fn finish(self) -> (Vec<Slice>, Vec<SliceLatencies>) {
        (self.done, self.kept.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cut_by_time() {
        let mut slices = Slices::new(100, Histogram::new(3).unwrap(), false);
        let counts = |hits, errors, redirects| Counts { hits, errors, redirects, full: hits / 10, resumed: hits / 5 };
        slices.advance(1000, counts(0, 0, 0));
        (1..=100).for_each(|latency| slices.latency(latency));
        slices.advance(1050, counts(100, 0, 0));
        assert_eq!(slices.last(), None);
        let first = Slice {
            elapsed_ns: 110,
            hits: 100,
            errors: 2,
            redirects: 3,
            handshakes_full: 10,
            handshakes_resumed: 20,
            latency_ns_p50: 50,
            latency_ns_p99: 99,
        };
        slices.advance(1110, counts(100, 2, 3));
        assert_eq!(slices.last(), Some(first));
        let idle = Slice { elapsed_ns: 100, ..Slice::default() };
        slices.advance(1210, counts(100, 2, 3));
        slices.advance(1300, counts(107, 2, 3));
        assert_eq!(slices.finish(), (vec![first, idle], Vec::new()));
    }
}
