//! `tlsdyno top`, what TLS costs a server that runs: a satellite of tlsdyno.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno_top::program().main()
}
