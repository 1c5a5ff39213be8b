#![no_main]

#[path = "../src/packets.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|data: &[u8]| run::packets(data));
