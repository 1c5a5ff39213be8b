//! Times as people type them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time with its unit: `10`, `10s`, `500ms`, `2m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Time(pub Duration);

/// A time of nothing, where some is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time must be longer than nothing")]
pub struct NoTime;

impl Time {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    /// In nanoseconds.
    pub const fn ns(self) -> u64 {
        self.0.as_nanos() as u64
    }

    /// In nanoseconds, of a time that must not be zero.
    pub fn nanoseconds(self) -> Result<u64, NoTime> {
        if self.ns() == 0 { Err(NoTime) } else { Ok(self.ns()) }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_nanos() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => write!(f, "{}ms", self.0.as_secs_f64() * 1e3),
        }
    }
}

impl From<Time> for String {
    fn from(time: Time) -> String {
        time.to_string()
    }
}

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Time, String> {
        text.parse()
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: f64 =
            digits.trim_end().parse().map_err(|_| format!("`{text}` is no time; write 10, 10s, 500ms or 2m"))?;
        let unit = match &text[digits.len()..] {
            "" | "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            unit => {
                return Err(format!("`{unit}` is no unit of time; known are us, ms, s, m, h"));
            }
        };
        let seconds = number * unit;
        if !(0.0..=1e7).contains(&seconds) {
            return Err(format!("`{text}` is out of range; at most 2777h"));
        }
        Ok(Time(Duration::from_secs_f64(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_being_written() {
        for text in ["10s", "500ms", "0.25ms", "7200s"] {
            let time: Time = text.parse().unwrap();
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        assert_eq!("2m".parse(), Ok(Time::seconds(120)));
        assert!("soon".parse::<Time>().is_err() && "3 parsecs".parse::<Time>().is_err());
    }
}
