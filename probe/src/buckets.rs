//! HdrHistogram's buckets and its format V2, read and written without a histogram of all the values that there could
//! be: a report reads thousands. Uses nothing else of this program.

use std::io::Read;

use flate2::read::DeflateDecoder;

/// Values of so many bits are kept as they are; of longer ones so many leading bits: HdrHistogram's three digits.
const KEPT_BITS: u32 = 11;
/// Bytes before the counts in HdrHistogram's V2.
const V2_HEAD_BYTES: usize = 40;
/// The first four of them.
const V2_COOKIE: u32 = 0x1c84_9313;
/// So many buckets there are: fifty rows of half of 2^[`KEPT_BITS`]. The last holds values of 59 bits.
const BUCKETS: u64 = 50 << (KEPT_BITS - 1);
/// Significant digits that so many bits are worth.
const DIGITS: u32 = 3;
/// Inflated bytes of an hour at most: 16 histograms of all buckets with a count of three bytes each come to less.
const PLAIN_BYTES_MAX: u64 = 2 << 20;
/// A bucket by its number. A year's report holds some ten million of them with their counts: four bytes, not eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(u32);

/// Buckets, each with the number of values in it.
pub type Counts = Vec<(Bucket, u32)>;

/// Reads a deflated sequence of histograms: each a number (one byte), a length (four bytes, big-endian) and
/// HdrHistogram's V2. Buckets ascend.
///
/// # Errors
/// Says in which way the bytes are damaged.
pub fn read(deflated: &[u8]) -> Result<Vec<(u8, Counts)>, &'static str> {
    let (mut plain, mut all) = (Vec::new(), Vec::new());
    let inflated = DeflateDecoder::new(deflated).take(PLAIN_BYTES_MAX + 1).read_to_end(&mut plain);
    if inflated.is_err() || plain.len() as u64 > PLAIN_BYTES_MAX {
        return Err("the histograms of an hour are damaged");
    }
    let mut rest = plain.as_slice();
    while let Some((head, tail)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (one, after) = tail.split_at_checked(length).ok_or("the histograms of an hour are cut off")?;
        all.push((head[0], v2_counts(one).ok_or("a histogram of an hour is damaged")?));
        rest = after;
    }
    if rest.is_empty() { Ok(all) } else { Err("the histograms of an hour are cut off") }
}

/// Bits of a value that its bucket does not tell apart.
fn shift(value: u64) -> u32 {
    (u64::BITS - value.leading_zeros()).saturating_sub(KEPT_BITS)
}

impl Bucket {
    /// The bucket that a value is in.
    pub fn of(value: u64) -> Bucket {
        let shift = shift(value);
        // At most 54 rows of 1,024 buckets.
        Bucket(((u64::from(shift) << (KEPT_BITS - 1)) + (value >> shift)) as u32)
    }

    /// The bucket of this number; `None`: there is none.
    pub fn numbered(number: u64) -> Option<Bucket> {
        (number < BUCKETS).then_some(Bucket(number as u32))
    }

    /// Its number.
    pub fn number(self) -> usize {
        self.0 as usize
    }

    /// Its lowest value.
    pub fn lowest(self) -> u64 {
        let (half_bits, number) = (KEPT_BITS - 1, u64::from(self.0));
        match number >> half_bits {
            0 | 1 => number,
            row => ((number & ((1 << half_bits) - 1)) + (1 << half_bits)) << (row - 1),
        }
    }

    /// The middle of its values.
    pub fn middle(self) -> u64 {
        let lowest = self.lowest();
        lowest + (1 << shift(lowest)) / 2
    }
}

/// Counts are zigzag LEB128; a negative one is a run of empty buckets.
fn v2_counts(bytes: &[u8]) -> Option<Counts> {
    let mut rest = bytes.get(V2_HEAD_BYTES..)?.iter();
    // Most counts stand behind a run of empty buckets. A report keeps thousands of these, none larger than it needs.
    let (mut counts, mut index) = (Vec::with_capacity(rest.len() / 2 + 1), 0u64);
    while let Some(&first) = rest.next() {
        let (mut number, mut byte, mut bits) = (0u64, first, 0);
        loop {
            // The ninth byte has eight bits of its own.
            let part = if bits == 56 { byte } else { byte & 0x7f };
            number |= u64::from(part) << bits;
            if bits == 56 || byte & 0x80 == 0 {
                break;
            }
            (byte, bits) = (*rest.next()?, bits + 7);
        }
        let count = (number >> 1) as i64 ^ -((number & 1) as i64);
        if count > 0 {
            // No hour and no day has more rounds than four bytes count.
            counts.push((Bucket::numbered(index)?, u32::try_from(count).ok()?));
        }
        index = index.checked_add(if count < 0 { count.unsigned_abs() } else { 1 })?;
    }
    counts.shrink_to_fit();
    Some(counts)
}

/// HdrHistogram's V2 of buckets with their counts, ascending, each once; `max`: the highest value that could be there.
pub fn v2_bytes(counts: &[(Bucket, u32)], max: u64) -> Vec<u8> {
    let (mut body, mut next) = (Vec::with_capacity(2 * counts.len()), 0);
    for (bucket, count) in counts {
        let bucket = i64::from(bucket.0);
        match bucket - next {
            0 => {}
            1 => zigzag(&mut body, 0),
            empty => zigzag(&mut body, -empty),
        }
        zigzag(&mut body, i64::from(*count));
        next = bucket + 1;
    }
    let mut bytes = Vec::with_capacity(V2_HEAD_BYTES + body.len());
    [V2_COOKIE, body.len() as u32, 0, DIGITS].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    [1, max, 1f64.to_bits()].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend(body);
    bytes
}

/// Zigzag LEB128; counts never need its ninth byte.
fn zigzag(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest > 0x7f {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}
