//! The record of a running experiment: kept in memory, and block by block in the store as long as that works.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use super::block::Block;
use super::error::StoreError;
use super::record::Record;
use super::sqlite::{Store, fresh_id};
use super::warning::{Warning, code};

/// A record being made. The experiment goes on when the store fails: the first failure becomes a warning of the record,
/// and what was measured is written to a JSON file instead when the experiment ends.
#[derive(Debug)]
pub struct Journal {
    record: Record,
    store: Option<Store>,
    failure: Option<StoreError>,
}

impl Journal {
    /// Begins a record in the user's store.
    pub fn begin(record: Record) -> Journal {
        Journal::begin_in(Store::open(), record)
    }

    /// Begins a record in a store that may have failed to open.
    pub fn begin_in(store: Result<Store, StoreError>, record: Record) -> Journal {
        let mut journal = Journal { record, store: None, failure: None };
        let begun = store.and_then(|mut store| {
            let id = store.begin(&journal.record)?;
            Ok((store, id))
        });
        match begun {
            Ok((store, id)) => {
                journal.record.id = id;
                journal.store = Some(store);
            }
            Err(error) => journal.give_up_store(error),
        }
        journal
    }

    /// The record so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Rounds in which every valid configuration has its block.
    fn complete_rounds(&self) -> u32 {
        let record = &self.record;
        let wanted = record.configurations.iter().filter(|configuration| configuration.valid).count();
        let mut measured: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
        for block in &record.blocks {
            measured.entry(block.round).or_default().insert(block.configuration);
        }
        measured.values().filter(|configurations| configurations.len() >= wanted).count() as u32
    }

    /// Why the record is not (or no longer) in the store; tell the user at once, the experiment goes on.
    pub fn failure(&self) -> Option<&StoreError> {
        self.failure.as_ref()
    }

    /// Adds a block; it is on disk when this returns, unless the store failed.
    pub fn add_block(&mut self, block: Block) {
        self.in_store(|store, record| store.add_block(&record.id, record.blocks.len(), &block));
        self.record.blocks.push(block);
    }

    /// Changes everything else: configurations, preflight, manifest, warnings. Blocks must be added by
    /// [`Journal::add_block`].
    pub fn change(&mut self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record);
        self.in_store(Store::update);
    }

    /// Says that the experiment ended before its planned end, and why.
    pub fn stop(&mut self, cause: &str) {
        let warning = stopped(self.complete_rounds(), cause);
        self.change(|record| record.warnings.push(warning));
    }

    /// Ends the record; `finished` says whether the experiment ran to its planned end. When the store failed, the
    /// record is written as JSON into `directory` (else the system's temporary directory), and its warning says where.
    /// Also answers whether the whole record is in the store.
    pub fn finish(mut self, finished: bool, directory: &Path) -> (Record, bool) {
        self.change(|record| record.finished = finished);
        // Asked last: the change above can be what failed.
        let stored = self.failure.is_none();
        if !stored {
            self.save_elsewhere(directory);
        }
        (self.record, stored)
    }

    fn in_store(&mut self, write: impl FnOnce(&mut Store, &mut Record) -> Result<(), StoreError>) {
        if let Some(store) = &mut self.store
            && let Err(error) = write(store, &mut self.record)
        {
            self.give_up_store(error);
        }
    }

    fn give_up_store(&mut self, error: StoreError) {
        self.store = None;
        self.record.warnings.push(not_stored(&error, None));
        self.failure = Some(error);
    }

    fn save_elsewhere(&mut self, directory: &Path) {
        // Nobody can have prepared something in its place, for example in a temporary directory that others write too.
        let name = format!("tlsdyno-{}-{}.json", self.record.created_unix_s, fresh_id());
        for directory in [directory, &std::env::temp_dir()] {
            let path = directory.join(&name);
            // The file itself must say where it is, so the warning is changed before it is known to be true.
            self.say_saved_as(Some(&path));
            if write_json(&self.record, &path).is_ok() {
                return;
            }
        }
        self.say_saved_as(None);
    }

    fn say_saved_as(&mut self, file: Option<&Path>) {
        let warning = self.record.warnings.iter_mut().find(|warning| warning.code == code::NOT_STORED);
        if let Some((warning, failure)) = warning.zip(self.failure.as_ref()) {
            *warning = not_stored(failure, file);
        }
    }
}

fn stopped(rounds: u32, cause: &str) -> Warning {
    let (what, remedy) = match rounds {
        0 => (
            format!("stopped early ({cause}), before one round was complete: there is nothing to compare"),
            "Run it again.",
        ),
        _ => (
            format!("stopped early ({cause}): the results are from the {rounds} complete rounds so far"),
            "Run it to its end for narrower intervals.",
        ),
    };
    Warning::new("stopped", what).with_remedy(remedy)
}

fn not_stored(failure: &StoreError, saved_as: Option<&Path>) -> Warning {
    let remedy = match saved_as.map(Path::display) {
        Some(file) => {
            format!("Nothing measured is lost: the record is in {file}; `tlsdyno report {file}` reads it.")
        }
        None => "The record exists only in this output: keep it (--json, report.html).".to_owned(),
    };
    Warning::new(code::NOT_STORED, failure.to_string()).with_remedy(remedy)
}

