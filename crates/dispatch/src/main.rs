//! `tlsdyno dispatch`, the dispatcher: a satellite of tlsdyno.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tlsdyno_base::program::Program;

fn main() -> ExitCode {
    Program::satellite("tlsdyno-dispatch", tlsdyno_dispatch::subcommands()).main()
}
