//! What a run under way tells a display in another thread.
//!
//! The display asks, the loop answers in its next turn, at most `limits::WAIT_NS_MAX` later. Unasked, the loop reads
//! one flag in each turn and computes nothing. The answer goes through a channel with room for one, allocated before
//! the run: the loop neither waits nor allocates for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hdrhistogram::Histogram;
use tlsdyno_tls::{Group, Suite, Version};

use super::limits::LATENCY_NS_MAX;
use super::outcome::{ErrorKind, Handshakes, Phase, WindowUse};
use super::slices::Slice;

/// A run at one moment. Counts are those since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The moment, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Hits.
    pub hits: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Connections opened.
    pub connections: u64,
    /// Handshakes by kind.
    pub handshakes: Handshakes,
    /// Failed requests and connections, in the order of [`ErrorKind::ALL`].
    pub errors: [u64; ErrorKind::ALL.len()],
    /// CPU time of the loading thread, in nanoseconds.
    pub client_cpu_ns: u64,
    /// How the window over a replayed trace was used, if there is one.
    pub window: Option<WindowUse>,
    /// The last whole slice, if there was one.
    pub slice: Option<Slice>,
    /// What most handshakes negotiated, if there were any.
    pub negotiated: Option<(Version, Suite, Option<Group>)>,
    /// Latencies since the last snapshot, in the order of [`Phase::ALL`]; without content unless the display wanted
    /// them ([`watch`]).
    pub recent: [Recent; Phase::ALL.len()],
}

/// Latencies of a phase since the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// How many there were.
    pub count: u64,
    /// Their median in nanoseconds, to two digits.
    pub p50_ns: u64,
    /// Their 99th percentile, likewise.
    pub p99_ns: u64,
}

/// A display's end: asks for snapshots.
#[derive(Debug)]
pub struct Watcher {
    asked: Arc<AtomicBool>,
    snapshots: Receiver<Snapshot>,
}

/// A run's end.
#[derive(Debug)]
pub struct Watched {
    asked: Arc<AtomicBool>,
    snapshots: SyncSender<Snapshot>,
    latencies: bool,
}

/// The two ends between a display and a run. `latencies`: the display wants [`Snapshot::recent`], for which the run
/// records each latency a second time.
pub fn watch(latencies: bool) -> (Watcher, Watched) {
    let (sender, receiver) = sync_channel(1);
    let asked = Arc::new(AtomicBool::new(false));
    (Watcher { asked: Arc::clone(&asked), snapshots: receiver }, Watched { asked, snapshots: sender, latencies })
}

impl Watcher {
    /// Asks for a snapshot.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// The snapshot that was asked for, once it has come.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.snapshots.try_recv().ok()
    }
}

impl Watched {
    /// Whether a snapshot is asked for; then it must be told.
    pub(super) fn is_asked(&self) -> bool {
        // A load alone leaves the flag's cache line shared while nobody asks.
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Relaxed)
    }

    pub(super) fn tell(&self, snapshot: Snapshot) {
        // A display that has not taken the last one yet, or is gone, does without this one.
        let _ = self.snapshots.try_send(snapshot);
    }

    /// Where latencies are recorded for the display, if it wants them.
    pub(super) fn recent(&self) -> Option<RecentLatencies> {
        self.latencies.then(RecentLatencies::new)
    }
}

/// The latencies since the last snapshot, to two digits: 20 KiB for each phase, few of which are touched.
pub struct RecentLatencies([Histogram<u32>; Phase::ALL.len()]);

impl RecentLatencies {
    fn new() -> RecentLatencies {
        let histogram = |()| Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("bounds and precision are valid");
        RecentLatencies([(); Phase::ALL.len()].map(histogram))
    }

    pub fn record(&mut self, phase: Phase, nanoseconds: u64) {
        self.0[phase as usize].saturating_record(nanoseconds);
    }

    /// Sums up and begins anew.
    pub fn take(&mut self) -> [Recent; Phase::ALL.len()] {
        self.0.each_mut().map(|latencies| {
            if latencies.is_empty() {
                return Recent::default();
            }
            let [p50_ns, p99_ns] = [0.5, 0.99].map(|quantile| latencies.value_at_quantile(quantile));
            let recent = Recent { count: latencies.len(), p50_ns, p99_ns };
            latencies.reset();
            recent
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_since_the_last_snapshot() {
        let mut latencies = RecentLatencies::new();
        (1..=100).for_each(|ms| latencies.record(Phase::FirstByte, ms * 1_000_000));
        let close = |value: u64, expected: u64| value.abs_diff(expected) * 100 <= expected;
        let [.., first_byte, _, _] = latencies.take();
        assert_eq!(first_byte.count, 100);
        assert!(close(first_byte.p50_ns, 50_000_000) && close(first_byte.p99_ns, 99_000_000), "{first_byte:?}");
        assert_eq!(latencies.take(), [Recent::default(); Phase::ALL.len()]);
    }

    #[test]
    fn a_question_is_answered_once() {
        let (watcher, watched) = watch(false);
        assert!(!watched.is_asked() && watched.recent().is_none());
        watcher.ask();
        assert!(watched.is_asked() && !watched.is_asked());
    }
}
