//! The numbers of a round that are counted up over time, and histograms of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tlsdyno_tls::named;

use super::buckets::{Bucket, Counts, counts_of, gaps_of};
use super::round::Round;

named! {
    /// A number that a round gives, in nanoseconds.
    pub enum Measure: "measure" {
        /// The name look-up.
        Lookup = "lookup",
        /// T: TCP alone.
        Tcp = "tcp",
        /// Hello to the server's first flight, full handshake.
        FullHello = "full_hello",
        /// S: full handshake.
        Full = "full",
        /// Finished to the first byte of the answer, full handshake.
        FullFirstByte = "full_first_byte",
        /// H: Finished to the last byte of the answer, full handshake.
        FullWhole = "full_whole",
        /// Hello to the server's first flight, resumed handshake.
        ResumedHello = "resumed_hello",
        /// S of a resumed handshake.
        Resumed = "resumed",
        /// Finished to the first byte of the answer, resumed handshake.
        ResumedFirstByte = "resumed_first_byte",
        /// Finished to the last byte of the answer, resumed handshake.
        ResumedWhole = "resumed_whole",
        /// TCP, and hello to last byte, with early data.
        Early = "early",
        /// W: T + S + H of a round, full handshake.
        Without = "without",
        /// C: the same with the resumed handshake.
        With = "with",
    }
}

impl Measure {
    /// The number that a round gives. A resumption that was rejected gives none of a resumed handshake.
    fn of(self, round: &Round) -> Option<u64> {
        let without_ns = || Some(round.tcp_ns? + round.full?.handshake_ns + round.full?.whole_ns);
        match self {
            Measure::Lookup => round.lookup_ns,
            Measure::Tcp => round.tcp_ns,
            Measure::FullHello => Some(round.full?.hello_ns),
            Measure::Full => Some(round.full?.handshake_ns),
            Measure::FullFirstByte => Some(round.full?.first_byte_ns),
            Measure::FullWhole => Some(round.full?.whole_ns),
            Measure::ResumedHello => Some(round.resumed?.hello_ns),
            Measure::Resumed => Some(round.resumed?.handshake_ns),
            Measure::ResumedFirstByte => Some(round.resumed?.first_byte_ns),
            Measure::ResumedWhole => Some(round.resumed?.whole_ns),
            Measure::Early => Some(round.early?.tcp_ns + round.early?.whole_ns),
            Measure::Without => without_ns(),
            Measure::With => Some(without_ns()? - round.full?.handshake_ns + round.resumed?.handshake_ns),
        }
    }
}

/// Longer times are counted as this, in nanoseconds: an hour.
const MAX_NS: u64 = 3_600_000_000_000;

/// How many values of each measure were in each bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Measures([Counts; Measure::ALL.len()]);

/// As it is kept in a store: by the name of the measure what [`gaps_of`] makes of its buckets.
type Stored = BTreeMap<String, Vec<u32>>;

impl From<Measures> for Stored {
    fn from(measures: Measures) -> Stored {
        let recorded = Measure::ALL.into_iter().filter(|measure| !measures.counts(*measure).is_empty());
        recorded.map(|measure| (measure.to_string(), gaps_of(&measures.ascending(measure)))).collect()
    }
}

impl TryFrom<Stored> for Measures {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Measures, &'static str> {
        let mut measures = Measures::default();
        for (name, gaps) in stored {
            // A measure that this version does not know is passed over.
            if let Ok(measure) = name.parse::<Measure>() {
                measures.0[measure as usize] = counts_of(&gaps).ok_or("a histogram is damaged")?;
            }
        }
        Ok(measures)
    }
}

impl Measures {
    pub fn record_round(&mut self, round: &Round) {
        for measure in Measure::ALL {
            if let Some(ns) = measure.of(round) {
                self.record(measure, ns);
            }
        }
    }

    pub fn record(&mut self, measure: Measure, ns: u64) {
        self.0[measure as usize].push((Bucket::of(ns.min(MAX_NS)), 1));
    }

    /// Buckets with their counts, in no order; a bucket may be there several times.
    pub fn counts(&self, measure: Measure) -> &[(Bucket, u32)] {
        &self.0[measure as usize]
    }

    pub fn count(&self, measure: Measure) -> u64 {
        self.counts(measure).iter().map(|(_, count)| u64::from(*count)).sum()
    }

    pub fn keep(&mut self, kept: &[Measure]) {
        let gone = Measure::ALL.iter().filter(|measure| !kept.contains(measure));
        gone.for_each(|measure| self.0[*measure as usize] = Counts::new());
    }

