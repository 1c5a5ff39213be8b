//! In place of the sampler, where the feature `sampling` is left out.

use anyhow::Result;
use tlsdyno_base::fault::left_out;
use tlsdyno_record::store::samples::Samples;

use super::Trampolines;

/// No sampler.
pub enum Sampler {}

impl Sampler {
    /// Refuses.
    ///
    /// # Errors
    /// Always; says how to get it.
    pub fn of(_: &[u32], _: &Trampolines) -> Result<Sampler> {
        Err(left_out("sampling", "sampling"))
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
