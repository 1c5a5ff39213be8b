//! What can go wrong with the store, whose fault it is and what to do.

use std::path::PathBuf;

use tlsdyno_base::store_path::NoHome;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no place for the store.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// The file cannot be opened or made.
    #[error(
        "cannot open the record store {path}: {cause}. Make its directory writable or set TLSDYNO_STORE to another file"
    )]
    Open {
        /// Path of the store.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// The calibrations cannot be written.
    #[error(
        "cannot keep the calibration in {path}: {cause}. Make its directory writable or set TLSDYNO_STORE to a file \
         elsewhere"
    )]
    Calibrations {
        /// Path of the file of calibrations.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// The disk is full.
    #[error(
        "the disk of the record store {path} is full. Free some space or set TLSDYNO_STORE to a file on another disk"
    )]
    Full {
        /// Path of the store.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not a record store of tlsdyno. Set TLSDYNO_STORE to another file")]
    NotAStore {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file was written by an older or a newer version.
    #[error(
        "the record store {path} has schema {found}, this tlsdyno reads and writes {known} only: move the file away \
         (or set TLSDYNO_STORE to another one) and measure again, or use the tlsdyno that wrote it"
    )]
    OtherVersion {
        /// Path of the store.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Schema that this program reads and writes.
        known: i64,
    },
    /// Nothing has been recorded yet.
    #[error("there are no records in {path} yet. `tlsdyno ablate --quick` makes one")]
    Empty {
        /// Path of the store.
        path: PathBuf,
    },
    /// No record has this id.
    #[error("no record `{which}` in {path}. `tlsdyno list` shows the records")]
    Unknown {
        /// The id that was asked for.
        which: String,
        /// Path of the store.
        path: PathBuf,
    },
    /// More than one record has an id that begins like this.
    #[error("`{which}` is the beginning of {}: give more digits", .ids.join(", "))]
    Ambiguous {
        /// The beginning of an id that was asked for.
        which: String,
        /// Ids of the records that match.
        ids: Vec<String>,
    },
    /// A record cannot be understood.
    #[error(
        "the record {what} cannot be read ({cause}): it is damaged, or another version of tlsdyno wrote it; measure \
         again, or use that version"
    )]
    Unreadable {
        /// Id or file of the record.
        what: String,
        /// What is wrong with the record.
        cause: String,
    },
    /// Anything else that SQLite or the system reports.
    #[error("the record store {path} failed: {cause}. Check its disk, or set TLSDYNO_STORE to another file")]
    Failed {
        /// Path of the store.
        path: PathBuf,
        /// What SQLite or the system said.
        cause: String,
    },
}
