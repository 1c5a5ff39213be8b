use aws_lc_rs::kem::EncapsulationKey;
use openssl::pkey::PKey;
use openssl::rsa::{Padding, Rsa};

use super::*;

const ON: StageSet = StageSet::NONE;

/// An honest server's share and secret for the client's share.
fn answer(group: Group, client: &KeyShare) -> (Vec<u8>, Vec<u8>) {
    let share = put(client);
    assert_eq!(share.len(), group.client_share_bytes());
    let own = KeyShare::generate(group.curve(), Effort::Honest, ON);
    let Some(kem) = group.kem() else {
        return (put(&own), own.agree(&share).unwrap().as_slice().to_vec());
    };
    let (key, point) = match group.has_kem_first() {
        true => share.split_at(kem.encapsulation_key_bytes()),
        false => {
            let (point, key) = share.split_at(group.point_bytes());
            (key, point)
        }
    };
    let on_curve = own.agree(point).unwrap();
    let (ciphertext, shared) = EncapsulationKey::new(kem.algorithm(), key).unwrap().encapsulate().unwrap();
    let mut both = [[ciphertext.as_ref(), shared.as_ref()], [&put(&own), on_curve.as_slice()]];
    if !group.has_kem_first() {
        both.reverse();
    }
    let [share, secret] = [0, 1].map(|index| [both[0][index], both[1][index]].concat());
    (share, secret)
}

fn put(share: &KeyShare) -> Vec<u8> {
    let mut out = Vec::new();
    share.put(&mut out);
    out
}

#[test]
fn two_honest_ends_agree_and_bad_shares_are_refused() {
    for group in Group::ALL {
        let [client, other] = [Effort::Honest, Effort::Lean].map(|effort| KeyShare::generate(group, effort, ON));
        assert_ne!(put(&client), put(&other));
        let (server, secret) = answer(group, &client);
        assert_eq!(client.agree(&server).unwrap().as_slice(), secret);
        assert_eq!((secret.len(), server.len()), (group.secret_bytes(), group.server_share_bytes()));

        let refuses = |share: &[u8], fault| assert_eq!(client.agree(share).err(), Some(fault));
        let expected = group.server_share_bytes();
        for share in [&server[1..], &[], &[&server[..], &[0]].concat()] {
            refuses(share, CryptoError::KeyShareLength { group, length: share.len(), expected });
        }
        let refused = CryptoError::BadKeyShare(group);
        refuses(&vec![0; expected], refused.clone());
        if group.curve() != Group::X25519 {
            let mut off_curve = server.clone();
            off_curve[group.point_bytes() - 1] ^= 1;
            refuses(&off_curve, refused);
        }
        if group == Group::P256 {
            let compressed = [&[2], &server[1..=32]].concat();
            refuses(&compressed, CryptoError::KeyShareLength { group, length: 33, expected });
        }
    }
}

/// FIPS 203, implicit rejection: no error, but not the server's secret.
#[test]
fn another_ciphertext_gives_another_secret() {
    for group in Group::ALL.into_iter().filter(|group| group.is_hybrid()) {
        let client = KeyShare::generate(group, Effort::Lean, ON);
        let (mut server, secret) = answer(group, &client);
        server[if group.has_kem_first() { 0 } else { group.point_bytes() }] ^= 1;
        let other = client.agree(&server).unwrap();
        let matching = other.as_slice().iter().zip(&secret).filter(|(one, other)| one == other).count();
        assert!(other.as_slice().len() == secret.len() && matching < secret.len() - 16, "{group}");
    }
}

/// Both shares of a browser's hello come from one key pair on the curve.
#[test]
fn the_curve_of_a_hybrid_is_a_share_of_its_own() {
    for group in Group::ALL {
        for (effort, off) in [(Effort::Lean, ON), (Effort::Floor, ON), (Effort::Lean, ON.with(Stage::KeyAgreement))] {
            let both = KeyShare::generate(group, effort, off);
            let alone = both.of_curve();
            assert_eq!(alone.group(), group.curve());
            assert!(put(&both).windows(group.point_bytes()).any(|window| window == put(&alone)));
            let (server, secret) = answer(group.curve(), &alone);
            let constant = vec![SECRET_FILL; secret.len()];
            let expected = if off.is_empty() { secret } else { constant };
            assert_eq!(alone.agree(&server).unwrap().as_slice(), expected);
        }
    }
}

