//! The sampler of a server, which is opened anew when its processes change.

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::store::Warning;
use tlsdyno_record::store::samples::{PERIOD_NS, Samples};
use tlsdyno_runner::run::testbed::Testbed;

use crate::sampling::{Sampler, Trampolines};

/// A larger part of samples lost in full rings is reported.
const LOST_TOLD: f64 = 0.01;

/// A sampler with the server that it samples.
pub(super) struct Sampling {
    sampler: Sampler,
    pids: Vec<u32>,
    trampolines: Trampolines,
    /// Number of samples lost in full rings; `count`: of all others.
    lost: u64,
    count: u64,
}

impl Sampling {
    /// The server must be running; without the profiler its samples have no stages.
    pub(super) fn of(testbed: &mut Testbed, server: usize) -> Result<Sampling> {
        let profiling = testbed.servers[server].profiling.as_ref();
        let trampolines = profiling.map_or(Ok(Trampolines::new()), |profiling| profiling.trampolines())?;
        let pids = pids(testbed, server)?;
        Ok(Sampling { sampler: Sampler::of(&pids, &trampolines)?, pids, trampolines, lost: 0, count: 0 })
    }

    /// Follows the server's processes after some have changed.
    pub(super) fn renew(&mut self, testbed: &mut Testbed, server: usize) -> Result<()> {
        let pids = pids(testbed, server)?;
        if pids != self.pids {
            self.sampler = Sampler::of(&pids, &self.trampolines).or_fault(Fault::Server)?;
            self.pids = pids;
        }
        Ok(())
    }

    pub(super) fn sees_kernel(&self) -> bool {
        self.sampler.sees_kernel()
    }

    pub(super) fn begin(&mut self) -> Result<()> {
        self.sampler.enable().or_fault(Fault::Server)
    }

    /// Samples of a server that used `cpu_ns` meanwhile: where the kernel is not sampled, the CPU time that is missing
    /// was spent there.
    pub(super) fn end(&mut self, cpu_ns: u64) -> Result<Samples> {
        let mut samples = self.sampler.disable().or_fault(Fault::Server)?;
        self.lost += samples.lost_count;
        self.count += samples.count();
        if !self.sampler.sees_kernel() {
            samples.add_unseen_kernel((cpu_ns / PERIOD_NS).saturating_sub(samples.count()));
        }
        Ok(samples)
    }

    /// Warns of lost samples.
    pub(super) fn told(&self) -> Option<Warning> {
        let is_much = self.lost as f64 > LOST_TOLD * (self.lost + self.count) as f64;
        let what = format!("{} of {} samples found no room", self.lost, self.lost + self.count);
        is_much.then(|| Warning::new("samples_lost", what).with_remedy("Shorter slices have fewer (--slice 2ms)"))
    }
}

fn pids(testbed: &mut Testbed, server: usize) -> Result<Vec<u32>> {
    let instance = testbed.instance(server).context("the profiled server does not run").or_fault(Fault::Server)?;
    let mut pids = instance.worker_pids();
    pids.sort_unstable();
    Ok(pids)
}
