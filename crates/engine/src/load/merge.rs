//! From what the loops of a load did to what the load did. Counts are summed, histograms added, which loses nothing;
//! no percentile is made of percentiles.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::AddAssign;

use hdrhistogram::Histogram;

use super::limits::LIVES_CLIENTS;
use super::lives::Life;
use super::outcome::{Handshakes, Http2Use, LoopOutcome, Outcome, Phase};
use super::recorder::histogram;
use super::slices::{Slice, SliceLatencies};

/// What the load did, of what its loops did; their [`Outcome::began_ns`] are of one clock. `None` without loops.
/// Histograms are large: of loops that come one by one there are no more at once than the sum and the last one's.
pub fn merge(loops: impl IntoIterator<Item = (String, Outcome)>) -> Option<Outcome> {
    let mut phases = BTreeMap::new();
    let without_phases = |(name, mut outcome): (String, Outcome)| {
        add_phases(&mut phases, std::mem::take(&mut outcome.phases));
        (name, outcome)
    };
    let loops: Vec<(String, Outcome)> = loops.into_iter().map(without_phases).collect();
    let began_ns = loops.iter().map(|(_, outcome)| outcome.began_ns).min()?;
    let ended_ns = loops.iter().map(|(_, outcome)| outcome.began_ns + outcome.elapsed_ns).max()?;
    let parts = loops.iter().map(|(name, outcome)| LoopOutcome {
        name: name.clone(),
        hits: outcome.hits,
        connections: outcome.connections,
        handshakes: outcome.handshakes,
        errors: outcome.errors.values().sum(),
        began_after_ns: outcome.began_ns - began_ns,
        elapsed_ns: outcome.elapsed_ns,
        client_cpu_ns: outcome.client_cpu_ns,
    });
    let parts = parts.collect();
    let lives = merged_lives(&loops, began_ns);
    let mut all = loops.into_iter().map(|(_, outcome)| outcome);
    let mut whole = all.next()?;
    let mut slices = vec![(std::mem::take(&mut whole.slices), std::mem::take(&mut whole.slice_latencies))];
    for outcome in all {
        whole.hits += outcome.hits;
        whole.body_bytes += outcome.body_bytes;
        whole.connections += outcome.connections;
        whole.handshakes += outcome.handshakes;
        whole.client_cpu_ns += outcome.client_cpu_ns;
        sum(&mut whole.errors, outcome.errors);
        sum(&mut whole.statuses, outcome.statuses);
        sum(&mut whole.tls_faults, outcome.tls_faults);
        sum(&mut whole.negotiated, outcome.negotiated);
        if let Some(http2) = outcome.http2 {
            *whole.http2.get_or_insert_default() += http2;
        }
        whole.gave_up |= outcome.gave_up;
        whole.unserved += outcome.unserved;
        whole.stopped |= outcome.stopped;
        whole.redirects_followed += outcome.redirects_followed;
        whole.redirects_unfinished += outcome.redirects_unfinished;
        whole.kept = whole.kept.zip(outcome.kept).map(|(one, other)| one.with(other));
        slices.push((outcome.slices, outcome.slice_latencies));
    }
    whole.slices = merged_slices(&slices);
    (whole.phases, whole.lives) = (phases, lives);
    (whole.began_ns, whole.elapsed_ns, whole.parts) = (began_ns, ended_ns - began_ns, parts);
    Some(whole)
}

fn add_phases(all: &mut BTreeMap<Phase, Histogram<u64>>, more: BTreeMap<Phase, Histogram<u64>>) {
    for (phase, latencies) in more {
        match all.entry(phase) {
            Entry::Vacant(place) => drop(place.insert(latencies)),
            Entry::Occupied(mut place) => {
                // All have the same bounds and digits.
                place.get_mut().add(&latencies).expect("what one histogram holds has room in the other");
            }
        }
    }
}

impl AddAssign for Handshakes {
    fn add_assign(&mut self, other: Handshakes) {
        self.full += other.full;
        self.resumed_intended += other.resumed_intended;
        self.resumed_offered += other.resumed_offered;
        self.resumed_accepted += other.resumed_accepted;
        self.early_offered += other.early_offered;
        self.early_accepted += other.early_accepted;
        self.retried_count += other.retried_count;
    }
}

impl AddAssign for Http2Use {
    fn add_assign(&mut self, other: Http2Use) {
        self.chosen_count += other.chosen_count;
        self.downgraded_count += other.downgraded_count;
        self.repeated_count += other.repeated_count;
        sum(&mut self.faults, other.faults);
    }
}

fn sum<K: Ord>(counts: &mut BTreeMap<K, u64>, others: BTreeMap<K, u64>) {
    others.into_iter().for_each(|(key, count)| *counts.entry(key).or_default() += count);
}

