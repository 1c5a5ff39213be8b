//! Hours: what rounds of a site come to, kept for ever when the rounds themselves are gone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::database::{Database, Value, places};
use super::{Store, days};
use crate::entry::Entry;
use crate::fault::FaultKind;
use crate::kept::AGES_S;
use crate::measures::{self, Measures};
use crate::round::Resumption;

/// Seconds of an hour.
const HOUR_S: i64 = 3600;
/// Microseconds of an hour.
const HOUR_US: i64 = HOUR_S * 1_000_000;
/// Microseconds of a day.
pub const DAY_US: i64 = 24 * HOUR_US;
/// So many hours with rounds make their clock known: one that was set wrong does so, but not before somebody notices.
const HOURS_OF_TRUST: i64 = 24;
/// A database takes a bounded number of parameters.
const KEYS_OF_STATEMENT: usize = 1000;

/// Rounds of a site that began in one hour, or any other group of rounds.
#[derive(Clone, Debug, Default)]
pub struct Hour {
    /// When it begins, in seconds since 1970.
    pub hour_unix_s: i64,
    /// Rounds that were made.
    pub made_count: u64,
    /// Rounds that were not.
    pub missed_count: u64,
    /// Sessions that were offered.
    pub offered_count: u64,
    /// Of these, those that the site took.
    pub accepted_count: u64,
    /// Faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Sessions that were kept and offered at that age (seconds, the lower end of a class of [`AGES_S`]): how many were
    /// offered, and how many the site took.
    pub kept: BTreeMap<u32, (u64, u64)>,
    /// Facts as JSON, and the hour (seconds since 1970) from which on they held: the last ones of an hour, and of what
    /// is longer those of each hour that has others than the one before it.
    pub facts: Vec<(i64, String)>,
    /// The times.
    pub measures: Measures,
}

impl Hour {
    /// Counts a row.
    pub fn add(&mut self, entry: &Entry) {
        let round = &entry.round;
        if let Some(missed) = entry.missed_count {
            self.missed_count += missed;
            return;
        }
        self.made_count += 1;
        self.offered_count += u64::from(round.resumption.is_offered());
        self.accepted_count += u64::from(round.resumption == Resumption::Accepted);
        if let Some(fault) = &round.fault {
            *self.faults.entry(fault.kind).or_default() += 1;
        }
        if let Some(kept) = round.kept.filter(|kept| kept.became.is_offered()) {
            let class = AGES_S.into_iter().rev().find(|age_s| *age_s <= kept.age_s).unwrap_or(0);
            let (offered, accepted) = self.kept.entry(class).or_default();
            *offered += 1;
            *accepted += u64::from(kept.became == Resumption::Accepted);
        }
        if !round.facts.version.is_empty() {
            self.facts = vec![(self.hour_unix_s, serde_json::to_string(&round.facts).unwrap_or_default())];
        }
        measures::of_round(round).into_iter().for_each(|(measure, ns)| self.measures.record(measure, ns));
    }

    /// Counts another group that follows.
    pub fn merge(&mut self, other: &Hour) {
        self.merge_counts(other);
        self.measures.merge(&other.measures);
    }

