//! The numbers of a round that are counted up over time, and histograms of them.

use std::io::Write;

use anyhow::{Context, Error, Result};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use tlsdyno_tls::named;

use super::buckets::{self, Bucket, Counts, v2_bytes};
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
        /// W − C of a round, where that is not negative.
        Saved = "saved",
        /// C − W of a round, where that is positive.
        Lost = "lost",
    }
}

impl Measure {
    /// Its number in the histograms of every hour that was ever stored. A new measure gets the next one; none changes,
    /// and none is given again.
    pub const fn number(self) -> u8 {
        match self {
            Measure::Lookup => 0,
            Measure::Tcp => 1,
            Measure::FullHello => 2,
            Measure::Full => 3,
            Measure::FullFirstByte => 4,
            Measure::FullWhole => 5,
            Measure::ResumedHello => 6,
            Measure::Resumed => 7,
            Measure::ResumedFirstByte => 8,
            Measure::ResumedWhole => 9,
            Measure::Early => 10,
            Measure::Without => 11,
            Measure::With => 12,
            Measure::Saved => 13,
            Measure::Lost => 14,
        }
    }

    /// The measure of a number; `None`: this version does not know it.
    fn numbered(number: u8) -> Option<Measure> {
        Measure::ALL.iter().copied().find(|measure| measure.number() == number)
    }
}

/// Longer times are counted as this, in nanoseconds: an hour.
const MAX_NS: u64 = 3_600_000_000_000;

/// How many values of each measure were in each bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures([Counts; Measure::ALL.len()]);

/// The numbers that a round gives. A resumption that was rejected gives none of a resumed handshake.
pub fn of_round(round: &Round) -> Vec<(Measure, u64)> {
    let mut all = Vec::with_capacity(Measure::ALL.len());
    let mut add = |measure, ns: Option<u64>| all.extend(ns.map(|ns| (measure, ns)));
    add(Measure::Lookup, round.lookup_ns);
    add(Measure::Tcp, round.tcp_ns);
    add(Measure::FullHello, round.full.map(|visit| visit.hello_ns));
    add(Measure::Full, round.full.map(|visit| visit.handshake_ns));
    add(Measure::FullFirstByte, round.full.map(|visit| visit.first_byte_ns));
    add(Measure::FullWhole, round.full.map(|visit| visit.whole_ns));
    add(Measure::ResumedHello, round.resumed.map(|visit| visit.hello_ns));
    add(Measure::Resumed, round.resumed.map(|visit| visit.handshake_ns));
    add(Measure::ResumedFirstByte, round.resumed.map(|visit| visit.first_byte_ns));
    add(Measure::ResumedWhole, round.resumed.map(|visit| visit.whole_ns));
    add(Measure::Early, round.early.map(|visit| visit.tcp_ns + visit.whole_ns));
    if let (Some(tcp_ns), Some(full)) = (round.tcp_ns, round.full) {
        let without_ns = tcp_ns + full.handshake_ns + full.whole_ns;
        add(Measure::Without, Some(without_ns));
        if let Some(resumed) = round.resumed {
            let with_ns = tcp_ns + resumed.handshake_ns + full.whole_ns;
            add(Measure::With, Some(with_ns));
            add(Measure::Saved, without_ns.checked_sub(with_ns));
            add(Measure::Lost, with_ns.checked_sub(without_ns).filter(|lost_ns| *lost_ns > 0));
        }
    }
    all
}

impl Measures {
    /// Counts a value.
    pub fn record(&mut self, measure: Measure, ns: u64) {
        self.0[measure as usize].push((Bucket::of(ns.min(MAX_NS)), 1));
    }

    /// Buckets with their counts, in no order; a bucket may be there several times.
    pub fn counts(&self, measure: Measure) -> &[(Bucket, u32)] {
        &self.0[measure as usize]
    }

    /// How many values there are.
    pub fn count(&self, measure: Measure) -> u64 {
        self.counts(measure).iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Lets go of all measures but these.
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
        seen.filter_map(|(place, count)| Some((Bucket::numbered((first + place) as u64)?, count))).collect()
    }

