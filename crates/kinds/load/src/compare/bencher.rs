//! A comparison in Bencher Metric Format, by which bencher.dev keeps measurements over time
//! (<https://bencher.dev/docs/reference/bencher-metric-format/>): benchmarks, each with measures by their slugs.

use serde_json::{Value, json};
use tlsdyno_record::model::ComparedQuantity;
use tlsdyno_stats::compared::Comparison;

/// The name of the benchmark where points have no names.
const BENCHMARK: &str = "tlsdyno";

/// The second's values in nanoseconds or hits/s, and changes in per cent with their intervals. What a shared machine
/// does to a value it does to both, so that alerts should look at changes.
pub fn metrics(comparisons: &[Comparison]) -> Value {
    let mut benchmarks = json!({});
    for of in comparisons {
        let benchmark = &mut benchmarks[of.point.as_deref().unwrap_or(BENCHMARK)];
        let (measure, change) = (slug(of.quantity), of.change_percent);
        if let Some(value) = of.second {
            benchmark[measure] = json!({"value": value});
        }
        let ends = [("value", change.value), ("lower_value", change.low), ("upper_value", change.high)];
        // An end may be unknown, for which JSON has no number.
        let known = ends.into_iter().filter(|(_, number)| number.is_finite());
        benchmark[format!("{measure}-change-percent")] = known.map(|(name, of)| (name.to_owned(), json!(of))).collect();
    }
    benchmarks
}

/// The name of a measure. `throughput` is one of Bencher's own.
fn slug(quantity: ComparedQuantity) -> &'static str {
    match quantity {
        ComparedQuantity::CpuPerHit => "cpu-per-hit",
        ComparedQuantity::InstructionsPerHit => "instructions-per-hit",
        ComparedQuantity::HitsPerSecond => "throughput",
        ComparedQuantity::LatencyP50 => "latency-p50",
        ComparedQuantity::LatencyP99 => "latency-p99",
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_stats::Estimate;
    use tlsdyno_stats::compared::Word;

    use super::*;

    #[test]
    fn measures_stand_below_their_benchmark() {
        let of = |point: Option<&str>, quantity, second, high| Comparison {
            point: point.map(str::to_owned),
            quantity,
            first: second,
            second,
            change_percent: Estimate { value: 1.0, low: -2.0, high },
            word: Word::Undecided,
        };
        let told = metrics(&[
            of(None, ComparedQuantity::CpuPerHit, Some(708e3), 4.0),
            of(None, ComparedQuantity::HitsPerSecond, None, f64::INFINITY),
            of(Some("80 %"), ComparedQuantity::LatencyP99, Some(2e6), 4.0),
        ]);
        let change = json!({"value": 1.0, "lower_value": -2.0, "upper_value": 4.0});
        assert_eq!(told["tlsdyno"]["cpu-per-hit"], json!({"value": 708e3}));
        assert_eq!(told["tlsdyno"]["cpu-per-hit-change-percent"], change);
        assert_eq!(told["tlsdyno"]["throughput-change-percent"], json!({"value": 1.0, "lower_value": -2.0}));
        assert_eq!(told["80 %"], json!({"latency-p99": {"value": 2e6}, "latency-p99-change-percent": change}));
    }
}
