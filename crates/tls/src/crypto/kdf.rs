//! Key derivation: HKDF and its TLS 1.3 labels (RFC 5869, RFC 9846 section 7.1), the TLS 1.2 PRF (RFC 5246 section 5),
//! and the HMACs of the handshake. Stage `kdf` off: every byte is [`KDF_FILL`]; stage `mac` off: the PSK binder is
//! [`MAC_FILL`].

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384};

use super::hash::Digest;
use crate::noop::{KDF_FILL, MAC_FILL, Stage, StageSet};
use crate::suite::Hash;

/// Longest context that is a digest, in bytes.
const DIGEST_MAX: usize = 48;
/// Longest `HkdfLabel` built here around its context: length, label length, "tls13 " and label, context length.
const HKDF_LABEL_FRAME: usize = 2 + 1 + 6 + 24 + 1;

/// HMAC state that has already absorbed its key; plain data, so that a use is a copy.
#[derive(Clone)]
enum Keyed {
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
}

/// Runs `$body` with `$state` bound to the HMAC of either kind, so that whole derivations are compiled for each and
/// copy no more than that kind's state.
macro_rules! with_keyed {
    ($keyed:expr, $state:ident => $body:expr) => {
        match $keyed {
            Keyed::Sha256($state) => $body,
            Keyed::Sha384($state) => $body,
        }
    };
}

impl Keyed {
    fn new(hash: Hash, key: &[u8]) -> Keyed {
        match hash {
            Hash::Sha256 => Keyed::Sha256(absorb(key)),
            Hash::Sha384 => Keyed::Sha384(absorb(key)),
        }
    }
}

