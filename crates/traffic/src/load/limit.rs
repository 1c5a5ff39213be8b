//! Limits that a run must keep, as a gate in continuous integration gives them: `p99 > 50ms` fails.

use std::fmt;
use std::str::FromStr;

use tlsdyno_base::histogram::Percentiles;
use tlsdyno_base::units::{format_duration, format_percent, format_quantity, format_rate};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::ChangeLimit;
use tlsdyno_record::store::load_run::Summary;

/// The value of --fail-if, where it may be of either kind.
#[derive(Clone, Debug)]
pub enum Limit {
    Run(RunLimit),
    /// What it is by comparison with another.
    Change(ChangeLimit),
}

impl FromStr for Limit {
    type Err = String;

    /// A percentage with its sign is a change.
    fn from_str(text: &str) -> Result<Limit, String> {
        let value = text.trim_start_matches(|letter| !['<', '>'].contains(&letter)).trim_start_matches(['<', '>', '=']);
        match value.trim_start().starts_with(['+', '-']) {
            true => text.parse().map(Limit::Change),
            false => text.parse().map(Limit::Run),
        }
    }
}

#[derive(Clone, Debug)]
pub struct RunLimit {
    text: String,
    what: What,
    fails_above: bool,
    fails_at: bool,
    /// Hits per second, nanoseconds, per cent, or a count.
    value: f64,
}

#[derive(Clone, Copy, Debug)]
enum What {
    HitsPerSecond,
    Latency(fn(&Percentiles) -> u64),
    Errors,
    ErrorPercent,
    Resumed,
    /// Clients that kept their rate, per cent.
    Kept,
}

impl FromStr for RunLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<RunLimit, String> {
        let form = || format!("`{text}` is no limit; write for example 'p99 > 50ms', 'hits/s < 2000' or 'errors > 0'");
        let at = text.find(['<', '>']).ok_or_else(form)?;
        let (name, rest) = text.split_at(at);
        let fails_at = rest[1..].starts_with('=');
        let value = rest[1 + usize::from(fails_at)..].trim();
        let name = name.trim().to_ascii_lowercase();
        let is_percent = value.ends_with('%');
        let what = match name.as_str() {
            "hits/s" | "rps" | "requests/s" => What::HitsPerSecond,
            "p50" | "median" => What::Latency(|latency| latency.p50),
            "p90" => What::Latency(|latency| latency.p90),
            "p99" => What::Latency(|latency| latency.p99),
            "p99.9" => What::Latency(|latency| latency.p999),
            "max" => What::Latency(|latency| latency.max),
            "mean" => What::Latency(|latency| latency.mean),
            "errors" if is_percent => What::ErrorPercent,
            "errors" => What::Errors,
            "resumed" => What::Resumed,
            "kept" => What::Kept,
            _ => {
                return Err(format!(
                    "`{name}` is nothing that a run is measured by; known are hits/s, p50, p90, p99, p99.9, max, mean, \
                     errors, resumed, kept"
                ));
            }
        };
        let number =
            || value.trim_end_matches('%').trim_end().trim_end_matches("/s").parse::<f64>().map_err(|_| form());
        let value = match what {
            // A latency without a unit would be read as seconds by some and as milliseconds by others.
            What::Latency(_) if value.ends_with(|last: char| last.is_ascii_digit()) => {
                return Err(format!("`{text}`: give the time a unit, for example {value}ms"));
            }
            What::Latency(_) => value.parse::<Time>()?.0.as_nanos() as f64,
            _ => number()?,
        };
        let fails_above = rest.starts_with('>');
        Ok(RunLimit { text: text.trim().to_owned(), what, fails_above, fails_at, value })
    }
}

