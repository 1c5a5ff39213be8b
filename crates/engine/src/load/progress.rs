//! What a run under way tells a display in another thread.
//!
//! The display asks, the loop answers in its next turn, at most `limits::WAIT_NS_MAX` later. Unasked, the loop reads
//! one flag in each turn and computes nothing. The answer goes through a channel with room for one, allocated before
//! the run: the loop neither waits nor allocates for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use hdrhistogram::Histogram;
use tlsdyno_tls::{Group, Suite, Version};

use super::limits::LATENCY_NS_MAX;
use super::outcome::{ErrorKind, Handshakes, Phase, WindowUse};
use super::slices::Slice;

/// A run at one moment. Counts are those since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The moment, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Loops that these are the counts of.
    pub loops: u32,
    /// Hits so far.
    pub hits: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Connections opened so far.
    pub connections: u64,
    /// Handshakes so far, by kind.
    pub handshakes: Handshakes,
    /// Failed requests and connections, in the order of [`ErrorKind::ALL`].
    pub errors: [u64; ErrorKind::ALL.len()],
    /// CPU time of the loading threads, in nanoseconds.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Recent {
    /// Number of latencies.
    pub count: u64,
    /// Their median in nanoseconds, to two digits.
    pub p50_ns: u64,
    /// Their 99th percentile, likewise.
    pub p99_ns: u64,
}

/// A display's end: asks the loops of a load for snapshots and makes one of theirs.
#[derive(Debug)]
pub struct Watcher {
    loops: Vec<LoopProgress>,
    /// Where the latencies of all are added up.
    together: RecentLatencies,
}

/// What a display has of a loop.
#[derive(Debug)]
struct LoopProgress {
    asked: Arc<AtomicBool>,
    answers: Receiver<Answer>,
    emptied: SyncSender<Box<RecentLatencies>>,
    last: Option<Snapshot>,
    recent: Option<Box<RecentLatencies>>,
    /// It came after the last one that was made for all loops.
    is_new: bool,
    /// The loop has ended: there will be no more.
    is_over: bool,
}

type Answer = (Snapshot, Option<Box<RecentLatencies>>);

/// The loop's end of its connection to a display.
#[derive(Debug)]
pub struct Watched {
    asked: Arc<AtomicBool>,
    answers: SyncSender<Answer>,
    /// Where latencies for the display go next, while it has those before.
    emptied: Receiver<Box<RecentLatencies>>,
    latencies: bool,
}

/// The two ends between a display and the loops of a load. `latencies`: the display wants [`Snapshot::recent`], for
/// which each loop records each latency a second time.
pub fn watch(latencies: bool, loops: usize) -> (Watcher, Vec<Watched>) {
    let (loops, watched) = (0..loops).map(|_| watch_loop(latencies)).unzip();
    (Watcher { loops, together: RecentLatencies::new() }, watched)
}

fn watch_loop(latencies: bool) -> (LoopProgress, Watched) {
    let (sender, answers) = sync_channel(1);
    let (give, emptied) = sync_channel(1);
    if latencies {
        // There is room for one.
        let _ = give.try_send(Box::new(RecentLatencies::new()));
    }
    let asked = Arc::new(AtomicBool::new(false));
    let watched = Watched { asked: Arc::clone(&asked), answers: sender, emptied, latencies };
    (LoopProgress { asked, answers, emptied: give, last: None, recent: None, is_new: false, is_over: false }, watched)
}

impl Watcher {
    /// Asks the run for a snapshot.
    pub fn ask(&self) {
        self.loops.iter().for_each(|of_loop| of_loop.asked.store(true, Ordering::Relaxed));
    }

    /// The snapshot that was asked for, once it has come from every loop that still runs: the sum of all, and latencies
    /// of all together.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        let mut whole = self.counts()?;
        whole.recent = self.together.take();
        Some(whole)
    }

    /// The same for a display elsewhere: the latencies are not summed up, but given as they are, for they are to be
    /// added to others.
    pub fn recorded(&mut self) -> Option<(Snapshot, RecordedLatencies)> {
        let whole = self.counts()?;
        Some((whole, self.together.recorded()))
    }

    /// What each of them told last, without latencies.
    pub fn each(&self) -> Vec<Option<Snapshot>> {
        self.loops.iter().map(|of_loop| of_loop.last).collect()
    }

    fn counts(&mut self) -> Option<Snapshot> {
        self.loops.iter_mut().for_each(LoopProgress::poll);
        let is_complete = self.loops.iter().all(|of_loop| of_loop.is_new || of_loop.is_over);
        if !is_complete || self.loops.iter().all(|of_loop| !of_loop.is_new) {
            return None;
        }
        let snapshots = self.loops.iter().filter_map(|of_loop| of_loop.last);
        let whole = snapshots.reduce(Snapshot::and)?;
        for of_loop in &mut self.loops {
            of_loop.is_new = false;
            if let Some(mut recent) = of_loop.recent.take() {
                self.together.take_from(&mut recent);
                // A loop that is over wants none.
                let _ = of_loop.emptied.try_send(recent);
            }
        }
        Some(whole)
    }
}

