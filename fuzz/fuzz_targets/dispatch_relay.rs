#![no_main]

#[path = "../src/dispatch/mod.rs"]
#[allow(dead_code)]
mod dispatch;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dispatch::relay::dispatch_relay(data));
