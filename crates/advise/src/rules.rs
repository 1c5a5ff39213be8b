//! Recommendations of others that remedies follow: what each says, of when it is, and when it was last compared with
//! its source.

use time::macros::format_description;
use time::{Date, OffsetDateTime};
use tlsdyno_base::units::format_of;
use tlsdyno_record::model::remedy::{RULES, Rule};

/// Suites up to TLS 1.2 of the profile *intermediate*.
pub(crate) const INTERMEDIATE_CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
    ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
    ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
/// Session lifetime in that profile, seconds.
pub(crate) const INTERMEDIATE_SESSION_S: u32 = 86_400;

/// Each rule in a line, with its date, its source and its age in days.
pub(crate) fn all() -> Vec<(String, i64)> {
    let today = OffsetDateTime::now_utc().date();
    let rule = |Rule { name, published, source, compared }: &Rule| {
        let days = (today - Date::parse(compared, format_description!("[year]-[month]-[day]")).ok()?).whole_days();
        Some((
            format!("By {name}, {published}: {source}, compared on {compared}, {} ago.", format_of(days as f64, "day")),
            days,
        ))
    };
    RULES.into_iter().filter_map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_tells_its_date_its_source_and_its_age() {
        let all = all();
        assert_eq!(all.len(), RULES.len(), "all dates are understood");
        let wanted = "June 2026: https://data.tlsref.org/guidelines/6.0.json, compared on 2026-";
        assert!(all[0].0.contains(wanted), "{all:?}");
    }

    mod long {
        use super::*;

        #[test]
        #[ignore = "before a release: it fails with time"]
        fn no_rule_was_compared_a_year_ago() {
            for (told, days) in all() {
                assert!(days <= 365, "compare it with its source again: {told}");
            }
        }
    }
}
