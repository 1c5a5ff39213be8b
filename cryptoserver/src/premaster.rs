//! The pre-master secret of static RSA: what stands in a decrypted block, or random bytes where block or version is
//! wrong. Both take the same time, without a branch on either (RFC 5246, section 7.4.7.1, implicit rejection). After a
//! wrong block the web server goes on with a secret that nobody knows, and the handshake fails at its Finished.
//! Bleichenbacher's attack needs to tell the two apart.

use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// Bytes of a pre-master secret.
pub const BYTES: usize = 48;
/// What client and server make their keys from.
pub type Secret = [u8; BYTES];
/// Before the secret: 0, 2, at least eight bytes that are not 0, and a 0 (RFC 8017, section 7.2.2).
const HEAD_BYTES_MIN: usize = 11;

/// Whether a block is one that `key` may decrypt.
///
/// # Errors
/// It is not of the key's length, or not below the modulus: what everybody sees already.
pub fn check(key: &Rsa<Private>, block: &[u8]) -> Result<(), &'static str> {
    let bytes = key.size() as usize;
    if block.len() != bytes || bytes < HEAD_BYTES_MIN + BYTES {
        return Err("the block has not the length of the key's modulus");
    }
    if *block >= key.n().to_vec()[..] { Err("the block is not below the key's modulus") } else { Ok(()) }
}

/// The secret in a block that a client encrypted to `key`; `version` is the one that it offered in its hello.
///
/// # Errors
/// As [`check`], or the numbers could not be computed.
pub fn decrypt(key: &Rsa<Private>, version: u16, block: &[u8]) -> Result<Secret, &'static str> {
    check(key, block)?;
    let mut plain = vec![0; block.len()];
    // The number alone: OpenSSL blinds it.
    key.private_decrypt(block, &mut plain, Padding::NONE).map_err(|_| "the decryption failed")?;
    secret_in(&mut plain, version)
}

/// The secret in a block as it was before the client encrypted it, which is overwritten.
///
/// # Errors
/// There are no random bytes.
pub fn secret_in(plain: &mut [u8], version: u16) -> Result<Secret, &'static str> {
    let mut random = [0; BYTES];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| "there are no random bytes")?;
    let secret = select(plain, version, &random);
    plain.fill(0);
    Ok(secret)
}

/// The last 48 bytes of a block where it is formed as it must be and has the version, else `random`.
fn select(plain: &[u8], version: u16, random: &[u8; BYTES]) -> [u8; BYTES] {
    let (head, secret) = plain.split_at(plain.len() - BYTES);
    let (padding, end) = head[2..].split_at(head.len() - 3);
    let no_zero = padding.iter().fold(Choice::from(1), |so_far, byte| so_far & !byte.ct_eq(&0));
    let formed = head[0].ct_eq(&0) & head[1].ct_eq(&2) & no_zero & end[0].ct_eq(&0);
    let good = formed & secret[..2].ct_eq(&version.to_be_bytes());
    let mut selected = [0; BYTES];
    for ((into, random), secret) in selected.iter_mut().zip(random).zip(secret) {
        *into = u8::conditional_select(random, secret, good);
    }
    selected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RANDOM: [u8; BYTES] = [0xaa; BYTES];

    fn block(secret: &[u8], bytes: usize) -> Vec<u8> {
        [&[0, 2][..], &vec![0x11; bytes - 3 - secret.len()], &[0], secret].concat()
    }

    fn secret() -> [u8; BYTES] {
        let mut secret = [5; BYTES];
        secret[..2].copy_from_slice(&[3, 3]);
        secret
    }

    #[test]
    fn a_block_by_openssl_is_decrypted_and_one_with_another_version_is_not() {
        let key = Rsa::generate(2048).unwrap();
        let mut encrypted = vec![0; 256];
        key.public_encrypt(&secret(), &mut encrypted, Padding::PKCS1).unwrap();
        assert_eq!(decrypt(&key, 0x0303, &encrypted), Ok(secret()));
        let other = decrypt(&key, 0x0302, &encrypted).unwrap();
        assert_ne!(other, secret());
        assert_ne!(other, decrypt(&key, 0x0302, &encrypted).unwrap(), "random each time");
        assert!(decrypt(&key, 0x0303, &encrypted[1..]).is_err());
        assert!(decrypt(&key, 0x0303, &[0xff; 256]).is_err());
    }

    #[test]
    fn a_secret_of_another_length_is_not_answered() {
        let key = Rsa::generate(2048).unwrap();
        for bytes in [0, 16, 47, 49, 100] {
            let mut encrypted = vec![0; 256];
            key.public_encrypt(&vec![3; bytes], &mut encrypted, Padding::PKCS1).unwrap();
            let answer = decrypt(&key, 0x0303, &encrypted).unwrap();
            assert_ne!(answer[2..], [3; 46]);
        }
    }

    proptest! {
        #[test]
        fn each_wrong_byte_before_the_secret_is_rejected(place in 0..208usize, value: u8) {
            let mut plain = block(&secret(), 256);
            let was = plain[place];
            plain[place] = value;
            let padding = (2..207).contains(&place);
            let good = if padding { value != 0 } else { value == was };
            prop_assert_eq!(select(&plain, 0x0303, &RANDOM), if good { secret() } else { RANDOM });
        }
    }
}
