//! `tlsdyno cluster`, `array` and `plan`: a satellite of tlsdyno.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno_sizes::program().main()
}
