//! Keeping records: their model, one SQLite file of them, and the journal of a running experiment.

pub mod calibration;
mod error;
mod journal;
mod kind_part;
pub mod load_run;
mod profile;
pub mod record;
mod reuse;
pub mod samples;
mod sqlite;
pub mod stacks;
mod steps;
pub mod warning;

pub use calibration::Calibration;
pub use error::StoreError;
pub use journal::{Journal, find, read_json, write_json};
pub use kind_part::{KindPart, LOAD, OfKind};
pub use profile::ProfileBlock;
pub use record::{
    BackendUse, Block, ClusterBlock, Configuration, EarlierRun, EarlierShare, FORMAT, Interval, LibraryUsed, Locality,
    Manifest, Preflight, Record, Role, Slice, UNREAD, of_interval,
};
pub use reuse::{Reuse, Row};
pub use sqlite::{Listing, Store};
pub use steps::{Flow, FlowEvent, StepSum, StepsBlock};
pub use tlsdyno_base::store_path::default_path;
pub use warning::Warning;
