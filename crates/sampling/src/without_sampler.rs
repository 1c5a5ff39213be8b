//! In place of the sampler, where the feature `sampling` is left out.

use anyhow::Result;
use tlsdyno_base::fault::left_out;

use super::{Sample, Settings};

/// There is none.
pub enum Sampler {}

impl Sampler {
    /// Always fails, and says how to get a sampler.
    pub fn of(_: &[u32], _: Settings) -> Result<Sampler> {
        Err(left_out("sampling", "sampling"))
    }

    /// Never called.
    pub fn sees_kernel(&self) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn has_function(&self, _: impl Fn(&str) -> bool) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn follow(&mut self, _: &[u32], _: u64) -> Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn takes_new_code(&mut self) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn enable(&mut self) -> Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn disable(&mut self) -> Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn read(&mut self, _: impl FnMut(Sample)) -> u64 {
        match *self {}
    }
}
