//! Numbers as people read them: the one place that gives them digits, separators and units. Records hold plain numbers;
//! only what is printed holds these texts.
//!
//! A kB is 1000 bytes, a KiB 1024: traffic is told in the first, sizes of files beside the papers' in the second.

/// What stands for a value that is not known.
pub const NONE: &str = "–";
/// What stands for an interval that cannot be told.
pub const UNDECIDED: &str = "undecided";

/// A whole number with its thousands set apart: `12,345`.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

/// `12,345` for large values, three significant digits for small ones.
pub fn format_quantity(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => NONE.to_owned(),
        size if size < 99.95 => significant(value),
        size if value < 0.0 => format!("-{}", format_count(size.round() as u64)),
        size => format_count(size.round() as u64),
    }
}

/// `1,234 /s`.
pub fn format_rate(per_second: f64) -> String {
    format!("{} /s", format_quantity(per_second))
}

/// One digit after the point; never `-0.0`.
pub fn format_tenths(value: f64) -> String {
    if value.is_finite() { never_minus_zero(format!("{value:.1}")) } else { NONE.to_owned() }
}

/// A number without a sign where it has no digit but 0.
pub fn never_minus_zero(text: String) -> String {
    let is_zero = !text.contains(|c: char| ('1'..='9').contains(&c));
    if is_zero { text.replacen('-', "", 1) } else { text }
}

/// `1 request`, `2.5 requests`: a number with its noun, which has an `s` behind it where there is not one of it.
pub fn format_of(number: f64, noun: &str) -> String {
    let text = if number < 1000.0 { format_short(number) } else { format_quantity(number) };
    format!("{text} {noun}{}", if text == "1" { "" } else { "s" })
}

/// Nanoseconds as microseconds, without the unit: `412.0`.
pub fn format_micros(nanoseconds: f64) -> String {
    format_tenths(nanoseconds / 1e3)
}

/// `41.2 %`.
pub fn format_percent(value: f64) -> String {
    if value.is_finite() { format!("{} %", format_tenths(value)) } else { NONE.to_owned() }
}

/// `[39.0, 43.1]`, or `undecided` where nothing can be said.
pub fn format_interval(low: f64, high: f64) -> String {
    format_interval_with(low, high, format_tenths)
}

/// An interval whose ends are formatted by `format`.
pub fn format_interval_with(low: f64, high: f64, format: impl Fn(f64) -> String) -> String {
    if low.is_finite() && high.is_finite() {
        let [low, high] = [low, high].map(|end| never_minus_zero(format(end)));
        format!("[{low}, {high}]")
    } else {
        UNDECIDED.to_owned()
    }
}

/// Nanoseconds in the unit that fits, with three digits: `412 µs`, `1.25 ms`.
pub fn format_duration(nanoseconds: f64) -> String {
    scaled(nanoseconds, 1000.0, &["ns", "µs", "ms", "s"])
}

/// Bytes in the decimal unit that fits, with three digits: `1.05 MB`.
pub fn format_bytes(bytes: f64) -> String {
    scaled(bytes, 1000.0, &["B", "kB", "MB", "GB", "TB"])
}

/// Bytes in the binary unit that fits, with three digits: `279 KiB`.
pub fn format_binary_bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Seconds in the largest unit that divides them: `300 s`, `10 min`, `1 h`.
pub fn format_seconds(seconds: u32) -> String {
    match seconds {
        seconds if seconds >= 3600 && seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        seconds if seconds >= 600 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// The day of a time in seconds since 1970: `2026-11-20`.
pub fn format_day(unix_s: i64) -> String {
    format_date(unix_s).chars().take_while(|letter| *letter != ' ').collect()
}

/// A time in seconds since 1970: `2026-11-20 16:00 UTC`.
pub fn format_date(unix_s: i64) -> String {
    let format = time::macros::format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    time::OffsetDateTime::from_unix_timestamp(unix_s)
        .ok()
        .and_then(|date| date.format(&format).ok())
        .unwrap_or_else(|| format!("{unix_s} s after 1970"))
}

/// `4`, `2.5`, `99.99`: as many digits as a number needs, two at most.
pub fn format_short(value: f64) -> String {
    never_minus_zero(format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned())
}

/// `1.25`, `12.5`, `125`: three significant digits.
fn significant(value: f64) -> String {
    let digits = match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    never_minus_zero(format!("{value:.digits$}"))
}

/// The value in the largest unit that leaves it at least 1; whole in the first unit, which cannot be divided.
fn scaled(mut value: f64, factor: f64, units: &[&str]) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    // The end of an interval may be below 0.
    if value < 0.0 {
        return format!("-{}", scaled(-value, factor, units));
    }
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= factor;
        unit += 1;
    }
    let text = if unit == 0 { format!("{value:.0}") } else { significant(value) };
    format!("{text} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(format_count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [12_345.6, 1_234_567.0, 99.96, 7.125, -1_500.0, f64::NAN].map(format_quantity),
            ["12,346", "1,234,567", "100", "7.12", "-1,500", "–"]
        );
        assert_eq!([-543_383.0, -3e6].map(format_duration), ["-543 µs", "-3.00 ms"]);
        assert_eq!([1_234.4, 12.34].map(format_rate), ["1,234 /s", "12.3 /s"]);
        assert_eq!([41.239, -0.04, f64::NAN].map(format_percent), ["41.2 %", "0.0 %", "–"]);
        assert_eq!(format_interval(39.04, 43.06), "[39.0, 43.1]");
        assert_eq!(format_interval(f64::NEG_INFINITY, 3.0), "undecided");
        // Nothing is below nothing.
        assert_eq!(format_interval_with(-0.2, -0.0, |end| format!("{end:.0}")), "[0, 0]");
        assert_eq!([-0.001, -0.25].map(format_short), ["0", "-0.25"]);
        let connections = [1.0, 2.5, 10_000.0 / 3.0].map(|count| format_of(count, "connection"));
        assert_eq!(connections, ["1 connection", "2.5 connections", "3,333 connections"]);
    }

    #[test]
    fn units_fit_their_numbers() {
        assert_eq!(
            [0.0, 940.0, 1_500.0, 41_200.0, 999_700.0, 1_250_000.0, 3e9, 120e9].map(format_duration),
            ["0 ns", "940 ns", "1.50 µs", "41.2 µs", "1.00 ms", "1.25 ms", "3.00 s", "120 s"]
        );
        assert_eq!(
            [10.0, 999.0, 1024.0, 5e8, 2e9].map(format_bytes),
            ["10 B", "999 B", "1.02 kB", "500 MB", "2.00 GB"]
        );
        let sizes = [0, 999, 1_000, 1_024, 7_142, 285_696, 1_048_575, 555_745_280].map(f64::from);
        assert_eq!(
            sizes.map(format_binary_bytes),
            ["0 B", "999 B", "0.98 KiB", "1.00 KiB", "6.97 KiB", "279 KiB", "1.00 MiB", "530 MiB"]
        );
        assert_eq!([300, 600, 7200].map(format_seconds), ["300 s", "10 min", "2 h"]);
        assert_eq!([1_795_190_400, 1_431_857_103].map(format_date), ["2026-11-20 16:00 UTC", "2015-05-17 10:05 UTC"]);
    }
}
