//! `tlsdyno cryptoserver`, the service and its agent: a satellite of tlsdyno.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tlsdyno_base::program::Program;

fn main() -> ExitCode {
    Program::satellite("tlsdyno-cryptoserver", tlsdyno_cryptoserver::subcommands()).main()
}
