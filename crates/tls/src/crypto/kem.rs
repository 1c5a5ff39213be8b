//! ML-KEM (FIPS 203) as the client of a hybrid group needs it: aws-lc-rs's keys, and a key without secret.

use std::sync::LazyLock;

use aws_lc_rs::digest::{self, Algorithm};
use aws_lc_rs::kem::{self, DecapsulationKey};

/// Bytes of a shared secret, for every parameter set.
pub const SECRET_BYTES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kem {
    /// ML-KEM-768.
    MlKem768,
    /// ML-KEM-1024.
    MlKem1024,
}

impl Kem {
    /// Length of an encapsulation key in bytes (FIPS 203 table 3).
    pub const fn encapsulation_key_bytes(self) -> usize {
        match self {
            Kem::MlKem768 => 1184,
            Kem::MlKem1024 => 1568,
        }
    }

    /// Length of a ciphertext in bytes (FIPS 203 table 3).
    pub const fn ciphertext_bytes(self) -> usize {
        match self {
            Kem::MlKem768 => 1088,
            Kem::MlKem1024 => 1568,
        }
    }

    pub(super) fn algorithm(self) -> &'static kem::Algorithm {
        match self {
            Kem::MlKem768 => &kem::ML_KEM_768,
            Kem::MlKem1024 => &kem::ML_KEM_1024,
        }
    }

    /// A fresh key pair.
    ///
    /// # Panics
    /// If the system gives no randomness.
    pub fn generate(self) -> DecapsulationKey {
        DecapsulationKey::generate(self.algorithm()).expect("the system gives randomness")
    }

    /// The secret of a ciphertext for the encapsulation key whose bytes are all zero, which has no secret.
    ///
    /// That key is valid: its vector t is 0, and so is s. A ciphertext's v (FIPS 203 algorithm 14) is then the message
    /// in plain but for a noise that compressing removes, and the secret is a hash of the message (algorithm 17). What
    /// the server does is the same as for any other key.
    pub fn decapsulate_with_zeros(self, ciphertext: &[u8]) -> [u8; SECRET_BYTES] {
        let mut message_and_hash = [0; 64];
        let (message, hash) = message_and_hash.split_at_mut(32);
        let v = &ciphertext[ciphertext.len() - 32 * self.bits_of_v()..];
        message.copy_from_slice(&message_of(v, self.bits_of_v()));
        hash.copy_from_slice(&ZERO_KEY_HASHES[self as usize]);
        first_half(&digest::SHA3_512, &message_and_hash)
    }

    /// Bits of a compressed coefficient of v (FIPS 203 table 2, d_v).
    const fn bits_of_v(self) -> usize {
        match self {
            Kem::MlKem768 => 4,
            Kem::MlKem1024 => 5,
        }
    }
}

/// H of the encapsulation key of zeros, of each parameter set.
static ZERO_KEY_HASHES: LazyLock<[[u8; 32]; 2]> = LazyLock::new(|| {
    [Kem::MlKem768, Kem::MlKem1024].map(|kem| first_half(&digest::SHA3_256, &vec![0; kem.encapsulation_key_bytes()]))
});

/// The first 32 bytes of a hash.
fn first_half(algorithm: &'static Algorithm, bytes: &[u8]) -> [u8; 32] {
    let hash = digest::digest(algorithm, bytes);
    *hash.as_ref().first_chunk().expect("a hash of 32 bytes or more")
}

/// The message in a v of 256 coefficients of so many bits. A one is q/2 and a zero 0, both with a noise of at most 2;
/// compressed, these are the highest bit alone and nothing.
fn message_of(v: &[u8], bits: usize) -> [u8; 32] {
    let mut message = [0; 32];
    for coefficient in 0..256 {
        let highest = coefficient * bits + bits - 1;
        message[coefficient / 8] |= (v[highest / 8] >> (highest % 8) & 1) << (coefficient % 8);
    }
    message
}

/// Appends the encapsulation key of a pair.
///
/// # Panics
/// Never with a pair of [`Kem::generate`].
pub fn put_encapsulation_key(key: &DecapsulationKey, out: &mut Vec<u8>) {
    let public = key.encapsulation_key().and_then(|key| key.key_bytes());
    out.extend_from_slice(public.expect("a generated key has a public part").as_ref());
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::kem::EncapsulationKey;

    use super::*;
    use crate::crypto::vectors::vectors;

    fn kem(name: &str) -> Kem {
        match name {
            "ML-KEM-768" => Kem::MlKem768,
            "ML-KEM-1024" => Kem::MlKem1024,
            other => panic!("unknown parameter set {other}"),
        }
    }

    #[test]
    fn known_ciphertexts() {
        for vector in vectors("crates/tls/vectors/ml_kem.txt") {
            let kem = kem(vector.text("kem"));
            let key = DecapsulationKey::new(kem.algorithm(), &vector.bytes("key")).unwrap();
            let mut ciphertext = vector.bytes("ciphertext");
            assert_eq!(ciphertext.len(), kem.ciphertext_bytes());
            assert_eq!(key.decapsulate(ciphertext[..].into()).unwrap().as_ref(), vector.bytes("secret"));
            ciphertext[0] ^= 1;
            assert_eq!(key.decapsulate(ciphertext[..].into()).unwrap().as_ref(), vector.bytes("rejected"));
        }
    }

    #[test]
    fn the_key_of_zeros_is_valid_and_has_no_secret() {
        for kem in [Kem::MlKem768, Kem::MlKem1024] {
            let zeros = vec![0; kem.encapsulation_key_bytes()];
            for _ in 0..50 {
                let key = EncapsulationKey::new(kem.algorithm(), &zeros).unwrap();
                let (ciphertext, secret) = key.encapsulate().unwrap();
                assert_eq!(kem.decapsulate_with_zeros(ciphertext.as_ref()), secret.as_ref());
            }
        }
    }
}
