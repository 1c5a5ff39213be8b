//! Prints what each primitive of the client costs on this machine, in microseconds per call (best of seven rounds of
//! one core):
//!
//! ```text
//! cargo run --release -p tlsdyno-tls --example primitives
//! ```

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::rand::SystemRandom;
use rcgen::{CertificateParams, KeyPair};
use tlsdyno_tls::crypto::exchange::KeyShare;
use tlsdyno_tls::crypto::hash::{Digest, Transcript, digest};
use tlsdyno_tls::crypto::kdf::{Prk, finished_mac, hkdf_expand_label, hkdf_extract, prf12};
use tlsdyno_tls::crypto::protect::{Opener, Sealer, Side};
use tlsdyno_tls::crypto::verify::{Verifier, verify_signature};
use tlsdyno_tls::suite::Hash;
use tlsdyno_tls::{Effort, Group, StageSet, Suite};

const ON: StageSet = StageSet::NONE;
/// Signature schemes, RFC 9846 section 4.2.3.
const ECDSA_SHA256: u16 = 0x0403;
const PSS_SHA256: u16 = 0x0804;

fn time<T>(name: &str, mut call: impl FnMut() -> T) {
    const CALLS: u32 = 2000;
    let mut best_ns = u128::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        best_ns = best_ns.min(start.elapsed().as_nanos());
    }
    println!("{name:<58}{:>9.3}", best_ns as f64 / f64::from(CALLS) / 1000.0);
}

fn main() {
    println!("{:<58}{:>9}", "primitive", "µs");
    for (hash, suite) in [(Hash::Sha256, Suite::Tls13Aes128Gcm), (Hash::Sha384, Suite::Tls13Aes256Gcm)] {
        hashes_and_schedules(hash, suite);
    }
    other_hmac();
    for group in Group::ALL {
        key_agreement(group);
    }
    for suite in [Suite::Tls13Aes128Gcm, Suite::Tls13ChaCha20, Suite::EcdheRsaAes128Gcm, Suite::RsaAes128Sha] {
        records(suite);
    }
    verification();
}

fn hashes_and_schedules(hash: Hash, suite: Suite) {
    let transcript = digest(hash, ON, b"transcript");
    let secret = transcript.as_slice();
    let mut running = Transcript::new(hash, ON);
    running.update(&[7; 1024]);
    time(&format!("{hash:?} of 1 KiB"), || digest(hash, ON, black_box(&[7; 1024])));
    time(&format!("{hash:?} snapshot of a transcript"), || running.current());
    time(&format!("{hash:?} HKDF-Extract"), || hkdf_extract(hash, ON, secret, secret));
    time(&format!("{hash:?} HKDF-Expand-Label of a key"), || {
        let mut key = [0; 16];
        hkdf_expand_label(hash, ON, secret, b"key", b"", &mut key);
        key
    });
    time(&format!("{hash:?} Finished"), || finished_mac(hash, ON, secret, &transcript));
    time(&format!("{hash:?} TLS 1.2 key block of 136 bytes"), || {
        let mut block = [0; 136];
        prf12(hash, ON, secret, b"key expansion", &[&[1; 32], &[2; 32]], &mut block);
        block
    });
    time(&format!("{suite}: keys of one direction"), || Sealer::tls13(suite, ON, secret));
    time(&format!("{suite}: whole schedule of a full handshake"), || schedule(suite, &transcript));
}

/// Every derivation of a full TLS 1.3 handshake whose early secret is known beforehand.
fn schedule(suite: Suite, transcript: &Digest) -> (Sealer, Opener) {
    let hash = suite.hash();
    let empty = Digest::zero(hash);
    let handshake = hkdf_extract(hash, ON, empty.as_slice(), transcript.as_slice());
    let handshake = Prk::new(hash, ON, handshake.as_slice());
    let client = handshake.derive_secret(b"c hs traffic", transcript);
    let server = handshake.derive_secret(b"s hs traffic", transcript);
    black_box(Sealer::tls13(suite, ON, client.as_slice()));
    black_box(Opener::tls13(suite, ON, server.as_slice()));
    black_box(finished_mac(hash, ON, server.as_slice(), transcript));
    black_box(finished_mac(hash, ON, client.as_slice(), transcript));
    let derived = handshake.derive_secret(b"derived", &empty);
    let master = hkdf_extract(hash, ON, derived.as_slice(), empty.as_slice());
    let master = Prk::new(hash, ON, master.as_slice());
    let client = master.derive_secret(b"c ap traffic", transcript);
    let server = master.derive_secret(b"s ap traffic", transcript);
    (Sealer::tls13(suite, ON, client.as_slice()), Opener::tls13(suite, ON, server.as_slice()))
}