/// At floor effort the honest server's secret is its own point, that is what "scalar 1" means, and a message that
/// is sent in plain.
#[test]
fn the_share_without_secret_is_a_share() {
    for group in Group::ALL {
        let floor = KeyShare::generate(group, Effort::Floor, ON);
        let (server, secret) = answer(group, &floor);
        assert_eq!(floor.agree(&server).unwrap().as_slice(), secret, "{group}");
        let fault = floor.agree(&server[1..]).err();
        assert!(matches!(fault, Some(CryptoError::KeyShareLength { .. })), "{fault:?}");
    }
}

#[test]
fn stage_off_sends_the_share_without_secret_and_gives_the_constant() {
    for group in Group::ALL {
        let floor = KeyShare::generate(group, Effort::Floor, ON);
        let (server, _) = answer(group, &floor);
        for effort in [Effort::Honest, Effort::Floor] {
            let off = KeyShare::generate(group, effort, ON.with(Stage::KeyAgreement));
            assert_eq!(put(&off), put(&floor));
            let secret = off.agree(&server).unwrap();
            assert_eq!(secret.as_slice(), vec![SECRET_FILL; group.secret_bytes()]);
        }
    }
}

#[test]
fn openssl_decrypts_the_premaster_secret() {
    let premaster = std::array::from_fn(|index| index as u8);
    let rsa = Rsa::generate(2048).unwrap();
    let spki = PKey::from_rsa(rsa.clone()).unwrap().public_key_to_der().unwrap();
    let encrypted = rsa_encrypt_premaster(&spki, &premaster, ON, false).unwrap();
    let mut decrypted = vec![0; 256];
    let length = rsa.private_decrypt(&encrypted, &mut decrypted, Padding::PKCS1).unwrap();
    assert_eq!(decrypted[..length], premaster);

    let noop = rsa_encrypt_premaster(&spki, &premaster, ON.with(Stage::Authentication), false).unwrap();
    assert_eq!(noop.len(), 256);
    assert_eq!((&noop[..2], &noop[2..50], &noop[50..]), (&[0, 48][..], &premaster[..], &[0; 206][..]));
}

/// Whatever a server's certificate says: there is an error and no message that could not be built.
#[test]
fn oversized_moduli_are_refused_with_the_stage_on_and_off() {
    use openssl::bn::BigNum;
    for (bits, fits) in [(8192, true), (8200, false), (8 * 65536, false)] {
        let mut modulus = BigNum::new().unwrap();
        modulus.set_bit(bits - 1).unwrap();
        modulus.set_bit(0).unwrap();
        let rsa = Rsa::from_public_components(modulus, BigNum::from_u32(65537).unwrap()).unwrap();
        let spki = PKey::from_rsa(rsa).unwrap().public_key_to_der().unwrap();
        let off = rsa_encrypt_premaster(&spki, &[1; 48], ON.with(Stage::Authentication), false);
        assert_eq!(off.is_ok(), fits, "{bits} bits: {off:?}");
        if !fits {
            let on = rsa_encrypt_premaster(&spki, &[1; 48], ON, false);
            assert!(matches!(on, Err(CryptoError::UnsuitableKey(_))), "{bits} bits: {on:?}");
        }
    }
}

#[test]
fn only_an_rsa_key_encrypts() {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let fault =
        rsa_encrypt_premaster(&rcgen::PublicKeyData::subject_public_key_info(&key), &[0; 48], ON, false).unwrap_err();
    assert!(matches!(fault, CryptoError::UnsuitableKey(_)), "{fault}");
    assert!(matches!(
        rsa_encrypt_premaster(b"not DER", &[0; 48], ON, false),
        Err(CryptoError::MalformedCertificate(_))
    ));
}
