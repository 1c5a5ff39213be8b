//! Rounds on their way into the tables: all of a batch or none, and none twice.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use tlsdyno_base::fault::{Fault, OrFault};

use super::database::{Database, Value, places};
use super::rows::COLUMNS;
use super::{Store, hours, rows};
use crate::entry::Entry;
use crate::round::Resumption;

/// Rows of one statement: a database takes a bounded number of parameters.
const PIECE: usize = 200;

/// A row with what is known of it.
struct Row<'a> {
    entry: &'a Entry,
    site: i64,
    run: i64,
    values: Vec<Value>,
}

/// What a run has brought of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rounds that were made.
    pub made_count: u64,
    /// Rounds that were not.
    pub missed_count: u64,
    /// Of those made, those in which something went wrong.
    pub fault_count: u64,
    /// Sessions that were offered within their round.
    pub offered_count: u64,
    /// Of these, those that the site took.
    pub accepted_count: u64,
}

impl Totals {
    fn add(&mut self, entry: &Entry) {
        let round = &entry.round;
        self.missed_count += entry.missed_count.unwrap_or(0);
        self.made_count += u64::from(entry.missed_count.is_none());
        self.fault_count += u64::from(round.fault.is_some());
        self.offered_count += u64::from(round.resumption.is_offered());
        self.accepted_count += u64::from(round.resumption == Resumption::Accepted);
    }
}

impl Store {
    /// Keeps rounds, all or none. Those that are there already stay as they are, and so do those whose rows are gone
    /// because they were old. Answers how many were new.
    ///
    /// # Errors
    /// The database says why; nothing was kept.
    pub fn add(&mut self, entries: &[Entry]) -> Result<u64> {
        self.database.check().or_fault(Fault::Store)?;
        let added = self.transaction(|store| {
            let mut all = Vec::with_capacity(entries.len());
            for entry in entries {
                let values = rows::values(entry, &mut store.texts, &mut *store.database)?;
                let number = |column: usize| values[column].integer().unwrap_or_default();
                all.push(Row { entry, site: number(0), run: number(2), values });
            }
            // After the last text: another who has a site and wants a text would wait for us, and we for the site.
            store.lock(&all.iter().map(|row| row.site).collect())?;
            let database = &mut *store.database;
            let new = new_ones(database, all)?;
            for piece in new.chunks(PIECE) {
                insert(database, piece)?;
            }
            count(database, &new)?;
            hours::reopen(
                database,
                &new.iter().map(|row| (row.site, row.entry.round.started_unix_us)).collect::<Vec<_>>(),
            )?;
            Ok(new.len() as u64)
        });
        added.or_fault(Fault::Store)
    }

    /// What all runs have brought of each site, by its number.
    ///
    /// # Errors
    /// The database says why.
    pub fn totals(&mut self) -> Result<BTreeMap<i64, Totals>> {
        let mut totals = BTreeMap::new();
        let sum = |column: &str| format!("CAST(SUM({column}) AS BIGINT)");
        let sums = ["made_count", "missed_count", "fault_count", "offered_count", "accepted_count"].map(sum).join(", ");
        self.database.query(&format!("SELECT site, {sums} FROM runs GROUP BY site"), &[], &mut |row| {
            let count = |column: usize| row[column].integer().map_or(0, i64::cast_unsigned);
            let of_site = Totals {
                made_count: count(1),
                missed_count: count(2),
                fault_count: count(3),
                offered_count: count(4),
                accepted_count: count(5),
            };
            totals.insert(row[0].integer().unwrap_or_default(), of_site);
            Ok(())
        })?;
        Ok(totals)
    }
}