impl fmt::Display for RunLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl RunLimit {
    /// What a run had instead, if it broke the limit. What it did not measure breaks it too: a gate must not pass
    /// because nothing was served.
    pub fn broken_by(&self, run: &Summary) -> Option<String> {
        let Some(value) = self.value_of(run) else {
            return Some(format!("{} fails: not measured", self.text));
        };
        let beyond = if self.fails_above { value > self.value } else { value < self.value };
        let broken = beyond || self.fails_at && value == self.value;
        broken.then(|| format!("{} fails: it is {}", self.text, self.shown(value)))
    }

    fn value_of(&self, run: &Summary) -> Option<f64> {
        let errors: u64 = run.outcome.errors.values().sum();
        Some(match self.what {
            What::HitsPerSecond => run.hits_per_second,
            What::Latency(value) => value(run.latency()?) as f64,
            What::Errors => errors as f64,
            What::ErrorPercent => 100.0 * errors as f64 / (run.outcome.hits + errors).max(1) as f64,
            What::Resumed => run.reuse_percent_achieved?,
            What::Kept => run.outcome.kept?.share() * 100.0,
        })
    }

    fn shown(&self, value: f64) -> String {
        match self.what {
            What::HitsPerSecond => format_rate(value),
            What::Latency(_) => format_duration(value),
            What::Errors => format_quantity(value),
            What::ErrorPercent | What::Resumed | What::Kept => format_percent(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_engine::load::{ErrorKind, Outcome, Phase};
    use tlsdyno_record::model::ComparedQuantity;

    use super::*;

    fn run() -> Summary {
        let latency = Percentiles { p50: 2_000_000, p99: 51_000_000, ..Percentiles::default() };
        Summary {
            hits_per_second: 1500.0,
            outcome: Outcome { hits: 999, errors: [(ErrorKind::Reset, 1)].into(), ..Outcome::default() },
            latency_ns: [(Phase::WholeResponse, latency)].into(),
            ..Summary::default()
        }
    }

    #[test]
    fn a_run_breaks_the_limits_that_it_is_beyond() {
        let broken = |text: &str| text.parse::<RunLimit>().unwrap().broken_by(&run());
        let said = broken("p99 > 50ms").unwrap();
        assert!(said.contains("p99 > 50ms") && said.contains("51"), "{said}");
        for kept in ["p99>60ms", "p50 > 2ms", "hits/s < 1500", "errors > 1", "errors > 1%", "p99 < 1ms"] {
            assert_eq!(broken(kept), None, "{kept}");
        }
        for fails in ["p50 >= 2ms", "hits/s <= 1500", "errors>0", "errors > 0.05%", "hits/s < 2k"] {
            let limit = fails.parse::<RunLimit>();
            assert!(limit.is_err() || limit.unwrap().broken_by(&run()).is_some(), "{fails}");
        }
        assert!(broken("resumed < 1%").unwrap().contains("not measured"));
    }

    #[test]
    fn a_percentage_with_a_sign_is_a_change() {
        let Ok(Limit::Change(limit)) = "cpu/hit > +3 %".parse() else { panic!("a change") };
        assert_eq!((limit.quantity, limit.fails_above, limit.percent), (ComparedQuantity::CpuPerHit, true, 3.0));
        let Ok(Limit::Change(limit)) = "Hits/s<=-5.5%".parse() else { panic!("a change") };
        assert_eq!((limit.quantity, limit.fails_above, limit.percent), (ComparedQuantity::HitsPerSecond, false, -5.5));
        assert!(matches!("errors > 0.1%".parse(), Ok(Limit::Run(_))));
        let said = |text: &str| text.parse::<ChangeLimit>().unwrap_err();
        assert!(said("p99 > 5%").contains("'cpu/hit > +3%'") && said("errors > +5%").contains("hits/s"));
    }

    #[test]
    fn what_is_no_limit_says_what_is() {
        let said = |text: &str| text.parse::<Limit>().unwrap_err();
        assert!(said("p99 = 50ms").contains("'p99 > 50ms'"));
        assert!(said("p98 > 50ms").contains("p99.9"));
        assert!(said("p99 > 50").contains("50ms"));
        assert!(said("errors > many").contains("write"));
    }
}
