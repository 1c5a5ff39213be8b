//! tlsdyno: a dynamometer for TLS web servers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tlsdyno::cmd::cli::main()
}
