//! The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B). It is canonical: codes of one length follow each
//! other in the order of their symbols, so that the lengths say all of it.

use super::hpack::HpackFault;

/// Code lengths in bits of the 256 bytes and, last, of the end-of-string symbol (RFC 7541 appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const SYMBOLS: usize = 257;
const END_OF_STRING: u16 = 256;
const LONGEST: usize = 30;
/// Codes of so many bits at most are found by one look.
const SHORT: u32 = 8;

struct Code {
    codes: [u32; SYMBOLS],
    /// Symbols in the order of their codes.
    sorted: [u16; SYMBOLS],
    /// For each length: its first code, that code's place in `sorted`, and how many codes there are.
    lengths: [(u32, u16, u16); LONGEST + 1],
    /// By the next eight bits: symbol and length of a short code, or a length of 0.
    short: [(u8, u8); 1 << SHORT],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut made = Code {
        codes: [0; SYMBOLS],
        sorted: [0; SYMBOLS],
        lengths: [(0, 0, 0); LONGEST + 1],
        short: [(0, 0); 1 << SHORT],
    };
    let (mut length, mut next, mut place) = (1, 0u32, 0);
    while length <= LONGEST {
        next <<= 1;
        made.lengths[length] = (next, place as u16, 0);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                made.codes[symbol] = next;
                made.sorted[place] = symbol as u16;
                made.lengths[length].2 += 1;
                let spare = SHORT.saturating_sub(length as u32);
                let mut look = 0;
                while length as u32 <= SHORT && look < 1 << spare {
                    made.short[((next << spare) + look) as usize] = (symbol as u8, length as u8);
                    look += 1;
                }
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    made
}

/// Appends what `coded` stands for to `out`.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackFault> {
    let (mut bits, mut count) = (0u64, 0u32);
    let mut rest = coded.iter();
    loop {
        while count <= 32
            && let Some(byte) = rest.next()
        {
            bits = bits << 8 | u64::from(*byte);
            count += 8;
        }
        // As if an endless padding followed, so that a look is always possible.
        let window =
            if count >= 32 { bits >> (count - 32) } else { (bits << (32 - count)) | (u64::MAX >> (32 + count)) };
        let window = window as u32;
        let (symbol, length) = match CODE.short[(window >> (32 - SHORT)) as usize] {
            (_, 0) => long(window),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > count {
            break;
        }
        if symbol == END_OF_STRING {
            return Err(HpackFault::Huffman);
        }
        out.push(symbol as u8);
        count -= length;
    }
    // The rest is padding: fewer than eight bits, all ones (RFC 7541 section 5.2).
    let padding = (1u64 << count) - 1;
    if count < 8 && bits & padding == padding { Ok(()) } else { Err(HpackFault::Huffman) }
}

/// Symbol and length of the code at the top of `window`; the code is complete, so that there is one.
fn long(window: u32) -> (u16, u32) {
    let is_of = |length: &u32| {
        let (first, _, codes) = CODE.lengths[*length as usize];
        (window >> (32 - length)).wrapping_sub(first) < codes.into()
    };
    let length = (SHORT + 1..LONGEST as u32).find(is_of).unwrap_or(LONGEST as u32);
    let (first, place, _) = CODE.lengths[length as usize];
    (CODE.sorted[usize::from(place) + ((window >> (32 - length)) - first) as usize], length)
}

/// Bytes that `plain` takes in code.
pub fn coded_bytes(plain: &[u8]) -> usize {
    plain.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the code of `plain` to `out`.
pub fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0);
    for byte in plain {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODE.codes[usize::from(*byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_code_is_complete_and_its_examples_are_those_of_the_rfc() {
        let sum: u64 = LENGTHS.iter().map(|length| 1 << (32 - u32::from(*length))).sum();
        assert_eq!(sum, 1 << 32, "every sequence of bits begins with a code");
        // RFC 7541 sections C.4.1 and C.6.1.
        for (plain, coded) in [
            (&b"www.example.com"[..], &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
            (b"302", b"\x64\x02"),
            (b"private", b"\xae\xc3\x77\x1a\x4b"),
        ] {
            let mut out = Vec::new();
            encode(plain, &mut out);
            assert_eq!((&out[..], coded_bytes(plain)), (coded, coded.len()));
        }
    }

    #[test]
    fn wrong_padding_and_an_end_of_string_are_refused() {
        let decoded = |coded: &[u8]| {
            let mut out = Vec::new();
            decode(coded, &mut out).map(|()| out)
        };
        assert_eq!(decoded(b"\x07"), Ok(b"0".to_vec()), "five bits of `0` and three of padding");
        for wrong in [&b"\x00"[..], b"\x07\xff", b"\xff\xff\xff\xff", b"\xff"] {
            assert_eq!(decoded(wrong), Err(HpackFault::Huffman), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_reads_back(plain in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut coded, mut out) = (Vec::new(), Vec::new());
            encode(&plain, &mut coded);
            prop_assert_eq!(coded.len(), coded_bytes(&plain));
            prop_assert_eq!(decode(&coded, &mut out), Ok(()));
            prop_assert_eq!(out, plain);
        }
    }
}
