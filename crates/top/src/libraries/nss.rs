//! NSS: libssl3 calls cryptography by functions that libnss3 exports; that of libfreebl has no names.

use super::{Library, rule};
use crate::part::Part;

#[rustfmt::skip]
pub const NSS: Library = Library {
    id: "nss",
    name: "NSS",
    files: &["libssl3.so"],
    beneath_files: &["libnss3.so", "libsoftokn3.so", "libfreebl", "libnssutil3.so"],
    assembler: &["libfreebl"],
    functions: &["SSL_", "ssl3_", "tls13_"],
    beneath_functions: &["PK11_", "NSC_", "CERT_", "SECKEY_", "NSS_"],
    rules: &[
        rule(Part::Certificates, &["CERT_", "SEC_QuickDER", "SECKEY_Extract"]),
        rule(Part::Signature, &[
            "PK11_Sign", "PK11_Verify", "PK11_PrivDecrypt", "PK11_PubUnwrap", "SGN_", "NSC_Sign",
        ]),
        rule(Part::KeyAgreement, &[
            "PK11_PubDerive", "PK11_GenerateKeyPair", "PK11_Encapsulate", "PK11_Decapsulate",
        ]),
        rule(Part::KeyDerivation, &["PK11_Derive", "PK11_ExtractKeyValue"]),
        rule(Part::Encryption, &["PK11_Encrypt", "PK11_Decrypt", "PK11_AEAD", "PK11_CipherOp"]),
        rule(Part::Random, &["PK11_GenerateRandom"]),
        rule(Part::Messages, &["PK11_Digest", "PK11_HashBuf", "PK11_CloneContext"]),
    ],
};
