//! Records in one SQLite file. All SQL of the project is in this module.
//!
//! Each block is its own transaction, so that a crash, Ctrl-C or a full disk loses nothing that was already written.

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tlsdyno_base::private;

use super::block::Block;
use super::default_path;
use super::error::StoreError;
use super::kind_part::OfKind;
use super::machine::Machine;
use super::record::Record;

/// Version of the tables below, kept in SQLite's `user_version`. Versions 1 to 7 were never released.
const SCHEMA_VERSION: i64 = 8;
/// Marks the file as ours: `tlsd` in ASCII; kept in SQLite's `application_id`.
const APPLICATION_ID: i64 = 0x746c_7364;
/// How long to wait for other processes that are writing: each has the file for some milliseconds at a time, and SQLite
/// does not let them take turns.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// `head` is the record without its blocks, `block` a block, both as JSON.
const SCHEMA: &str = "
    CREATE TABLE records (
        id TEXT PRIMARY KEY,
        created_unix_s INTEGER NOT NULL,
        finished INTEGER NOT NULL,
        question TEXT NOT NULL,
        server TEXT NOT NULL,
        head TEXT NOT NULL
    );
    CREATE TABLE blocks (
        record TEXT NOT NULL REFERENCES records (id) ON DELETE CASCADE,
        sequence INTEGER NOT NULL,
        block TEXT NOT NULL,
        PRIMARY KEY (record, sequence)
    );
";

/// The store of records.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// One line of `tlsdyno list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Id of the record.
    pub id: String,
    /// When it began, seconds since 1970 (UTC).
    pub created_unix_s: u64,
    /// Question of the experiment.
    pub question: String,
    /// The server under test.
    pub server: String,
    /// The experiment ran to its planned end.
    pub finished: bool,
    /// Blocks measured.
    pub blocks: u64,
    /// The server's version; empty, as the next ones, where the record does not say.
    pub version: String,
    /// What the handshakes negotiated.
    pub negotiated: String,
    /// The server's certificate.
    pub certificate: String,
    /// What was requested.
    pub workload: String,
    /// The machine in short.
    pub machine: String,
}

impl Store {
    /// Opens the user's store for writing, and makes it if need be.
    pub fn open() -> Result<Store, StoreError> {
        Store::open_at(&default_path()?)
    }

