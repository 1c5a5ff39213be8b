#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tlsdyno_fuzz::answer_receive(data));
