//! The pre-master secret of static RSA: what stands in a decrypted block, or other bytes where block or version is
//! wrong. Both take the same time, without a branch on either (RFC 5246, section 7.4.7.1, implicit rejection). After a
//! wrong block the web server goes on with a secret that nobody knows, and the handshake fails at its Finished.
//!
//! Bleichenbacher's attack needs to tell the two apart. So the other bytes are the same each time and begin with the
//! version that was asked for: they do not tell who holds an agent's connection which blocks were right. OpenSSL 3.2
//! makes them from the private exponent and the block, too.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use zeroize::Zeroizing;

pub use crate::padding::{BYTES, Secret};
use crate::padding::{HEAD_BYTES_MIN, select};

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
    let mut plain = Zeroizing::new(vec![0; block.len()]);
    // The number alone: OpenSSL blinds it.
    key.private_decrypt(block, &mut plain, Padding::NONE).map_err(|_| "the decryption failed")?;
    secret_in(&plain, key, version, block)
}

/// The secret in a block that [`check`] allows; `plain` is what it was before the client encrypted it to `key`.
///
/// # Errors
/// There is no memory.
pub fn secret_in(plain: &[u8], key: &Rsa<Private>, version: u16, block: &[u8]) -> Result<Secret, &'static str> {
    Ok(select(plain, version, &instead(key, version, block).ok_or("there is no memory")?))
}

/// What is answered for a wrong block.
fn instead(key: &Rsa<Private>, version: u16, block: &[u8]) -> Option<Secret> {
    let exponent = Zeroizing::new(key.d().to_vec_padded(key.size() as i32).ok()?);
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA384, digest(&SHA256, &exponent).as_ref()));
    mac.update(&version.to_be_bytes());
    mac.update(block);
    let mut secret: Secret = mac.sign().as_ref().try_into().ok()?;
    secret[..2].copy_from_slice(&version.to_be_bytes());
    Some(secret)
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
        assert_ne!(other[2..], secret()[2..]);
        assert_eq!(other[..2], [3, 2], "as a right one begins");
        assert_eq!(other, decrypt(&key, 0x0302, &encrypted).unwrap(), "the same each time");
        assert_ne!(other[2..], decrypt(&key, 0x0301, &encrypted).unwrap()[2..]);
        let mut next = encrypted.clone();
        next[255] ^= 1;
        assert_ne!(other, decrypt(&key, 0x0302, &next).unwrap());
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