    /// The same without its times.
    pub fn merge_counts(&mut self, other: &Hour) {
        self.made_count += other.made_count;
        self.missed_count += other.missed_count;
        self.offered_count += other.offered_count;
        self.accepted_count += other.accepted_count;
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

    /// The columns of a row from `made_count` to `kept`.
    pub(super) fn values(&self, facts: Value) -> Result<[Value; 8]> {
        Ok([
            self.made_count.into(),
            self.missed_count.into(),
            self.offered_count.into(),
            self.accepted_count.into(),
            Value::Text(serde_json::to_string(&self.faults)?),
            facts,
            Value::Bytes(self.measures.to_bytes()?),
            Value::Text(serde_json::to_string(&self.kept)?),
        ])
    }
}

/// The hour of a moment.
fn hour_of(unix_us: i64) -> i64 {
    unix_us.div_euclid(HOUR_US) * HOUR_S
}

/// Rounds came late (site and moment of each): their hours must be counted anew, unless their other rounds are gone,
/// and their days put together anew.
pub fn reopen(database: &mut dyn Database, rounds: &[(i64, i64)]) -> Result<()> {
    let begins = |of: fn(i64) -> i64| rounds.iter().map(|(site, started)| (*site, of(*started))).collect();
    delete(database, "hours WHERE raw_is_gone = 0 AND (site, hour_unix_s)", begins(hour_of))?;
    delete(database, "days WHERE (site, day_unix_s)", begins(|started| days::day_of(started) / 1_000_000))
}

fn delete(database: &mut dyn Database, whose: &str, keys: BTreeSet<(i64, i64)>) -> Result<()> {
    for piece in keys.into_iter().collect::<Vec<_>>().chunks(KEYS_OF_STATEMENT) {
        let sql = format!("DELETE FROM {whose} IN (VALUES {})", places(piece.len(), 2, true));
        let values: Vec<Value> =
            piece.iter().flat_map(|(site, begin)| [Value::from(*site), Value::from(*begin)]).collect();
        database.execute(&sql, &values)?;
    }
    Ok(())
}

impl Store {
    /// Counts up the hours and days that are over, and lets go of rounds that are older than `raw_hours`. Answers how
    /// many hours were counted. `now_unix_us`: the time by the clock that rounds are stamped with.
    ///
    /// # Errors
    /// The database says why.
    pub fn keep_house(&mut self, now_unix_us: i64, raw_hours: u64) -> Result<u64> {
        let now_us = hour_of(now_unix_us) * 1_000_000;
        const LONGEST: i64 = i64::MAX / HOUR_US / 2;
        let gone_us = now_us - i64::try_from(raw_hours).unwrap_or(LONGEST).min(LONGEST) * HOUR_US;
        let mut counted = 0;
        for (site, _) in self.sites()? {
            while let Some(first_us) = self.first_uncounted(site, (i64::MIN, now_us))? {
                // Not the whole past in one transaction: others want to write too.
                let until_us = now_us.min(hour_of(first_us) * 1_000_000 + DAY_US);
                let range_us = (hour_of(first_us) * 1_000_000, until_us);
                counted += self.transaction(|store| store.count_hours(site, range_us))?;
            }
            self.count_days(site, now_us)?;
            self.let_go(site, gone_us)?;
        }
        Ok(counted)
    }

    /// The same by a clock that may have been set forward: rounds are not let go of because of it before a day's rounds
    /// were made by it. Who makes fewer rounds keeps them longer.
    ///
    /// # Errors
    /// The database says why.
    pub fn keep_house_warily(&mut self, now_unix_us: i64, raw_hours: u64) -> Result<u64> {
        let ahead_hours = self.hours_ahead(now_unix_us)?;
        self.keep_house(now_unix_us, raw_hours.saturating_add(ahead_hours))
    }

    /// How far a clock is ahead of what a day's counted hours of some site say, in hours.
    fn hours_ahead(&mut self, now_unix_us: i64) -> Result<u64> {
        let sql = format!(
            "SELECT hour_unix_s FROM hours WHERE site = $1 AND hour_unix_s <= $2 ORDER BY hour_unix_s DESC
             LIMIT {HOURS_OF_TRUST}"
        );
        let now_s = now_unix_us.div_euclid(1_000_000);
        let mut known_s = i64::MIN;
        for (site, _) in self.sites()? {
            let mut hours = Vec::new();
            self.database.query(&sql, &[site.into(), now_s.into()], &mut |row| {
                hours.extend(row[0].integer());
                Ok(())
            })?;
            if let Some(first_s) = hours.get(HOURS_OF_TRUST as usize - 1) {
                known_s = known_s.max(first_s + HOURS_OF_TRUST * HOUR_S);
            }
        }
        Ok(u64::try_from(now_s.saturating_sub(known_s) / HOUR_S).unwrap_or(0))
    }

