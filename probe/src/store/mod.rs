//! Where rounds are kept. All SQL of the probe is in this folder.

mod adding;
mod address;
mod database;
mod days;
mod hours;
mod patience;
mod postgres;
mod rows;
mod schema;
mod server_url;
mod sqlite;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

pub use adding::Totals;
pub use address::Address;
use database::{Database, Texts, Value, places};
pub use days::By;
pub use hours::Hour;
pub use patience::Patience;
use postgres::Postgres;
use rows::COLUMNS;
use sqlite::Sqlite;

use super::entry::Entry;
use tlsdyno_base::fault::{Fault, OrFault};

/// How long rows of single rounds are kept by default, in hours: 7 days.
pub const RAW_HOURS: u64 = 7 * 24;

/// A database takes a bounded number of parameters.
const SITES_OF_STATEMENT: usize = 1000;

/// Rounds of many sites, robots and weeks.
pub struct Store {
    database: Box<dyn Database>,
    texts: Texts,
    /// Texts by their numbers, as far as they were read.
    names: BTreeMap<i64, String>,
}

impl Store {
    /// Opens a store for writing, and makes it if need be.
    ///
    /// # Errors
    /// It cannot be opened, is something else, or of a newer version. [`Fault::Unreachable`]: a server that may be
    /// there later.
    pub fn open(address: &Address) -> Result<Store> {
        Store::open_within(address, &Patience::default())
    }

    /// The same for someone who may want to end meanwhile.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_within(address: &Address, patience: &Patience) -> Result<Store> {
        let mut store = match address {
            Address::File(path) => Store::with(Sqlite::open(path).or_fault(Fault::Store)?),
            Address::Server(url) => Store::with(Postgres::connect(url, patience).or_fault(Fault::Store)?),
        };
        schema::make(&mut store).or_fault(Fault::Store)?;
        Ok(store)
    }

    /// Opens a store for reading.
    ///
    /// # Errors
    /// It is not there, is something else, or of another version.
    pub fn open_for_reading(address: &Address) -> Result<Store> {
        let mut store = match address {
            Address::File(path) => Store::with(Sqlite::open_for_reading(path).or_fault(Fault::Input)?),
            Address::Server(url) => Store::with(Postgres::connect(url, &Patience::default()).or_fault(Fault::Input)?),
        };
        schema::check_for_reading(&mut *store.database).or_fault(Fault::Input)?;
        Ok(store)
    }

    fn with(database: impl Database + 'static) -> Store {
        Store { database: Box::new(database), texts: Texts::default(), names: BTreeMap::new() }
    }

    /// Does `work` wholly or not at all.
    ///
    /// # Errors
    /// Those of the work and of the database.
    fn transaction<T>(&mut self, work: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        self.database.batch(self.database.dialect().begin)?;
        let done = work(self).and_then(|value| self.database.batch("COMMIT").map(|()| value));
        if done.is_err() {
            // The error of the work says more than one of undoing it.
            let _ = self.database.batch("ROLLBACK");
            // Texts that got their number just now have none again.
            self.texts.forget();
            self.names.clear();
        }
        done
    }

    /// Nobody else adds or counts rounds of these sites until the transaction ends: what is counted would lack what is
    /// added at that moment.
    fn lock(&mut self, sites: &BTreeSet<i64>) -> Result<()> {
        let for_update = self.database.dialect().for_update;
        if for_update.is_empty() {
            return Ok(());
        }
        for piece in sites.iter().collect::<Vec<_>>().chunks(SITES_OF_STATEMENT) {
            // In one order, so that no two wait for each other.
            let places = places(piece.len(), 1, true);
            let sql = format!("SELECT id FROM texts WHERE id IN (VALUES {places}) ORDER BY id {for_update}");
            let values: Vec<Value> = piece.iter().map(|site| Value::from(**site)).collect();
            self.database.query(&sql, &values, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    /// Takes a series of rounds for this connection to the store; `false`: another robot has it. On a file the locks
    /// beside it tell.
    ///
    /// # Errors
    /// The database says why.
    pub fn claim(&mut self, series: &str) -> Result<bool> {
        let digest = openssl::sha::sha256(format!("tlsdyno probe {series}").as_bytes());
        let number = i64::from_be_bytes(digest[..8].try_into().expect("eight of 32 bytes"));
        self.database.claim(number).or_fault(Fault::Store)
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
        self.read_names()?;
        let names = &self.names;
        let query = format!(
            "SELECT {} FROM rounds WHERE site = $1 AND started_unix_us >= $2 AND started_unix_us < $3
             ORDER BY site, started_unix_us, run, number",
            COLUMNS.join(", ")
        );
        let values = [site.into(), from_us.into(), until_us.into()];
        self.database.query(&query, &values, &mut |row| take(rows::entry(row, names)?))
    }

    /// The last round of a site that was made, by its stamp.
    ///
    /// # Errors
    /// The database says why.
    pub fn latest(&mut self, site: i64) -> Result<Option<Entry>> {
        self.read_names()?;
        let names = &self.names;
        let query = format!(
            "SELECT {} FROM rounds WHERE site = $1 AND missed_count IS NULL
             ORDER BY site DESC, started_unix_us DESC, run DESC, number DESC LIMIT 1",
            COLUMNS.join(", ")
        );
        let mut latest = None;
        self.database.query(&query, &[site.into()], &mut |row| {
            latest = Some(rows::entry(row, names)?);
            Ok(())
        })?;
        Ok(latest)
    }

    /// Reads texts that are new. Numbers only grow, and none is given before the one below it is there for all.
    fn read_names(&mut self) -> Result<()> {
        let last = self.names.last_key_value().map_or(0, |(number, _)| *number);
        let names = &mut self.names;
        self.database.query("SELECT id, content FROM texts WHERE id > $1", &[last.into()], &mut |row| {
            names.extend(row[0].integer().map(|id| (id, row[1].text().to_owned())));
            Ok(())
        })
    }

    /// Has everything that is read until [`Store::end_reading`] be of one moment, whatever robots write meanwhile.
    ///
    /// # Errors
    /// The database says why.
    pub fn begin_reading(&mut self) -> Result<()> {
        self.database.batch(self.database.dialect().begin_reading)
    }

    /// The end of [`Store::begin_reading`].
    ///
    /// # Errors
    /// The database says why.
    pub fn end_reading(&mut self) -> Result<()> {
        self.database.batch("COMMIT")
    }
}
