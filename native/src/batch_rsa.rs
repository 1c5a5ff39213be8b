//! Batched RSA on OpenSSL's numbers (`native/batch_rsa`): the one C code that is linked into tlsdyno itself.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};
use openssl::bn::BigNumRef;
use openssl::pkey::Private;
use openssl::rsa::Rsa;

/// Most keys of one modulus, and so most blocks of a batch.
pub const MEMBERS_MAX: usize = 8;
/// Most bytes of a modulus.
const MODULUS_BYTES_MAX: usize = 512;

#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn tlsdyno_batch_rsa_new(
        numbers: *const *const u8,
        sizes: *const usize,
        exponents: *const u64,
        members: usize,
    ) -> *mut Raw;
    fn tlsdyno_batch_rsa_free(batch: *mut Raw);
    fn tlsdyno_batch_rsa_decrypt(
        batch: *mut Raw,
        members: *const u8,
        count: usize,
        blocks: *const u8,
        plain: *mut u8,
    ) -> bool;
}

/// Keys that share a modulus and differ in their public exponents, which decrypt together (Shacham and Boneh, Improving
/// SSL Handshake Performance via Batching, CT-RSA 2001).
pub struct BatchRsa {
    raw: NonNull<Raw>,
    members: usize,
    bytes: usize,
}

// SAFETY: nothing of it belongs to a thread; `decrypt` takes it for itself.
unsafe impl Send for BatchRsa {}

impl BatchRsa {
    /// Of keys in the ascending order of their public exponents.
    pub fn new(keys: &[Rsa<Private>]) -> Result<BatchRsa> {
        ensure!((2..=MEMBERS_MAX).contains(&keys.len()), "a batch takes 2 to {MEMBERS_MAX} keys");
        let (first, mut product) = (&keys[0], 1);
        let mut exponents = Vec::new();
        for key in keys {
            ensure!(key.n() == first.n(), "the keys have not one modulus");
            let exponent = exponent_of(key.e()).context("a public exponent is too large for a batch")?;
            ensure!(exponents.last() < Some(&exponent), "two keys have the same public exponent");
            let is_coprime = exponents.iter().all(|other| greatest_common_divisor(*other, exponent) == 1);
            ensure!(is_coprime && exponent % 2 == 1, "public exponents share the factor of another");
            product = exponent.checked_mul(product).filter(|product| *product < 1 << 63).unwrap_or(0);
            ensure!(product > 0, "the public exponents are too large for a batch together");
            exponents.push(exponent);
        }
        let (p, q) = first.p().zip(first.q()).context("a key without its primes")?;
        let numbers = [first.n(), p, q].map(BigNumRef::to_vec);
        let bytes = numbers[0].len();
        ensure!(bytes.is_multiple_of(8) && bytes <= MODULUS_BYTES_MAX, "the modulus has not 64, 128, … 4096 bits");
        let (pointers, sizes) = (numbers.each_ref().map(|one| one.as_ptr()), numbers.each_ref().map(Vec::len));
        // SAFETY: three numbers with their lengths, and as many exponents as it is told; it copies all of them.
        let raw =
            unsafe { tlsdyno_batch_rsa_new(pointers.as_ptr(), sizes.as_ptr(), exponents.as_ptr(), exponents.len()) };
        let raw = NonNull::new(raw).context("the keys' exponents do not fit their primes")?;
        Ok(BatchRsa { raw, members: keys.len(), bytes })
    }

    /// What is in these blocks, as numbers of the modulus' length: of each a key, by its place, in ascending order, and
    /// a block, which is below the modulus. Takes one block alone, too, at the price of two.
    ///
    /// `None`: a block has a factor of the modulus, there is no memory, or a computation went wrong.
    pub fn decrypt(&mut self, blocks: &[(usize, &[u8])]) -> Option<Vec<Vec<u8>>> {
        let is_right = |(_, block): &(usize, &[u8])| block.len() == self.bytes;
        let ascends = blocks.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ascends || !blocks.iter().all(is_right) || blocks.last()?.0 >= self.members {
            return None;
        }
        let members: Vec<u8> = blocks.iter().map(|(member, _)| *member as u8).collect();
        let text: Vec<u8> = blocks.iter().flat_map(|(_, block)| *block).copied().collect();
        let mut plain = vec![0; text.len()];
        // SAFETY: as many members as it is told, of which each has a key and a block; `plain` is as long as the blocks.
        let is_done = unsafe {
            let (members, text) = (members.as_ptr(), text.as_ptr());
            tlsdyno_batch_rsa_decrypt(self.raw.as_ptr(), members, blocks.len(), text, plain.as_mut_ptr())
        };
        let each = is_done.then(|| plain.chunks(self.bytes).map(<[u8]>::to_vec).collect());
        plain.fill(0);
        each
    }
}

impl Drop for BatchRsa {
    fn drop(&mut self) {
        // SAFETY: it was made by its counterpart, and nobody has it any more.
        unsafe { tlsdyno_batch_rsa_free(self.raw.as_ptr()) }
    }
}

fn exponent_of(number: &BigNumRef) -> Option<u64> {
    let bytes = number.to_vec_padded(8).ok()?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
