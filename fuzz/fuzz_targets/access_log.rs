#![no_main]

#[allow(dead_code)]
#[path = "../../crates/workloads/src/access_log.rs"]
mod access_log;
#[allow(dead_code)]
#[path = "../../crates/workloads/src/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../crates/workloads/src/fields.rs"]
mod fields;
#[path = "../../crates/workloads/src/json_line.rs"]
mod json_line;
#[allow(dead_code)]
#[path = "../../crates/workloads/src/layout.rs"]
mod layout;
#[path = "../src/trace/access_log.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|line: &[u8]| run::access_log_line(line));
