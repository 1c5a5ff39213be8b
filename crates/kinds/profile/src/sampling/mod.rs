//! Where a server spends its CPU time, by what it was doing: the samples of [`tlsdyno_sampling`], in groups.

mod groups;
mod sampler;

pub use groups::{area_of, stage_of_trampoline};
pub use sampler::Sampler;

/// For each trampoline between libcrypto and its provider its stage.
pub type Trampolines = Vec<Option<&'static str>>;
