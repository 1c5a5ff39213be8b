use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Padding;
use openssl::sign::{RsaPssSaltlen, Signer};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::*;

const ON: StageSet = StageSet::NONE;
const NOW: u64 = 1_800_000_000;

/// Ed25519 by OpenSSL: its series 3.0 does not read what rcgen writes (RFC 5958, version 2).
fn key(algorithm: &'static rcgen::SignatureAlgorithm) -> KeyPair {
    if algorithm != &rcgen::PKCS_ED25519 {
        return KeyPair::generate_for(algorithm).unwrap();
    }
    let pkcs8 = PKey::generate_ed25519().unwrap().private_key_to_pkcs8().unwrap();
    KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.into(), algorithm).unwrap()
}

fn self_signed(key: &KeyPair) -> Vec<u8> {
    let params = CertificateParams::new(vec!["server.example".to_owned()]).unwrap();
    params.self_signed(key).unwrap().der().to_vec()
}

/// A signature by another library than the one that verifies, where that has the algorithm.
fn foreign_signature(key: &KeyPair, scheme: u16, message: &[u8]) -> Vec<u8> {
    if scheme >> 8 == 0x09 {
        return rcgen::SigningKey::sign(key, message).unwrap();
    }
    openssl_signature(&PKey::private_key_from_der(key.serialized_der()).unwrap(), scheme, message)
}

fn openssl_signature(key: &PKey<Private>, scheme: u16, message: &[u8]) -> Vec<u8> {
    let digest = match scheme {
        PKCS1_SHA256 | ECDSA_SHA256 | PSS_SHA256 => MessageDigest::sha256(),
        PKCS1_SHA384 | ECDSA_SHA384 | PSS_SHA384 => MessageDigest::sha384(),
        _ => MessageDigest::sha512(),
    };
    if scheme == ED25519 {
        return Signer::new_without_digest(key).unwrap().sign_oneshot_to_vec(message).unwrap();
    }
    let mut signer = Signer::new(digest, key).unwrap();
    if matches!(scheme, PSS_SHA256 | PSS_SHA384 | PSS_SHA512) {
        signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
        signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
    }
    signer.sign_oneshot_to_vec(message).unwrap()
}

#[test]
fn a_kept_key_is_of_one_certificate_and_scheme_and_still_refuses() {
    let [(pair, der), (_, other)] = [(); 2].map(|()| key(&rcgen::PKCS_ECDSA_P256_SHA256)).map(|key| {
        let der = self_signed(&key);
        (key, der)
    });
    let private = PKey::private_key_from_der(pair.serialized_der()).unwrap();
    let signature = openssl_signature(&private, ECDSA_SHA256, b"message");
    let verifier = Verifier::new(&der, ECDSA_SHA256, false).unwrap();
    assert!(verifier.is_of(&der, ECDSA_SHA256) && verifier.kind() == KeyKind::P256);
    assert!(!verifier.is_of(&other, ECDSA_SHA256) && !verifier.is_of(&der, ECDSA_SHA384));
    for _ in 0..2 {
        assert_eq!(verifier.verify(b"message", &signature), Ok(()));
        assert_eq!(verifier.verify(b"another", &signature), Err(CryptoError::BadSignature));
    }
    assert_eq!(
        Verifier::new(&other, ECDSA_SHA256, false).unwrap().verify(b"message", &signature),
        Err(CryptoError::BadSignature)
    );
}

#[test]
fn signatures_of_openssl_verify_and_changed_ones_do_not() {
    let rsa = [PKCS1_SHA256, PKCS1_SHA384, PKCS1_SHA512, PSS_SHA256, PSS_SHA384, PSS_SHA512];
    let ecdsa = [ECDSA_SHA256, ECDSA_SHA384];
    let cases = [
        (&rcgen::PKCS_RSA_SHA256, &rsa[..], KeyKind::Rsa { modulus_bytes: 256 }, 256),
        (&rcgen::PKCS_ECDSA_P256_SHA256, &ecdsa, KeyKind::P256, 72),
        (&rcgen::PKCS_ECDSA_P384_SHA384, &ecdsa, KeyKind::P384, 104),
        (&rcgen::PKCS_ECDSA_P521_SHA512, &[ECDSA_SHA256, ECDSA_SHA384, ECDSA_SHA512], KeyKind::P521, 139),
        (&rcgen::PKCS_ED25519, &[ED25519], KeyKind::Ed25519, 64),
        (&rcgen::PKCS_ML_DSA_44, &[ML_DSA_44], KeyKind::MlDsa44, 2420),
        (&rcgen::PKCS_ML_DSA_65, &[ML_DSA_65], KeyKind::MlDsa65, 3309),
        (&rcgen::PKCS_ML_DSA_87, &[ML_DSA_87], KeyKind::MlDsa87, 4627),
    ];
    for (algorithm, schemes, kind, noop_bytes) in cases {
        let key = key(algorithm);
        let certificate = self_signed(&key);
        assert_eq!(public_key(&certificate).unwrap().kind, kind);
        for scheme in SIGNATURE_SCHEMES {
            let verify = |message, signature: &[u8]| verify_signature(&certificate, scheme, message, signature, ON);
            if !schemes.contains(&scheme) {
                assert_eq!(verify(b"message", &[0; 72]), Err(CryptoError::UnsupportedScheme(scheme)));
                continue;
            }
            let signature = foreign_signature(&key, scheme, b"message");
            assert_eq!(verify(b"message", &signature), Ok(()), "{scheme:#x}");
            assert_eq!(verify(b"another", &signature), Err(CryptoError::BadSignature));
            let mut changed = signature.clone();
            changed[40] ^= 1;
            assert_eq!(verify(b"message", &changed), Err(CryptoError::BadSignature));

            let off = ON.with(Stage::Authentication);
            let verify = |signature: &[u8]| verify_signature(&certificate, scheme, b"message", signature, off);
            assert_eq!(verify(&vec![SIGNATURE_FILL; noop_bytes]), Ok(()));
            assert_eq!(verify(&vec![SIGNATURE_FILL; noop_bytes - 1]), Err(CryptoError::BadSignature));
            assert_eq!(verify(&signature), Err(CryptoError::BadSignature));
        }
        let tls13: Vec<u16> =
            SIGNATURE_SCHEMES.into_iter().filter(|&scheme| scheme_allowed_in_13(scheme, kind)).collect();
        let expected: &[u16] = match kind {
            KeyKind::P256 => &[ECDSA_SHA256],
            KeyKind::P384 => &[ECDSA_SHA384],
            KeyKind::P521 => &[ECDSA_SHA512],
            KeyKind::Ed25519 | KeyKind::MlDsa44 | KeyKind::MlDsa65 | KeyKind::MlDsa87 => schemes,
            _ => &[PSS_SHA256, PSS_SHA384, PSS_SHA512],
        };
        assert_eq!(tls13, expected);
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
}

fn authority(name: &str, parent: Option<&Authority>) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = key(&rcgen::PKCS_ECDSA_P256_SHA256);
    let der = match parent {
        Some(parent) => params.signed_by(&key, &parent.issuer).unwrap().der().to_vec(),
        None => params.self_signed(&key).unwrap().der().to_vec(),
    };
    Authority { issuer: Issuer::new(params, key), der }
}

