#![no_main]

#[path = "../../crates/cryptoserver/src/padding.rs"]
mod padding;
#[allow(dead_code)]
#[path = "../src/cryptoserver/premaster.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::premaster(bytes));