/// Rounds of a run come in the order of their numbers: what is not above the last one that came is there, or was.
/// Rounds made alone have no order, and are looked for one by one.
fn new_ones<'a>(database: &mut dyn Database, rows: Vec<Row<'a>>) -> Result<Vec<Row<'a>>> {
    let runs: BTreeSet<(i64, i64)> =
        rows.iter().filter(|row| !row.entry.is_alone).map(|row| (row.site, row.run)).collect();
    let mut last: BTreeMap<(i64, i64), u64> = BTreeMap::new();
    for piece in runs.into_iter().collect::<Vec<_>>().chunks(PIECE) {
        let sql = format!(
            "SELECT site, run, last_number FROM runs WHERE (site, run) IN (VALUES {})",
            places(piece.len(), 2, true)
        );
        let values: Vec<Value> = piece.iter().flat_map(|(site, run)| [Value::from(*site), Value::from(*run)]).collect();
        database.query(&sql, &values, &mut |row| {
            if let (Some(site), Some(run), Some(number)) = (row[0].integer(), row[1].integer(), row[2].integer()) {
                last.insert((site, run), number.cast_unsigned());
            }
            Ok(())
        })?;
    }
    let mut new = Vec::with_capacity(rows.len());
    for row in rows {
        let is_new = match row.entry.is_alone {
            true => !is_there(database, &row)?,
            false => {
                let number = row.entry.number;
                let is_new = last.get(&(row.site, row.run)).is_none_or(|last| number > *last);
                if is_new {
                    last.insert(
                        (row.site, row.run),
                        number + row.entry.missed_count.map_or(0, |missed| missed.max(1) - 1),
                    );
                }
                is_new
            }
        };
        if is_new {
            new.push(row);
        }
    }
    Ok(new)
}

fn is_there(database: &mut dyn Database, row: &Row<'_>) -> Result<bool> {
    let mut found = false;
    let sql = "SELECT number FROM rounds WHERE site = $1 AND started_unix_us = $2 AND run = $3 AND number = $4";
    database.query(sql, &row.values[..4], &mut |_| {
        found = true;
        Ok(())
    })?;
    Ok(found)
}

fn insert(database: &mut dyn Database, rows: &[Row<'_>]) -> Result<()> {
    let sql = format!(
        "INSERT INTO rounds ({}) VALUES {} ON CONFLICT DO NOTHING",
        COLUMNS.join(", "),
        places(rows.len(), COLUMNS.len(), false)
    );
    let values: Vec<Value> = rows.iter().flat_map(|row| row.values.iter().cloned()).collect();
    database.execute(&sql, &values).map(drop)
}

fn count(database: &mut dyn Database, rows: &[Row<'_>]) -> Result<()> {
    let mut runs: BTreeMap<(i64, i64), (u64, Totals)> = BTreeMap::new();
    for row in rows {
        let (last, totals) = runs.entry((row.site, row.run)).or_default();
        let through = row.entry.number + row.entry.missed_count.map_or(0, |missed| missed.max(1) - 1);
        *last = if row.entry.is_alone { 0 } else { through.max(*last) };
        totals.add(row.entry);
    }
    const COUNTS: [&str; 5] = ["made_count", "missed_count", "fault_count", "offered_count", "accepted_count"];
    let sums = COUNTS.map(|column| format!("{column} = runs.{column} + excluded.{column}")).join(", ");
    for piece in runs.into_iter().collect::<Vec<_>>().chunks(PIECE) {
        let sql = format!(
            "INSERT INTO runs (site, run, last_number, {}) VALUES {}
             ON CONFLICT (site, run) DO UPDATE SET last_number = excluded.last_number, {sums}",
            COUNTS.join(", "),
            places(piece.len(), 3 + COUNTS.len(), false)
        );
        let values: Vec<Value> = piece
            .iter()
            .flat_map(|((site, run), (last, totals))| {
                let counts = [
                    totals.made_count,
                    totals.missed_count,
                    totals.fault_count,
                    totals.offered_count,
                    totals.accepted_count,
                ];
                [Value::from(*site), Value::from(*run), Value::from(*last)].into_iter().chain(counts.map(Value::from))
            })
            .collect();
        database.execute(&sql, &values)?;
    }
    Ok(())
}
