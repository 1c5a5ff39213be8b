//! tlsdyno: a dynamometer for TLS web servers.
#![forbid(unsafe_code)]

use rustix::fs::Mode;
use rustix::process::umask;

fn main() -> std::process::ExitCode {
    // Nobody else may change what tlsdyno writes, and root runs what some of it says.
    let others = Mode::WGRP | Mode::WOTH;
    umask(umask(others) | others);
    tlsdyno::exit::report(tlsdyno::cmd::cli::run()).into()
}
