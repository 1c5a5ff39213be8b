//! The record vectors of docs/NOOP.md, which the provider wrote: sealed the same, opened to the same, and refused when
//! changed.

use super::*;
use crate::crypto::vectors::{Vector, vectors};
use crate::suite::Version;

/// Opens `record`, and refuses it with its last byte changed.
fn opens(vector: &Vector, method: &dyn Fn() -> Method, sequence: u64, plain: &[u8]) {
    let record = vector.bytes("record");
    let header: [u8; HEADER] = record[..HEADER].try_into().unwrap();
    let open = |body: &mut Vec<u8>| {
        let mut opener = Opener(Half { method: method(), sequence });
        opener.open(header, body).map(|(content_type, place)| (content_type, body[place].to_vec()))
    };
    assert_eq!(open(&mut record[HEADER..].to_vec()), Ok((23, plain.to_vec())));
    let mut changed = record[HEADER..].to_vec();
    *changed.last_mut().unwrap() ^= 1;
    let refused = open(&mut changed);
    assert_eq!(refused, Err(CryptoError::BadRecordMac));
}

fn sequence(vector: &Vector) -> u64 {
    u64::from_be_bytes(vector.bytes("sequence").try_into().unwrap())
}

#[test]
fn aead_records() {
    for vector in vectors("native/vectors/aead.txt") {
        let tls13 = vector.text("version") == "1.3";
        let suite = match (vector.text("suite"), tls13) {
            ("AES-128-GCM", true) => Suite::Tls13Aes128Gcm,
            ("AES-256-GCM", true) => Suite::Tls13Aes256Gcm,
            ("ChaCha20-Poly1305", true) => Suite::Tls13ChaCha20,
            ("AES-128-GCM", false) => Suite::RsaAes128Gcm,
            ("AES-256-GCM", false) => Suite::RsaAes256Gcm,
            ("ChaCha20-Poly1305", false) => Suite::EcdheRsaChaCha20,
            other => panic!("unknown suite {other:?}"),
        };
        assert_eq!(suite.version() == Version::Tls13, tls13);
        let method = || {
            Method::Aead(if tls13 {
                Aead::tls13(suite, vector.off(), &vector.bytes("secret"))
            } else {
                let (key, iv) = (vector.bytes("key"), vector.bytes("iv"));
                Aead::tls12(suite.protection(), vector.off(), &Keys12 { mac: &[], key: &key, iv: &iv })
            })
        };
        let mut plain = vector.bytes("plaintext");
        if tls13 {
            assert_eq!(plain.pop(), Some(23));
        }
        opens(&vector, &method, sequence(&vector), &plain);
        // Our explicit nonce of TLS 1.2 GCM is the sequence number, the vectors' is zero.
        if tls13 || suite.protection() == Protection::ChaCha20Poly1305 {
            let mut record = Vec::new();
            Sealer(Half { method: method(), sequence: sequence(&vector) }).seal(23, &plain, &mut record);
            assert_eq!(record, vector.bytes("record"));
        }
    }
}

#[test]
fn cbc_records() {
    for vector in vectors("native/vectors/cbc.txt") {
        let suite: Suite = vector.text("suite").parse().unwrap();
        let encrypt_then_mac = match vector.text("encrypt_then_mac") {
            "yes" => true,
            "no" => false,
            other => panic!("encrypt_then_mac is {other}"),
        };
        let (key, mac) = (vector.bytes("key"), vector.bytes("mac_key"));
        let cbc =
            || Cbc::new(suite.protection(), vector.off(), &Keys12 { mac: &mac, key: &key, iv: &[] }, encrypt_then_mac);
        let plain = vector.bytes("plaintext");
        opens(&vector, &|| Method::Cbc(Box::new(cbc())), sequence(&vector), &plain);
        let expected = vector.bytes("record");
        let mut record = Vec::new();
        let iv = expected[HEADER..HEADER + 16].try_into().unwrap();
        cbc().seal_with_iv(iv, sequence(&vector), 23, &plain, &mut record);
        assert_eq!(record, expected);
    }
}
