//! Hours and days: what rounds of a site come to, kept for ever when the rounds themselves are gone. A round is counted
//! in its hour when it is added. Days are put together of their hours once they are over, so that a report about a year
//! reads 365 rows of a site and not 8,760.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::named;

use super::Store;
use super::database::{Column, Value, places};
use super::tally::Tally;
use crate::entry::Entry;
use crate::fault::FaultKind;
use crate::kept::AGES_S;
use crate::measures::Measures;
use crate::round::{Facts, Resumption};

const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;
const HOUR_US: i64 = HOUR_S * 1_000_000;
/// So many hours with rounds make their clock known: one that was set wrong does so, but not before somebody notices.
const HOURS_OF_TRUST: i64 = 24;
/// A report about more than so many days is one by the day: hours would take it longer than a second.
const DAYS_BY_HOUR: i64 = 45;
/// Inflated bytes of an hour or a day at most: all measures with a count in each of their buckets come to less.
const PLAIN_BYTES_MAX: u64 = 8 << 20;
/// The columns of an hour or a day that name it.
pub(super) const HOUR_COLUMNS: [&str; 3] = ["site", "length_s", "begin_unix_s"];

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
    pub fn length_s(self) -> i64 {
        match self {
            By::Hour => HOUR_S,
            By::Day => DAY_S,
        }
    }
}

/// Rounds of a site that began in one hour, or any other group of rounds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hour {
    /// When it begins, in seconds since 1970.
    #[serde(skip)]
    pub hour_unix_s: i64,
    #[serde(skip)]
    pub tally: Tally,
    /// Faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Sessions that were kept and offered at that age (seconds, the lower end of a class of [`AGES_S`]): how many were
    /// offered, and how many the site took.
    pub kept: BTreeMap<u32, (u64, u64)>,
    /// Facts, and the hour (seconds since 1970) from which on they held: the last ones of an hour, and of what is
    /// longer those of each hour that has others than the one before it.
    pub facts: Vec<(i64, Facts)>,
    pub measures: Measures,
}

impl Hour {
    /// The hour of a row, with nothing but that.
    pub fn of(entry: &Entry) -> Hour {
        let round = &entry.round;
        let hour_unix_s = round.started_unix_us.div_euclid(HOUR_US) * HOUR_S;
        let mut hour = Hour { hour_unix_s, tally: Tally::of(entry), ..Hour::default() };
        hour.faults.extend(round.fault.as_ref().map(|fault| (fault.kind, 1)));
        if let Some(kept) = round.kept.filter(|kept| kept.became.is_offered()) {
            let class = AGES_S.into_iter().rev().find(|age_s| *age_s <= kept.age_s).unwrap_or(0);
            hour.kept.insert(class, (1, u64::from(kept.became == Resumption::Accepted)));
        }
        if !round.facts.version.is_empty() {
            hour.facts.push((hour_unix_s, round.facts.clone()));
        }
        hour.measures.record_round(round);
        hour
    }

    /// Counts another group that follows.
    pub fn merge(&mut self, other: &Hour) {
        self.merge_counts(other);
        self.measures.merge(&other.measures);
    }

    /// Counts another group that follows, but for its times.
    pub fn merge_counts(&mut self, other: &Hour) {
        self.tally.add(other.tally);
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        for (age_s, (offered, accepted)) in &other.kept {
            let mine = self.kept.entry(*age_s).or_default();
            *mine = (mine.0 + offered, mine.1 + accepted);
        }
        for (since_unix_s, facts) in &other.facts {
            if self.facts.last().is_none_or(|(_, before)| before != facts) {
                self.facts.push((*since_unix_s, facts.clone()));
            }
        }
    }

    /// Counts rounds of the same hour that follow.
    pub(super) fn follow(&mut self, rounds: Hour) {
        if !rounds.facts.is_empty() {
            self.facts.clear();
        }
        self.hour_unix_s = rounds.hour_unix_s;
        self.merge(&rounds);
    }

