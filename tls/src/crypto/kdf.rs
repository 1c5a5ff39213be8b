//! Key derivation: HKDF and its TLS 1.3 labels (RFC 5869, RFC 9846 section 7.1), the TLS 1.2 PRF (RFC 5246 section 5), and the
//! HMACs of the handshake. Stage `kdf` off: every byte is [`KDF_FILL`]; stage `mac` off: the PSK binder is [`MAC_FILL`].

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384};

use super::hash::Digest;
use crate::noop::{KDF_FILL, MAC_FILL, Stage, StageSet};
use crate::suite::Hash;

/// Longest `HkdfLabel` built here: length, label length, "tls13 " and label, context length, context (a digest).
const HKDF_LABEL_MAX: usize = 2 + 1 + 6 + 24 + 1 + 48;

/// HMAC state that has already absorbed its key; plain data, so that a use is a copy.
#[derive(Clone)]
enum Keyed {
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
}

impl Keyed {
    fn new(hash: Hash, key: &[u8]) -> Keyed {
        // HMAC takes keys of any length, so this cannot fail.
        match hash {
            Hash::Sha256 => {
                Keyed::Sha256(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
            }
            Hash::Sha384 => {
                Keyed::Sha384(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
            }
        }
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Keyed::Sha256(state) => state.update(data),
            Keyed::Sha384(state) => state.update(data),
        }
    }

    fn finish(self) -> Digest {
        match self {
            Keyed::Sha256(state) => Digest::copy_of(&state.finalize().into_bytes()),
            Keyed::Sha384(state) => Digest::copy_of(&state.finalize().into_bytes()),
        }
    }
}

fn hmac(hash: Hash, key: &[u8], data: &[u8]) -> Digest {
    let mut state = Keyed::new(hash, key);
    state.update(data);
    state.finish()
}

/// HKDF-Extract, RFC 5869 section 2.2.
pub fn hkdf_extract(hash: Hash, off: StageSet, salt: &[u8], ikm: &[u8]) -> Digest {
    if off.contains(Stage::Kdf) {
        return Digest::filled(hash, KDF_FILL);
    }
    hmac(hash, salt, ikm)
}

/// HKDF-Expand-Label, RFC 9846 section 7.1, without the "tls13 " that it puts before `label`.
///
/// `label` has at most 24 bytes and `context` is a digest or empty: both are the caller's constants.
pub fn hkdf_expand_label(
    hash: Hash,
    off: StageSet,
    secret: &[u8],
    label: &[u8],
    context: &[u8],
    out: &mut [u8],
) {
    if off.contains(Stage::Kdf) {
        return out.fill(KDF_FILL);
    }
    let mut info = [0; HKDF_LABEL_MAX + 1];
    let length = hkdf_label(out.len(), label, context, &mut info);
    if out.len() <= hash.digest_bytes() {
        // The only case of the handshake: one block, whose counter is 1.
        info[length] = 1;
        let block = hmac(hash, secret, &info[..=length]);
        let wanted = out.len();
        return out.copy_from_slice(&block.as_slice()[..wanted]);
    }
    let keyed = Keyed::new(hash, secret);
    let mut previous: Option<Digest> = None;
    for (index, part) in out.chunks_mut(hash.digest_bytes()).enumerate() {
        let mut state = keyed.clone();
        if let Some(block) = &previous {
            state.update(block.as_slice());
        }
        info[length] = index as u8 + 1;
        state.update(&info[..=length]);
        let block = state.finish();
        part.copy_from_slice(&block.as_slice()[..part.len()]);
        previous = Some(block);
    }
}

/// Writes `struct HkdfLabel` and returns its length.
fn hkdf_label(out_bytes: usize, label: &[u8], context: &[u8], info: &mut [u8]) -> usize {
    let mut length = 0;
    for part in [
        &(out_bytes as u16).to_be_bytes()[..],
        &[6 + label.len() as u8],
        b"tls13 ",
        label,
        &[context.len() as u8],
        context,
    ] {
        info[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    length
}

/// Derive-Secret, RFC 9846 section 7.1: a secret of one hash length, bound to a transcript.
pub fn derive_secret(
    hash: Hash,
    off: StageSet,
    secret: &[u8],
    label: &[u8],
    transcript: &Digest,
) -> Digest {
    let mut derived = Digest::zero(hash);
    hkdf_expand_label(
        hash,
        off,
        secret,
        label,
        transcript.as_slice(),
        derived.as_mut_slice(),
    );
    derived
}

/// The verify_data of a TLS 1.3 Finished, RFC 9846 section 4.4.4: `base_secret` is the sender's handshake traffic secret.
pub fn finished_mac(hash: Hash, off: StageSet, base_secret: &[u8], transcript: &Digest) -> Digest {
    if off.contains(Stage::Kdf) {
        return Digest::filled(hash, KDF_FILL);
    }
    hmac(
        hash,
        finished_key(hash, off, base_secret).as_slice(),
        transcript.as_slice(),
    )
}

/// A PSK binder, RFC 9846 section 4.2.11.2: a Finished of the hello up to the binders, under `binder_key`.
///
/// libssl computes it through another operation than the Finished, so that stage `mac` and not `kdf` stands in for its HMAC.
pub fn binder_mac(
    hash: Hash,
    off: StageSet,
    binder_key: &[u8],
    truncated_hello: &Digest,
) -> Digest {
    if off.contains(Stage::Mac) {
        return Digest::filled(hash, MAC_FILL);
    }
    hmac(
        hash,
        finished_key(hash, off, binder_key).as_slice(),
        truncated_hello.as_slice(),
    )
}

fn finished_key(hash: Hash, off: StageSet, base_secret: &[u8]) -> Digest {
    let mut key = Digest::zero(hash);
    hkdf_expand_label(hash, off, base_secret, b"finished", b"", key.as_mut_slice());
    key
}

/// The TLS 1.2 PRF over the concatenation of `seeds`, RFC 5246 section 5: master secret, extended master secret, key block and
/// verify_data all come from it.
pub fn prf12(
    hash: Hash,
    off: StageSet,
    secret: &[u8],
    label: &[u8],
    seeds: &[&[u8]],
    out: &mut [u8],
) {
    if off.contains(Stage::Kdf) {
        return out.fill(KDF_FILL);
    }
    let keyed = Keyed::new(hash, secret);
    let absorb_seed = |state: &mut Keyed| {
        state.update(label);
        seeds.iter().for_each(|seed| state.update(seed));
    };
    let mut a = keyed.clone();
    absorb_seed(&mut a);
    let mut a = a.finish();
    for part in out.chunks_mut(hash.digest_bytes()) {
        let mut block = keyed.clone();
        block.update(a.as_slice());
        absorb_seed(&mut block);
        part.copy_from_slice(&block.finish().as_slice()[..part.len()]);
        let mut next = keyed.clone();
        next.update(a.as_slice());
        a = next.finish();
    }
}
