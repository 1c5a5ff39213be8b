//! Warm-ups of all configurations, which also tell how long a request takes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_record::store::{Block, Warning};

use super::measuring::Run;
use crate::run::schedule::Work;
use crate::run::warm_up::warmed;

/// Minimum length of a warm-up; shorter ones are repeated with more work.
const WARM_UP_MIN: Duration = Duration::from_millis(120);
/// Maximum part of the time for warm-ups.
const WARM_UP_BUDGET: f64 = 0.2;

impl Run<'_, '_> {
    /// Warms up and times every configuration once. Returns seconds per request for each that passes.
    pub(super) fn warm_up(&mut self) -> Result<BTreeMap<usize, f64>> {
        let configurations = &self.journal.record().configurations;
        let valid: Vec<usize> = (0..configurations.len()).filter(|index| configurations[*index].valid).collect();
        let budget = self.bound.time.mul_f64(WARM_UP_BUDGET);
        let wanted = WARM_UP_MIN.min(budget / valid.len().max(1) as u32);
        let mut seconds: BTreeMap<usize, f64> = BTreeMap::new();
        // The untouched server first: what it achieves of the declared reuse is the measure of the others.
        let (as_is, others): (Vec<usize>, Vec<usize>) = valid.iter().partition(|index| self.is_as_is(**index));
        let (mut first, mut longest) = (1_u32, Duration::ZERO);
        for (number, index) in (1..).zip(as_is.into_iter().chain(others)) {
            self.progress(&format!("warm-up {number} of {}", valid.len()));
            let slowest = seconds.values().copied().reduce(f64::max);
            let is_late = self.is_bounded && self.left() + budget <= self.bound.time + longest;
            if let (true, Some(slowest)) = (is_late, slowest) {
                // There is no time for it: it is taken to be as slow as the slowest of the others.
                seconds.insert(index, slowest);
                continue;
            }
            let mut factor = first;
            loop {
                interrupt::check(self.stop)?;
                let work = self.subject.warm_up(index, factor);
                let block = match self.warm_up_block(index, &work) {
                    Ok(block) => block,
                    Err(error) => {
                        self.leave_out(index, error)?;
                        break;
                    }
                };
                let elapsed = Duration::from_nanos(block.elapsed_ns);
                longest = longest.max(elapsed);
                let more = factor.saturating_mul(2);
                if elapsed >= wanted || self.subject.warm_up(index, more) == work {
                    seconds.insert(index, elapsed.as_secs_f64() / block.hits.max(1) as f64);
                    // The others do about as much.
                    first = if number == 1 { (factor / 2).max(1) } else { first };
                    break;
                }
                factor = more;
            }
        }
        Ok(seconds)
    }

    fn warm_up_block(&mut self, index: usize, work: &Work) -> Result<Block> {
        let (block, repeated) = warmed(|| self.block(index, None, work))?;
        if self.subject.is_warm(&block) {
            if let Some(warning) = repeated {
                self.journal.change(|record| record.configurations[index].warnings.push(warning));
            }
            return Ok(block);
        }
        let failed = block.errors.iter().next();
        let failed = failed.map(|(kind, count)| format!("{count} requests failed ({kind}): ")).unwrap_or_default();
        let said = block.warnings.iter().map(Warning::to_string).collect::<Vec<_>>().join(" ");
        let tail = self.subject.log_tail(index);
        let error = anyhow!("warm-up of \"{}\": {failed}{}{tail}", self.name(index), said.trim_end_matches('.'));
        Err(error).or_fault(Fault::Server)
    }
}
