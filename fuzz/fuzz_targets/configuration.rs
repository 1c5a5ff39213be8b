#![no_main]

#[path = "../src/configuration.rs"]
mod run;

use tlsdyno_record::model::ServerName;
use tlsdyno_servers::installed::rewritten;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::configuration(bytes));
