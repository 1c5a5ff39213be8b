//! Programs and their processes: where they are, what they use, and that they end.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, ensure};
use tlsdyno_sys::process_cpu_ns;

/// How long a server may take to start.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// A child that ends with the benchmark.
pub struct Ending(pub Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command, and answers the first line that it prints. It ends when what is answered is dropped.
pub fn first_line(command: &mut Command) -> Result<(Ending, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Ending(command.spawn().with_context(|| format!("start {command:?}"))?);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().context("its output is piped")?).read_line(&mut line)?;
    Ok((child, line.trim().to_owned()))
}

/// Waits until somebody listens at the address; answers `false` where the child ends before, or takes too long.
pub fn comes_to_listen(child: &mut Child, address: SocketAddr) -> Result<bool> {
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if child.try_wait()?.is_some() || began.elapsed() > START_PATIENCE {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// A program in PATH or in one of the directories of cargo, Go and Debian.
pub fn find(program: &str) -> Option<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let below_home = [".cargo/bin", "go/bin"].iter().filter_map(|place| home.as_ref().map(|home| home.join(place)));
    let path = env::var_os("PATH").unwrap_or_default();
    let of_system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let places: Vec<PathBuf> = env::split_paths(&path).chain(below_home).chain(of_system).collect();
    places.iter().map(|place| place.join(program)).find(|path: &PathBuf| Path::is_file(path))
}

/// User and system time of a command on CPU 1, in seconds. The shell's `time` has milliseconds, where /proc has clock
/// ticks.
///
/// # Errors
/// The command fails, or takes more than two minutes.
pub fn cpu_seconds(program: &Path, arguments: &[impl AsRef<OsStr> + Debug]) -> Result<f64> {
    let script = r#"TIMEFORMAT='%3U %3S'; time taskset -c 1 "$@" >/dev/null 2>&1"#;
    let output =
        Command::new("timeout").args(["120", "bash", "-c", script, "bash"]).arg(program).args(arguments).output()?;
    ensure!(output.status.success(), "{} {arguments:?} ended with {}", program.display(), output.status);
    let text = String::from_utf8(output.stderr)?;
    let times: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(times.len() == 2, "bash answered `{text}`");
    Ok(times[0] + times[1])
}

/// CPU time that a process has had so far, with that of threads that have ended, in nanoseconds.
pub fn cpu_ns(process: u32) -> Result<u64> {
    process_cpu_ns(process).context("the process has ended")
}

/// Memory of a process that is its own and not a file's.
pub const OWN_MEMORY: &str = "RssAnon:";
/// The most memory that a process has had resident so far.
pub const PEAK_MEMORY: &str = "VmHWM:";

/// The memory of a process by its name in /proc, in bytes.
pub fn memory_bytes(process: u32, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} in /proc"))?;
    Ok(line.split_whitespace().next().context("no number")?.parse::<u64>()? * 1024)
}

pub fn sockets(process: u32) -> Result<u64> {
    let is_socket = |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.flatten().filter(|entry| is_socket(&entry.path())).count() as u64)
}
