//! Stages, shares and ratios in words. Records never hold these, only reports do.

use tlsdyno_base::units::{
    UNDECIDED, format_duration, format_interval, format_interval_with, format_percent, format_tenths,
};
pub use tlsdyno_report::document::capitalised;
use tlsdyno_stats::remainders::{MISSING, OTHER_TLS, PLAIN_HTTP, TOGETHER};
use tlsdyno_stats::statement::{Difference, Lies};
use tlsdyno_stats::{PartOfWhole, Ratio};
use tlsdyno_tls::Stage;

/// A stage or remainder as words.
pub fn stage_label(stage: &str) -> String {
    match stage {
        OTHER_TLS => "rest of TLS".to_owned(),
        PLAIN_HTTP => "plain HTTP".to_owned(),
        TOGETHER => "saved only together".to_owned(),
        MISSING => "missing to 100 %".to_owned(),
        other => other.parse().map_or_else(|_| other.replace('_', " "), Stage::label),
    }
}

/// A part of a whole: `41.2 %`, `≤ 2.1 %`, `not known`.
pub fn part_number(part: PartOfWhole) -> String {
    match part {
        PartOfWhole::Number(percent) => format_percent(percent),
        PartOfWhole::AtMost(percent) => format!("≤ {}", format_percent(percent)),
        PartOfWhole::AtLeast(percent) => format!("≥ {}", format_percent(percent)),
        PartOfWhole::NotKnown => "not known".to_owned(),
    }
}

/// As [`share_interval`], of any part of a whole.
pub fn part_interval(part: PartOfWhole, low: f64, high: f64) -> String {
    if part == PartOfWhole::NotKnown { String::new() } else { format_interval(low, high) }
}

/// A computed time, which may be below 0: `−12.3 µs`.
pub fn signed_duration(nanoseconds: f64) -> String {
    let sign = if nanoseconds < 0.0 { "−" } else { "" };
    format!("{sign}{}", format_duration(nanoseconds.abs()))
}

/// `0.2 % [-0.1, 0.5]`.
pub fn difference_with_interval(difference: &Difference) -> String {
    difference.estimate().in_unit(" %", format_tenths)
}

/// `1.44` and `[1.40, 1.48]`, with the sign of a bound where the client was the limit.
pub fn ratio_columns(ratio: &Ratio) -> [String; 2] {
    let ends = format_interval_with(ratio.low, ratio.high, |end| format!("{end:.2}"));
    [format!("{}{:.2}", bound_sign(ratio), ratio.times), ends]
}

/// `1.44 [1.40, 1.48] times`.
pub fn ratio_times(ratio: &Ratio) -> String {
    match ratio.estimate().has_interval() {
        true => ratio_columns(ratio).join(" ") + " times",
        false => format!("an {UNDECIDED} number of times"),
    }
}

/// `+44 % [+40, +48]`, what the ratio adds.
pub fn ratio_gain(ratio: &Ratio) -> String {
    let gain = |times: f64| format!("{:+.0}", 100.0 * (times - 1.0)).replace("-0", "0").replace("+0", "0");
    match ratio.estimate().in_unit(" %", gain) {
        told if ratio.estimate().has_interval() => bound_sign(ratio).to_owned() + &told,
        undecided => undecided,
    }
}

/// `21.3 [20.9, 21.7]`: the ratio in per cent, without the sign.
pub fn ratio_percent(ratio: &Ratio) -> String {
    format!(
        "{}{} {}",
        bound_sign(ratio),
        format_tenths(100.0 * ratio.times),
        format_interval(100.0 * ratio.low, 100.0 * ratio.high)
    )
}

/// Sign of a bound, where something else than the server limited one of the two; of both, nothing is known.
fn bound_sign(ratio: &Ratio) -> &'static str {
    match (ratio.at_most, ratio.at_least) {
        (false, false) => "",
        (true, false) => "≤ ",
        (false, true) => "≥ ",
        (true, true) => "? ",
    }
}

/// Mark of a check: its interval lies within the allowed range, beyond it, or across an end.
pub fn mark(lies: Lies) -> &'static str {
    match lies {
        Lies::Within => "✓",
        Lies::Above | Lies::Below => "✗",
        Lies::Across => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_well() {
        assert_eq!(capitalised(&stage_label("key_agreement")), "Key agreement");
    }
}
