//! BoringSSL and AWS-LC, which are parts of programs as a rule: by the program's symbol table, whose names of C++ have
//! the namespace `bssl`.

use super::{Library, Rule, rule};
use crate::part::Part;

const FUNCTIONS: &[&str] = &["SSL_", "ssl_", "tls_", "_ZN4bssl", "_ZNK4bssl"];
/// What both have of libcrypto.
#[rustfmt::skip]
pub const BENEATH: &[&str] = &[
    "EVP_", "evp_", "RSA_", "rsa_", "BN_", "bn_", "bcm_", "BCM_", "EC_", "ec_", "ECDSA_", "ecdsa_", "ECDH_",
    "CRYPTO_", "OPENSSL_", "X509", "x509_", "ASN1_", "asn1_", "d2i_", "i2d_", "HMAC", "HKDF", "SHA", "sha256_",
    "sha512_", "RAND_", "aes_", "gcm_", "aead_", "ChaCha20", "x25519", "X25519", "ED25519", "fiat_", "p256_",
    "p384_", "curve25519_", "CBB_", "CBS_", "ERR_", "BIO_", "KEM_", "KYBER_", "MLKEM", "ml_kem", "mlkem", "PQDSA_",
    "rsaz_", "beeu_", "bignum_",
];

#[rustfmt::skip]
pub const BORINGSSL: Library = Library {
    id: "boringssl",
    name: "BoringSSL",
    files: &[],
    beneath_files: &[],
    assembler: &[],
    functions: FUNCTIONS,
    beneath_functions: BENEATH,
    rules: RULES,
};

#[rustfmt::skip]
pub const AWS_LC: Library = Library { id: "aws_lc", name: "AWS-LC", ..BORINGSSL };

/// Which of their functions do which part.
#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    rule(Part::Certificates, &["X509", "x509_", "d2i_X509", "i2d_X509", "*ssl_crypto_x509", "*ssl_cert_"]),
    rule(Part::Signature, &[
        "EVP_DigestSign", "EVP_DigestVerify", "EVP_PKEY_sign", "EVP_PKEY_verify", "EVP_PKEY_decrypt", "RSA_sign",
        "RSA_private_", "RSA_verify", "rsa_default_", "ECDSA_", "ecdsa_", "ED25519_", "*ssl_private_key_sign",
        "*ssl_private_key_decrypt", "*ssl_public_key_verify",
    ]),
    rule(Part::KeyAgreement, &[
        "X25519", "x25519", "ECDH_", "EC_POINT_mul", "EC_KEY_generate_key", "EVP_PKEY_derive", "EVP_PKEY_keygen",
        "EVP_PKEY_encapsulate", "EVP_PKEY_decapsulate", "MLKEM", "KYBER_", "ml_kem", "*KeyShare",
    ]),
    rule(Part::KeyDerivation, &[
        "HKDF_", "CRYPTO_tls1_prf", "CRYPTO_tls13_hkdf", "*tls1_prf", "*hkdf", "*derive_secret",
    ]),
    rule(Part::Sessions, &["SSL_SESSION_", "*ssl_session", "*ssl_process_ticket", "*ssl_encrypt_ticket"]),
    rule(Part::Encryption, &[
        "EVP_AEAD_", "EVP_Cipher", "EVP_Encrypt", "EVP_Decrypt", "*SSLAEADContext", "aead_",
    ]),
    rule(Part::Random, &["RAND_", "BCM_rand"]),
    rule(Part::Messages, &["EVP_Digest", "EVP_MD_CTX_", "HMAC", "SHA", "CBB_", "CBS_", "BIO_", "*SSLTranscript"]),
];
