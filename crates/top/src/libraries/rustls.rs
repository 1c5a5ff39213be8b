//! rustls on aws-lc-rs or ring: by mangled names of the program's symbol table (`6rustls` is the crate, in the old
//! mangling and in v0), and by names of C, whose versions stand before them: `aws_lc_0_38_0_EVP_DigestSign`.

use super::boringssl::BENEATH;
use super::{Library, rule};
use crate::part::Part;

#[rustfmt::skip]
pub const RUSTLS: Library = Library {
    id: "rustls",
    name: "rustls",
    files: &[],
    beneath_files: &[],
    assembler: &[],
    functions: &["*6rustls", "*$LT$rustls..", "*$u20$rustls.."],
    beneath_functions: RUST_AND_C,
    rules: &[
        rule(Part::Certificates, &["*6webpki", "*19rustls_pki_types"]),
        // The last stand where the stack of a modular exponentiation is longer than what is sampled of it.
        rule(Part::Signature, &[
            "*10aws_lc_rs3rsa", "*10aws_lc_rs9signature", "*10aws_lc_rs2ec", "*4ring3rsa", "*4ring2ec5suite_b5ecdsa",
            "*4ring2ec10curve255197ed25519", "EVP_DigestSign", "EVP_PKEY_sign", "RSA_", "rsa_", "ECDSA_", "ED25519_",
            "bn_sqr", "bn_mul", "bn_power", "*Signer$GT$4sign", "*6Signer4sign",
        ]),
        rule(Part::KeyAgreement, &[
            "*10aws_lc_rs9agreement", "*10aws_lc_rs3kem", "*4ring9agreement", "*4ring2ec10curve255196x25519",
            "X25519", "x25519", "ECDH_", "EVP_PKEY_derive", "EVP_PKEY_keygen", "EVP_PKEY_encapsulate",
            "EVP_PKEY_decapsulate", "ml_kem", "*KxGroup$GT$", "*KeyExchange$GT$",
        ]),
        rule(Part::KeyDerivation, &[
            "*10aws_lc_rs4hkdf", "*10aws_lc_rs7tls_prf", "*4ring4hkdf", "HKDF_", "*12key_schedule",
        ]),
        rule(Part::Encryption, &[
            "*10aws_lc_rs4aead", "*4ring4aead", "EVP_AEAD_", "aead_", "aes_", "*12record_layer",
        ]),
        rule(Part::Sessions, &["*5handy", "*8ticketer", "*7persist"]),
        rule(Part::Random, &["*10aws_lc_rs4rand", "*4ring4rand", "RAND_"]),
        rule(Part::Messages, &[
            "*10aws_lc_rs6digest", "*10aws_lc_rs4hmac", "*4ring6digest", "*4ring4hmac", "EVP_Digest", "SHA", "HMAC",
        ]),
    ],
};

/// Where functions of Rust below rustls are, and those of C below them.
const RUST: [&str; 5] = ["*10aws_lc_rs", "*4ring", "ring_core_", "*6webpki", "*19rustls_pki_types"];
const RUST_AND_C: &[&str] = &{
    let mut all = [""; RUST.len() + BENEATH.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < RUST.len() { RUST[at] } else { BENEATH[at - RUST.len()] };
        at += 1;
    }
    all
};