fn server_certificate(authority: &Authority, names: &[&str], until_year: i32) -> Vec<u8> {
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until_year, 1, 1);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let key = key(&rcgen::PKCS_ECDSA_P256_SHA256);
    params.signed_by(&key, &authority.issuer).unwrap().der().to_vec()
}

fn mismatch(asked: &str) -> CryptoError {
    CryptoError::NameMismatch { asked: asked.to_owned(), presented: vec!["server.example".to_owned()] }
}

#[test]
fn chains_are_verified_up_to_a_trusted_authority() {
    let root = authority("root", None);
    let intermediate = authority("intermediate", Some(&root));
    let server = server_certificate(&intermediate, &["server.example", "192.0.2.7"], 2040);
    let trust = Trust::new(std::slice::from_ref(&root.der)).unwrap();
    let chain = [&server[..], &intermediate.der];
    assert_eq!(trust.verify(&chain, "server.example", NOW), Ok(()));
    assert_eq!(trust.verify(&chain, "192.0.2.7", NOW), Ok(()));
    for wrong in ["other.example", "192.0.2.8", "not a name"] {
        assert_eq!(trust.verify(&chain, wrong, NOW), Err(mismatch(wrong)));
    }
    assert_eq!(trust.verify(&chain[..1], "server.example", NOW), Err(CryptoError::UnknownIssuer));
    let stranger = Trust::new(&[authority("stranger", None).der]).unwrap();
    assert_eq!(stranger.verify(&chain, "server.example", NOW), Err(CryptoError::UnknownIssuer));
    assert_eq!(Trust::new(&[]).unwrap().verify(&chain, "server.example", NOW), Err(CryptoError::UnknownIssuer));
    assert!(matches!(trust.verify(&[], "server.example", NOW), Err(CryptoError::MalformedCertificate(_))));
    assert!(matches!(trust.verify(&[b"junk"], "server.example", NOW), Err(CryptoError::BadCertificate(_))));
    assert!(Trust::new(&[b"junk".to_vec()]).is_err());

    let expired = server_certificate(&intermediate, &["server.example"], 2021);
    let fault = trust.verify(&[&expired, &intermediate.der], "server.example", NOW);
    assert!(matches!(fault, Err(CryptoError::CertificateExpired(_))), "{fault:?}");
    let fault = trust.verify(&chain, "server.example", 1_000_000_000);
    assert!(matches!(fault, Err(CryptoError::CertificateExpired(_))), "{fault:?}");
}

/// What `openssl req -x509` makes: a self-signed certificate that says it is an authority, given as CA file.
#[test]
fn a_trusted_certificate_may_be_the_servers_own() {
    let mut params = CertificateParams::new(vec!["server.example".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    let der = params.self_signed(&key(&rcgen::PKCS_ECDSA_P256_SHA256)).unwrap().der().to_vec();
    let trust = Trust::new(std::slice::from_ref(&der)).unwrap();
    assert_eq!(trust.verify(&[&der], "server.example", NOW), Ok(()));
    assert_eq!(trust.verify(&[&der], "other.example", NOW), Err(mismatch("other.example")));
    for stranger in [Trust::new(&[]).unwrap(), Trust::new(&[authority("stranger", None).der]).unwrap()] {
        assert_eq!(stranger.verify(&[&der], "server.example", NOW), Err(CryptoError::SelfSigned));
    }
    for outside in [1_577_836_799, 1_893_456_001] {
        let fault = trust.verify(&[&der], "server.example", outside);
        assert!(matches!(fault, Err(CryptoError::CertificateExpired(_))), "{outside} {fault:?}");
    }
    for inside in [1_577_836_800, 1_893_456_000] {
        assert_eq!(trust.verify(&[&der], "server.example", inside), Ok(()));
    }
}