/// The slices of all loops, each with the others of its number: they began together and have one length.
fn merged_slices(loops: &[(Vec<Slice>, Vec<SliceLatencies>)]) -> Vec<Slice> {
    if let [(slices, _)] = loops {
        return slices.clone();
    }
    let longest = loops.iter().map(|(slices, _)| slices.len()).max().unwrap_or(0);
    let mut together: Histogram<u64> = histogram();
    let merged = (0..longest).map(|at| {
        together.reset();
        let latencies = loops.iter().filter_map(|(_, latencies)| latencies.get(at)).flat_map(|latency| &latency.0);
        latencies.for_each(|(value, count)| together.saturating_record_n(*value, *count));
        let mut whole = Slice {
            latency_ns_p50: together.value_at_quantile(0.5),
            latency_ns_p99: together.value_at_quantile(0.99),
            ..Slice::default()
        };
        for slice in loops.iter().filter_map(|(slices, _)| slices.get(at)) {
            whole.add_counts(slice);
        }
        whole
    });
    merged.collect()
}

/// The first clients' connections of all loops, on one clock; none where one loop had too many to keep.
fn merged_lives(loops: &[(String, Outcome)], began_ns: u64) -> Vec<Life> {
    if loops.iter().any(|(_, outcome)| outcome.lives.is_empty() && outcome.connections > 0) {
        return Vec::new();
    }
    let of_loop = |(index, (_, outcome)): (usize, &(String, Outcome))| {
        let late_ns = outcome.began_ns - began_ns;
        let life = move |life: Life| Life {
            client_number: life.client_number * loops.len() as u32 + index as u32,
            opened_ns: life.opened_ns + late_ns,
            closed_ns: life.closed_ns + late_ns,
            ..life
        };
        outcome.lives.iter().copied().map(life).collect::<Vec<_>>()
    };
    let lives = loops.iter().enumerate().flat_map(of_loop);
    lives.filter(|life| life.client_number < LIVES_CLIENTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::outcome::ErrorKind;
    use crate::load::recorder::Recorder;

    /// A loop that began then and had these latencies, in slices of 100 ns.
    fn outcome(began_ns: u64, latencies: &[u64]) -> Outcome {
        let mut recorder = Recorder::new(Some(100), true, None);
        recorder.cut(began_ns);
        for (at, &latency) in (1..).zip(latencies) {
            recorder.hit(latency, None);
            recorder.cut(began_ns + at * 50);
        }
        let life = Life { client_number: 0, opened_ns: 10, closed_ns: 90, resumed: None, served_count: 1 };
        recorder.lives.iter_mut().for_each(|lives| lives.note(life));
        recorder.error(ErrorKind::Reset);
        Outcome { began_ns, elapsed_ns: latencies.len() as u64 * 50, client_cpu_ns: 70, ..recorder.finish() }
    }

    #[test]
    fn counts_are_summed_histograms_added_and_slices_laid_over_each_other() {
        let loops = [outcome(1000, &[1_000, 2_000, 3_000, 4_000]), outcome(1020, &[500_000, 9_000])];
        let whole = merge(loops.into_iter().map(|outcome| ("a loop".to_owned(), outcome))).unwrap();
        assert_eq!((whole.hits, whole.errors[&ErrorKind::Reset], whole.client_cpu_ns), (6, 2, 140));
        assert_eq!((whole.began_ns, whole.elapsed_ns), (1000, 200), "from the first to begin to the last to end");
        assert_eq!(
            whole.parts.iter().map(|part| (part.hits, part.began_after_ns)).collect::<Vec<_>>(),
            [(4, 0), (2, 20)]
        );
        let alone = outcome(0, &[1_000, 2_000, 3_000, 4_000, 500_000, 9_000]);
        assert_eq!(whole.phases[&Phase::WholeResponse], alone.phases[&Phase::WholeResponse]);
        let lives: Vec<_> = whole.lives.iter().map(|life| (life.client_number, life.opened_ns)).collect();
        assert_eq!(lives, [(0, 10), (1, 30)], "each loop's clients under numbers of their own, on one clock");
        let [first, second] = whole.slices[..] else { panic!("{:?}", whole.slices) };
        assert_eq!((first.hits, first.elapsed_ns, second.hits), (4, 100, 2));
        let exact = |nanoseconds: u64| {
            let mut one = histogram();
            one.record(nanoseconds).unwrap();
            one.value_at_quantile(0.5)
        };
        assert_eq!(
            [first.latency_ns_p50, first.latency_ns_p99],
            [exact(2_000), exact(500_000)],
            "of all four together"
        );
        let alone = merge(vec![("the only one".to_owned(), alone)]).unwrap();
        assert!(alone.slices.iter().all(|slice| slice.latency_ns_p50 > 0));
        assert!(merge(Vec::new()).is_none());
    }
}