/// The reason for taking HMAC and SHA-2 from elsewhere.
fn other_hmac() {
    use aws_lc_rs::hmac;
    for (name, algorithm, key) in
        [("SHA-256", hmac::HMAC_SHA256, &[7; 32][..]), ("SHA-384", hmac::HMAC_SHA384, &[7; 48])]
    {
        time(&format!("for comparison: aws-lc-rs HMAC {name}, fresh key"), || {
            hmac::sign(&hmac::Key::new(algorithm, black_box(key)), &[1; 60])
        });
    }
}

fn key_agreement(group: Group) {
    let own = KeyShare::generate(group, Effort::Honest, ON);
    let peer = server_share(group);
    let mut hello = Vec::new();
    time(&format!("{group} key generation"), || {
        hello.clear();
        KeyShare::generate(group, Effort::Honest, ON).put(&mut hello);
    });
    time(&format!("{group} agreement"), || own.agree(&peer).unwrap());
    time(&format!("{group} both at floor effort"), || {
        hello.clear();
        let share = KeyShare::generate(group, Effort::Floor, ON);
        share.put(&mut hello);
        share.agree(&peer).unwrap()
    });
}

/// A point and, for a hybrid, a ciphertext for nobody's key, which takes as long to reject as another to accept.
fn server_share(group: Group) -> Vec<u8> {
    let ciphertext = vec![0; group.server_share_bytes() - group.curve().server_share_bytes()];
    let mut point = Vec::new();
    KeyShare::generate(group.curve(), Effort::Honest, ON).put(&mut point);
    match group {
        Group::X25519MlKem768 => [ciphertext, point].concat(),
        _ => [point, ciphertext].concat(),
    }
}

fn records(suite: Suite) {
    let block = [7; 136];
    let secret = &block[..suite.hash().digest_bytes()];
    let key_block = &block[..suite.protection().key_block_bytes()];
    let tls13 = suite.version() == tlsdyno_tls::Version::Tls13;
    for (name, bytes) in [("64 B", 64), ("1 KiB", 1024), ("16 KiB", 16384)] {
        let plain = vec![1; bytes];
        let mut sealer = match tls13 {
            true => Sealer::tls13(suite, ON, secret),
            false => Sealer::tls12(suite, ON, key_block, Side::Client, false),
        };
        let mut out = Vec::new();
        time(&format!("{suite}: seal {name}"), || {
            out.clear();
            sealer.seal(23, &plain, &mut out);
        });
        // Opening moves the sequence number on, so each round opens records sealed for it.
        let mut opener = match tls13 {
            true => Opener::tls13(suite, ON, secret),
            false => Opener::tls12(suite, ON, key_block, Side::Client, false),
        };
        let mut sealer = match tls13 {
            true => Sealer::tls13(suite, ON, secret),
            false => Sealer::tls12(suite, ON, key_block, Side::Client, false),
        };
        time(&format!("{suite}: seal and open {name}"), || {
            out.clear();
            sealer.seal(23, &plain, &mut out);
            let (header, body) = out.split_first_chunk_mut().expect("a record");
            opener.open(*header, body).expect("a record of the sealer")
        });
    }
}

/// The reason for keeping a server's key ready.
fn verification() {
    use aws_lc_rs::signature::{self, EcdsaKeyPair, RsaKeyPair};
    let (message, random) = ([7; 130], SystemRandom::new());
    let certified = |algorithm| {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        (certificate.self_signed(&key).expect("a certificate").der().to_vec(), key.serialize_der())
    };
    let (ecdsa_certificate, der) = certified(&rcgen::PKCS_ECDSA_P256_SHA256);
    let key = EcdsaKeyPair::from_pkcs8(&signature::ECDSA_P256_SHA256_ASN1_SIGNING, &der).expect("the key");
    let ecdsa = key.sign(&random, &message).expect("a signature");
    let (rsa_certificate, der) = certified(&rcgen::PKCS_RSA_SHA256);
    let key = RsaKeyPair::from_pkcs8(&der).expect("the key");
    let mut rsa = vec![0; key.public_modulus_len()];
    key.sign(&signature::RSA_PSS_SHA256, &random, &message, &mut rsa).expect("a signature");
    for (name, certificate, scheme, signature) in [
        ("ECDSA P-256", &ecdsa_certificate, ECDSA_SHA256, ecdsa.as_ref()),
        ("RSA-2048 PSS", &rsa_certificate, PSS_SHA256, &rsa[..]),
    ] {
        let kept = Verifier::new(certificate, scheme, false).expect("a key");
        time(&format!("{name} verification, key kept"), || kept.verify(&message, signature).expect("its signature"));
        time(&format!("{name} verification, key read anew"), || {
            verify_signature(certificate, scheme, &message, signature, ON).expect("its signature");
        });
    }
}
