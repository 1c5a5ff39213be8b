#![no_main]

#[path = "../../cryptoserver/src/form.rs"]
mod form;
#[path = "../../cryptoserver/src/frame.rs"]
mod frame;
#[allow(dead_code)]
#[path = "../src/cryptoserver/frames.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::frames(bytes));
