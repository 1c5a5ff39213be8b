//! Where rounds are kept. All SQL of the probe is in this folder.

mod adding;
mod address;
mod database;
mod hours;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod server_url;
mod sqlite;
mod tables;
mod tally;
#[cfg(feature = "postgres")]
mod wire;
#[cfg(not(feature = "postgres"))]
mod without_postgres;

use std::time::Duration;

use anyhow::Result;
use tlsdyno_base::fault::{Fault, OrFault};

use super::entry::Entry;
pub use address::Address;
use database::{Column, Database, Texts};
pub use hours::{By, Hour};
#[cfg(feature = "postgres")]
use postgres::Postgres;
#[cfg(feature = "postgres")]
use server_url::ServerUrl;
use sqlite::Sqlite;
pub use tally::Tally;
#[cfg(not(feature = "postgres"))]
use without_postgres::{Postgres, ServerUrl};

/// How long a server of databases may take for an answer: one that is frozen holds nobody up for ever.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Store {
    database: Box<dyn Database>,
    texts: Texts,
}

impl Store {
    /// Opens a store for writing, and makes it if need be.
    ///
    /// # Errors
    /// It cannot be opened, is something else, or of another version. [`Fault::Unreachable`]: a server that may be
    /// there later.
    pub fn open(address: &Address) -> Result<Store> {
        let mut store = match address {
            Address::File(path) => Store::with(Sqlite::open(path).or_fault(Fault::Store)?),
            Address::Server(url) => Store::with(Postgres::connect(url, PATIENCE).or_fault(Fault::Store)?),
        };
        tables::make(&mut store).or_fault(Fault::Store)?;
        Ok(store)
    }

    /// Opens a store for reading.
    ///
    /// # Errors
    /// It is not there, is something else, or of another version.
    pub fn open_for_reading(address: &Address) -> Result<Store> {
        let mut store = match address {
            Address::File(path) => Store::with(Sqlite::open_for_reading(path).or_fault(Fault::Input)?),
            Address::Server(url) => Store::with(Postgres::connect(url, PATIENCE).or_fault(Fault::Input)?),
        };
        tables::check_for_reading(&mut *store.database).or_fault(Fault::Input)?;
        Ok(store)
    }

    fn with(database: impl Database + 'static) -> Store {
        Store { database: Box::new(database), texts: Texts::default() }
    }

    /// Does `work` wholly or not at all.
    fn transaction<T>(&mut self, work: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        let begun = self.database.batch(self.database.dialect().begin);
        let done = begun.and_then(|()| work(self));
        let done = done.and_then(|value| self.database.batch("COMMIT").map(|()| value));
        if done.is_err() {
            // The error of the work says more than one of undoing it.
            let _ = self.database.batch("ROLLBACK");
            // Texts that got their number just now have none again.
            self.texts = Texts::default();
        }
        done
    }

    /// Takes a series of rounds for this connection to the store; `false`: another robot has it. On a file the locks
    /// beside it tell.
    pub fn claim(&mut self, series: &str) -> Result<bool> {
        let digest = openssl::sha::sha256(format!("tlsdyno probe {series}").as_bytes());
        let number = i64::from_be_bytes(digest[..8].try_into().expect("eight of 32 bytes"));
        let claim = self.database.dialect().claim;
        if claim.is_empty() {
            return Ok(true);
        }
        Ok(self.database.number(claim, &[number.into()]).or_fault(Fault::Store)? != Some(0))
    }

    /// The sites, in the order of their names, each with its number.
    pub fn sites(&mut self) -> Result<Vec<(i64, String)>> {
        let query = "SELECT id, content FROM texts WHERE kind = 'site' ORDER BY content";
        let rows = self.database.all(query, &[])?;
        Ok(rows.iter().filter_map(|row| Some((row[0].integer()?, row[1].text().to_owned()))).collect())
    }

    /// Hands on the single rounds of a site that began in this time (microseconds since 1970), in order.
    pub fn rounds(
        &mut self,
        site: i64,
        (from_us, until_us): (i64, i64),
        take: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let these = "site = $1 AND started_unix_us >= $2 AND started_unix_us < $3
                     ORDER BY site, started_unix_us, run, number";
        let query = format!("SELECT {} FROM rounds WHERE {these}", tables::columns());
        let texts = self.texts.read(&mut *self.database)?;
        let values = [site.into(), from_us.into(), until_us.into()];
        self.database.query(&query, &values, &mut |row| take(tables::entry(row, texts)?))
    }

    /// The single rounds of a site in this time, each as a group of its own.
    pub fn each_round(&mut self, site: i64, range_us: (i64, i64)) -> Result<Vec<Hour>> {
        let mut all = Vec::new();
        self.rounds(site, range_us, &mut |entry| {
            all.push(Hour::of(&entry));
            Ok(())
        })?;
        Ok(all)
    }

    /// The last round of a site that was made, by its stamp.
    pub fn latest(&mut self, site: i64) -> Result<Option<Entry>> {
        let these = "site = $1 AND missed_count IS NULL
                     ORDER BY site DESC, started_unix_us DESC, run DESC, number DESC LIMIT 1";
        let query = format!("SELECT {} FROM rounds WHERE {these}", tables::columns());
        let texts = self.texts.read(&mut *self.database)?;
        let rows = self.database.all(&query, &[site.into()])?;
        rows.first().map(|row| tables::entry(row, texts)).transpose()
    }

    /// Has everything that is read until [`Store::end_reading`] be of one moment, whatever robots write meanwhile.
    pub fn begin_reading(&mut self) -> Result<()> {
        self.database.batch(self.database.dialect().begin_reading)
    }

    /// The end of [`Store::begin_reading`].
    pub fn end_reading(&mut self) -> Result<()> {
        self.database.batch("COMMIT")
    }
}