    fn values(&self, site: i64, by: By) -> Result<Vec<Value>> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&rmp_serde::to_vec_named(self)?)?;
        let mut values: Vec<Value> = [site, by.length_s(), self.hour_unix_s].map(Value::from).into();
        values.extend(self.tally.values());
        values.push(Value::Blob(encoder.finish()?));
        Ok(values)
    }

    /// Reads a row of `spans` from `begin_unix_s` on.
    fn of_row(row: &[Value]) -> Result<Hour> {
        let tally = Tally::of_row(&row[1..]);
        let hour = Hour::of_bytes(row[row.len() - 1].bytes()).context("an hour of the store is damaged")?;
        Ok(Hour { hour_unix_s: row[0].integer().unwrap_or_default(), tally, ..hour })
    }

    fn of_bytes(bytes: &[u8]) -> Result<Hour> {
        let mut plain = Vec::new();
        DeflateDecoder::new(bytes).take(PLAIN_BYTES_MAX + 1).read_to_end(&mut plain)?;
        ensure!(plain.len() as u64 <= PLAIN_BYTES_MAX, "it has more than {PLAIN_BYTES_MAX} bytes");
        Ok(rmp_serde::from_slice(&plain)?)
    }
}

impl Store {
    /// Counts rounds that were added to an hour, by site. Days that hold it must be put together anew.
    pub(super) fn count_hour(&mut self, hour_unix_s: i64, sites: BTreeMap<i64, Hour>) -> Result<()> {
        let sites_of = |begin_unix_s: i64, by: By| -> Vec<Value> {
            [by.length_s(), begin_unix_s].into_iter().chain(sites.keys().copied()).map(Value::from).collect()
        };
        let these = format!("length_s = $1 AND begin_unix_s = $2 AND site IN {}", places(3, sites.len()));
        let mut hours = BTreeMap::new();
        for row in self.database.all(&spans(&these), &sites_of(hour_unix_s, By::Hour))? {
            hours.insert(row[0].integer().unwrap_or_default(), Hour::of_row(&row[1..])?);
        }
        let day_unix_s = hour_unix_s.div_euclid(DAY_S) * DAY_S;
        self.database.all(&format!("DELETE FROM spans WHERE {these}"), &sites_of(day_unix_s, By::Day))?;
        for (site, rounds) in sites {
            hours.entry(site).or_default().follow(rounds);
        }
        let rows = hours.iter().map(|(site, hour)| hour.values(*site, By::Hour)).collect::<Result<Vec<_>>>()?;
        self.write_spans(&rows)
    }

    fn write_spans(&mut self, rows: &[Vec<Value>]) -> Result<()> {
        let others = [&Tally::COLUMNS[..], &["content"]].concat();
        let set = others.iter().map(|column| format!("{column} = excluded.{column}")).collect::<Vec<_>>().join(", ");
        let key = HOUR_COLUMNS.join(", ");
        let behind = format!("ON CONFLICT ({key}) DO UPDATE SET {set}");
        self.database.insert("spans", &format!("{key}, {}", others.join(", ")), rows, &behind).map(drop)
    }

    /// Puts days together that are over, and lets go of rounds that are older than `raw_hours`. `now_unix_us`: the time
    /// by the clock that rounds are stamped with.
    pub fn keep_house(&mut self, now_unix_us: i64, raw_hours: u64) -> Result<()> {
        const LONGEST: i64 = i64::MAX / HOUR_US / 2;
        let raw_us = i64::try_from(raw_hours).unwrap_or(LONGEST).min(LONGEST) * HOUR_US;
        let gone_us = now_unix_us.div_euclid(HOUR_US) * HOUR_US - raw_us;
        for (site, _) in self.sites()? {
            self.count_days(site, now_unix_us)?;
            let sql = "DELETE FROM rounds WHERE site = $1 AND started_unix_us < $2";
            self.transaction(|store| store.database.all(sql, &[site.into(), gone_us.into()]))?;
        }
        Ok(())
    }

    /// Keeps house by a clock that may have been set forward: rounds are not let go of because of it before a day's
    /// rounds were made by it. Who makes fewer rounds keeps them longer.
    pub fn keep_house_warily(&mut self, now_unix_us: i64, raw_hours: u64) -> Result<()> {
        // What a day's hours of some site say.
        let sql = format!(
            "SELECT begin_unix_s FROM spans WHERE site = $1 AND length_s = {HOUR_S} AND begin_unix_s <= $2
             ORDER BY begin_unix_s DESC LIMIT 1 OFFSET {}",
            HOURS_OF_TRUST - 1
        );
        let now_s = now_unix_us.div_euclid(1_000_000);
        let mut known_s = i64::MIN;
        for (site, _) in self.sites()? {
            let first_s = self.database.number(&sql, &[site.into(), now_s.into()])?;
            known_s = first_s.map_or(known_s, |first_s| known_s.max(first_s + HOURS_OF_TRUST * HOUR_S));
        }
        let ahead_hours = u64::try_from(now_s.saturating_sub(known_s) / HOUR_S).unwrap_or(0);
        self.keep_house(now_unix_us, raw_hours.saturating_add(ahead_hours))
    }

