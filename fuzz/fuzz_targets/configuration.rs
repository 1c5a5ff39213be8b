#![no_main]

#[path = "../src/configuration.rs"]
mod run;

use tlsdyno_installed::rewritten;
use tlsdyno_record::model::ServerName;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run::configuration(bytes));
