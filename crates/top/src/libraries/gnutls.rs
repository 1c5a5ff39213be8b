//! GnuTLS on Nettle, Hogweed and GMP: by functions that these export. Its own cryptography in assembler has no names.

use super::{Library, rule};
use crate::part::Part;

#[rustfmt::skip]
pub const GNUTLS: Library = Library {
    id: "gnutls",
    name: "GnuTLS",
    files: &["libgnutls.so"],
    beneath_files: &["libnettle.so", "libhogweed.so", "libgmp.so", "libtasn1.so"],
    assembler: &["libgnutls.so", "libnettle.so", "libhogweed.so", "libgmp.so"],
    functions: &["gnutls_", "_gnutls_"],
    beneath_functions: &["nettle_", "_nettle_", "__gmp", "mpn_", "asn1_"],
    rules: &[
        rule(Part::Signature, &[
            "gnutls_privkey_sign", "gnutls_privkey_decrypt", "gnutls_pubkey_verify", "nettle_rsa_", "_nettle_rsa_",
            "nettle_ecdsa_sign", "nettle_ecdsa_verify", "nettle_ed25519_", "nettle_ed448_", "nettle_dsa_",
        ]),
        rule(Part::KeyAgreement, &[
            "nettle_ecdsa_generate_keypair", "nettle_ecc_point_mul", "nettle_ecc_scalar", "nettle_curve25519_",
            "nettle_curve448_", "gnutls_dh_",
        ]),
        rule(Part::KeyDerivation, &["gnutls_hkdf_", "gnutls_prf", "nettle_hkdf_", "nettle_hmac_", "gnutls_hmac"]),
        rule(Part::Certificates, &["gnutls_x509_", "gnutls_pcert_", "asn1_"]),
        rule(Part::Sessions, &["gnutls_db_", "gnutls_session_"]),
        rule(Part::Encryption, &[
            "gnutls_aead_cipher_", "gnutls_cipher_", "nettle_gcm_", "nettle_aes", "nettle_chacha", "nettle_cbc_",
        ]),
        rule(Part::Random, &["gnutls_rnd"]),
        rule(Part::Messages, &["gnutls_hash", "nettle_sha", "_nettle_sha"]),
    ],
};
