//! The kinds of experiment that this program knows. A new one is a folder in a crate, and a line here; or in a
//! satellite, whose kinds [`crate::satellites`] names.

use tlsdyno_runner::kinds::table::Table;

pub use tlsdyno_ablation as ablation;
pub use tlsdyno_cost as cost;
pub use tlsdyno_load as load;
pub use tlsdyno_profile::{profile, steps};
pub use tlsdyno_runner::kinds::*;

pub static KINDS: Table = Table(&[
    &ablation::Ablation,
    &cost::Costs,
    &load::Loads,
    &profile::Profiles,
    &steps::StepByStep,
    // Of its records, which are an ablation's with more in them, it is asked before the first.
    &tlsdyno_advise::Advised,
]);
