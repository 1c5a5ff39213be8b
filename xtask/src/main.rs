//! Developer tasks: `cargo run -p xtask -- TASK`.

mod bench_client;
mod bench_dispatch;
mod bench_trace;
mod calibrate_series;
mod idle_connections;
mod instrument_instructions;
mod openssl_series;
mod proof;
mod reuse_matrix;
mod soak;
mod stage_matrix;
mod statistics;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("bench" | "bench-client") => bench_client::run(&arguments[1..]),
        Some("bench-dispatch") => bench_dispatch::run(&arguments[1..]),
        Some("bench-trace") => bench_trace::run(&arguments[1..]),
        Some("calibrate-series") => calibrate_series::run(&arguments[1..]),
        Some("idle-connections") => idle_connections::run(&arguments[1..]),
        Some("instrument-instructions") => instrument_instructions::run(&arguments[1..]),
        Some("openssl-series") => openssl_series::run(),
        Some("reuse-matrix") => reuse_matrix::run(&arguments[1..]),
        Some("soak") => soak::run(&arguments[1..]),
        Some("stage-matrix") => stage_matrix::run(&arguments[1..]),
        _ => {
            eprintln!(
                "usage: cargo run -p xtask -- bench-client [--rounds N] [--seconds N] [--operation NAME]... | bench-dispatch [--rounds N] | bench-trace [--rounds N] | \
                 calibrate-series [--runs N] | idle-connections [--connections N] [--per-second N] | instrument-instructions [--keep DIRECTORY] [SERVER...] | \
                 openssl-series | reuse-matrix [--connections N] [--server NAME] | soak [--minutes N | --seconds N] [--reload-seconds N] | stage-matrix [SERVER...]"
            );
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
