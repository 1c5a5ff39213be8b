//! Records in one SQLite file. All SQL of the project is in this module.
//!
//! Each block is its own transaction, so that a crash, Ctrl-C or a full disk loses nothing that was already written.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::StoreError;
use super::location::default_path;
use super::record::{Block, Record};

/// Version of the tables below; kept in SQLite's `user_version`.
const SCHEMA_VERSION: i64 = 7;
/// Marks the file as ours: `tlsd` in ASCII; kept in SQLite's `application_id`.
const APPLICATION_ID: i64 = 0x746c_7364;
/// How long to wait for other processes that are writing: each has the file for some milliseconds at a time, and SQLite
/// does not let them take turns.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Times and counts are integers; lists and maps are JSON text. `head` is the record without its blocks.
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
        round INTEGER NOT NULL,
        configuration INTEGER NOT NULL,
        position_in_round INTEGER NOT NULL,
        started_ns INTEGER NOT NULL,
        elapsed_ns INTEGER NOT NULL,
        hits INTEGER NOT NULL,
        body_bytes INTEGER NOT NULL,
        server_cpu_ns INTEGER NOT NULL,
        client_cpu_ns INTEGER NOT NULL,
        connections INTEGER NOT NULL,
        handshakes_full INTEGER NOT NULL,
        resumed_intended INTEGER NOT NULL,
        resumed_offered INTEGER NOT NULL,
        resumed_accepted INTEGER NOT NULL,
        steal_ns INTEGER NOT NULL,
        client_bound INTEGER NOT NULL,
        valid INTEGER NOT NULL,
        errors TEXT NOT NULL,
        warnings TEXT NOT NULL,
        companion_cpu_ns INTEGER NOT NULL DEFAULT 0,
        pace_ps INTEGER NOT NULL DEFAULT 0,
        cluster TEXT,
        slices TEXT,
        profile TEXT,
        instructions INTEGER,
        intervals TEXT,
        PRIMARY KEY (record, sequence)
    );
    CREATE TABLE phases (
        record TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        phase TEXT NOT NULL,
        histogram TEXT NOT NULL,
        PRIMARY KEY (record, sequence, phase),
        FOREIGN KEY (record, sequence) REFERENCES blocks (record, sequence) ON DELETE CASCADE
    );
";

/// What brings the tables of version 1, 2, … to the next: servers beside the server under test were not counted before
/// version 2, nor the pace of the machine before version 3, nor who did how much in a cluster before version 4; there
/// were no slices before version 5, no profiles before version 6, and neither counts of instructions nor intervals
/// before version 7.
const UPGRADES: [&str; SCHEMA_VERSION as usize - 1] = [
    "ALTER TABLE blocks ADD COLUMN companion_cpu_ns INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE blocks ADD COLUMN pace_ps INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE blocks ADD COLUMN cluster TEXT",
    "ALTER TABLE blocks ADD COLUMN slices TEXT",
    "ALTER TABLE blocks ADD COLUMN profile TEXT",
    "ALTER TABLE blocks ADD COLUMN instructions INTEGER; ALTER TABLE blocks ADD COLUMN intervals TEXT",
];

/// The store of records.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// One line of `tlsdyno list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The record.
    pub id: String,
    /// When it began, seconds since 1970 (UTC).
    pub created_unix_s: u64,
    /// What it asks.
    pub question: String,
    /// The server under test.
    pub server: String,
    /// It ran to its planned end.
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
}

impl Store {
    /// Opens the user's store for writing, and makes it if need be.
    pub fn open() -> Result<Store, StoreError> {
        Store::open_at(&default_path()?)
    }

