//! `tlsdyno scoreboard`, and what else only papers need: a satellite of tlsdyno.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno_lab::program().main()
}
