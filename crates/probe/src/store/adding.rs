//! Rounds on their way into the tables: all of a batch or none, and none twice.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use tlsdyno_base::fault::{Fault, OrFault};

use super::database::{Column, Database, Value, count};
use super::hours::Hour;
use super::tally::Tally;
use super::{Store, tables};
use crate::entry::Entry;

/// Entries by the key of their row: site, moment, run, number.
type Rows<'a> = BTreeMap<[i64; 4], (&'a Entry, Vec<Value>)>;

impl Store {
    /// Keeps rounds, all or none, and counts them in their hours. Those that are there already stay as they are, and so
    /// do those whose rows are gone because they were old. Answers how many were new.
    ///
    /// # Errors
    /// The database says why; nothing was kept.
    pub fn add(&mut self, entries: &[Entry]) -> Result<u64> {
        self.database.check().or_fault(Fault::Store)?;
        let added = self.transaction(|store| {
            let mut rows = Rows::new();
            for entry in entries {
                let values = tables::values(entry, &mut store.texts, &mut *store.database)?;
                let key = [0, 1, 2, 3].map(|column: usize| values[column].integer().unwrap_or_default());
                rows.insert(key, (entry, values));
            }
            let database = &mut *store.database;
            let last = drop_known(database, &mut rows)?;
            insert(database, &mut rows)?;
            count_runs(database, &rows, &last)?;
            let mut hours: BTreeMap<i64, BTreeMap<i64, Hour>> = BTreeMap::new();
            for ([site, ..], (entry, _)) in &rows {
                let fresh = Hour::of(entry);
                let sites = hours.entry(fresh.hour_unix_s).or_default();
                sites.entry(*site).or_default().follow(fresh);
            }
            hours.into_iter().try_for_each(|(hour_unix_s, sites)| store.count_hour(hour_unix_s, sites))?;
            Ok(rows.len() as u64)
        });
        added.or_fault(Fault::Store)
    }

    /// What all runs have brought of each site, by its number.
    pub fn totals(&mut self) -> Result<BTreeMap<i64, Tally>> {
        let sums = Tally::COLUMNS.map(|column| format!("CAST(SUM({column}) AS BIGINT)")).join(", ");
        let rows = self.database.all(&format!("SELECT site, {sums} FROM runs GROUP BY site"), &[])?;
        Ok(rows.iter().map(|row| (row[0].integer().unwrap_or_default(), Tally::of_row(&row[1..]))).collect())
    }
}

/// Rounds of a run come in the order of their numbers: what is not above the last one that came is there, or was, and
/// is dropped. Answers the last number of each site and run. Rounds made alone have no order.
fn drop_known(database: &mut dyn Database, rows: &mut Rows<'_>) -> Result<BTreeMap<(i64, i64), u64>> {
    let runs: BTreeSet<i64> = rows.iter().filter(|(_, (entry, _))| !entry.is_alone).map(|(key, _)| key[2]).collect();
    let mut last = BTreeMap::new();
    for run in runs {
        for row in database.all("SELECT site, last_number FROM runs WHERE run = $1", &[run.into()])? {
            last.extend(row[0].integer().zip(row[1].unsigned()).map(|(site, number)| ((site, run), number)));
        }
    }
    let before = last.clone();
    rows.retain(|[site, _, run, _], (entry, _)| {
        let is_new = entry.is_alone || before.get(&(*site, *run)).is_none_or(|before| entry.number > *before);
        if is_new && !entry.is_alone {
            let last = last.entry((*site, *run)).or_default();
            *last = entry.last_number().max(*last);
        }
        is_new
    });
    Ok(last)
}

/// Inserts rows, and drops those that were there already.
fn insert(database: &mut dyn Database, rows: &mut Rows<'_>) -> Result<()> {
    let values: Vec<Vec<Value>> = rows.values().map(|(_, values)| values.clone()).collect();
    let behind = "ON CONFLICT DO NOTHING RETURNING site, started_unix_us, run, number";
    let new = database.insert("rounds", &tables::columns(), &values, behind)?;
    let new: BTreeSet<[Option<i64>; 4]> =
        new.iter().map(|key| [0, 1, 2, 3].map(|column: usize| key[column].integer())).collect();
    rows.retain(|key, _| new.contains(&key.map(Some)));
    Ok(())
}

fn count_runs(database: &mut dyn Database, rows: &Rows<'_>, last: &BTreeMap<(i64, i64), u64>) -> Result<()> {
    let mut runs: BTreeMap<(i64, i64), Tally> = BTreeMap::new();
    for ([site, _, run, _], (entry, _)) in rows {
        runs.entry((*site, *run)).or_default().add(Tally::of(entry));
    }
    let row = |(key, tally): (&(i64, i64), &Tally)| {
        let last = last.get(key).copied().unwrap_or(0);
        [[key.1.into(), key.0.into(), count(last)].as_slice(), &tally.values()].concat()
    };
    let values: Vec<Vec<Value>> = runs.iter().map(row).collect();
    let sums = Tally::COLUMNS.map(|column| format!("{column} = runs.{column} + excluded.{column}")).join(", ");
    let behind = format!("ON CONFLICT (run, site) DO UPDATE SET last_number = excluded.last_number, {sums}");
    let columns = format!("run, site, last_number, {}", Tally::COLUMNS.join(", "));
    database.insert("runs", &columns, &values, &behind).map(drop)
}
