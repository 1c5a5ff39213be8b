//! Before the first round: every configuration runs once, to be warm and to be timed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::Session;
use crate::fault::{Fault, OrFault};
use crate::interrupt;
use crate::run::observer::Observer;
use crate::run::schedule::typical_users;
use crate::store::{Block, Kind, Warning};

/// The calibration's first piece of work: so many times the users that keep all connections busy.
const CALIBRATION_FACTOR: u32 = 2;
/// A calibration shorter than this is repeated with more work.
const CALIBRATION_MIN: Duration = Duration::from_millis(120);
/// Part of the time budget that calibration may take.
const CALIBRATION_BUDGET: f64 = 0.2;

impl Session<'_> {
    /// Runs every configuration once: warm-up and timing. Returns seconds per request for each that passes; one that
    /// fails is marked invalid, unless it is the untouched server.
    pub(super) fn calibrate(
        &mut self,
        valid: &[usize],
        budget: Duration,
        observer: &mut dyn Observer,
    ) -> Result<BTreeMap<usize, f64>> {
        let requests_of_users = self.requests_of_users();
        let share = budget.mul_f64(CALIBRATION_BUDGET / valid.len().max(1) as f64);
        let wanted = CALIBRATION_MIN.min(share);
        let mut users = (self.users_min() * CALIBRATION_FACTOR).min(self.load.users);
        let mut seconds = BTreeMap::new();
        // The untouched server first: what it achieves of the declared reuse is the measure of the others.
        let is_as_is = |index: &usize| self.journal.record().configurations[*index].kind == Kind::AsIs;
        let (as_is, others): (Vec<usize>, Vec<usize>) = valid.iter().copied().partition(is_as_is);
        for index in as_is.into_iter().chain(others) {
            loop {
                interrupt::check(self.stop)?;
                let block = match self.block(index, typical_users(&requests_of_users, users).users, true) {
                    Ok(block) => block,
                    Err(error) => {
                        self.leave_out(index, error, observer)?;
                        break;
                    }
                };
                if let Some((kind, count)) = block.errors.iter().next() {
                    self.warm_up_failed(index, kind, *count, &block)?;
                    break;
                }
                let elapsed = Duration::from_nanos(block.elapsed_ns);
                if elapsed >= wanted || users >= self.load.users {
                    seconds.insert(index, elapsed.as_secs_f64() / block.hits.max(1) as f64);
                    break;
                }
                users = users.saturating_mul(2).min(self.load.users);
            }
        }
        Ok(seconds)
    }

    /// Without the untouched server there is nothing to compare with; without another configuration there is still the
    /// rest.
    fn warm_up_failed(&mut self, index: usize, kind: &str, count: u64, block: &Block) -> Result<()> {
        let name = self.rig.stands[index].model.name.clone();
        let said: Vec<String> = block.warnings.iter().map(Warning::to_string).collect();
        let said = said.join(" ");
        let what = format!("warm-up of \"{name}\": {count} requests failed ({kind}): {}", said.trim_end_matches('.'));
        if self.journal.record().configurations[index].kind == Kind::AsIs {
            return Err(anyhow!("{what}{}", self.tail(index))).or_fault(Fault::Server);
        }
        let remedy = "This configuration was left out; read its server's error log".to_owned();
        self.journal.change(|record| {
            record.configurations[index].valid = false;
            record.configurations[index].warnings.push(Warning::Other { what, remedy });
        });
        Ok(())
    }
}
