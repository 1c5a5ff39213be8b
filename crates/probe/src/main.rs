//! `tlsdyno probe`, the robot: a satellite of tlsdyno.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tlsdyno_base::program::Program;

fn main() -> ExitCode {
    Program::satellite("tlsdyno-probe", tlsdyno_probe::subcommands()).main()
}
