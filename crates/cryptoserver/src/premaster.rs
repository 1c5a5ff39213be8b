//! The pre-master secret of static RSA: what stands in a decrypted block, or other bytes where block or version is
//! wrong. Both take the same time, without a branch on either (RFC 5246, section 7.4.7.1, implicit rejection). After a
//! wrong block the web server goes on with a secret that nobody knows, and the handshake fails at its Finished.
//!
//! Bleichenbacher's attack needs to tell the two apart. So the other bytes are the same each time and begin with the
//! version that was asked for: they do not tell who holds an agent's connection which blocks were right. OpenSSL 3.2
//! makes them from the private exponent and the block, too.

use anyhow::Result;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use zeroize::Zeroizing;

pub use crate::padding::{BYTES, Secret};
use crate::padding::{HEAD_BYTES_MIN, select};

/// A key that decrypts, and what its answers to wrong blocks are made with.
#[derive(Clone)]
pub struct Decryptor {
    rsa: Rsa<Private>,
    instead: hmac::Key,
}

impl Decryptor {
    pub fn new(rsa: Rsa<Private>) -> Result<Decryptor> {
        let exponent = Zeroizing::new(rsa.d().to_vec_padded(rsa.size() as i32)?);
        let instead = hmac::Key::new(hmac::HMAC_SHA384, digest(&SHA256, &exponent).as_ref());
        Ok(Decryptor { rsa, instead })
    }

    pub fn rsa(&self) -> &Rsa<Private> {
        &self.rsa
    }

    /// Whether a block is one that the key may decrypt.
    ///
    /// # Errors
    /// It is not of the key's length, or not below the modulus: what everybody sees already.
    pub fn check(&self, block: &[u8]) -> Result<(), &'static str> {
        let bytes = self.rsa.size() as usize;
        if block.len() != bytes || bytes < HEAD_BYTES_MIN + BYTES {
            return Err("the block has not the length of the key's modulus");
        }
        if *block >= self.rsa.n().to_vec()[..] { Err("the block is not below the key's modulus") } else { Ok(()) }
    }

    /// The secret in a block that a client encrypted to the key; `version` is the one that it offered in its hello.
    pub fn decrypt(&self, version: u16, block: &[u8]) -> Result<Secret, &'static str> {
        self.check(block)?;
        let mut plain = Zeroizing::new(vec![0; block.len()]);
        // The number alone: OpenSSL blinds it.
        self.rsa.private_decrypt(block, &mut plain, Padding::NONE).map_err(|_| "the decryption failed")?;
        Ok(self.secret_in(&plain, version, block))
    }

    /// The secret in a block; `plain` is what it was before the client encrypted it to the key.
    pub fn secret_in(&self, plain: &[u8], version: u16, block: &[u8]) -> Secret {
        let mut mac = hmac::Context::with_key(&self.instead);
        mac.update(&version.to_be_bytes());
        mac.update(block);
        let mut instead = [0; BYTES];
        instead.copy_from_slice(mac.sign().as_ref());
        instead[..2].copy_from_slice(&version.to_be_bytes());
        select(plain, version, &instead)
    }
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
        let rsa = Rsa::generate(2048).unwrap();
        let key = Decryptor::new(rsa.clone()).unwrap();
        let mut encrypted = vec![0; 256];
        rsa.public_encrypt(&secret(), &mut encrypted, Padding::PKCS1).unwrap();
        assert_eq!(key.decrypt(0x0303, &encrypted), Ok(secret()));
        let other = key.decrypt(0x0302, &encrypted).unwrap();
        assert_ne!(other[2..], secret()[2..]);
        assert_eq!(other[..2], [3, 2], "as a right one begins");
        assert_eq!(other, key.decrypt(0x0302, &encrypted).unwrap(), "the same each time");
        assert_ne!(other[2..], key.decrypt(0x0301, &encrypted).unwrap()[2..]);
        let mut next = encrypted.clone();
        next[255] ^= 1;
        assert_ne!(other, key.decrypt(0x0302, &next).unwrap());
        assert!(key.decrypt(0x0303, &encrypted[1..]).is_err());
        assert!(key.decrypt(0x0303, &[0xff; 256]).is_err());
    }

    #[test]
    fn a_secret_of_another_length_is_not_answered() {
        let rsa = Rsa::generate(2048).unwrap();
        let key = Decryptor::new(rsa.clone()).unwrap();
        for bytes in [0, 16, 47, 49, 100] {
            let mut encrypted = vec![0; 256];
            rsa.public_encrypt(&vec![3; bytes], &mut encrypted, Padding::PKCS1).unwrap();
            let answer = key.decrypt(0x0303, &encrypted).unwrap();
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
