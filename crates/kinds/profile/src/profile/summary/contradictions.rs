//! Whether the times of calls can be what the calls cost: they are parts of a hit, and other methods look at the same
//! stages.

use tlsdyno_base::units::{format_micros, format_percent};
use tlsdyno_stats::bootstrap::Estimate;
use tlsdyno_stats::statement::FEW_ROUNDS;

use super::{KindSummary, StageSummary};

/// What two methods say of a stage contradicts itself where their intervals are apart by more than this part of the
/// smaller value …
const APART_OF_VALUE: f64 = 0.5;
/// … and by more than this part of a hit: removing takes along what libcrypto does around the calls (docs/PROFILE.md).
const APART_OF_HIT: f64 = 0.05;

/// Sentences that say what contradicts what.
pub(super) fn of(kind: &KindSummary) -> Vec<String> {
    let mut found = Vec::new();
    let (whole, stages) = (kind.cpu_ns, kind.stages_ns.value);
    // Intervals of fewer sweeps are too narrow by chance.
    let has_intervals = kind.sweeps >= FEW_ROUNDS as usize;
    // Nothing is left for the server itself and the kernel.
    if kind.other_ns.value < 0.0 {
        let percent = format_percent(stages / whole.value.max(1.0) * 100.0);
        let stages = format_micros(stages);
        found.push(format!("all calls together took {stages} µs, which is {percent} of a hit ({})", told(whole)));
    } else if let (Some(plain), Some(rest)) = (kind.plain_ns, kind.rest_ns)
        && rest.high < 0.0
        && has_intervals
    {
        let stages = format_micros(stages);
        found.push(format!(
            "all calls together took {stages} µs, which with what a hit costs without TLS ({}) is more than a hit \
             with it ({})",
            told(plain),
            told(whole)
        ));
    }
    if has_intervals {
        found.extend(kind.stages.iter().filter_map(|stage| of_stage(stage, whole.value)));
    }
    found
}

/// The first method that contradicts the times of a stage's calls.
fn of_stage(stage: &StageSummary, whole_ns: f64) -> Option<String> {
    let others = [
        (stage.removed_ns, "a hit without it is cheaper by"),
        (stage.doubled_ns, "a hit with it computed twice is dearer by"),
        (stage.sampled_ns, "samples say"),
    ];
    let timed = stage.timed_ns;
    let (other, what) = others
        .into_iter()
        .filter_map(|(other, what)| Some((other?, what)))
        // What a method says that cannot be is no word against another.
        .filter(|(other, _)| other.high > 0.0)
        .find(|(other, _)| is_far(timed, *other, whole_ns))?;
    let names: Vec<&str> = stage.stages.iter().map(|stage| stage.name()).collect();
    let names = names.join(" and ").replace('_', " ");
    Some(format!("the calls of {names} took {}, but {what} {}", told(timed), told(other)))
}

fn is_far(one: Estimate, other: Estimate, whole_ns: f64) -> bool {
    let apart = f64::max(one.low - other.high, other.low - one.high);
    let least = f64::max(APART_OF_VALUE * one.value.min(other.value).max(0.0), APART_OF_HIT * whole_ns);
    apart > least
}

fn told(of: Estimate) -> String {
    of.in_unit(" µs", format_micros)
}

#[cfg(test)]
pub(in crate::profile) mod tests {
    use tlsdyno_tls::{Stage, StageSet};

    use super::*;
    use crate::profile::file::Handshakes;

    fn about(us: f64) -> Estimate {
        Estimate { value: us * 1e3, low: us * 0.97e3, high: us * 1.03e3 }
    }

    pub fn stage(stage: Stage, timed_us: f64) -> StageSummary {
        StageSummary {
            stages: StageSet::NONE.with(stage),
            timed_ns: about(timed_us),
            removed_ns: None,
            doubled_ns: None,
            instructions_count: None,
            sampled_ns: None,
            difference_ns: None,
        }
    }

    /// A hit of 400 us with these stages.
    pub fn kind(stages: Vec<StageSummary>) -> KindSummary {
        let sum: f64 = stages.iter().map(|stage| stage.timed_ns.value / 1e3).sum();
        let other = 400.0 - sum;
        KindSummary {
            kind: Handshakes::Full,
            sweeps: 30,
            cpu_ns: about(400.0),
            is_untouched: true,
            library_ns: None,
            timing_ns: about(1.0),
            hits_per_second: None,
            stages,
            stages_ns: about(sum),
            other_ns: Estimate { value: other * 1e3, low: (other - 5.0) * 1e3, high: (other + 5.0) * 1e3 },
            plain_ns: None,
            rest_ns: None,
            calls_per_hit: 200.0,
            timed_per_hit: 60.0,
            classes: Vec::new(),
            sampled: None,
            contradictions: Vec::new(),
        }
    }

    fn with(timed_us: f64, change: impl FnOnce(&mut StageSummary)) -> Vec<String> {
        let mut signed = stage(Stage::Authentication, timed_us);
        change(&mut signed);
        of(&kind(vec![signed, stage(Stage::Kdf, 30.0)]))
    }

    #[test]
    fn stages_that_take_more_than_the_hit_are_impossible() {
        let said = with(1_800.0, |_| ());
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("457.5 % of a hit (400.0 µs"), "{said:?}");
        assert!(with(300.0, |_| ()).is_empty());
    }

    #[test]
    fn stages_and_plain_http_that_take_more_than_the_hit_are_impossible() {
        let mut kind = kind(vec![stage(Stage::Authentication, 380.0)]);
        kind.plain_ns = Some(about(60.0));
        kind.rest_ns = Some(Estimate { value: -40e3, low: -45e3, high: -35e3 });
        assert!(of(&kind)[0].contains("without TLS (60.0 µs"), "{:?}", of(&kind));
        kind.rest_ns = Some(Estimate { value: -40e3, low: -85e3, high: 5e3 });
        assert!(of(&kind).is_empty());
    }

    #[test]
    fn methods_that_are_far_apart_contradict_each_other() {
        let removed = |us| move |stage: &mut StageSummary| stage.removed_ns = Some(about(us));
        // Nothing was seen of calls, or other work is in their times.
        for (timed, other) in [(0.0, 200.0), (340.0, 200.0)] {
            let said = with(timed, removed(other));
            assert!(said.len() == 1 && said[0].contains("a hit without it is cheaper by 200.0 µs"), "{said:?}");
        }
        assert!(with(0.0, |stage| stage.sampled_ns = Some(about(200.0)))[0].contains("but samples say"));
        assert!(with(340.0, |stage| stage.doubled_ns = Some(about(200.0)))[0].contains("computed twice"));
        // What is known of removing: some more than the calls, and of small stages much more.
        for (timed, other) in [(200.0, 212.0), (27.0, 38.0), (3.1, 12.0), (200.0, 290.0)] {
            assert!(with(timed, removed(other)).is_empty(), "{timed} {other}");
        }
        // Removing makes nothing dearer.
        let below = Estimate { value: -21e3, low: -32e3, high: -11e3 };
        assert!(with(27.0, |stage| stage.removed_ns = Some(below)).is_empty());
        // Few rounds say little.
        let unknown = Estimate { value: 10e3, low: f64::NEG_INFINITY, high: f64::INFINITY };
        assert!(with(340.0, |stage| stage.removed_ns = Some(unknown)).is_empty());
    }
}