/// Writes a whole record as JSON to a new file that only its owner reads; `tlsdyno report FILE` reads it.
///
/// # Errors
/// It cannot be written, or there is something of that name, a symbolic link for example: it is not followed.
pub fn write_json(record: &Record, path: &Path) -> std::io::Result<()> {
    // Half a file would only mislead: it gets its name when it is whole, and is removed if it never is.
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut unfinished = tempfile::Builder::new().prefix(".tlsdyno-").suffix(".part").tempfile_in(directory)?;
    unfinished.write_all(&serde_json::to_vec(record)?)?;
    unfinished.persist_noclobber(path)?;
    Ok(())
}

/// Reads a record written by [`write_json`].
pub fn read_json(path: &Path) -> Result<Record, StoreError> {
    let unreadable = |cause: String| StoreError::Unreadable { what: path.display().to_string(), cause };
    let text = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))
}

/// The record of this id in the user's store, or in this file.
///
/// # Errors
/// It is not there, or cannot be read.
pub fn find(which: &str) -> Result<Record, StoreError> {
    // Ids hold no dot and no slash, so a file cannot be mistaken for one.
    if which.contains(['.', '/']) { read_json(Path::new(which)) } else { Store::open_for_reading()?.load(which) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn empty_record() -> Record {
        Record::begun_now("Does it fit?", 1)
    }

    fn block(round: u32) -> Block {
        let phases = [("first_byte".to_owned(), "A".repeat(3_000))].into();
        Block { round, hits: 100, elapsed_ns: u64::from(round) + 1, phases, ..Block::default() }
    }

    fn saved_as(record: &Record) -> PathBuf {
        let text = record.warnings[0].to_string();
        let file = text.split("the record is in ").nth(1).and_then(|rest| rest.split(';').next());
        file.unwrap_or_else(|| panic!("not saved: {text}")).into()
    }

    /// A file that may not grow is what SQLite sees of a full disk.
    #[test]
    fn a_disk_that_fills_up_loses_nothing() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("records.sqlite");
        let mut store = Store::open_at(&path).expect("store");
        let id = store.begin(&empty_record()).expect("record");
        store.add_block(&id, 0, &block(0)).expect("first block");
        store.limit_to_current_size();
        let mut journal = Journal {
            record: Record { id: id.clone(), blocks: vec![block(0)], ..empty_record() },
            store: Some(store),
            failure: None,
        };
        for round in 1..20 {
            journal.add_block(block(round));
        }
        assert!(matches!(journal.failure(), Some(StoreError::Full { .. })), "{:?}", journal.failure());
        let (record, stored) = journal.finish(true, directory.path());
        assert!(!stored);
        assert_eq!(record.blocks.len(), 20);
        let text = record.warnings[0].to_string();
        assert!(text.contains("is full. Free some space") && text.contains("tlsdyno report"), "{text}");
        let saved_as = saved_as(&record);
        assert_eq!(read_json(&saved_as).expect("file"), record);
        assert_eq!(saved_as.parent(), Some(directory.path()));
        let kept = Store::open_for_reading_at(&path).expect("reopen").load(&id).expect("what was written before");
        assert!(!kept.blocks.is_empty() && kept.blocks.len() < 20 && !kept.finished, "{}", kept.blocks.len());
        assert_eq!(kept.blocks, record.blocks[..kept.blocks.len()]);
    }

    /// A name that can be guessed could be a link by then, which leads to any file of the one who measures.
    #[test]
    fn the_saved_record_is_a_new_file_of_its_owner_that_nobody_can_foresee() {
        let directory = tempfile::tempdir().expect("directory");
        let save = || {
            let nowhere = Store::open_at(&directory.path().join("missing\0"));
            let (record, _) = Journal::begin_in(nowhere, empty_record()).finish(true, directory.path());
            saved_as(&record)
        };
        let (first, second) = (save(), save());
        assert_ne!(first, second);
        let mode = std::fs::metadata(&first).expect("file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let precious = directory.path().join("precious");
        std::fs::write(&precious, "kept").expect("file");
        let link = directory.path().join("link.json");
        std::os::unix::fs::symlink(&precious, &link).expect("link");
        assert!(write_json(&empty_record(), &link).is_err(), "there is something of that name");
        assert_eq!(std::fs::read_to_string(&precious).expect("file"), "kept");
        let mut left: Vec<_> =
            std::fs::read_dir(&directory).expect("directory").map(|entry| entry.expect("entry").path()).collect();
        left.sort_unstable();
        let mut expected = vec![first, second, link, precious];
        expected.sort_unstable();
        assert_eq!(left, expected, "no half files");
    }

    #[test]
    fn when_nothing_can_be_written_the_result_still_comes_back() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "in the way").expect("file");
        let mut journal = Journal::begin_in(Store::open_at(&file.join("records.sqlite")), empty_record());
        assert!(matches!(journal.failure(), Some(StoreError::Open { .. })));
        journal.add_block(block(0));
        let (record, _) = journal.finish(true, &file);
        assert_eq!(record.blocks.len(), 1);
        assert!(record.warnings[0].what.contains("TLSDYNO_STORE"), "{:?}", record.warnings);
        std::fs::remove_file(saved_as(&record)).expect("it was saved in the temporary directory");
    }
}
