#![no_main]

#[allow(dead_code)]
#[path = "../../crates/workloads/src/har/document.rs"]
mod document;
#[path = "../src/trace/har.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::har(bytes));
