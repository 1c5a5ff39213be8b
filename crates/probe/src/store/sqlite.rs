//! The store in one SQLite file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};

use super::database::{Database, Dialect, Value};

/// Marks the file as ours: `tlsp` in ASCII.
const APPLICATION_ID: i64 = 0x746c_7370;
/// How long to wait for another process that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before a refused step is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    /// Device and inode of the file that is open.
    file: (u64, u64),
}

impl Sqlite {
    /// Opens the file for writing, and makes it and its directory if need be.
    ///
    /// # Errors
    /// It cannot be opened, or is something else.
    pub fn open(path: &Path) -> Result<Sqlite> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
        }
        let connection = Connection::open(path).with_context(|| format!("failed to open {}", path.display()))?;
        let names = std::fs::metadata(path).with_context(|| format!("failed to open {}", path.display()))?.nlink();
        ensure!(
            names <= 1,
            "{} has {names} names (hard links): SQLite keeps its journal by the name and would damage it, and robots \
             would not know of each other; remove the other names, or make them symbolic links",
            path.display()
        );
        Sqlite::with(connection, path, |connection| {
            // The rows of hours have some 1.5 kB each: large pages waste less. It only holds for a new file.
            connection.pragma_update(None, "page_size", 16384)?;
            // Readers see the state before a write while it goes on, and neither waits for the other. With NORMAL a
            // crash of the machine may cost the last rounds, a crash of the program none.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)
        })
    }

    /// Opens the file for reading.
    ///
    /// # Errors
    /// It is not there, or is something else.
    pub fn open_for_reading(path: &Path) -> Result<Sqlite> {
        ensure!(path.exists(), "{} is not there yet; `tlsdyno probe URL --every 1m` makes it", path.display());
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .with_context(|| format!("failed to open {}", path.display()))?;
        Sqlite::with(connection, path, |_| Ok(()))
    }

    fn with(
        connection: Connection,
        path: &Path,
        prepare: impl Fn(&Connection) -> rusqlite::Result<()>,
    ) -> Result<Sqlite> {
        let failed = || format!("failed to open {}", path.display());
        connection.busy_timeout(BUSY_TIMEOUT).with_context(failed)?;
        let tables: i64 = connection
            .query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))
            .with_context(|| format!("{} is no store of probes; name another with --store", path.display()))?;
        let marked: i64 =
            connection.pragma_query_value(None, "application_id", |row| row.get(0)).with_context(failed)?;
        ensure!(
            tables == 0 || marked == APPLICATION_ID,
            "{} is no store of probes; name another with --store",
            path.display()
        );
        connection.set_prepared_statement_cache_capacity(64);
        // SQLite does not wait by itself where a reader becomes a writer: when several robots make a file's journal at
        // once, it refuses all but one of them.
        let until = Instant::now() + BUSY_TIMEOUT;
        let busy = |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
        let mut prepared = prepare(&connection);
        while prepared.as_ref().is_err_and(busy) && Instant::now() < until {
            std::thread::sleep(BUSY_PAUSE);
            prepared = prepare(&connection);
        }
        prepared.with_context(failed)?;
        let file = identity(path).with_context(failed)?;
        Ok(Sqlite { connection, path: path.to_owned(), file })
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

impl Database for Sqlite {
    fn batch(&mut self, sql: &str) -> Result<()> {
        Ok(self.connection.execute_batch(sql)?)
    }

    fn query(&mut self, sql: &str, values: &[Value], row: &mut dyn FnMut(&[Value]) -> Result<()>) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = vec![Value::Null; statement.column_count()];
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(next) = rows.next()? {
            for (column, value) in found.iter_mut().enumerate() {
                *value = next.get(column)?;
                ensure!(
                    !matches!(value, Value::Real(_)),
                    "the store holds a number with a fraction, which we never write"
                );
            }
            row(&found)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        // SQLite goes on writing to a file that was removed or replaced, and nobody would ever see it.
        ensure!(
            identity(&self.path).is_ok_and(|file| file == self.file),
            "{} was removed or replaced",
            self.path.display()
        );
        Ok(())
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            bytes: "BLOB",
            by_key: "WITHOUT ROWID",
            count_tables: "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'probe_schema'",
            begin: "BEGIN IMMEDIATE",
            begin_reading: "BEGIN",
            claim: "",
        }
    }
}
