//! The machine's pace in a run: what fixed work of ours cost, in turns with what was measured.
//!
//! Microseconds of a run hold at this pace. Another run has another, by up to a factor of two on a shared machine.

use tlsdyno_base::robust::{mean_and_variance, trimmed_mean};
use tlsdyno_base::units::format_duration;
use tlsdyno_record::store::{FixedWork, Record};

/// Fewer times than this tell no spread.
const TIMES_LEAST: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// How often all work was done.
    pub times: usize,
    /// CPU time of each kind of work, nanoseconds: trimmed means.
    pub costs_ns: [f64; FixedWork::ALL.len()],
    /// Standard deviation of an RSA-2048 signature, as a part of its mean.
    pub spread: f64,
}

impl Reference {
    /// `None`: the record has none.
    pub fn of(record: &Record) -> Option<Reference> {
        let all: Vec<_> = record.blocks.iter().filter_map(|block| block.reference).collect();
        let of = |work: FixedWork| all.iter().map(|one| one.ps(work) as f64 / 1e3).collect::<Vec<f64>>();
        let (mean, variance) = mean_and_variance(&of(FixedWork::Rsa2048));
        let costs_ns = FixedWork::ALL.map(|work| trimmed_mean(&of(work)).unwrap_or(f64::NAN));
        (!all.is_empty()).then(|| Reference { times: all.len(), costs_ns, spread: variance.sqrt() / mean })
    }

    pub fn sentence(&self) -> String {
        let costs = FixedWork::ALL.iter().zip(self.costs_ns);
        let costs: Vec<String> = costs.map(|(work, ns)| format!("{} {}", work.name(), format_duration(ns))).collect();
        let varied = match self.times {
            ..TIMES_LEAST => String::new(),
            times => format!(" (means of {times} times; the first varied by {:.0} %)", 100.0 * self.spread),
        };
        format!("Times hold at the machine's pace of this run{varied}: {}.", costs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_record::store::Block;

    #[test]
    fn the_pace_of_a_run_is_told_where_it_was_taken() {
        let mut record = Record::begun_now("q", 1);
        assert_eq!(Reference::of(&record), None);
        let block = |rsa_us: u64| {
            let reference =
                Some(tlsdyno_record::store::Reference([rsa_us * 1_000_000, 30_000_000, 1, 1, 1, 9_000_000]));
            Block { reference, ..Block::default() }
        };
        record.blocks = vec![block(200), Block::default(), block(220), block(240)];
        let of = Reference::of(&record).unwrap();
        assert_eq!((of.times, of.costs_ns[0].round()), (3, 220_000.0));
        let said = of.sentence();
        assert!(said.contains("3 times; the first varied by 9 %): RSA-2048 signature 220 µs, P-256"), "{said}");
        assert!(said.ends_with("loopback round trip 9.00 µs."), "{said}");
    }
}
