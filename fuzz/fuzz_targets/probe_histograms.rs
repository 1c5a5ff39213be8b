#![no_main]

#[path = "../../dyno/src/probe/buckets.rs"]
mod buckets;
#[path = "../src/probe/histograms.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::histograms(bytes));