    /// Opens a store for writing, and makes it and its directory if need be.
    pub fn open_at(path: &Path) -> Result<Store, StoreError> {
        let unopened = |cause: String| StoreError::Open { path: path.to_owned(), cause };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| unopened(error.to_string()))?;
        }
        let connection = Connection::open(path).map_err(|error| unopened(error.to_string()))?;
        let mut store = Store { path: path.to_owned(), connection };
        store.connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| store.failure(error))?;
        store.connection.pragma_update(None, "foreign_keys", true).map_err(|error| store.failure(error))?;
        store.make_tables()?;
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
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .map_err(|error| StoreError::Open { path: path.to_owned(), cause: error.to_string() })?;
        let store = Store { path: path.to_owned(), connection };
        store.connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| store.failure(error))?;
        store.check_version()?;
        Ok(store)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a new record (blocks that it already has are kept too) and returns the id given to it.
    pub fn begin(&mut self, record: &Record) -> Result<String, StoreError> {
        let id = fresh_id();
        let kept = Record { id: id.clone(), ..record.clone() };
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO records (id, created_unix_s, finished, question, server, head) VALUES (?1, ?2, ?3, ?4, \
                 ?5, ?6)",
                params![
                    kept.id,
                    kept.created_unix_s,
                    kept.finished,
                    kept.question,
                    kept.manifest.server_name,
                    head(&kept)
                ],
            )?;
            kept.blocks
                .iter()
                .enumerate()
                .try_for_each(|(sequence, block)| insert_block(transaction, &kept.id, sequence, block))
        })?;
        Ok(id)
    }

    /// Keeps one more block of a record; it is on disk when this returns.
    pub fn add_block(&mut self, id: &str, block: &Block) -> Result<(), StoreError> {
        self.write(|transaction| {
            let sequence: usize =
                transaction.query_row("SELECT COUNT(*) FROM blocks WHERE record = ?1", [id], |row| row.get(0))?;
            insert_block(transaction, id, sequence, block)
        })
    }

    /// Replaces everything of a record but its blocks: manifest, configurations, warnings, whether it is finished.
    pub fn update(&mut self, id: &str, record: &Record) -> Result<(), StoreError> {
        let kept = Record { id: id.to_owned(), ..record.clone() };
        self.write(|transaction| {
            let changed = transaction.execute(
                "UPDATE records SET created_unix_s = ?2, finished = ?3, question = ?4, server = ?5, head = ?6 WHERE \
                 id = ?1",
                params![id, kept.created_unix_s, kept.finished, kept.question, kept.manifest.server_name, head(&kept)],
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
        let mut record: Record = serde_json::from_str(&head)
            .map_err(|error| StoreError::Unreadable { what: id.clone(), cause: error.to_string() })?;
        let mut phases = self.phases(&id).map_err(read)?;
        let mut statement = moment.prepare("SELECT * FROM blocks WHERE record = ?1 ORDER BY sequence").map_err(read)?;
        let blocks = statement.query_map([&id], block_from_row).map_err(read)?;
        for block in blocks {
            let (sequence, mut block) = block.map_err(read)?;
            block.phases = phases.remove(&sequence).unwrap_or_default();
            record.blocks.push(block);
        }
        Ok(record)
    }

    /// The records, newest first.
    pub fn list(&self) -> Result<Vec<Listing>, StoreError> {
        // What older records do not say is null.
        let query = "SELECT id, created_unix_s, question, server, finished,
                            (SELECT COUNT(*) FROM blocks WHERE record = records.id),
                            json_extract(head, '$.manifest.server_version'),
                            json_extract(head, '$.manifest.negotiated'),
                            json_extract(head, '$.manifest.certificate'), json_extract(head, '$.manifest.workload')
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
                    version: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
                    negotiated: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
                    certificate: row.get::<_, Option<String>>(8)?.unwrap_or_default(),
                    workload: row.get::<_, Option<String>>(9)?.unwrap_or_default(),
                })
            })?;
            rows.collect()
        };
        read().map_err(|error| self.failure(error))
    }

    fn resolve(&self, which: &str) -> Result<String, StoreError> {
        let records = self.list()?;
        if records.is_empty() {
            return Err(StoreError::Empty { path: self.path.clone() });
        }
        if which == "last" {
            return Ok(records[0].id.clone());
        }
        let matching: Vec<String> =
            records.into_iter().map(|record| record.id).filter(|id| id.starts_with(which)).collect();
        match matching.as_slice() {
            [] => Err(StoreError::Unknown { which: which.to_owned(), path: self.path.clone() }),
            [id] => Ok(id.clone()),
            _ => Err(StoreError::Ambiguous { which: which.to_owned(), ids: matching }),
        }
    }

    fn phases(&self, id: &str) -> rusqlite::Result<BTreeMap<u64, BTreeMap<String, String>>> {
        let mut statement =
            self.connection.prepare("SELECT sequence, phase, histogram FROM phases WHERE record = ?1")?;
        let rows = statement.query_map([id], |row| Ok((row.get::<_, u64>(0)?, row.get(1)?, row.get(2)?)))?;
        let mut phases: BTreeMap<u64, BTreeMap<String, String>> = BTreeMap::new();
        for row in rows {
            let (sequence, phase, histogram) = row?;
            phases.entry(sequence).or_default().insert(phase, histogram);
        }
        Ok(phases)
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
        if self.check_version()? < SCHEMA_VERSION {
            self.write(|transaction| {
                // Another process may have been faster.
                let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
                let done = usize::try_from(found - 1).unwrap_or(0);
                for upgrade in UPGRADES.iter().skip(done) {
                    transaction.execute_batch(upgrade)?;
                }
                transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
            })?;
        }
        Ok(())
    }

    /// The version of the tables.
    fn check_version(&self) -> Result<i64, StoreError> {
        let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let application = pragma("application_id").map_err(|error| self.failure(error))?;
        if application != APPLICATION_ID {
            return Err(StoreError::NotAStore { path: self.path.clone() });
        }
        let found = pragma("user_version").map_err(|error| self.failure(error))?;
        if found > SCHEMA_VERSION {
            return Err(StoreError::Newer { path: self.path.clone(), found, known: SCHEMA_VERSION });
        }
        Ok(found)
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

/// 48 random bits: the keys of the standard library's hasher are random per call.
pub(super) fn fresh_id() -> String {
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{:012x}", random >> 16)
}

fn tables(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))
}

