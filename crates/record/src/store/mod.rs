//! Keeping records: their model, one SQLite file of them, and the journal of a running experiment.

mod block;
pub mod calibration;
mod error;
mod journal;
mod kind_part;
pub mod load_run;
mod locks;
pub mod machine;
mod profile;
pub mod record;
mod reference;
mod reuse;
pub mod samples;
mod sqlite;
pub mod stacks;
mod steps;
pub mod warning;

pub use block::{BackendUse, Block, ClusterBlock, Interval, Locality, MemoryPoint, Slice, of_interval};
pub use calibration::Calibration;
pub use error::StoreError;
pub use journal::{Journal, find, read_json, write_json};
pub use kind_part::{KindPart, LOAD, OfKind};
pub use locks::{LockOperation, LockSite};
pub use machine::Machine;
pub use profile::ProfileBlock;
pub use record::{
    Configuration, EarlierRun, EarlierShare, FORMAT, LibraryUsed, Manifest, Preflight, Record, Role, UNREAD,
};
pub use reference::{FixedWork, Reference};
pub use reuse::{Reuse, Row};
pub use sqlite::{Listing, Store};
pub use steps::{Flow, FlowEvent, StepSum, StepsBlock};
pub use tlsdyno_base::store_path::default_path;
pub use warning::Warning;