impl LoopProgress {
    fn poll(&mut self) {
        if self.is_new {
            return;
        }
        match self.answers.try_recv() {
            Ok((snapshot, recent)) => {
                (self.last, self.recent, self.is_new) = (Some(snapshot), recent, true);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.is_over = true,
        }
    }
}

impl Snapshot {
    /// What two loops did. A slice of both has no percentiles, which cannot be added.
    fn and(mut self, other: Snapshot) -> Snapshot {
        self.at_ns = self.at_ns.max(other.at_ns);
        self.loops += other.loops;
        self.hits += other.hits;
        self.body_bytes += other.body_bytes;
        self.connections += other.connections;
        self.handshakes += other.handshakes;
        self.errors.iter_mut().zip(other.errors).for_each(|(count, more)| *count += more);
        self.client_cpu_ns += other.client_cpu_ns;
        self.window = None;
        self.slice = self.slice.zip(other.slice).map(|(mut slice, other)| {
            slice.add_counts(&other);
            Slice { latency_ns_p50: 0, latency_ns_p99: 0, ..slice }
        });
        self.negotiated = self.negotiated.or(other.negotiated);
        self
    }
}

impl Watched {
    /// Whether a snapshot is asked for; then it must be told.
    pub fn is_asked(&self) -> bool {
        // A load alone leaves the flag's cache line shared while nobody asks.
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Relaxed)
    }

    /// Answers with the snapshot, and with the latencies since the last one, for which `exchange` takes empty ones.
    pub(super) fn tell(
        &self,
        snapshot: Snapshot,
        exchange: impl FnOnce(Box<RecentLatencies>) -> Option<Box<RecentLatencies>>,
    ) {
        let recent = self.emptied.try_recv().ok().and_then(exchange);
        // A display that has not taken the last one yet, or is gone, does without this one. Latencies are not lost: it
        // gives back empty ones when it takes an answer.
        let _ = self.answers.try_send((snapshot, recent));
    }

    /// Whether the display shows latencies.
    pub fn wants_latencies(&self) -> bool {
        self.latencies
    }

    /// Answers with what a loop on another machine told.
    pub fn pass_on(&self, snapshot: Snapshot, latencies: &RecordedLatencies) {
        self.tell(snapshot, |mut recent| {
            for (histogram, values) in recent.0.iter_mut().zip(latencies) {
                values.iter().for_each(|(value, count)| histogram.saturating_record_n(*value, *count));
            }
            Some(recent)
        });
    }

    /// Where latencies are recorded for the display, if it wants them.
    pub(super) fn recent(&self) -> Option<Box<RecentLatencies>> {
        self.latencies.then(|| Box::new(RecentLatencies::new()))
    }
}

/// Latencies in the order of [`Phase::ALL`]: values in nanoseconds with how often each occurred.
pub type RecordedLatencies = [Vec<(u64, u32)>; Phase::ALL.len()];

/// The latencies since the last snapshot, to two digits: 20 KiB for each phase, few of which are touched.
#[derive(Debug)]
pub struct RecentLatencies([Histogram<u32>; Phase::ALL.len()]);

impl RecentLatencies {
    fn new() -> RecentLatencies {
        let histogram = |()| Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("bounds and precision are valid");
        RecentLatencies([(); Phase::ALL.len()].map(histogram))
    }

    pub fn record(&mut self, phase: Phase, nanoseconds: u64) {
        self.0[phase as usize].saturating_record(nanoseconds);
    }

    /// Adds what is in another, which begins anew.
    fn take_from(&mut self, other: &mut RecentLatencies) {
        for (all, more) in self.0.iter_mut().zip(&mut other.0) {
            // Both have the same bounds and digits.
            all.add(&*more).expect("what one histogram holds has room in the other");
            more.reset();
        }
    }

    /// What there is, one by one; begins anew.
    fn recorded(&mut self) -> RecordedLatencies {
        self.0.each_mut().map(|latencies| {
            let all = latencies.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value()));
            let all = all.collect();
            latencies.reset();
            all
        })
    }

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
    use crate::load::recorder::Recorder;

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
    fn several_loops_are_shown_as_one() {
        let (mut watcher, watched) = watch(true, 2);
        let mut recorders =
            watched.iter().map(|watched| Recorder::new(None, true, watched.recent())).collect::<Vec<_>>();
        let answer = |at: usize, hits: u64, recorders: &mut Vec<Recorder>| {
            (0..hits).for_each(|hit| recorders[at].hit((1 + hit) * 1_000_000, None));
            let snapshot = recorders[at].snapshot(7, 5, None);
            watched[at].tell(snapshot, |empty| recorders[at].take_recent(empty));
        };
        for _ in 0..2 {
            watcher.ask();
            answer(0, 80, &mut recorders);
            assert_eq!(watcher.snapshot(), None, "one of two");
            answer(1, 20, &mut recorders);
            let both = watcher.snapshot().unwrap();
            assert_eq!((both.loops, both.client_cpu_ns), (2, 10));
            let whole = both.recent[Phase::WholeResponse as usize];
            assert_eq!(whole.count, 100, "since the last question");
            assert!(whole.p50_ns.abs_diff(30_000_000) <= 500_000, "of all together: {}", whole.p50_ns);
            assert_eq!(watcher.snapshot(), None, "told once");
        }
        drop(watched);
        assert_eq!(watcher.snapshot(), None, "nobody is left");
    }

    #[test]
    fn a_question_is_answered_once() {
        let (watcher, watched) = watch(false, 1);
        assert!(!watched[0].is_asked() && watched[0].recent().is_none());
        watcher.ask();
        assert!(watched[0].is_asked() && !watched[0].is_asked());
    }
}
