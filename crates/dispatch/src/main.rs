//! `tlsdyno dispatch`, the dispatcher: a satellite of tlsdyno.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno_dispatch::program().main()
}