    /// The first round of this time (microseconds since 1970; whole hours) whose hour is not counted, or was counted
    /// without it.
    pub(super) fn first_uncounted(&mut self, site: i64, (mut from_us, until_us): (i64, i64)) -> Result<Option<i64>> {
        let mut counted = self.counted(site, from_us)?;
        counted.insert(until_us.div_euclid(1_000_000));
        // Looked for between counted hours only: that is quick however many rounds there are.
        for hour_unix_s in counted {
            let hour_us = (hour_unix_s * 1_000_000).min(until_us);
            if from_us < hour_us {
                let sql = "SELECT MIN(started_unix_us) FROM rounds
                           WHERE site = $1 AND started_unix_us >= $2 AND started_unix_us < $3";
                let mut first = None;
                self.database.query(sql, &[site.into(), from_us.into(), hour_us.into()], &mut |row| {
                    first = row[0].integer();
                    Ok(())
                })?;
                if first.is_some() {
                    return Ok(first);
                }
            }
            from_us = hour_us.saturating_add(HOUR_US);
        }
        Ok(None)
    }

    /// The hours of a site from `from_us` on that are counted and whose rounds are there still.
    fn counted(&mut self, site: i64, from_us: i64) -> Result<BTreeSet<i64>> {
        let mut counted = BTreeSet::new();
        let sql = "SELECT hour_unix_s FROM hours WHERE site = $1 AND hour_unix_s >= $2 AND raw_is_gone = 0";
        self.database.query(sql, &[site.into(), from_us.div_euclid(1_000_000).into()], &mut |row| {
            counted.extend(row[0].integer());
            Ok(())
        })?;
        Ok(counted)
    }

    fn count_hours(&mut self, site: i64, range_us: (i64, i64)) -> Result<u64> {
        self.lock(&BTreeSet::from([site]))?;
        let mut hours: BTreeMap<i64, Hour> = BTreeMap::new();
        self.rounds(site, range_us, &mut |entry| {
            let hour_unix_s = hour_of(entry.round.started_unix_us);
            hours.entry(hour_unix_s).or_insert_with(|| Hour { hour_unix_s, ..Hour::default() }).add(&entry);
            Ok(())
        })?;
        // Hours whose rounds are gone get what came late; the rounds that came late go at once.
        let gone: BTreeMap<i64, Hour> = self
            .hours_where(site, range_us, "AND raw_is_gone = 1")?
            .into_iter()
            .map(|hour| (hour.hour_unix_s, hour))
            .collect();
        let (database, texts) = (&mut *self.database, &mut self.texts);
        days::forget(database, site, range_us)?;
        for (hour_unix_s, hour) in &mut hours {
            let before = gone.get(hour_unix_s);
            if let Some(before) = before {
                let late = std::mem::replace(hour, before.clone());
                hour.merge(&late);
                delete_rounds(database, site, hour_unix_s * 1_000_000, hour_unix_s * 1_000_000 + HOUR_US)?;
            }
            let facts = match hour.facts.last() {
                None => None,
                Some((_, facts)) => Some(texts.number(database, "facts", facts)?),
            };
            let key = [Value::from(site), Value::from(*hour_unix_s)];
            database.execute("DELETE FROM hours WHERE site = $1 AND hour_unix_s = $2", &key)?;
            let gone = Value::from(i64::from(before.is_some()));
            let values: Vec<Value> = key.into_iter().chain([gone]).chain(hour.values(facts.into())?).collect();
            let sql = "INSERT INTO hours (site, hour_unix_s, raw_is_gone, made_count, missed_count, offered_count,
                       accepted_count, faults, facts, histograms, kept)
                       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
            database.execute(sql, &values)?;
        }
        Ok(hours.len() as u64)
    }

    /// Lets go of rounds before that moment; their hours are counted.
    fn let_go(&mut self, site: i64, until_us: i64) -> Result<()> {
        self.transaction(|store| {
            store.lock(&BTreeSet::from([site]))?;
            if store.first_uncounted(site, (i64::MIN, until_us))?.is_some() {
                // It came this moment; next time it is counted.
                return Ok(());
            }
            let database = &mut *store.database;
            if delete_rounds(database, site, i64::MIN, until_us)? > 0 {
                let sql = "UPDATE hours SET raw_is_gone = 1 WHERE site = $1 AND hour_unix_s < $2 AND raw_is_gone = 0";
                database.execute(sql, &[site.into(), (until_us / 1_000_000).into()])?;
            }
            Ok(())
        })
    }

