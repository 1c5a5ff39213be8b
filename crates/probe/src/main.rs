//! `tlsdyno probe`, the robot: a satellite of tlsdyno.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno_probe::program().main()
}
