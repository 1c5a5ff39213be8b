//! What the fuzz target of the pre-master secret's padding runs; in `crates/cryptoserver/src/` the tests do it with the
//! inputs that are kept.

use super::padding::{BYTES, HEAD_BYTES_MIN, Secret, select};

/// A version and a block as it was before a client encrypted it: what is selected is what a reader with branches finds.
pub fn premaster(data: &[u8]) {
    let Some((version, plain)) = data.split_first_chunk::<2>() else { return };
    if plain.len() < HEAD_BYTES_MIN + BYTES {
        return;
    }
    let instead = [0x5a; BYTES];
    let found = read(plain, *version).unwrap_or(instead);
    assert_eq!(select(plain, u16::from_be_bytes(*version), &instead), found);
}

/// RFC 8017, section 7.2.2, and RFC 5246, section 7.4.7.1, step by step.
fn read(plain: &[u8], version: [u8; 2]) -> Option<Secret> {
    let rest = plain.strip_prefix(&[0, 2])?;
    let zero = rest.iter().position(|byte| *byte == 0)?;
    let secret: Secret = rest[zero + 1..].try_into().ok()?;
    secret.starts_with(&version).then_some(secret)
}

/// Blocks to begin with: a right one, one with a short padding, one whose secret is too long.
pub fn seeds() -> Vec<Vec<u8>> {
    let block = |padding: usize, secret: usize| {
        [&[3, 3, 0, 2][..], &vec![0x11; padding], &[0, 3, 3], &vec![5; secret - 2]].concat()
    };
    vec![block(205, 48), block(8, 48), block(204, 49)]
}
