#![no_main]

#[path = "../../probe/src/buckets.rs"]
mod buckets;
#[path = "../src/probe/histograms.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::histograms(bytes));
