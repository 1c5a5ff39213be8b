//! The random numbers of workloads, schedules and resampling: the same from the same seed in every process and version.
//! Not for anything secret.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): one 64-bit word of
/// state, passes BigCrush. Its sequence is fixed here: a library's generator may change with a release, and with it a
/// workload.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The same seed gives the same sequence on every machine.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to one below `bound`; `bound` must not be 0. By multiplication (Lemire 2019): its bias is below
    /// `bound` / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` in random order (Fisher and Yates 1938).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// The same items in random order.
    pub fn shuffled<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        let mut items = items.to_vec();
        self.shuffle(&mut items);
        items
    }

    /// Uniform in the open interval (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // First outputs for seed 1234567, as published with the reference implementation
        // (prng.di.unimi.it/splitmix64.c).
        let mut random = SplitMix64::new(1_234_567);
        let got: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        assert_eq!(
            got,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn every_order_is_complete_and_rounds_differ() {
        let mut generator = SplitMix64::new(1);
        let indices = [3, 5, 8, 9, 11, 12];
        let first = generator.shuffled(&indices);
        assert_ne!(first, generator.shuffled(&indices));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, indices);
    }

    #[test]
    fn shuffle_keeps_every_item_and_changes_the_order() {
        let mut items: Vec<u32> = (0..100).collect();
        SplitMix64::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn indices_and_normals_have_the_right_moments() {
        let mut random = SplitMix64::new(7);
        let mut counts = [0u32; 5];
        for _ in 0..50_000 {
            counts[random.below(5)] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        let draws: Vec<f64> = (0..50_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 5e4;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 5e4;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
