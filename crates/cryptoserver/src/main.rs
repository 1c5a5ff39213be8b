//! `tlsdyno cryptoserver`, the service and its agent: a satellite of tlsdyno.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno_cryptoserver::program().main()
}
