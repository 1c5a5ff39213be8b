//! HdrHistogram's buckets, without a histogram of all the values that there could be: a report reads thousands.

/// Values of so many bits are kept as they are; of longer ones so many leading bits: HdrHistogram's three digits.
const KEPT_BITS: u32 = 11;
/// So many buckets there are: fifty rows of half of 2^[`KEPT_BITS`]. The last holds values of 59 bits.
const BUCKETS: u32 = 50 << (KEPT_BITS - 1);

/// A bucket by its number. A year's report holds some ten million of them with their counts: four bytes, not eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(u32);

pub type Counts = Vec<(Bucket, u32)>;

/// Bits of a value that its bucket does not tell apart.
fn shift(value: u64) -> u32 {
    (u64::BITS - value.leading_zeros()).saturating_sub(KEPT_BITS)
}

impl Bucket {
    pub fn of(value: u64) -> Bucket {
        let shift = shift(value);
        // At most 54 rows of 1,024 buckets.
        Bucket((shift << (KEPT_BITS - 1)) + (value >> shift) as u32)
    }

    pub fn numbered(number: u32) -> Option<Bucket> {
        (number < BUCKETS).then_some(Bucket(number))
    }

    pub fn number(self) -> usize {
        self.0 as usize
    }

    pub fn lowest(self) -> u64 {
        let (half_bits, number) = (KEPT_BITS - 1, u64::from(self.0));
        match number >> half_bits {
            0 | 1 => number,
            row => ((number & ((1 << half_bits) - 1)) + (1 << half_bits)) << (row - 1),
        }
    }

    pub fn middle(self) -> u64 {
        let lowest = self.lowest();
        lowest + (1 << shift(lowest)) / 2
    }
}

/// Ascending buckets with their counts as numbers that are small: for each the empty buckets before it, and its count.
pub fn gaps_of(counts: &[(Bucket, u32)]) -> Vec<u32> {
    let mut next = 0;
    let pair = |(bucket, count): &(Bucket, u32)| {
        let gap = bucket.0 - next;
        next = bucket.0 + 1;
        [gap, *count]
    };
    counts.iter().flat_map(pair).collect()
}

/// What [`gaps_of`] made numbers of; `None`: they are damaged.
pub fn counts_of(gaps: &[u32]) -> Option<Counts> {
    let mut next = 0u32;
    let pair = |pair: &[u32]| {
        let [gap, count] = *pair else { return None };
        let bucket = Bucket::numbered(next.checked_add(gap)?)?;
        next = bucket.0 + 1;
        Some((bucket, count))
    };
    gaps.chunks(2).map(pair).collect()
}