    /// A sequence of groups as one.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Measures> + Clone) -> Measures {
        let mut sum = Measures::default();
        Measure::ALL.iter().for_each(|measure| sum.0[*measure as usize] = Measures::added(*measure, all.clone()));
        sum
    }

    /// Counts everything of the other too.
    pub fn merge(&mut self, other: &Measures) {
        for (mine, more) in self.0.iter_mut().zip(&other.0) {
            mine.extend_from_slice(more);
        }
    }

    /// All of them, deflated: for each its number and length, then HdrHistogram's V2.
    ///
    /// # Errors
    /// Never with values counted here.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        for measure in Measure::ALL {
            let counts = self.ascending(measure);
            if !counts.is_empty() {
                let bytes = v2_bytes(&counts, MAX_NS);
                encoder.write_all(&[measure.number()])?;
                encoder.write_all(&(bytes.len() as u32).to_be_bytes())?;
                encoder.write_all(&bytes)?;
            }
        }
        encoder.finish().context("failed to deflate histograms")
    }

    /// Reads what [`Measures::to_bytes`] made. A measure that this version does not know is passed over.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Measures> {
        let mut measures = Measures::default();
        for (number, counts) in buckets::read(bytes).map_err(Error::msg)? {
            if let Some(known) = Measure::numbered(number) {
                measures.0[known as usize] = counts;
            }
        }
        Ok(measures)
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
    use hdrhistogram::serialization::Deserializer;

    use super::*;
    use crate::round::{Resumption, Visit};

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
            of_round(&round).into_iter().for_each(|(measure, ns)| measures.record(measure, ns));
        }
        let mut read = Measures::from_bytes(&measures.to_bytes().unwrap()).unwrap();
        for measure in Measure::ALL {
            assert_eq!(read.ascending(measure), measures.ascending(measure), "{measure}");
        }
        read.merge(&measures);
        let counts = [Measure::Saved, Measure::Lost, Measure::Without, Measure::Early].map(|of| read.count(of));
        assert_eq!(counts, [2, 2, 4, 0]);
        let without = read.quantile(Measure::Without, 0.5).unwrap() as f64;
        assert!((without / 16e6 - 1.0).abs() < 0.001, "{without}");
        assert!(Measures::from_bytes(&[1, 2, 3]).is_err());
    }

    /// What these bytes say was written by tlsdyno 0.1 and must be read for ever.
    #[test]
    fn numbers_on_disk_never_change() {
        let names: Vec<&str> = (0..=u8::MAX).map_while(Measure::numbered).map(Measure::name).collect();
        let known = [
            "lookup",
            "tcp",
            "full_hello",
            "full",
            "full_first_byte",
            "full_whole",
            "resumed_hello",
            "resumed",
            "resumed_first_byte",
            "resumed_whole",
            "early",
            "without",
            "with",
            "saved",
            "lost",
        ];
        // Whoever adds one adds it behind these.
        assert_eq!(names[..known.len()], known);
        assert_eq!(names.len(), Measure::ALL.len(), "each has a number, without gaps");
        let became = (0..).map_while(Resumption::numbered).map(Resumption::name).collect::<Vec<_>>();
        assert_eq!(became[..4], ["untried", "not_given", "rejected", "accepted"]);
        assert_eq!(became.len(), Resumption::ALL.len());
        let mut measures = Measures::default();
        for measure in Measure::ALL {
            measures.record(measure, 1000 + u64::from(measure.number()));
        }
        let mut bytes = Vec::new();
        let deflated = measures.to_bytes().unwrap();
        std::io::Read::read_to_end(&mut flate2::read::DeflateDecoder::new(&deflated[..]), &mut bytes).unwrap();
        let (mut numbers, mut rest) = (Vec::new(), &bytes[..]);
        while let [number, a, b, c, d, behind @ ..] = rest {
            numbers.push(*number);
            rest = &behind[u32::from_be_bytes([*a, *b, *c, *d]) as usize..];
        }
        assert_eq!(numbers, (0..Measure::ALL.len() as u8).collect::<Vec<_>>());
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
        let read = Measures::from_bytes(&measures.to_bytes().unwrap()).unwrap();
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
        let bytes = v2_bytes(library, MAX_NS);
        let read_by_library: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert!(read_by_library == histogram, "the library reads what was written");
        assert_eq!(Measures::added(Measure::Tcp, [&measures].into_iter()), library);
        let twice: Vec<(Bucket, u32)> = library.iter().map(|(bucket, count)| (*bucket, 2 * count)).collect();
        assert_eq!(Measures::sum([&measures, &read].into_iter()).counts(Measure::Tcp), twice);
    }
}
