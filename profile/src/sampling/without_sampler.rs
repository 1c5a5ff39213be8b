//! In place of the sampler, where the feature `sampling` is left out.

use anyhow::Result;
use tlsdyno_base::fault::left_out;
use tlsdyno_record::store::samples::Samples;

use super::Trampolines;

/// No sampler.
pub enum Sampler {}

/// Refuses.
///
/// # Errors
/// Always; says how to get it.
pub fn require() -> Result<()> {
    Err(left_out("sampling (all of `profile` but `--no-sampling`)", "sampling"))
}

impl Sampler {
    /// Refuses as [`require`].
    ///
    /// # Errors
    /// Always.
    pub fn of(_: &[u32], _: &Trampolines) -> Result<Sampler> {
        require().map(|()| unreachable!("it refuses"))
    }

    /// As the sampler.
    pub fn sees_kernel(&self) -> bool {
        match *self {}
    }

    /// As the sampler.
    ///
    /// # Errors
    /// Never called.
    pub fn enable(&mut self) -> Result<()> {
        match *self {}
    }

    /// As the sampler.
    ///
    /// # Errors
    /// Never called.
    pub fn disable(&mut self) -> Result<Samples> {
        match *self {}
    }
}
