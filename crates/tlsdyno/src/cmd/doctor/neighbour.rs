//! Somebody else on a CPU's core: another machine of the same host, which no counter of this one tells.

use std::time::{Duration, Instant};

use super::{Check, Verdict};
use crate::affinity::{allowed, on_cpu};
use crate::run::lines::{FIRST_LEVEL_BYTES, Lines};

/// Longer than a neighbour needs to take that cache, shorter than almost all ways from one interrupt to the next.
const PAUSE: Duration = Duration::from_micros(20);
/// Medians of so many; all take about 25 ms.
const TRIALS: usize = 1001;
/// On a core of its own a second walk through warm lines takes as long after the pause as at once, within a few per
/// cent.
const COOLED_MIN: f64 = 1.3;
/// More CPUs than this are not looked at: servers and loads use the first ones.
const CPUS_MAX: usize = 8;

/// How warm lines are after a pause in which nothing touched memory; the worst of the usable CPUs counts. `None` where
/// no CPU can be chosen.
pub(super) fn check() -> Option<Check> {
    let of = |cpu: usize| Some((cooling_on(cpu)?, cpu));
    let (ratio, cpu) =
        allowed().into_iter().take(CPUS_MAX).filter_map(of).max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(judge(ratio, cpu))
}

fn judge(ratio: f64, cpu: usize) -> Check {
    let finding = format!("CPU {cpu}: warm data cost {ratio:.1} times as much after {} µs of rest", PAUSE.as_micros());
    let remedy = "somebody else uses its core and its caches: costs come out larger and scatter (docs/BIAS.md, \
                  \"Calibration\"); use a machine with cores of its own, or give the measurement more time";
    Check::ok("neighbours", finding).but_if(ratio >= COOLED_MIN, Verdict::Warn, remedy)
}

/// How many times as long warm lines take after the pause; on a thread of its own, as it is bound to the CPU.
fn cooling_on(cpu: usize) -> Option<f64> {
    on_cpu(cpu, || Ok(cooling())).ok()
}

fn cooling() -> f64 {
    let lines = Lines::of_bytes(FIRST_LEVEL_BYTES);
    let walk_after = |pause: Duration| {
        lines.time_of(lines.count());
        let began = Instant::now();
        while began.elapsed() < pause {}
        lines.time_of(lines.count())
    };
    let median = |pause: Duration| {
        let mut times: Vec<Duration> = (0..TRIALS).map(|_| walk_after(pause)).collect();
        times.sort_unstable();
        times[TRIALS / 2].as_secs_f64()
    };
    median(PAUSE) / median(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_of_ones_own_passes_and_a_shared_one_has_a_remedy() {
        assert_eq!(judge(1.05, 0).verdict, Verdict::Ok);
        let shared = judge(2.6, 1);
        assert!(shared.verdict == Verdict::Warn && shared.remedy.contains("BIAS.md"), "{shared:?}");
        assert!(shared.finding.starts_with("CPU 1: warm data cost 2.6 times"), "{shared:?}");
    }

    #[test]
    fn lines_are_walked_on_a_cpu_that_may_be_used() {
        let ratio = cooling_on(allowed()[0]).unwrap();
        assert!(ratio.is_finite() && ratio > 0.0, "{ratio}");
    }
}