    /// Opens a store for writing, and makes it and its directory if need be, for this user alone.
    pub fn open_at(path: &Path) -> Result<Store, StoreError> {
        let unopened = |cause: String| StoreError::Open { path: path.to_owned(), cause };
        let made = made_private(path).map_err(|error| unopened(error.to_string()))?;
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(&made, flags).map_err(|error| unopened(error.to_string()))?;
        let mut store = Store { path: path.to_owned(), connection };
        store.connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| store.failure(error))?;
        store.connection.pragma_update(None, "foreign_keys", true).map_err(|error| store.failure(error))?;
        store.make_tables()?;
        // Now it is known to be a store; earlier versions made it as the umask was.
        private::close(&made).map_err(|error| unopened(error.to_string()))?;
        Ok(store)
    }

    /// Opens the user's store for reading; it is not made if it is not there.
    pub fn open_for_reading() -> Result<Store, StoreError> {
        Store::open_for_reading_at(&default_path()?)
    }

    /// Opens a store for reading; it is not made if it is not there. Works on a disk that cannot be written.
    pub fn open_for_reading_at(path: &Path) -> Result<Store, StoreError> {
        if !path.exists() {
            return Err(StoreError::Empty { path: path.to_owned() });
        }
        let unopened = |cause: String| StoreError::Open { path: path.to_owned(), cause };
        let no_stranger = std::path::absolute(path).and_then(|path| private::refuse_links(&path));
        no_stranger.map_err(|error| unopened(error.to_string()))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| unopened(error.to_string()))?;
        let store = Store { path: path.to_owned(), connection };
        store.connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| store.failure(error))?;
        store.check_version()?;
        Ok(store)
    }

    /// Path of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a new record (blocks that it already has are kept too) and returns the id given to it.
    pub fn begin(&mut self, record: &Record) -> Result<String, StoreError> {
        let id = fresh_id();
        let mut kept = Record { id: id.clone(), ..record.clone() };
        let head = head(&mut kept);
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO records (id, created_unix_s, finished, question, server, head) VALUES (?1, ?2, ?3, ?4, \
                 ?5, ?6)",
                params![id, kept.created_unix_s, kept.finished, kept.question, kept.manifest.server_name, head],
            )?;
            let mut blocks = kept.blocks.iter().enumerate();
            blocks.try_for_each(|(sequence, block)| insert_block(transaction, &id, sequence, block))
        })?;
        Ok(id)
    }

    /// Keeps one more block of a record; it is on disk when this returns. `sequence` is the number of blocks before it.
    pub fn add_block(&mut self, id: &str, sequence: usize, block: &Block) -> Result<(), StoreError> {
        self.write(|transaction| insert_block(transaction, id, sequence, block))
    }

    /// Replaces everything of a record but its blocks: manifest, configurations, warnings, whether it is finished.
    pub fn update(&mut self, record: &mut Record) -> Result<(), StoreError> {
        let head = head(record);
        self.write(|transaction| {
            let changed = transaction.execute(
                "UPDATE records SET created_unix_s = ?2, finished = ?3, question = ?4, server = ?5, head = ?6 WHERE \
                 id = ?1",
                params![
                    record.id,
                    record.created_unix_s,
                    record.finished,
                    record.question,
                    record.manifest.server_name,
                    head
                ],
            )?;
            if changed == 1 { Ok(()) } else { Err(rusqlite::Error::QueryReturnedNoRows) }
        })
    }

    /// Reads a record by id, by the beginning of an id that no other record shares, or the newest by `last`.
    pub fn load(&self, which: &str) -> Result<Record, StoreError> {
        let read = |error| self.failure(error);
        // All of it as of one moment: its run may be adding blocks.
        let moment = self.connection.unchecked_transaction().map_err(read)?;
        let id = self.resolve(which)?;
        let head: String =
            moment.query_row("SELECT head FROM records WHERE id = ?1", [&id], |row| row.get(0)).map_err(read)?;
        let mut record: Record = understood(&id, &head)?;
        let mut statement =
            moment.prepare("SELECT block FROM blocks WHERE record = ?1 ORDER BY sequence").map_err(read)?;
        for block in statement.query_map([&id], |row| row.get::<_, String>(0)).map_err(read)? {
            record.blocks.push(understood(&id, &block.map_err(read)?)?);
        }
        Ok(record)
    }

    /// The records, newest first.
    pub fn list(&self) -> Result<Vec<Listing>, StoreError> {
        let of_machine = |text: String| serde_json::from_str(&text).map_or(String::new(), |of: Machine| of.short());
        let query = "SELECT id, created_unix_s, question, server, finished,
                            (SELECT COUNT(*) FROM blocks WHERE record = records.id),
                            json_extract(head, '$.manifest.server_version'),
                            json_extract(head, '$.manifest.negotiated'),
                            json_extract(head, '$.manifest.certificate'), json_extract(head, '$.manifest.workload'),
                            json_extract(head, '$.manifest.machine')
                     FROM records ORDER BY created_unix_s DESC, rowid DESC";
        let read = || -> rusqlite::Result<Vec<Listing>> {
            let mut statement = self.connection.prepare(query)?;
            let rows = statement.query_map([], |row| {
                Ok(Listing {
                    id: row.get(0)?,
                    created_unix_s: row.get(1)?,
                    question: row.get(2)?,
                    server: row.get(3)?,
                    finished: row.get(4)?,
                    blocks: row.get(5)?,
                    version: row.get(6)?,
                    negotiated: row.get(7)?,
                    certificate: row.get(8)?,
                    workload: row.get(9)?,
                    machine: row.get::<_, Option<String>>(10)?.map_or(String::new(), of_machine),
                })
            })?;
            rows.collect()
        };
        read().map_err(|error| self.failure(error))
    }

    /// Finished records of this kind with what they were asked, newest first. What is not understood is left out.
    pub fn finished<T: OfKind>(&self) -> Result<Vec<(String, T)>, StoreError> {
        let query = "SELECT id, json_extract(head, ?1) FROM records
                     WHERE finished AND json_type(head, ?1) = 'object' ORDER BY created_unix_s DESC, rowid DESC";
        let read = || -> rusqlite::Result<Vec<(String, T)>> {
            let mut statement = self.connection.prepare(query)?;
            let rows = statement.query_map([format!("$.{}", T::FIELD)], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let asked = |row: rusqlite::Result<(String, String)>| {
                row.map(|(id, text)| Some((id, serde_json::from_str(&text).ok()?))).transpose()
            };
            rows.filter_map(asked).collect()
        };
        read().map_err(|error| self.failure(error))
    }

    fn resolve(&self, which: &str) -> Result<String, StoreError> {
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut statement =
                self.connection.prepare("SELECT id FROM records ORDER BY created_unix_s DESC, rowid DESC")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        let mut ids = read().map_err(|error| self.failure(error))?;
        if ids.is_empty() {
            return Err(StoreError::Empty { path: self.path.clone() });
        }
        if which == "last" {
            return Ok(ids.swap_remove(0));
        }
        ids.retain(|id| id.starts_with(which));
        match ids.as_slice() {
            [] => Err(StoreError::Unknown { which: which.to_owned(), path: self.path.clone() }),
            [id] => Ok(id.clone()),
            _ => Err(StoreError::Ambiguous { which: which.to_owned(), ids }),
        }
    }

    fn write(&mut self, change: impl FnOnce(&Transaction) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        // A transaction that reads first and then wants to write is refused at once, without waiting, where another
        // has begun to write: it asks for the right to write at its beginning.
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let outcome = begun.and_then(|transaction| {
            change(&transaction)?;
            transaction.commit()
        });
        outcome.map_err(|error| self.failure(error))
    }

    fn make_tables(&mut self) -> Result<(), StoreError> {
        if tables(&self.connection).map_err(|error| self.failure(error))? == 0 {
            self.write(|transaction| {
                // Another process may have been faster.
                if tables(transaction)? > 0 {
                    return Ok(());
                }
                transaction.execute_batch(SCHEMA)?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
            })?;
        }
        self.check_version()
    }

    fn check_version(&self) -> Result<(), StoreError> {
        let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let application = pragma("application_id").map_err(|error| self.failure(error))?;
        if application != APPLICATION_ID {
            return Err(StoreError::NotAStore { path: self.path.clone() });
        }
        let found = pragma("user_version").map_err(|error| self.failure(error))?;
        if found != SCHEMA_VERSION {
            return Err(StoreError::OtherVersion { path: self.path.clone(), found, known: SCHEMA_VERSION });
        }
        Ok(())
    }

    fn failure(&self, error: rusqlite::Error) -> StoreError {
        let path = self.path.clone();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full { path },
            Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path },
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                StoreError::Open { path, cause: error.to_string() }
            }
            _ => StoreError::Failed { path, cause: error.to_string() },
        }
    }

    /// Limits the size of the file, as a full disk does.
    #[cfg(test)]
    pub(super) fn limit_to_current_size(&self) {
        let pages: i64 = self.connection.pragma_query_value(None, "page_count", |row| row.get(0)).expect("page count");
        self.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).expect("limit");
    }
}

