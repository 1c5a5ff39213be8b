#![no_main]

#[path = "../src/serve.rs"]
#[allow(dead_code)]
mod serve;

libfuzzer_sys::fuzz_target!(|data: &[u8]| serve::http_request(data));
