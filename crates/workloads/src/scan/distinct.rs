//! How many different clients a log has, in bounded memory.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;

/// So many are counted exactly: half a megabyte.
const EXACT: usize = 65_536;
/// 2^14 registers of one byte: a standard error of 1.04 / sqrt(2^14) = 0.8 %.
const INDEX_BITS: u32 = 14;

/// Counts exactly while there are few, then estimates: Flajolet, Fusy, Gandouet, Meunier: HyperLogLog, 2007. With 64
/// bits of hash and more than four clients for each register, the corrections of that paper for few and for very many
/// are not needed.
#[derive(Debug, Default)]
pub struct Distinct {
    exact: HashSet<u64>,
    registers: Vec<u8>,
}

impl Distinct {
    pub fn add(&mut self, client: &[u8]) {
        let hash = FixedState::with_seed(0x7464_796e_6f31).hash_one(client);
        if self.registers.is_empty() {
            self.exact.insert(hash);
            if self.exact.len() > EXACT {
                self.registers = vec![0; 1 << INDEX_BITS];
                let exact = std::mem::take(&mut self.exact);
                exact.into_iter().for_each(|hash| self.register(hash));
            }
        } else {
            self.register(hash);
        }
    }

    fn register(&mut self, hash: u64) {
        let register = &mut self.registers[(hash >> (64 - INDEX_BITS)) as usize];
        // The index's bits are gone; a bit at the end bounds the run of zeros.
        let rank = ((hash << INDEX_BITS) | 1 << (INDEX_BITS - 1)).leading_zeros() as u8 + 1;
        *register = rank.max(*register);
    }

    /// How many there were, and whether that is exact.
    pub fn count(&self) -> (u64, bool) {
        if self.registers.is_empty() {
            return (self.exact.len() as u64, true);
        }
        let registers = self.registers.len() as f64;
        let sum: f64 = self.registers.iter().map(|rank| 2.0_f64.powi(-i32::from(*rank))).sum();
        let alpha = 0.7213 / (1.0 + 1.079 / registers);
        ((alpha * registers * registers / sum).round() as u64, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_counted_and_many_estimated_within_three_standard_errors() {
        let mut distinct = Distinct::default();
        let mut add = |range: std::ops::Range<u32>| {
            for number in range {
                let address = std::net::Ipv4Addr::from_bits(number).to_string();
                distinct.add(address.as_bytes());
                distinct.add(address.as_bytes());
            }
            distinct.count()
        };
        assert_eq!(add(0..1_000), (1_000, true));
        assert_eq!(add(0..65_536), (65_536, true));
        for all in [65_537, 100_000, 300_000] {
            let (count, exact) = add(0..all);
            assert!(!exact && (count as f64 / f64::from(all) - 1.0).abs() < 0.025, "{count} of {all}");
        }
    }
}