fn absorb<M: KeyInit>(key: &[u8]) -> M {
    M::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn mac<M: Mac>(mut state: M, data: &[u8]) -> Digest {
    state.update(data);
    Digest::copy_of(&state.finalize().into_bytes())
}

fn hmac(hash: Hash, key: &[u8], data: &[u8]) -> Digest {
    match hash {
        Hash::Sha256 => mac(absorb::<Hmac<Sha256>>(key), data),
        Hash::Sha384 => mac(absorb::<Hmac<Sha384>>(key), data),
    }
}

/// HKDF-Extract, RFC 5869 section 2.2.
pub fn hkdf_extract(hash: Hash, off: StageSet, salt: &[u8], ikm: &[u8]) -> Digest {
    if off.contains(Stage::Kdf) {
        return Digest::filled(hash, KDF_FILL);
    }
    hmac(hash, salt, ikm)
}

/// A secret from which labels are expanded. Made once per secret, since absorbing it is half of the work of an
/// expansion.
#[derive(Clone)]
pub struct Prk {
    hash: Hash,
    /// `None` with stage `kdf` off.
    keyed: Option<Keyed>,
}

impl Prk {
    /// Takes a secret of the key schedule.
    pub fn new(hash: Hash, off: StageSet, secret: &[u8]) -> Prk {
        let keyed = (!off.contains(Stage::Kdf)).then(|| Keyed::new(hash, secret));
        Prk { hash, keyed }
    }

    /// HKDF-Expand-Label, RFC 9846 section 7.1, without the "tls13 " that it puts before `label`.
    ///
    /// `label` has at most 24 bytes and is the caller's constant. `context` has at most 255 bytes: a digest, nothing,
    /// or a ticket's nonce, whose length the server chooses.
    pub fn expand_label(&self, label: &[u8], context: &[u8], out: &mut [u8]) {
        let Some(keyed) = &self.keyed else {
            return out.fill(KDF_FILL);
        };
        // Only long nonces pay for clearing the room that they need.
        if context.len() <= DIGEST_MAX {
            expand_label_in(&mut [0; HKDF_LABEL_FRAME + DIGEST_MAX + 1], keyed, label, context, out);
        } else {
            expand_label_in(&mut [0; HKDF_LABEL_FRAME + 255 + 1], keyed, label, context, out);
        }
    }

    /// Derive-Secret, RFC 9846 section 7.1: a secret of one hash length, bound to a transcript.
    pub fn derive_secret(&self, label: &[u8], transcript: &Digest) -> Digest {
        let mut derived = Digest::zero(self.hash);
        self.expand_label(label, transcript.as_slice(), derived.as_mut_slice());
        derived
    }
}

/// See [`Prk::expand_label`]. `info` has room for the label and one byte more, HKDF-Expand's counter.
fn expand_label_in(info: &mut [u8], keyed: &Keyed, label: &[u8], context: &[u8], out: &mut [u8]) {
    let length = hkdf_label(out.len(), label, context, info);
    with_keyed!(keyed, state => expand(state, &mut info[..=length], out));
}

/// HKDF-Expand, RFC 5869 section 2.3. The last byte of `info` is the counter's place.
fn expand<M: Mac + Clone>(keyed: &M, info: &mut [u8], out: &mut [u8]) {
    let counter = info.len() - 1;
    let mut previous: Option<Digest> = None;
    for (index, part) in out.chunks_mut(M::output_size()).enumerate() {
        let mut state = keyed.clone();
        if let Some(block) = &previous {
            state.update(block.as_slice());
        }
        info[counter] = index as u8 + 1;
        let block = mac(state, info);
        part.copy_from_slice(&block.as_slice()[..part.len()]);
        previous = Some(block);
    }
}

/// One HKDF-Expand-Label of a secret that is not used again: see [`Prk::expand_label`].
pub fn hkdf_expand_label(hash: Hash, off: StageSet, secret: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) {
    Prk::new(hash, off, secret).expand_label(label, context, out);
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

/// One Derive-Secret of a secret that is not used again: see [`Prk::derive_secret`].
pub fn derive_secret(hash: Hash, off: StageSet, secret: &[u8], label: &[u8], transcript: &Digest) -> Digest {
    Prk::new(hash, off, secret).derive_secret(label, transcript)
}

/// The verify_data of a TLS 1.3 Finished, RFC 9846 section 4.4.4: `base_secret` is the sender's handshake traffic
/// secret.
pub fn finished_mac(hash: Hash, off: StageSet, base_secret: &[u8], transcript: &Digest) -> Digest {
    if off.contains(Stage::Kdf) {
        return Digest::filled(hash, KDF_FILL);
    }
    hmac(hash, finished_key(hash, off, base_secret).as_slice(), transcript.as_slice())
}

/// A PSK binder, RFC 9846 section 4.2.11.2: a Finished of the hello up to the binders, under `binder_key`.
///
/// libssl computes it through another operation than the Finished, so that stage `mac` and not `kdf` stands in for its
/// HMAC.
pub fn binder_mac(hash: Hash, off: StageSet, binder_key: &[u8], truncated_hello: &Digest) -> Digest {
    if off.contains(Stage::Mac) {
        return Digest::filled(hash, MAC_FILL);
    }
    hmac(hash, finished_key(hash, off, binder_key).as_slice(), truncated_hello.as_slice())
}

fn finished_key(hash: Hash, off: StageSet, base_secret: &[u8]) -> Digest {
    let mut key = Digest::zero(hash);
    hkdf_expand_label(hash, off, base_secret, b"finished", b"", key.as_mut_slice());
    key
}

/// The TLS 1.2 PRF over the concatenation of `seeds`, RFC 5246 section 5: master secret, extended master secret, key
/// block and verify_data all come from it.
pub fn prf12(hash: Hash, off: StageSet, secret: &[u8], label: &[u8], seeds: &[&[u8]], out: &mut [u8]) {
    if off.contains(Stage::Kdf) {
        return out.fill(KDF_FILL);
    }
    with_keyed!(&Keyed::new(hash, secret), state => p_hash(state, label, seeds, out));
}

/// P_hash, RFC 5246 section 5.
fn p_hash<M: Mac + Clone>(keyed: &M, label: &[u8], seeds: &[&[u8]], out: &mut [u8]) {
    let absorb_seed = |mut state: M| {
        state.update(label);
        seeds.iter().for_each(|seed| state.update(seed));
        state.finalize().into_bytes()
    };
    let mut a = absorb_seed(keyed.clone());
    for part in out.chunks_mut(M::output_size()) {
        let mut state = keyed.clone();
        state.update(&a);
        part.copy_from_slice(&absorb_seed(state)[..part.len()]);
        let mut next = keyed.clone();
        next.update(&a);
        a = next.finalize().into_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::hash::digest;
    use crate::crypto::hex;

    const ON: StageSet = StageSet::NONE;
    const SHA: Hash = Hash::Sha256;

    fn label(secret: &Digest, label: &[u8], context: &[u8], length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        hkdf_expand_label(SHA, ON, secret.as_slice(), label, context, &mut out);
        out
    }

    /// RFC 8448 section 3, "Simple 1-RTT Handshake": the whole schedule from the ECDHE secret and the transcript
    /// hashes.
    #[test]
    fn rfc8448_key_schedule() {
        let zero = Digest::zero(SHA);
        let empty = digest(SHA, ON, b"");
        let early = hkdf_extract(SHA, ON, zero.as_slice(), zero.as_slice());
        assert_eq!(early.as_slice(), hex("33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a"));
        let derived = derive_secret(SHA, ON, early.as_slice(), b"derived", &empty);
        assert_eq!(derived.as_slice(), hex("6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba"));

        let ecdhe = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
        let handshake = hkdf_extract(SHA, ON, derived.as_slice(), &ecdhe);
        assert_eq!(handshake.as_slice(), hex("1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac"));
        let hellos = Digest::copy_of(&hex("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8"));
        let client = derive_secret(SHA, ON, handshake.as_slice(), b"c hs traffic", &hellos);
        assert_eq!(client.as_slice(), hex("b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21"));
        let server = derive_secret(SHA, ON, handshake.as_slice(), b"s hs traffic", &hellos);
        assert_eq!(server.as_slice(), hex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38"));
        assert_eq!(label(&server, b"key", b"", 16), hex("3fce516009c21727d0f2e4e86ee403bc"));
        assert_eq!(label(&server, b"iv", b"", 12), hex("5d313eb2671276ee13000b30"));
        assert_eq!(
            finished_key(SHA, ON, server.as_slice()).as_slice(),
            hex("008d3b66f816ea559f96b537e885c31fc068bf492c652f01f288a1d8cdc19fc8"),
        );

        let derived = derive_secret(SHA, ON, handshake.as_slice(), b"derived", &empty);
        let master = hkdf_extract(SHA, ON, derived.as_slice(), zero.as_slice());
        assert_eq!(master.as_slice(), hex("18df06843d13a08bf2a449844c5f8a478001bc4d4c627984d5a41da8d0402919"));
        let to_server_finished =
            Digest::copy_of(&hex("9608102a0f1ccc6db6250b7b7e417b1a000eaada3daae4777a7686c9ff83df13"));
        let traffic = derive_secret(SHA, ON, master.as_slice(), b"c ap traffic", &to_server_finished);
        assert_eq!(traffic.as_slice(), hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5"));
        assert_eq!(
            finished_mac(SHA, ON, client.as_slice(), &to_server_finished).as_slice(),
            hex("a8ec436d677634ae525ac1fcebe11a039ec17694fac6e98527b642f2edd5ce61"),
        );
        let to_client_finished =
            Digest::copy_of(&hex("209145a96ee8e2a122ff810047cc952684658d6049e86429426db87c54ad143d"));
        let resumption = derive_secret(SHA, ON, master.as_slice(), b"res master", &to_client_finished);
        assert_eq!(resumption.as_slice(), hex("7df235f2031d2a051287d02b0241b0bfdaf86cc856231f2d5aba46c434ec196c"));
        let psk = label(&resumption, b"resumption", &[0, 0], 32);
        assert_eq!(psk, hex("4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3"));
    }

    /// RFC 8448 section 4, "Resumed 0-RTT Handshake": the binder.
    #[test]
    fn rfc8448_binder() {
        let zero = Digest::zero(SHA);
        let psk = hex("4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3");
        let early = hkdf_extract(SHA, ON, zero.as_slice(), &psk);
        assert_eq!(early.as_slice(), hex("9b2188e9b2fc6d64d71dc329900e20bb41915000f678aa839cbb797cb7d8332c"));
        let key = derive_secret(SHA, ON, early.as_slice(), b"res binder", &digest(SHA, ON, b""));
        let hello = Digest::copy_of(&hex("63224b2e4573f2d3454ca84b9d009a04f6be9e05711a8396473aefa01e924a14"));
        assert_eq!(
            binder_mac(SHA, ON, key.as_slice(), &hello).as_slice(),
            hex("3add4fb2d8fdf822a0ca3cf7678ef5e88dae990141c5924d57bb6fa31b9e5f9d"),
        );
    }

    /// The vectors of the IETF TLS working group's list for P_SHA256 and P_SHA384; OpenSSL's TLS1-PRF agrees.
    #[test]
    fn prf12_vectors() {
        let mut out = [0; 100];
        let secret = hex("9bbe436ba940f017b17652849a71db35");
        let seed = hex("a0ba9f936cda311827a6f796ffd5198c");
        let (first, second) = seed.split_at(5);
        prf12(Hash::Sha256, ON, &secret, b"test label", &[first, second], &mut out);
        assert_eq!(
            out[..],
            hex("e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e14baf9af\
                 0fa022f7077def17abfd3797c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff701\
                 87347b66")
        );
        let mut out = [0; 148];
        let secret = hex("b80b733d6ceefcdc71566ea48e5567df");
        prf12(Hash::Sha384, ON, &secret, b"test label", &[&hex("cd665cf6a8447dd6ff8b27555edb7465")], &mut out);
        assert_eq!(
            out[..],
            hex("7b0c18e9ced410ed1804f2cfa34a336a1c14dffb4900bb5fd7942107e81c83cde9ca0faa60be9fe34f82b1233c9146a0\
                 e534cb400fed2700884f9dc236f80edd8bfa961144c9e8d792eca722a7b32fc3d416d473ebc2c5fd4abfdad05d918425\
                 9b5bf8cd4d90fa0d31e2dec479e4f1a26066f2eea9a69236a3e52655c9e9aee691c8f3a26854308d5eaa3be85e099070\
                 3d73e56f")
        );
    }

    /// More than one block: against aws-lc-rs's own HKDF.
    #[test]
    fn long_outputs_equal_hkdf_of_another_implementation() {
        use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
        struct Length(usize);
        impl KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        for (hash, other) in [(Hash::Sha256, HKDF_SHA256), (Hash::Sha384, HKDF_SHA384)] {
            for length in [1, 31, 32, 33, 48, 49, 96, 97, 255] {
                let mut info = [0; HKDF_LABEL_FRAME + DIGEST_MAX];
                let info_bytes = hkdf_label(length, b"exporter", b"context", &mut info);
                let info = [&info[..info_bytes]];
                let mut expected = vec![0; length];
                let prk = Prk::new_less_safe(other, &[7; 48]);
                prk.expand(&info, Length(length)).unwrap().fill(&mut expected).unwrap();
                let mut out = vec![0; length];
                hkdf_expand_label(hash, ON, &[7; 48], b"exporter", b"context", &mut out);
                assert_eq!(out, expected, "{hash:?} {length}");
            }
        }
    }

    /// A ticket's nonce is the server's choice, up to 255 bytes: against aws-lc-rs's own HKDF.
    #[test]
    fn contexts_of_every_legal_length() {
        use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, Prk};
        for (hash, other) in [(Hash::Sha256, HKDF_SHA256), (Hash::Sha384, HKDF_SHA384)] {
            for length in [0, 1, 48, 49, 62, 63, 64, 254, 255] {
                let nonce = vec![9; length];
                let psk_bytes = hash.digest_bytes();
                let info = [&[0, psk_bytes as u8, 16], &b"tls13 resumption"[..], &[length as u8], &nonce].concat();
                let mut expected = vec![0; psk_bytes];
                let prk = Prk::new_less_safe(other, &[7; 48]);
                prk.expand(&[&info], other).unwrap().fill(&mut expected[..]).unwrap_or_else(|_| panic!("{length}"));
                let mut psk = vec![0; psk_bytes];
                hkdf_expand_label(hash, ON, &[7; 48], b"resumption", &nonce, &mut psk);
                assert_eq!(psk, expected, "{hash:?} {length}");
            }
        }
    }

    #[test]
    fn stages_off_give_the_constants() {
        let kdf = ON.with(Stage::Kdf);
        let mac = ON.with(Stage::Mac);
        for hash in [Hash::Sha256, Hash::Sha384] {
            let filled = Digest::filled(hash, KDF_FILL);
            let transcript = digest(hash, ON, b"transcript");
            let mut out = [0; 77];
            hkdf_expand_label(hash, kdf, b"secret", b"key", b"", &mut out);
            assert_eq!(out, [KDF_FILL; 77]);
            prf12(hash, kdf, b"secret", b"key expansion", &[b"seed"], &mut out);
            assert_eq!(out, [KDF_FILL; 77]);
            assert_eq!(hkdf_extract(hash, kdf, b"salt", b"ikm"), filled);
            assert_eq!(finished_mac(hash, kdf, b"secret", &transcript), filled);
            assert_eq!(finished_mac(hash, mac, b"secret", &transcript), finished_mac(hash, ON, b"secret", &transcript));
            // The binder's HMAC belongs to stage mac; with kdf off it is real, under a constant key.
            assert_eq!(binder_mac(hash, mac, b"secret", &transcript), Digest::filled(hash, MAC_FILL));
            assert_eq!(
                binder_mac(hash, kdf, b"secret", &transcript),
                hmac(hash, filled.as_slice(), transcript.as_slice())
            );
        }
    }
}
