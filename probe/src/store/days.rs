//! Days: hours put together, so that a report about a year reads 365 rows of a site and not 8,760.
//!
//! Circle: days are made of hours, and where rounds of an hour come late or go, the days that hold it are made anew.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use tlsdyno_tls::named;

use super::Store;
use super::database::{Database, Value};
use super::hours::{DAY_US, Hour};

/// A report about more than so many days is one by the day: hours would take it longer than a second.
const DAYS_BY_HOUR: i64 = 45;

named! {
    /// What rounds are put together by: the points of a series, the lines of a table.
    #[derive(Default)]
    pub enum By: "unit of time" {
        /// Hours.
        #[default]
        Hour = "hour",
        /// Days (UTC).
        Day = "day",
    }
}

impl By {
    /// How long it is, in seconds.
    pub fn length_s(self) -> i64 {
        match self {
            By::Hour => 3600,
            By::Day => DAY_US / 1_000_000,
        }
    }
}

/// The beginning of a moment's day; all in microseconds since 1970.
pub fn day_of(unix_us: i64) -> i64 {
    unix_us.div_euclid(DAY_US) * DAY_US
}

/// Lets go of days in this time (microseconds since 1970), for their hours change.
pub fn forget(database: &mut dyn Database, site: i64, (from_us, until_us): (i64, i64)) -> Result<()> {
    let sql = "DELETE FROM days WHERE site = $1 AND day_unix_s >= $2 AND day_unix_s < $3";
    let values = [site, day_of(from_us) / 1_000_000, until_us / 1_000_000].map(Value::from);
    database.execute(sql, &values).map(drop)
}

impl Store {
    /// Puts counted hours of days that are over together.
    pub(super) fn count_days(&mut self, site: i64, now_us: i64) -> Result<()> {
        let sql = "SELECT DISTINCT hour_unix_s / 86400 FROM hours WHERE site = $1 AND hour_unix_s < $2
                   AND hour_unix_s / 86400 * 86400 NOT IN (SELECT day_unix_s FROM days WHERE site = $1)";
        let mut missing = Vec::new();
        self.database.query(sql, &[site.into(), (day_of(now_us) / 1_000_000).into()], &mut |row| {
            missing.extend(row[0].integer());
            Ok(())
        })?;
        for day in missing {
            self.transaction(|store| store.count_day(site, day * DAY_US))?;
        }
        Ok(())
    }

    fn count_day(&mut self, site: i64, day_us: i64) -> Result<()> {
        self.lock(&BTreeSet::from([site]))?;
        let range_us = (day_us, day_us + DAY_US);
        if self.first_uncounted(site, range_us)?.is_some() {
            // It came this moment; next time its hour is counted before the day.
            return Ok(());
        }
        let mut whole = Hour { hour_unix_s: day_us / 1_000_000, ..Hour::default() };
        self.hours_where(site, range_us, "")?.iter().for_each(|hour| whole.merge(hour));
        let mut facts = Vec::with_capacity(whole.facts.len());
        for (hour_unix_s, text) in &whole.facts {
            facts.push((hour_unix_s, self.texts.number(&mut *self.database, "facts", text)?));
        }
        // Another robot may have counted it in the meantime.
        forget(&mut *self.database, site, range_us)?;
        let mut values = vec![site.into(), whole.hour_unix_s.into()];
        values.extend(whole.values(Value::Text(serde_json::to_string(&facts)?))?);
        let sql = "INSERT INTO days (site, day_unix_s, made_count, missed_count, offered_count, accepted_count,
                   faults, facts, histograms, kept) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        self.database.execute(sql, &values).map(drop)
    }

    /// What a report about these sites and this time (microseconds since 1970) is put together by: hours, unless they
    /// would be too many.
    ///
    /// # Errors
    /// The database says why.
    pub fn by(&mut self, sites: &[i64], range_us: (i64, i64)) -> Result<By> {
        let ends = [range_us.0.div_euclid(1_000_000), range_us.1.div_euclid(1_000_000)].map(Value::from);
        let sql = "SELECT MIN(hour_unix_s), MAX(hour_unix_s) FROM hours
                   WHERE site = $1 AND hour_unix_s >= $2 AND hour_unix_s < $3";
        let mut by = By::Hour;
        for site in sites {
            let values = [(*site).into(), ends[0].clone(), ends[1].clone()];
            self.database.query(sql, &values, &mut |row| {
                let length_s = row[1].integer().zip(row[0].integer()).map_or(0, |(last, first)| last - first);
                by = if length_s > DAYS_BY_HOUR * By::Day.length_s() { By::Day } else { by };
                Ok(())
            })?;
        }
        Ok(by)
    }

    /// What the rounds of a site come to by the day, as [`Store::hours`] has them by the hour: days that are put
    /// together, and the hours of the others.
    ///
    /// # Errors
    /// The database says why.
    pub fn days(&mut self, site: i64, range_us: (i64, i64)) -> Result<Vec<Hour>> {
        let whole_us = (range_us.0, range_us.1.saturating_sub(DAY_US - 1_000_000));
        let sql =
            "SELECT day_unix_s, made_count, missed_count, offered_count, accepted_count, faults, facts, histograms,
                   kept FROM days WHERE site = $1 AND day_unix_s >= $2 AND day_unix_s < $3 ORDER BY day_unix_s";
        let kept = self.groups(sql, site, whole_us)?;
        let (mut days, mut from_us) = (BTreeMap::new(), range_us.0);
        let ends: Vec<i64> = kept.iter().map(|day| day.hour_unix_s * 1_000_000).chain([range_us.1]).collect();
        days.extend(kept.into_iter().map(|day| (day.hour_unix_s, day)));
        for end_us in ends {
            let hours = if from_us < end_us { self.hours(site, (from_us, end_us))? } else { Vec::new() };
            for hour in hours {
                let day_unix_s = day_of(hour.hour_unix_s * 1_000_000) / 1_000_000;
                let day = days.entry(day_unix_s);
                day.or_insert_with(|| Hour { hour_unix_s: day_unix_s, ..Hour::default() }).merge(&hour);
            }
            from_us = end_us.saturating_add(DAY_US);
        }
        Ok(days.into_values().collect())
    }
}
