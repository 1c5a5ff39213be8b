//! Where rounds are kept. All SQL of the probe is in this folder.

mod database;
mod hours;
mod rows;
mod sqlite;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use database::{Database, Dialect, Texts, transaction};
pub use hours::Hour;
use rows::COLUMNS;
use sqlite::Sqlite;

use super::entry::Entry;
use crate::fault::{Fault, OrFault};
use crate::store;

/// Version of the tables.
const SCHEMA_VERSION: i64 = 1;

/// How long rows of single rounds are kept by default, in hours: 7 days.
pub const RAW_HOURS: u64 = 7 * 24;

/// Rounds of many sites, robots and weeks.
pub struct Store {
    database: Box<dyn Database>,
    texts: Texts,
    /// Robots' spools and locks.
    directory: PathBuf,
}

impl Store {
    /// Opens a store for writing, and makes it if need be.
    ///
    /// # Errors
    /// It cannot be opened, is something else, or of a newer version.
    pub fn open(path: &Path) -> Result<Store> {
        let mut store = Store::with(Box::new(Sqlite::open(path).or_fault(Fault::Store)?), path);
        store.make_tables().or_fault(Fault::Store)?;
        Ok(store)
    }

    /// Opens a store for reading.
    ///
    /// # Errors
    /// It is not there, is something else, or of a newer version.
    pub fn open_for_reading(path: &Path) -> Result<Store> {
        let mut store = Store::with(Box::new(Sqlite::open_for_reading(path).or_fault(Fault::Input)?), path);
        store.check_version().or_fault(Fault::Input)?;
        Ok(store)
    }

    fn with(database: Box<dyn Database>, path: &Path) -> Store {
        Store { database, texts: Texts::default(), directory: robots_directory(path) }
    }

    /// Where robots on this store keep their spools and locks.
    pub fn robots_directory(&self) -> &Path {
        &self.directory
    }

    fn check_version(&mut self) -> Result<i64> {
        let found = self.database.version()?;
        ensure!(
            found <= SCHEMA_VERSION,
            "the store has tables of version {found}, and this tlsdyno knows {SCHEMA_VERSION}; use a newer tlsdyno"
        );
        Ok(found)
    }

    fn make_tables(&mut self) -> Result<()> {
        if self.check_version()? == SCHEMA_VERSION {
            return Ok(());
        }
        transaction(&mut *self.database, |database| {
            // Another robot may have been faster.
            match database.version()? {
                0 => database.batch(&schema(database.dialect())),
                _ => Ok(()),
            }
        })
        .context("failed to make the tables of the store")
    }

    /// Keeps rounds, all or none. Those that are there already stay as they are. Answers how many were new.
    ///
    /// # Errors
    /// The database says why; nothing was kept.
    pub fn add(&mut self, entries: &[Entry]) -> Result<u64> {
        let texts = &mut self.texts;
        let added = transaction(&mut *self.database, |database| {
            let mut added = 0;
            for entry in entries {
                let values = rows::values(entry, texts, database)?;
                let new = database.execute(&insert_statement(), &values)?;
                if new > 0 {
                    hours::reopen(database, &values[0], entry.round.started_unix_us)?;
                }
                added += new;
            }
            Ok(added)
        });
        if added.is_err() {
            self.texts.forget();
        }
        added.or_fault(Fault::Store)
    }

    /// The sites, in the order of their names, each with its number.
    ///
    /// # Errors
    /// The database says why.
    pub fn sites(&mut self) -> Result<Vec<(i64, String)>> {
        let mut sites = Vec::new();
        let query = "SELECT id, content FROM texts WHERE kind = 'site' ORDER BY content";
        self.database.query(query, &[], &mut |row| {
            sites.extend(row[0].integer().map(|id| (id, row[1].text().to_owned())));
            Ok(())
        })?;
        Ok(sites)
    }

    /// Hands on the single rounds of a site that began in this time (microseconds since 1970), in order.
    ///
    /// # Errors
    /// The database says why, or `take` does.
    pub fn rounds(
        &mut self,
        site: i64,
        (from_us, until_us): (i64, i64),
        take: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let texts = self.all_texts()?;
        let query = format!(
            "SELECT {} FROM rounds WHERE site = $1 AND started_unix_us >= $2 AND started_unix_us < $3
             ORDER BY site, started_unix_us, run, number",
            COLUMNS.join(", ")
        );
        let values = [site.into(), from_us.into(), until_us.into()];
        self.database.query(&query, &values, &mut |row| take(rows::entry(row, &texts)?))
    }

    fn all_texts(&mut self) -> Result<BTreeMap<i64, String>> {
        let mut texts = BTreeMap::new();
        self.database.query("SELECT id, content FROM texts", &[], &mut |row| {
            texts.extend(row[0].integer().map(|id| (id, row[1].text().to_owned())));
            Ok(())
        })?;
        Ok(texts)
    }

    /// Has everything that is read until [`Store::end_reading`] be of one moment, whatever robots write meanwhile.
    ///
    /// # Errors
    /// The database says why.
    pub fn begin_reading(&mut self) -> Result<()> {
        self.database.batch("BEGIN")
    }

    /// The end of [`Store::begin_reading`].
    ///
    /// # Errors
    /// The database says why.
    pub fn end_reading(&mut self) -> Result<()> {
        self.database.batch("COMMIT")
    }
}

/// The store of the user: `probe.sqlite` beside the store of records.
///
/// # Errors
/// The environment names no place.
pub fn default_path() -> Result<PathBuf> {
    Ok(store::default_path().or_fault(Fault::Store)?.with_file_name("probe.sqlite"))
}

/// Beside a file: its name with `.robots` behind.
fn robots_directory(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".robots");
    path.with_file_name(name)
}

/// Times are nanoseconds, moments microseconds or seconds since 1970. `missed_count` is NULL for a round that was made.
/// Only rows of rounds lie in the order of their key: SQLite would give each hour's histograms a page of their own.
fn schema(dialect: Dialect) -> String {
    let rounds: String = COLUMNS.iter().map(|column| format!("{column} BIGINT,\n")).collect();
    let Dialect { bytes, by_key, .. } = dialect;
    format!(
        "CREATE TABLE probe_schema (version BIGINT NOT NULL);
         INSERT INTO probe_schema VALUES ({SCHEMA_VERSION});
         CREATE TABLE texts (id BIGINT PRIMARY KEY, kind TEXT NOT NULL, content TEXT NOT NULL, UNIQUE (kind, content));
         CREATE TABLE rounds ({rounds} PRIMARY KEY (site, started_unix_us, run, number)) {by_key};
         CREATE TABLE hours (
             site BIGINT NOT NULL,
             hour_unix_s BIGINT NOT NULL,
             made_count BIGINT NOT NULL,
             missed_count BIGINT NOT NULL,
             offered_count BIGINT NOT NULL,
             accepted_count BIGINT NOT NULL,
             raw_is_gone BIGINT NOT NULL,
             faults TEXT NOT NULL,
             facts BIGINT,
             histograms {bytes} NOT NULL,
             PRIMARY KEY (site, hour_unix_s)
         );"
    )
}

fn insert_statement() -> String {
    let places: Vec<String> = (1..=COLUMNS.len()).map(|number| format!("${number}")).collect();
    format!("INSERT INTO rounds ({}) VALUES ({}) ON CONFLICT DO NOTHING", COLUMNS.join(", "), places.join(", "))
}