/// Makes an empty file where there is none, with mode 0600 (as SQLite's journals beside it then have) in a directory
/// with mode 0700. Answers it without symbolic links: those of this user and of root are followed.
fn made_private(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    private::refuse_links(&path)?;
    let path = path.canonicalize().unwrap_or(path);
    let directory = private::directory(path.parent().unwrap_or(&path))?;
    if directory.ends_with("tlsdyno") {
        // Earlier versions made it as the umask was.
        private::close(&directory)?;
    }
    let path = directory.join(path.file_name().unwrap_or_default());
    if !path.exists() {
        // It is not opened by this name: to close it would take the locks of connections that this process has to it.
        let made = tempfile::NamedTempFile::new_in(&directory)?.into_temp_path().persist_noclobber(&path);
        made.map_err(|error| error.error).or_else(|error| if path.exists() { Ok(()) } else { Err(error) })?;
    }
    Ok(path)
}

/// 48 random bits: the keys of the standard library's hasher are random per call.
pub(super) fn fresh_id() -> String {
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{:012x}", random >> 16)
}

fn tables(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))
}

fn head(record: &mut Record) -> String {
    let blocks = std::mem::take(&mut record.blocks);
    let head = json(record);
    record.blocks = blocks;
    head
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records have string keys only, so that they are always JSON")
}

fn understood<T: DeserializeOwned>(id: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Unreadable { what: id.to_owned(), cause: error.to_string() })
}

fn insert_block(transaction: &Transaction, id: &str, sequence: usize, block: &Block) -> rusqlite::Result<()> {
    transaction
        .execute("INSERT INTO blocks (record, sequence, block) VALUES (?1, ?2, ?3)", params![id, sequence, json(block)])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        let ids: std::collections::BTreeSet<String> = (0..100).map(|_| fresh_id()).collect();
        assert!(ids.len() == 100 && ids.iter().all(|id| id.len() == 12));
    }
}