    /// What the rounds of a site come to in this time (microseconds since 1970; whole hours), in order: the hours that
    /// are counted, and the rounds of the others, each hour of them counted now.
    ///
    /// # Errors
    /// The database says why.
    pub fn hours(&mut self, site: i64, range_us: (i64, i64)) -> Result<Vec<Hour>> {
        let mut hours: BTreeMap<i64, Hour> =
            self.hours_where(site, range_us, "")?.into_iter().map(|hour| (hour.hour_unix_s, hour)).collect();
        if let Some(first_us) = self.first_uncounted(site, range_us)? {
            let counted = self.counted(site, range_us.0)?;
            let from_us = (hour_of(first_us) * 1_000_000).max(range_us.0);
            self.rounds(site, (from_us, range_us.1), &mut |entry| {
                let hour_unix_s = hour_of(entry.round.started_unix_us);
                if !counted.contains(&hour_unix_s) {
                    hours.entry(hour_unix_s).or_insert_with(|| Hour { hour_unix_s, ..Hour::default() }).add(&entry);
                }
                Ok(())
            })?;
        }
        Ok(hours.into_values().collect())
    }

    /// The single rounds of a site in this time, each as a group of its own.
    ///
    /// # Errors
    /// The database says why.
    pub fn each_round(&mut self, site: i64, range_us: (i64, i64)) -> Result<Vec<Hour>> {
        let mut all = Vec::new();
        self.rounds(site, range_us, &mut |entry| {
            let hour_unix_s = entry.round.started_unix_us.div_euclid(1_000_000);
            let mut one = Hour { hour_unix_s, ..Hour::default() };
            one.add(&entry);
            all.push(one);
            Ok(())
        })?;
        Ok(all)
    }

    pub(super) fn hours_where(&mut self, site: i64, range_us: (i64, i64), more: &str) -> Result<Vec<Hour>> {
        let sql = format!(
            "SELECT hour_unix_s, made_count, missed_count, offered_count, accepted_count, faults, facts, histograms,
             kept FROM hours WHERE site = $1 AND hour_unix_s >= $2 AND hour_unix_s < $3 {more} ORDER BY hour_unix_s"
        );
        self.groups(&sql, site, range_us)
    }

    /// Rows of hours or days. Facts are one number of an hour, and a list of beginnings and numbers of a day.
    pub(super) fn groups(&mut self, sql: &str, site: i64, (from_us, until_us): (i64, i64)) -> Result<Vec<Hour>> {
        self.read_names()?;
        let names = &self.names;
        let ends = [from_us.div_euclid(1_000_000), until_us.div_euclid(1_000_000)];
        let mut groups = Vec::new();
        self.database.query(sql, &[site.into(), ends[0].into(), ends[1].into()], &mut |row| {
            let count = |column: usize| row[column].integer().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
            let hour_unix_s = row[0].integer().unwrap_or_default();
            let numbers: Vec<(i64, i64)> = match &row[6] {
                Value::Integer(number) => vec![(hour_unix_s, *number)],
                Value::Text(text) => serde_json::from_str(text).context("the facts of a day are damaged")?,
                _ => Vec::new(),
            };
            let known = |(since, number): (i64, i64)| Some((since, names.get(&number)?.clone()));
            groups.push(Hour {
                hour_unix_s,
                made_count: count(1),
                missed_count: count(2),
                offered_count: count(3),
                accepted_count: count(4),
                faults: serde_json::from_str(row[5].text()).context("the faults of an hour are damaged")?,
                facts: numbers.into_iter().filter_map(known).collect(),
                measures: Measures::from_bytes(row[7].bytes())?,
                kept: serde_json::from_str(row[8].text()).context("the kept sessions of an hour are damaged")?,
            });
            Ok(())
        })?;
        Ok(groups)
    }
}

fn delete_rounds(database: &mut dyn Database, site: i64, from_us: i64, until_us: i64) -> Result<u64> {
    let sql = "DELETE FROM rounds WHERE site = $1 AND started_unix_us >= $2 AND started_unix_us < $3";
    database.execute(sql, &[site.into(), from_us.into(), until_us.into()])
}
