//! Numbers and names as people read them. Records never hold these, only reports do.

use crate::stats::shares::{Difference, MISSING, OTHER_TLS, PLAIN_HTTP};
use crate::stats::{Ratio, Share};

/// A stage or remainder as words.
pub fn stage_label(stage: &str) -> String {
    match stage {
        "mac" => "MAC".to_owned(),
        "kdf" => "KDF".to_owned(),
        OTHER_TLS => "other TLS".to_owned(),
        PLAIN_HTTP => "plain HTTP".to_owned(),
        MISSING => "missing to 100 %".to_owned(),
        other => other.replace('_', " "),
    }
}

/// A share's name, with the stages whose cost it holds beside its own: `other TLS (with MAC, digest)`.
pub fn share_label(share: &Share) -> String {
    let stages: Vec<String> = share.without.iter().map(|stage| stage_label(stage)).collect();
    let label = stage_label(&share.stage);
    if stages.is_empty() { label } else { format!("{label} (with {})", stages.join(", ")) }
}

/// The same for narrow places: more than two stages are counted, not named.
pub fn short_share_label(share: &Share) -> String {
    match share.without.len() {
        0..=2 => share_label(share),
        stages => format!("{} (with {stages} stages)", stage_label(&share.stage)),
    }
}

/// `41.2 %`.
pub fn percent(value: f64) -> String {
    format!("{} %", tenths(value))
}

/// `[39.0, 43.1]`, or `[–]` where nothing can be said.
pub fn interval(low: f64, high: f64) -> String {
    if low.is_finite() && high.is_finite() {
        format!("[{}, {}]", tenths(low), tenths(high))
    } else {
        "[–]".to_owned()
    }
}

/// `41.2 % [39.0, 43.1]`.
pub fn share_with_interval(share: &Share) -> String {
    format!("{} {}", percent(share.percent), interval(share.low, share.high))
}

/// `0.2 % [-0.1, 0.5]`.
pub fn difference_with_interval(difference: &Difference) -> String {
    format!("{} {}", percent(difference.percent), interval(difference.low, difference.high))
}

/// `1.44 [1.40, 1.48] times`, with the sign of a bound where the client was the limit.
pub fn ratio_times(ratio: &Ratio) -> String {
    let ends =
        if ratio.high.is_finite() { format!("[{:.2}, {:.2}]", ratio.low, ratio.high) } else { "[–]".to_owned() };
    format!("{}{:.2} {ends} times", bound_sign(ratio), ratio.times)
}

/// `+44 % [+40, +48]`, what the ratio adds.
pub fn ratio_gain(ratio: &Ratio) -> String {
    let gain = |times: f64| format!("{:+.0}", 100.0 * (times - 1.0)).replace("-0", "0").replace("+0", "0");
    let ends = if ratio.high.is_finite() {
        format!("[{}, {}]", gain(ratio.low), gain(ratio.high))
    } else {
        "[–]".to_owned()
    };
    format!("{}{} % {ends}", bound_sign(ratio), gain(ratio.times))
}

/// `21.3 [20.9, 21.7]`: the ratio in per cent, without the sign.
pub fn ratio_percent(ratio: &Ratio) -> String {
    format!("{}{} {}", bound_sign(ratio), tenths(100.0 * ratio.times), interval(100.0 * ratio.low, 100.0 * ratio.high))
}

/// Something else than the server limited one of the two, so that the ratio is a bound; of both, nothing is known.
fn bound_sign(ratio: &Ratio) -> &'static str {
    match (ratio.at_most, ratio.at_least) {
        (false, false) => "",
        (true, false) => "≤ ",
        (false, true) => "≥ ",
        (true, true) => "? ",
    }
}

/// One digit after the point; never `-0.0`; `–` for no value.
pub fn tenths(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let text = format!("{value:.1}");
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

/// `12,345` for large values, three significant digits for small ones; `–` for no value.
pub fn count(value: f64) -> String {
    match value {
        value if !value.is_finite() => "–".to_owned(),
        value if value.abs() >= 100.0 => thousands(value.round() as i64),
        value if value.abs() >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// `12,345`.
pub fn whole(value: u64) -> String {
    thousands(i64::try_from(value).unwrap_or(i64::MAX))
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// Nanoseconds in the unit that fits: `412 µs`, `1.25 ms`.
pub fn duration(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ns if !ns.is_finite() => return "–".to_owned(),
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// `2026-11-20 16:00 UTC`.
pub fn date(unix_s: u64) -> String {
    let format = time::macros::format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    i64::try_from(unix_s)
        .ok()
        .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|date| date.format(&format).ok())
        .unwrap_or_else(|| format!("{unix_s} s after 1970"))
}

/// `Key agreement`.
pub fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(percent(41.239), "41.2 %");
        assert_eq!(percent(-0.04), "0.0 %");
        assert_eq!(interval(39.04, 43.06), "[39.0, 43.1]");
        assert_eq!(interval(f64::NEG_INFINITY, 3.0), "[–]");
        assert_eq!(
            [12_345.6, 1_234_567.0, 99.96, 7.125, -1_500.0, f64::NAN].map(count),
            ["12,346", "1,234,567", "100.0", "7.12", "-1,500", "–"]
        );
        assert_eq!(
            [940.0, 41_200.0, 412_000.0, 1_250_000.0, 3e9].map(duration),
            ["940 ns", "41.2 µs", "412 µs", "1.25 ms", "3.00 s"]
        );
        assert_eq!(date(1_795_190_400), "2026-11-20 16:00 UTC");
        assert_eq!(capitalised(&stage_label("key_agreement")), "Key agreement");
    }
}
