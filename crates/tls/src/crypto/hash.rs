//! Transcript hashes, real or as the checksum of stage `digest`.
//!
//! SHA-2 comes from the `sha2` crate, not from aws-lc-rs: its state is plain data, so that a snapshot of the transcript
//! and a keyed HMAC cost no allocation. `examples/primitives.rs` measures both (HMAC-SHA256 with a fresh key: half of
//! aws-lc-rs's time).

use sha2::{Digest as _, Sha256, Sha384};

use crate::noop::{Stage, StageSet};
use crate::suite::Hash;

impl Hash {
    /// Length of a digest in bytes.
    pub const fn digest_bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
        }
    }
}

/// A digest, HMAC or derived secret of one hash length, held inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    bytes: [u8; 48],
    length: u8,
}

impl Digest {
    /// A digest of `hash`'s length with every byte `fill`.
    pub fn filled(hash: Hash, fill: u8) -> Digest {
        let mut digest = Digest::zero(hash);
        digest.as_mut_slice().fill(fill);
        digest
    }

    /// A digest of `hash`'s length, all zeros (RFC 9846 section 7.1: the missing inputs of the key schedule).
    pub fn zero(hash: Hash) -> Digest {
        Digest { bytes: [0; 48], length: hash.digest_bytes() as u8 }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length as usize]
    }

    pub(crate) fn copy_of(bytes: &[u8]) -> Digest {
        let mut digest = Digest { bytes: [0; 48], length: bytes.len() as u8 };
        digest.as_mut_slice().copy_from_slice(bytes);
        digest
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// The running hash over the handshake messages.
#[derive(Clone, Debug)]
pub struct Transcript {
    state: State,
    /// The messages themselves, where they were asked for.
    kept: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum State {
    Sha256(Sha256),
    Sha384(Sha384),
    Checksum(Hash, Checksum),
}

impl Transcript {
    /// An empty transcript; stage `digest` off makes it the contract's checksum.
    pub fn new(hash: Hash, off: StageSet) -> Transcript {
        let state = match hash {
            _ if off.contains(Stage::Digest) => State::Checksum(hash, Checksum::new()),
            Hash::Sha256 => State::Sha256(Sha256::new()),
            Hash::Sha384 => State::Sha384(Sha384::new()),
        };
        Transcript { state, kept: None }
    }

    /// The same, and it keeps the messages if `keep`: a client's TLS 1.2 signature covers them, with a hash of its own
    /// (RFC 5246 section 7.4.8).
    pub fn keeping(self, keep: bool) -> Transcript {
        Transcript { kept: keep.then(Vec::new), ..self }
    }

    /// The messages so far; empty if they are not kept.
    pub fn kept(&self) -> &[u8] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Appends a piece; how the input is cut into pieces does not matter.
    pub fn update(&mut self, data: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(data);
        }
        match &mut self.state {
            State::Sha256(state) => state.update(data),
            State::Sha384(state) => state.update(data),
            State::Checksum(_, state) => state.update(data),
        }
    }

    /// The digest of everything so far; the transcript goes on.
    pub fn current(&self) -> Digest {
        match &self.state {
            State::Sha256(state) => Digest::copy_of(&state.clone().finalize()),
            State::Sha384(state) => Digest::copy_of(&state.clone().finalize()),
            State::Checksum(hash, state) => state.digest(*hash),
        }
    }
}

/// The digest of `data` alone.
pub fn digest(hash: Hash, off: StageSet, data: &[u8]) -> Digest {
    let mut transcript = Transcript::new(hash, off);
    transcript.update(data);
    transcript.current()
}

/// The stand-in for a hash, docs/NOOP.md section "digest".
#[derive(Clone, Debug)]
struct Checksum {
    h: u64,
    bytes: u64,
    /// Input since the last complete word, padded with zeros; its length is `bytes % 8`.
    rest: [u8; 8],
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Checksum {
    fn new() -> Checksum {
        Checksum { h: 0x6a09_e667_f3bc_c908, bytes: 0, rest: [0; 8] }
    }

    fn step(h: u64, word: u64) -> u64 {
        (h ^ word).rotate_left(23).wrapping_mul(GOLDEN)
    }

    fn update(&mut self, mut data: &[u8]) {
        let held = (self.bytes % 8) as usize;
        self.bytes += data.len() as u64;
        if held > 0 {
            let taken = data.len().min(8 - held);
            self.rest[held..held + taken].copy_from_slice(&data[..taken]);
            data = &data[taken..];
            if held + taken < 8 {
                return;
            }
            self.h = Checksum::step(self.h, u64::from_le_bytes(self.rest));
            self.rest = [0; 8];
        }
        let (words, rest) = data.as_chunks::<8>();
        for word in words {
            self.h = Checksum::step(self.h, u64::from_le_bytes(*word));
        }
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    fn digest(&self, hash: Hash) -> Digest {
        let h = Checksum::step(Checksum::step(self.h, u64::from_le_bytes(self.rest)), self.bytes);
        let mut digest = Digest::zero(hash);
        for (index, word) in digest.as_mut_slice().chunks_mut(8).enumerate() {
            let value = h.wrapping_add(GOLDEN.wrapping_mul(index as u64));
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OFF: StageSet = StageSet::NONE.with(Stage::Digest);

    /// docs/NOOP.md section "digest", word by word over the whole input.
    fn checksum_by_the_contract(data: &[u8], length: usize) -> Vec<u8> {
        let step = |h: u64, w: u64| (h ^ w).rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut padded = data.to_vec();
        padded.resize(data.len() / 8 * 8 + 8, 0);
        let mut h = 0x6a09_e667_f3bc_c908;
        for word in padded.chunks(8) {
            h = step(h, u64::from_le_bytes(word.try_into().unwrap()));
        }
        h = step(h, data.len() as u64);
        let words = (0..6u64).map(|i| h.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut digest: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        digest.truncate(length);
        digest
    }

    fn in_pieces(hash: Hash, off: StageSet, data: &[u8], cuts: &[usize]) -> Digest {
        let mut transcript = Transcript::new(hash, off);
        let mut rest = data;
        for cut in cuts {
            let (piece, later) = rest.split_at(*cut.min(&rest.len()));
            transcript.update(piece);
            transcript.current();
            rest = later;
        }
        transcript.update(rest);
        transcript.current()
    }

    proptest! {
        #[test]
        fn pieces_and_snapshots_do_not_matter(
            data in prop::collection::vec(any::<u8>(), 0..300),
            cuts in prop::collection::vec(0usize..40, 0..12),
        ) {
            let sha256 = in_pieces(Hash::Sha256, StageSet::NONE, &data, &cuts);
            prop_assert_eq!(sha256.as_slice(), &openssl::sha::sha256(&data));
            let sha384 = in_pieces(Hash::Sha384, StageSet::NONE, &data, &cuts);
            prop_assert_eq!(sha384.as_slice(), &openssl::sha::sha384(&data));
            for hash in [Hash::Sha256, Hash::Sha384] {
                let checksum = in_pieces(hash, OFF, &data, &cuts);
                prop_assert_eq!(checksum, digest(hash, OFF, &data));
                prop_assert_eq!(checksum.as_slice(), checksum_by_the_contract(&data, hash.digest_bytes()));
            }
        }
    }
}