    /// Buckets with their counts, ascending, each once.
    pub fn ascending(&self, measure: Measure) -> Counts {
        let mut counts = self.counts(measure).to_vec();
        counts.sort_unstable();
        counts.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 = kept.1.saturating_add(if is_same { next.1 } else { 0 });
            is_same
        });
        counts
    }

    /// The quantile `q` (0 to 1): the middle of the bucket that it lies in.
    pub fn quantile(&self, measure: Measure, q: f64) -> Option<u64> {
        quantile(&self.ascending(measure), q)
    }

    /// All buckets of a measure in a sequence of groups with their counts, ascending, each once.
    pub fn added<'a>(measure: Measure, all: impl Iterator<Item = &'a Measures> + Clone) -> Counts {
        let mut groups = all.clone();
        if let (Some(one), None) = (groups.next(), groups.next()) {
            return one.ascending(measure);
        }
        let mut ends = (usize::MAX, 0);
        for one in all.clone() {
            for (bucket, _) in one.counts(measure) {
                ends = (ends.0.min(bucket.number()), ends.1.max(bucket.number()));
            }
        }
        let (first, last) = ends;
        if first > last {
            return Counts::new();
        }
        // One addition a value, where sorting them all would take a dozen comparisons.
        let mut counts = vec![0u32; last - first + 1];
        for one in all {
            for (bucket, count) in one.counts(measure) {
                let sum = &mut counts[bucket.number() - first];
                *sum = sum.saturating_add(*count);
            }
        }
        let seen = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        seen.filter_map(|(place, count)| Some((Bucket::numbered((first + place) as u32)?, count))).collect()
    }

    /// All groups of a sequence added up.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Measures> + Clone) -> Measures {
        let mut sum = Measures::default();
        Measure::ALL.iter().for_each(|measure| sum.0[*measure as usize] = Measures::added(*measure, all.clone()));
        sum
    }

    pub fn merge(&mut self, other: &Measures) {
        for (mine, more) in self.0.iter_mut().zip(&other.0) {
            mine.extend_from_slice(more);
        }
    }
}

/// The quantile of ascending buckets with their counts.
pub fn quantile(ascending: &[(Bucket, u32)], q: f64) -> Option<u64> {
    let total: u64 = ascending.iter().map(|(_, count)| u64::from(*count)).sum();
    let rank = ((total as f64 * q).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0;
    let found = ascending.iter().find(|(_, count)| {
        seen += u64::from(*count);
        seen >= rank
    });
    found.map(|(bucket, _)| bucket.middle())
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::round::Visit;

    fn stored(measures: &Measures) -> Vec<u8> {
        rmp_serde::to_vec_named(measures).unwrap()
    }

    #[test]
    fn measures_survive_and_add_up() {
        let visit = |handshake_ns| Some(Visit { handshake_ns, whole_ns: 10_000_000, ..Visit::default() });
        let round = |full, resumed| Round {
            tcp_ns: Some(1_000_000),
            full: visit(full),
            resumed: visit(resumed),
            ..Round::default()
        };
        let mut measures = Measures::default();
        for round in [round(5_000_000, 2_000_000), round(5_000_000, 6_000_000)] {
            measures.record_round(&round);
        }
        let mut read: Measures = rmp_serde::from_slice(&stored(&measures)).unwrap();
        for measure in Measure::ALL {
            assert_eq!(read.ascending(measure), measures.ascending(measure), "{measure}");
        }
        read.merge(&measures);
        assert_eq!([Measure::With, Measure::Without, Measure::Early].map(|of| read.count(of)), [4, 4, 0]);
        let without = read.quantile(Measure::Without, 0.5).unwrap() as f64;
        assert!((without / 16e6 - 1.0).abs() < 0.001, "{without}");
    }

    #[test]
    fn what_another_version_counts_is_passed_over_and_damage_is_told() {
        let read = |name: &str, gaps: &[u32]| Measures::try_from(Stored::from([(name.to_owned(), gaps.to_vec())]));
        assert_eq!(read("to_the_moon", &[1, 2]), Ok(Measures::default()));
        assert!(read("tcp", &[1, 2, 0, 3]).is_ok());
        for damaged in [&[1][..], &[u32::MAX, 1], &[1, 2, u32::MAX, 1]] {
            assert!(read("tcp", damaged).is_err(), "{damaged:?}");
        }
    }

    /// HdrHistogram's own idea of its buckets, for values of every size.
    #[test]
    fn buckets_are_those_of_the_library() {
        let mut random = tlsdyno_base::random::SplitMix64::new(5);
        let mut measures = Measures::default();
        let mut histogram = Histogram::<u64>::new_with_bounds(1, MAX_NS, 3).unwrap();
        for _ in 0..5000 {
            let ns = (random.next_u64() >> (22 + random.below(42))).min(MAX_NS);
            measures.record(Measure::Tcp, ns);
            histogram.record(ns).unwrap();
        }
        let read: Measures = rmp_serde::from_slice(&stored(&measures)).unwrap();
        let lowest = |counts: &[(Bucket, u32)]| -> Vec<(u64, u64)> {
            counts.iter().map(|(bucket, count)| (bucket.lowest(), u64::from(*count))).collect()
        };
        let of_library: Vec<(u64, u64)> = histogram
            .iter_recorded()
            .map(|step| (histogram.lowest_equivalent(step.value_iterated_to()), step.count_at_value()))
            .collect();
        assert_eq!(lowest(read.counts(Measure::Tcp)), of_library);
        let library = read.counts(Measure::Tcp);
        assert_eq!(measures.ascending(Measure::Tcp), library);
        assert!(library.iter().all(|(bucket, _)| Bucket::of(bucket.middle()) == *bucket));
        assert_eq!(Measures::added(Measure::Tcp, [&measures].into_iter()), library);
        let twice: Vec<(Bucket, u32)> = library.iter().map(|(bucket, count)| (*bucket, 2 * count)).collect();
        assert_eq!(Measures::sum([&measures, &read].into_iter()).counts(Measure::Tcp), twice);
    }
}
