#![no_main]

#[path = "../../crates/cryptoserver/src/form.rs"]
mod form;
#[path = "../../crates/cryptoserver/src/frame.rs"]
mod frame;
#[allow(dead_code)]
#[path = "../src/cryptoserver/frames.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::frames(bytes));
