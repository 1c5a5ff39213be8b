//! The test vectors of docs/NOOP.md, which the provider wrote: the same bytes must come out here.

use std::collections::BTreeMap;

use super::exchange::{KeyShare, rsa_encrypt_premaster};
use super::hash::digest;
use super::kdf::{finished_mac, hkdf_expand_label, hkdf_extract, prf12};
use super::verify::verify_signature;
use super::{CryptoError, hex};
use crate::noop::StageSet;
use crate::suite::{Effort, Group, Hash};

/// One block of a vector file: names and values.
pub(super) struct Vector(BTreeMap<String, String>);

impl Vector {
    pub fn text(&self, name: &str) -> &str {
        &self.0[name]
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        hex(self.text(name))
    }

    pub fn off(&self) -> StageSet {
        let names = self.text("off").split(',').filter(|name| *name != "none");
        names.map(|name| name.parse().unwrap()).collect()
    }
}

pub(super) fn vectors(file: &str) -> Vec<Vector> {
    let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let blocks = lines.split(|line| line.is_empty()).filter(|block| !block.is_empty());
    let vectors: Vec<Vector> = blocks
        .map(|block| {
            let fields = block.iter().map(|line| line.split_once('=').expect("name = value"));
            Vector(fields.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
        })
        .collect();
    assert!(!vectors.is_empty(), "{path} has no vectors");
    vectors
}

#[test]
fn digests() {
    for vector in vectors("native/vectors/digest.txt") {
        // The client never hashes with SHA-1; the contract's digests of one input are prefixes of each other.
        let hash = match vector.text("digest") {
            "SHA2-256" => Hash::Sha256,
            "SHA2-384" | "SHA1" => Hash::Sha384,
            other => panic!("unknown digest {other}"),
        };
        let expected = vector.bytes("output");
        let output = digest(hash, vector.off(), &vector.bytes("input"));
        assert_eq!(output.as_slice()[..expected.len()], expected);
        assert!(vector.text("digest") == "SHA1" || expected.len() == hash.digest_bytes());
    }
}

#[test]
fn derived_bytes() {
    for vector in vectors("native/vectors/kdf.txt") {
        let (off, expected) = (vector.off(), vector.bytes("output"));
        assert_eq!(vector.text("length").parse(), Ok(expected.len()));
        let mut output = vec![0; expected.len()];
        let transcript = digest(Hash::Sha384, StageSet::NONE, b"transcript");
        match vector.text("function") {
            "TLS1-PRF" => prf12(Hash::Sha256, off, b"secret", b"label", &[b"seed"], &mut output),
            "TLS13-KDF" | "HKDF" => {
                hkdf_expand_label(Hash::Sha256, off, b"secret", b"label", b"", &mut output);
                let hash = if expected.len() == 48 { Hash::Sha384 } else { Hash::Sha256 };
                let extracted = hkdf_extract(hash, off, b"salt", b"input");
                assert!(expected.len() == 42 || extracted.as_slice() == expected);
            }
            "HMAC SHA2-256" => output = finished_mac(Hash::Sha256, off, b"secret", &transcript).as_slice().to_vec(),
            "HMAC SHA2-384" => output = finished_mac(Hash::Sha384, off, b"secret", &transcript).as_slice().to_vec(),
            other => panic!("unknown function {other}"),
        }
        assert_eq!(output, expected);
    }
}

#[test]
fn shared_secrets() {
    for vector in vectors("native/vectors/exchange.txt") {
        let group: Group = vector.text("group").parse().unwrap();
        let share = KeyShare::generate(group, Effort::Lean, vector.off());
        let peer = KeyShare::generate(group, Effort::Lean, StageSet::NONE);
        let mut point = Vec::new();
        peer.put(&mut point);
        assert_eq!(share.agree(&point).unwrap().as_slice(), vector.bytes("secret"));
    }
}

/// The shares have other sizes at each end, and the server's is not read.
#[test]
fn shared_secrets_of_hybrids() {
    for vector in vectors("native/vectors/kem.txt") {
        let group: Group = vector.text("group").parse().unwrap();
        let share = KeyShare::generate(group, Effort::Lean, vector.off());
        assert_eq!(vector.text("share_size").parse(), Ok(group.server_share_bytes()));
        let server = vec![4; group.server_share_bytes()];
        assert_eq!(share.agree(&server).unwrap().as_slice(), vector.bytes("secret"));
    }
}

#[test]
fn signatures_and_the_static_rsa_block() {
    let certificate = |algorithm| {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let params = rcgen::CertificateParams::new(vec!["server.example".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    };
    let rsa = certificate(&rcgen::PKCS_RSA_SHA256);
    for vector in ["signature", "ml_dsa"].iter().flat_map(|file| vectors(&format!("native/vectors/{file}.txt"))) {
        let off = vector.off();
        if vector.text("key") == "RSA-2048" && vector.0.contains_key("premaster") {
            let spki = super::verify::public_key(&rsa).unwrap().spki_der;
            let premaster = vector.bytes("premaster").try_into().unwrap();
            assert_eq!(rsa_encrypt_premaster(spki, &premaster, off, false).unwrap(), vector.bytes("block"));
            continue;
        }
        let (certificate, scheme) = match (vector.text("key"), vector.text("padding")) {
            ("RSA-2048", "default") => (rsa.clone(), 0x0401),
            ("RSA-2048", "pss") => (rsa.clone(), 0x0804),
            ("P-256", _) => (certificate(&rcgen::PKCS_ECDSA_P256_SHA256), 0x0403),
            ("P-384", _) => (certificate(&rcgen::PKCS_ECDSA_P384_SHA384), 0x0503),
            ("Ed25519", _) => (certificate(&rcgen::PKCS_ED25519), 0x0807),
            ("ML-DSA-44", _) => (certificate(&rcgen::PKCS_ML_DSA_44), 0x0904),
            ("ML-DSA-65", _) => (certificate(&rcgen::PKCS_ML_DSA_65), 0x0905),
            ("ML-DSA-87", _) => (certificate(&rcgen::PKCS_ML_DSA_87), 0x0906),
            other => panic!("unknown key {other:?}"),
        };
        let signature = vector.bytes("signature");
        assert_eq!(verify_signature(&certificate, scheme, b"message", &signature, off), Ok(()));
        for wrong in [&signature[1..], &[&signature[..], &[0xa5]].concat()] {
            assert_eq!(verify_signature(&certificate, scheme, b"message", wrong, off), Err(CryptoError::BadSignature));
        }
    }
}
