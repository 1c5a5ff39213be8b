//! The padding of a pre-master secret, looked at without a branch on what is secret. It has a file of its own, which
//! the fuzz target includes.

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// Bytes of a pre-master secret.
pub const BYTES: usize = 48;
/// The pre-master secret, from which client and server derive their keys (RFC 5246, section 8.1).
pub type Secret = [u8; BYTES];
/// Before the secret: 0, 2, at least eight bytes that are not 0, and a 0 (RFC 8017, section 7.2.2).
pub const HEAD_BYTES_MIN: usize = 11;

/// The last 48 bytes of a block where it is formed as it must be and has the version, else `instead`. The block has at
/// least [`HEAD_BYTES_MIN`] bytes more.
pub fn select(plain: &[u8], version: u16, instead: &Secret) -> Secret {
    let (head, secret) = plain.split_at(plain.len() - BYTES);
    let (padding, end) = head[2..].split_at(head.len() - 3);
    let no_zero = padding.iter().fold(Choice::from(1), |so_far, byte| so_far & !byte.ct_eq(&0));
    let formed = head[0].ct_eq(&0) & head[1].ct_eq(&2) & no_zero & end[0].ct_eq(&0);
    let good = formed & secret[..2].ct_eq(&version.to_be_bytes());
    let mut selected = [0; BYTES];
    for ((into, instead), secret) in selected.iter_mut().zip(instead).zip(secret) {
        *into = u8::conditional_select(instead, secret, good);
    }
    selected
}
