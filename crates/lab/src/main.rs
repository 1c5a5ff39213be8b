//! `tlsdyno scoreboard` and `stacks`, and what else only papers and comparisons need: a satellite of tlsdyno.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tlsdyno_lab::program().main()
}
