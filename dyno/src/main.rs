//! tlsdyno: a dynamometer for TLS web servers.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno::exit::report(tlsdyno::cmd::cli::run()).into()
}
