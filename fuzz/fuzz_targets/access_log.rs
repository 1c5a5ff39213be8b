#![no_main]

#[allow(dead_code)]
#[path = "../../dyno/src/trace/access_log.rs"]
mod access_log;
#[path = "../src/trace/access_log.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|line: &[u8]| run::access_log_line(line));
