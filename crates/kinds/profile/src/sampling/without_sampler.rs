//! In place of the sampler, where the feature `sampling` is left out.

use anyhow::Result;
use tlsdyno_base::fault::left_out;
use tlsdyno_record::store::samples::Samples;

use super::Trampolines;

pub enum Sampler {}

impl Sampler {
    /// Always fails, and says how to get a sampler.
    pub fn of(_: &[u32], _: &Trampolines) -> Result<Sampler> {
        Err(left_out("sampling", "sampling"))
    }

    pub fn sees_kernel(&self) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn enable(&mut self) -> Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn disable(&mut self) -> Result<Samples> {
        match *self {}
    }
}