fn head(record: &Record) -> String {
    json(&Record { blocks: Vec::new(), ..record.clone() })
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records have string keys only, so that they are always JSON")
}

fn insert_block(transaction: &Transaction, id: &str, sequence: usize, block: &Block) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO blocks VALUES (:record, :sequence, :round, :configuration, :position_in_round, :started_ns,
         :elapsed_ns, :hits, :body_bytes, :server_cpu_ns, :client_cpu_ns, :connections, :handshakes_full,
         :resumed_intended, :resumed_offered, :resumed_accepted, :steal_ns, :client_bound, :valid, :errors, :warnings,
         :companion_cpu_ns, :pace_ps, :cluster, :slices, :profile,
         :instructions, :intervals)",
        rusqlite::named_params! {
            ":record": id, ":sequence": sequence, ":round": block.round, ":configuration": block.configuration,
            ":position_in_round": block.position_in_round, ":started_ns": block.started_ns,
            ":elapsed_ns": block.elapsed_ns, ":hits": block.hits, ":body_bytes": block.body_bytes,
            ":server_cpu_ns": block.server_cpu_ns, ":client_cpu_ns": block.client_cpu_ns,
            ":connections": block.connections, ":handshakes_full": block.handshakes_full,
            ":resumed_intended": block.resumed_intended, ":resumed_offered": block.resumed_offered,
            ":resumed_accepted": block.resumed_accepted, ":steal_ns": block.steal_ns,
            ":client_bound": block.client_bound, ":valid": block.valid, ":errors": json(&block.errors),
            ":warnings": json(&block.warnings), ":companion_cpu_ns": block.companion_cpu_ns,
            ":pace_ps": block.pace_ps, ":cluster": block.cluster.as_ref().map(json),
            ":slices": (!block.slices.is_empty()).then(|| json(&block.slices)),
            ":profile": block.profile.as_ref().map(json),
            ":instructions": block.instructions,
            ":intervals": (!block.intervals.is_empty()).then(|| json(&block.intervals)),
        },
    )?;
    let mut statement = transaction.prepare_cached("INSERT INTO phases VALUES (?1, ?2, ?3, ?4)")?;
    for (phase, histogram) in &block.phases {
        statement.execute(params![id, sequence, phase, histogram])?;
    }
    Ok(())
}

fn block_from_row(row: &Row) -> rusqlite::Result<(u64, Block)> {
    let block = Block {
        round: row.get("round")?,
        configuration: row.get("configuration")?,
        position_in_round: row.get("position_in_round")?,
        started_ns: row.get("started_ns")?,
        elapsed_ns: row.get("elapsed_ns")?,
        hits: row.get("hits")?,
        body_bytes: row.get("body_bytes")?,
        server_cpu_ns: row.get("server_cpu_ns")?,
        client_cpu_ns: row.get("client_cpu_ns")?,
        companion_cpu_ns: later_column(row, "companion_cpu_ns")?.unwrap_or(0),
        connections: row.get("connections")?,
        handshakes_full: row.get("handshakes_full")?,
        resumed_intended: row.get("resumed_intended")?,
        resumed_offered: row.get("resumed_offered")?,
        resumed_accepted: row.get("resumed_accepted")?,
        errors: json_column(row, "errors")?,
        steal_ns: row.get("steal_ns")?,
        pace_ps: later_column(row, "pace_ps")?.unwrap_or(0),
        client_bound: row.get("client_bound")?,
        valid: row.get("valid")?,
        warnings: json_column(row, "warnings")?,
        phases: BTreeMap::new(),
        cluster: later_json(row, "cluster")?,
        slices: later_json(row, "slices")?.unwrap_or_default(),
        profile: later_json(row, "profile")?,
        instructions: later_column(row, "instructions")?,
        intervals: later_json(row, "intervals")?.unwrap_or_default(),
    };
    Ok((row.get("sequence")?, block))
}

/// A column that a store of an earlier version lacks, which may only be read.
fn later_column<T: rusqlite::types::FromSql>(row: &Row, name: &str) -> rusqlite::Result<Option<T>> {
    match row.get(name) {
        Err(rusqlite::Error::InvalidColumnName(_)) => Ok(None),
        other => other,
    }
}

/// The same of JSON, which is not in every row.
fn later_json<T: DeserializeOwned>(row: &Row, name: &str) -> rusqlite::Result<Option<T>> {
    later_column::<String>(row, name)?.map(|_| json_column(row, name)).transpose()
}

fn json_column<T: DeserializeOwned>(row: &Row, name: &str) -> rusqlite::Result<T> {
    let text: String = row.get(name)?;
    let index = row.as_ref().column_index(name)?;
    serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, Box::new(error)))
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
