//! The samples of a server's threads, counted.

use anyhow::Result;
use tlsdyno_record::store::samples::{PERIOD_NS, Samples};
use tlsdyno_sampling::{Sample, Settings};

use super::Trampolines;
use super::groups::{LIBCRYPTO, PROFILER, found};

/// Bytes of the stack in a sample: a signature needs some thousands (with AVX-512 IFMA, RSA-2048 of OpenSSL 3.0 has one
/// frame of 11,328 bytes), and what calls it hundreds.
const STACK_BYTES: u32 = 16 * 1024;
/// Size of the ring in which a thread's samples wait to be read: those of a slice.
const RING_BYTES: usize = 2 * 1024 * 1024;

/// Samples the threads of some processes.
pub struct Sampler {
    sampler: tlsdyno_sampling::Sampler,
    trampolines: Trampolines,
}

impl Sampler {
    /// Of all threads that these processes have now, and of those that they start. Nothing is sampled until
    /// [`Sampler::enable`].
    ///
    /// # Errors
    /// The kernel does not allow it, and what to do about it.
    pub fn of(pids: &[u32], trampolines: &Trampolines) -> Result<Sampler> {
        let settings = Settings {
            period_ns: PERIOD_NS,
            stack_bytes: STACK_BYTES,
            ring_bytes: RING_BYTES,
            without_tables: vec![LIBCRYPTO.to_owned()],
            callers: vec![LIBCRYPTO.to_owned(), PROFILER.to_owned()],
        };
        Ok(Sampler { sampler: tlsdyno_sampling::Sampler::of(pids, settings)?, trampolines: trampolines.clone() })
    }

    /// Time in the kernel is sampled too.
    pub fn sees_kernel(&self) -> bool {
        self.sampler.sees_kernel()
    }

    /// Starts sampling; fails where a thread has ended.
    pub fn enable(&mut self) -> Result<()> {
        self.sampler.enable()
    }

    /// Stops sampling, and returns the samples; fails where a thread has ended.
    pub fn disable(&mut self) -> Result<Samples> {
        self.sampler.disable()?;
        let mut samples = Samples::default();
        let lost_count = self.sampler.read(|Sample { is_kernel, frames }| {
            let found = found(is_kernel, frames, &self.trampolines);
            *samples.groups.entry(found.group).or_default() += 1;
            if let Some(function) = found.function {
                *samples.functions.entry(function).or_default() += 1;
            }
            samples.stacks.add_stack(&found.stack);
        });
        samples.lost_count += lost_count;
        Ok(samples)
    }
}
