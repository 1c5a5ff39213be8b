//! Developer tasks: `cargo run -p xtask -- TASK`.

mod openssl_series;

use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let done = match task.as_deref() {
        Some("openssl-series") => openssl_series::run(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- openssl-series");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