    /// Puts the hours of days together that are over.
    fn count_days(&mut self, site: i64, now_unix_us: i64) -> Result<()> {
        let today_unix_s = now_unix_us.div_euclid(1_000_000).div_euclid(DAY_S) * DAY_S;
        let sql = format!(
            "SELECT DISTINCT begin_unix_s / {DAY_S} * {DAY_S} FROM spans
             WHERE site = $1 AND length_s = {HOUR_S} AND begin_unix_s < $2 AND begin_unix_s / {DAY_S} * {DAY_S}
             NOT IN (SELECT begin_unix_s FROM spans WHERE site = $1 AND length_s = {DAY_S})"
        );
        let missing = self.database.all(&sql, &[site.into(), today_unix_s.into()])?;
        for begin_unix_s in missing.iter().filter_map(|row| row[0].integer()) {
            self.transaction(|store| {
                let mut day = Hour { hour_unix_s: begin_unix_s, ..Hour::default() };
                let range_us = [begin_unix_s, begin_unix_s + DAY_S].map(|end_s| end_s * 1_000_000);
                store.hours(site, range_us.into())?.iter().for_each(|hour| day.merge(hour));
                store.write_spans(&[day.values(site, By::Day)?])
            })?;
        }
        Ok(())
    }

    /// What the rounds of a site come to by the hour in this time (microseconds since 1970; whole hours), in order.
    pub fn hours(&mut self, site: i64, range_us: (i64, i64)) -> Result<Vec<Hour>> {
        let these = format!("site = $1 AND length_s = {HOUR_S} AND begin_unix_s >= $2 AND begin_unix_s < $3");
        self.read_spans(&these, site, range_us)
    }

    /// What the rounds of a site come to by the day: days that are put together, and the hours of the others.
    pub fn days(&mut self, site: i64, range_us: (i64, i64)) -> Result<Vec<Hour>> {
        let whole = format!("site = $1 AND length_s = {DAY_S} AND begin_unix_s >= $2 AND begin_unix_s + {DAY_S} <= $3");
        let others = format!(
            "site = $1 AND length_s = {HOUR_S} AND begin_unix_s >= $2 AND begin_unix_s < $3
             AND begin_unix_s / {DAY_S} * {DAY_S} NOT IN (SELECT begin_unix_s FROM spans WHERE {whole})"
        );
        let mut days: BTreeMap<i64, Hour> =
            self.read_spans(&whole, site, range_us)?.into_iter().map(|day| (day.hour_unix_s, day)).collect();
        for hour in self.read_spans(&others, site, range_us)? {
            let day_unix_s = hour.hour_unix_s.div_euclid(DAY_S) * DAY_S;
            let day = days.entry(day_unix_s).or_insert_with(|| Hour { hour_unix_s: day_unix_s, ..Hour::default() });
            day.merge(&hour);
        }
        Ok(days.into_values().collect())
    }

    fn read_spans(&mut self, these: &str, site: i64, (from_us, until_us): (i64, i64)) -> Result<Vec<Hour>> {
        let values = [site, from_us.div_euclid(1_000_000), until_us.div_euclid(1_000_000)].map(Value::from);
        let mut hours = Vec::new();
        self.database.query(&format!("{} ORDER BY begin_unix_s", spans(these)), &values, &mut |row| {
            hours.push(Hour::of_row(&row[1..])?);
            Ok(())
        })?;
        Ok(hours)
    }

    /// What a report about these sites and this time (microseconds since 1970) is put together by: hours, unless they
    /// would be too many.
    pub fn by(&mut self, sites: &[i64], (from_us, until_us): (i64, i64)) -> Result<By> {
        let sql = format!(
            "SELECT MAX(begin_unix_s) - MIN(begin_unix_s) FROM spans
             WHERE site = $1 AND length_s = {HOUR_S} AND begin_unix_s >= $2 AND begin_unix_s < $3"
        );
        for site in sites {
            let values = [*site, from_us.div_euclid(1_000_000), until_us.div_euclid(1_000_000)].map(Value::from);
            if self.database.number(&sql, &values)?.is_some_and(|length_s| length_s > DAYS_BY_HOUR * DAY_S) {
                return Ok(By::Day);
            }
        }
        Ok(By::Hour)
    }
}

/// Asks for sites and rows that [`Hour::of_row`] reads.
fn spans(these: &str) -> String {
    format!("SELECT site, begin_unix_s, {}, content FROM spans WHERE {these}", Tally::COLUMNS.join(", "))
}
