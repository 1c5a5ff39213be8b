#![no_main]

#[path = "../../crates/base/src/pages/query.rs"]
mod query;
#[path = "../src/probe/request.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::request(bytes));
