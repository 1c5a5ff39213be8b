//! Keeping records: their model, one SQLite file of them, and the journal of a running experiment.

mod array;
pub mod calibration;
mod error;
mod journal;
mod load;
mod location;
mod measured;
mod primitives;
mod profile;
pub mod record;
mod sqlite;
mod steps;
pub mod warning;

pub use array::{ArrayRecord, PageScale};
pub use calibration::Calibration;
pub use error::StoreError;
pub use journal::{Journal, read_json, write_json};
pub use load::{LoadRecord, LoggedReuse};
pub use location::default_path;
pub use measured::Measured;
pub use primitives::PrimitivesRecord;
pub use profile::{CountedAreas, ProfileBlock, ProfileRecord};
pub use record::{
    BackendUse, Block, ClusterBlock, Configuration, EarlierRun, EarlierShare, FORMAT, Interval, Kind, LibraryUsed,
    Locality, Manifest, Preflight, Record, Slice, of_interval,
};
pub use sqlite::{Listing, Store};
pub use steps::{Flow, FlowEvent, StepSum, StepsBlock, StepsRecord};
pub use warning::Warning;
