//! The program that measures the primitives of a libcrypto and the records of a libssl: unpacked for one run, started
//! on the libraries of a server, and asked.
//!
//! It is compiled from `native/primitives` by the build script and embedded here. It is linked with no OpenSSL and
//! opens those that it is told, so that a server's own are measured. It runs in no server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::asked::{Asked, Program};

static PROGRAM: Program = Program {
    name: "program that measures primitives",
    file: "tlsdyno-primitives",
    image: include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-primitives")),
};

#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    pub libcrypto: &'a Path,
    pub libssl: &'a Path,
    /// Certificate and key for the handshakes before records, PEM.
    pub certificate: &'a Path,
    pub key: &'a Path,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    pub count: u64,
    /// CPU time of the process that made them, nanoseconds.
    pub cpu_ns: u64,
    pub elapsed_ns: u64,
}

/// The running program. It ends when this value is dropped.
#[derive(Debug)]
pub struct Meter {
    program: Asked,
    pub version: String,
}

impl Meter {
    /// Unpacks the program into `directory` and starts it on `cpu`.
    pub fn start(directory: &Path, opened: Opened, cpu: usize) -> Result<Meter> {
        let Opened { libcrypto, libssl, certificate, key } = opened;
        let started = Asked::start(&PROGRAM, directory, [libcrypto, libssl, certificate, key], cpu);
        let (program, version) = started.with_context(|| format!("{} cannot be measured", libcrypto.display()))?;
        Ok(Meter { program, version })
    }

    /// Measures for about so much CPU time. `kind` and `name` as `native/primitives/main.c` takes them.
    pub fn measure(&mut self, kind: &str, name: &str, bytes: u64, cpu_time: Duration) -> Result<Calls> {
        self.program.ask(&format!("{kind} {name} {bytes} {}", cpu_time.as_nanos()))?;
        let reply = self.program.line()?;
        let numbers: Option<Vec<u64>> = reply.split(' ').map(|text| text.parse().ok()).collect();
        let [count, cpu_ns, elapsed_ns] = numbers.unwrap_or_default()[..] else {
            bail!("{}", self.program.unknown(&reply));
        };
        Ok(Calls { count, cpu_ns, elapsed_ns })
    }
}
