//! `openssl speed` on the library that is measured: the peer that its numbers are held against.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_base::affinity::on_cpu;
use tlsdyno_native::primitives::Calls;

use crate::primitives::file::{Algorithm, AlgorithmKind};

/// The installed program, with the server's library in place of its own.
#[derive(Debug)]
pub struct OpensslSpeed {
    directory: PathBuf,
    cpu: usize,
}

impl OpensslSpeed {
    /// What one measurement takes: it measures no less than a second.
    pub const TIME: Duration = Duration::from_millis(1_050);

    /// Finds out whether the installed program runs with this library, whose version is known.
    ///
    /// # Errors
    /// It is not installed, or has another library.
    pub fn of(libcrypto: &Path, version: &str, cpu: usize) -> Result<OpensslSpeed> {
        let directory = libcrypto.parent().context("a library is in a directory")?.to_owned();
        let speed = OpensslSpeed { directory, cpu };
        let output = speed.command().arg("version").output();
        let output = output.context("the program `openssl` does not start (Debian: apt install openssl)")?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let used = said.split_once("Library: ").map_or(said.as_str(), |(_, used)| used.trim_end_matches(')'));
        ensure!(used == version, "the program `openssl` runs with {used}, the server with {version}");
        Ok(speed)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("openssl");
        command.env("LD_LIBRARY_PATH", &self.directory).env_remove("OPENSSL_CONF");
        command
    }

    /// Lets it measure one primitive for a second.
    ///
    /// # Errors
    /// It fails, or says what is not understood.
    pub fn measure(&self, algorithm: Algorithm, bytes: u64) -> Result<Calls> {
        let (kind, name) = algorithm.in_openssl();
        let which = if kind == AlgorithmKind::Hmac { "-hmac" } else { "-evp" };
        let mut command = self.command();
        command.args(["speed", "-mr", "-seconds", "1", "-bytes", &bytes.to_string()]);
        if algorithm.is_legacy() {
            command.args(["-provider", "legacy", "-provider", "default"]);
        }
        command.args([which, name]);
        let started = Instant::now();
        let output = on_cpu(self.cpu, || command.output().context("start `openssl speed`"))?;
        let elapsed_ns = started.elapsed().as_nanos() as u64;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let Some((count, cpu_ns)) = result(&said) else {
            bail!("`openssl speed {which} {name}` said: {}", said.trim())
        };
        Ok(Calls { count, cpu_ns, elapsed_ns })
    }
}

/// Calls and CPU time of `+R:637924:AES-128-GCM:0.900000`.
fn result(said: &str) -> Option<(u64, u64)> {
    let line = said.lines().find_map(|line| line.strip_prefix("+R:"))?;
    let (count, rest) = line.split_once(':')?;
    let seconds: f64 = rest.rsplit_once(':')?.1.parse().ok()?;
    (seconds > 0.0).then_some((count.parse().ok()?, (seconds * 1e9) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let said = "+DT:AES-128-GCM:1:4096\n+R:637924:AES-128-GCM:0.900000\n+H:4096\n";
        assert_eq!(result(said), Some((637_924, 900_000_000)));
        assert_eq!(result("+R:366645:hmac(sha256):0.920000"), Some((366_645, 920_000_000)));
        assert_eq!(result("+R:1:x:0.000000"), None);
        assert_eq!(result("speed: Unknown algorithm"), None);
    }
}
