//! Go's crypto/tls: by the program's symbol table, or the table of functions that Go's runtime has for itself.

use super::{Library, rule};
use crate::part::Part;

#[rustfmt::skip]
pub const GO: Library = Library {
    id: "go",
    name: "Go's crypto/tls",
    files: &[],
    beneath_files: &[],
    assembler: &[],
    functions: &["crypto/tls."],
    beneath_functions: &["crypto/", "vendor/golang.org/x/crypto/", "golang.org/x/crypto/", "math/big.", "hash."],
    rules: &[
        rule(Part::Certificates, &["crypto/x509."]),
        rule(Part::Signature, &[
            "crypto/rsa.", "crypto/ecdsa.", "crypto/ed25519.", "crypto/internal/fips140/rsa.",
            "crypto/internal/fips140/ecdsa.", "crypto/internal/fips140/ed25519.", "*).Sign",
        ]),
        rule(Part::KeyAgreement, &[
            "crypto/ecdh.", "crypto/mlkem.", "crypto/internal/mlkem", "crypto/internal/fips140/ecdh.",
            "crypto/internal/fips140/mlkem.",
        ]),
        rule(Part::KeyDerivation, &[
            "crypto/hkdf.", "crypto/tls.prf", "crypto/internal/hkdf", "crypto/internal/fips140/hkdf.",
            "crypto/internal/fips140/tls1", "golang.org/x/crypto/hkdf.", "vendor/golang.org/x/crypto/hkdf.",
        ]),
        rule(Part::Sessions, &[
            "crypto/tls.(*Config).encryptTicket", "crypto/tls.(*Config).decryptTicket", "crypto/tls.(*SessionState)",
            "crypto/tls.ParseSessionState", "crypto/tls.(*Conn).sessionState",
        ]),
        rule(Part::Encryption, &[
            "crypto/tls.(*halfConn).encrypt", "crypto/tls.(*halfConn).decrypt", "crypto/cipher.", "crypto/aes.",
            "crypto/internal/fips140/aes", "vendor/golang.org/x/crypto/chacha20poly1305.",
        ]),
        rule(Part::Random, &["crypto/rand.", "crypto/internal/sysrand.", "crypto/internal/fips140/drbg."]),
        rule(Part::Messages, &[
            "crypto/sha", "crypto/hmac.", "crypto/internal/fips140/sha", "crypto/internal/fips140/hmac.",
        ]),
    ],
};
