//! The C of batched RSA under sanitizers; `crates/cryptoserver/src/batch.rs` has the properties.

use std::process::Command;

use crate::build;

#[test]
fn every_subset_of_keys_decrypts() {
    build::run(&mut Command::new(build::test_program("clang", "batch_rsa", build::SANITIZERS)));
}
