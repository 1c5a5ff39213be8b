#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tlsdyno_fuzz::hpack_decode(data));
