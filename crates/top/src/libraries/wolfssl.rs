//! wolfSSL: by functions that it exports (wolfssl/wolfcrypt/*.h of 5.x).

use super::{Library, rule};
use crate::part::Part;

#[rustfmt::skip]
pub const WOLFSSL: Library = Library {
    id: "wolfssl",
    name: "wolfSSL",
    files: &["libwolfssl.so"],
    beneath_files: &[],
    assembler: &["libwolfssl.so"],
    functions: &["wolfSSL_", "wolfTLS"],
    beneath_functions: &["wc_", "sp_", "fp_", "fe_", "ge_"],
    rules: &[
        rule(Part::Signature, &[
            "wc_RsaSSL_", "wc_RsaPSS_", "wc_RsaPrivate", "wc_ecc_sign", "wc_ecc_verify", "wc_ed25519_", "wc_ed448_",
        ]),
        rule(Part::KeyAgreement, &[
            "wc_ecc_shared", "wc_ecc_make_key", "wc_curve25519_", "wc_curve448_", "wc_Dh", "wc_MlKem",
            "wc_KyberKey_",
        ]),
        rule(Part::KeyDerivation, &["wc_PRF", "wc_HKDF", "wc_Tls13_HKDF"]),
        rule(Part::Certificates, &["wc_ParseCert", "wc_Asn", "wolfSSL_X509", "wolfSSL_CertManager"]),
        rule(Part::Sessions, &["wolfSSL_SESSION_", "wolfSSL_CTX_add_session", "wolfSSL_i2d_SSL_SESSION"]),
        rule(Part::Encryption, &["wc_Aes", "wc_ChaCha", "wc_XChaCha"]),
        rule(Part::Random, &["wc_RNG_"]),
        rule(Part::Messages, &["wc_Sha", "wc_Hash", "wc_Hmac"]),
    ],
};
