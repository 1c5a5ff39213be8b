//! OpenSSL 1.1.1, 3 and 4, and LibreSSL's older names: their exported functions, for distributions strip all others.
//!
//! libssl calls `EVP_DigestSign` and its like, which leave the stack by a tail call into a provider; then the call in
//! libssl still names them. Functions further inside stand for calls that inlining hides.

use super::{Library, Rule, rule};
use crate::part::Part;

const LIBCRYPTO: &[&str] = &["libcrypto.so"];

#[rustfmt::skip]
pub const OPENSSL: Library = Library {
    id: "openssl",
    name: "OpenSSL",
    files: &["libssl.so"],
    beneath_files: LIBCRYPTO,
    assembler: LIBCRYPTO,
    functions: &["SSL_", "ssl_", "ssl3_", "tls_", "tls1_", "tls13_", "dtls1_", "ossl_statem", "state_machine"],
    beneath_functions: &[
        "EVP_", "evp_", "RSA_", "rsa_", "BN_", "bn_", "EC_", "ec_", "ECDSA_", "ecdsa_", "ECDH_", "ecdh_", "CRYPTO_",
        "OPENSSL_", "ossl_", "OSSL_", "X509_", "x509_", "ASN1_", "asn1_", "d2i_", "i2d_", "HMAC", "SHA", "RAND_",
        "aes_", "AES_", "gcm_", "ChaCha20", "x25519_", "ERR_", "BIO_", "PKCS", "kdf_", "prov_",
    ],
    rules: &[
        // The MAC of records with CBC is a signature with a MAC key (t1_enc.c of 1.1.1 and 3.0).
        Rule { part: Part::Encryption, functions: &["EVP_DigestSign"], within: &["HMAC", "EVP_MAC_"] },
        // HKDF and the PRF of 1.1.1 are derivations by a key without a curve.
        Rule {
            part: Part::KeyDerivation,
            functions: &["EVP_PKEY_derive"],
            within: &["HMAC", "EVP_DigestSign", "pkey_hkdf", "pkey_tls1_prf"],
        },
        rule(Part::Certificates, CERTIFICATES),
        rule(Part::Signature, SIGNATURE),
        rule(Part::KeyAgreement, KEY_AGREEMENT),
        rule(Part::KeyDerivation, &["EVP_KDF_", "HKDF", "tls1_PRF", "kdf_", "prov_tls13_", "tls13_hkdf_"]),
        rule(Part::Sessions, SESSIONS),
        rule(Part::Encryption, ENCRYPTION),
        rule(Part::Random, &["RAND_"]),
        rule(Part::Messages, &[
            "EVP_Digest", "EVP_MD_CTX_", "EVP_MAC_", "EVP_Q_mac", "HMAC", "SHA", "BIO_", "BUF_",
        ]),
    ],
};

/// The last stand where the stack of a modular exponentiation is longer than what is sampled of it.
#[rustfmt::skip]
const SIGNATURE: &[&str] = &[
    "EVP_DigestSign", "EVP_DigestVerify", "EVP_PKEY_sign", "EVP_PKEY_verify", "EVP_PKEY_decrypt", "EVP_SignFinal",
    "EVP_VerifyFinal", "RSA_sign", "RSA_private_", "RSA_padding_", "ECDSA_", "DSA_", "ossl_ecdsa_", "ossl_ed25519_",
    "BN_mod_exp_mont", "bn_sqr", "bn_mul", "bn_power", "rsaz_", "RSAZ_",
];
#[rustfmt::skip]
const KEY_AGREEMENT: &[&str] = &[
    "EVP_PKEY_derive", "EVP_PKEY_keygen", "EVP_PKEY_paramgen", "EVP_PKEY_generate", "EVP_PKEY_Q_keygen",
    "EVP_PKEY_encapsulate", "EVP_PKEY_decapsulate", "EVP_PKEY_set1_encoded_public_key",
    "EVP_PKEY_get1_encoded_public_key", "EVP_PKEY_set1_tls_encodedpoint", "EVP_PKEY_get1_tls_encodedpoint", "ECDH_",
    "EC_KEY_generate_key", "EC_POINT_mul", "DH_generate_key", "DH_compute_key", "X25519", "x25519_", "ossl_x25519",
];
const CERTIFICATES: &[&str] = &["X509", "d2i_X509", "i2d_X509", "OCSP_", "PEM_", "ASN1_"];
const SESSIONS: &[&str] =
    &["SSL_SESSION_", "i2d_SSL_SESSION", "d2i_SSL_SESSION", "SSL_CTX_add_session", "SSL_CTX_remove_session"];
const ENCRYPTION: &[&str] =
    &["EVP_Cipher", "EVP_CIPHER", "EVP_Encrypt", "EVP_Decrypt", "AES_", "CRYPTO_gcm128_", "ChaCha20"];
