//! Histograms of durations as text, which records keep, and in a few numbers, which reports print.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

/// A histogram in a few numbers: nanoseconds, to three significant digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of recorded values.
    pub count: u64,
    /// Arithmetic mean, in the unit of the values.
    pub mean: u64,
    /// Median, in the unit of the values.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The largest value.
    pub max: u64,
}

/// A histogram in the V2 serialisation of HdrHistogram, base64.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("memory takes what is written to it");
    STANDARD.encode(bytes)
}

/// Reads a histogram from its V2 serialisation in base64.
pub fn decode(text: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(text).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// Summarises a histogram.
pub fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    let at = |q| histogram.value_at_quantile(q);
    Percentiles {
        count: histogram.len(),
        mean: histogram.mean() as u64,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_survive() {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for value in [1, 1000, 1_234_567, 3_000_000_000] {
            histogram.record(value).unwrap();
        }
        let text = encode(&histogram);
        assert_eq!(decode(&text).unwrap(), histogram);
        assert!(decode("?").is_none() && decode("AAAA").is_none());
    }
}
