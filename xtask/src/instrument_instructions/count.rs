//! What the instrument itself costs, in instructions: every server runs under valgrind's callgrind, untouched and with
//! provider and shim preloaded but nothing switched off. Instructions repeat where times do not, whatever else the
//! machine does; what they cannot see is what an instruction costs (caches, the kernel), which the experiment
//! `instrument-overhead` measures as CPU time.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tlsdyno::model::workload::WorkloadSpec;
use tlsdyno::model::{CertificateKind, ConfigurationModel, Experiment, Load, Server, ServerName, Tls};
use tlsdyno::run::cpus;
use tlsdyno::run::exchange::exchange;
use tlsdyno::run::preflight::checks_of;
use tlsdyno::run::preflight::compile;
use tlsdyno::run::testbed::{ServerUnderTest, Testbed};
use tlsdyno::servers::Instance;

/// Connections before the first that counts: the first handshakes of each process fetch and allocate what later ones
/// find.
const WARM_UP: usize = 64;
/// Counted intervals of each configuration: their spread says how well the count repeats.
const INTERVALS: usize = 4;
/// Connections of one interval: a full handshake, one request, the end.
const CONNECTIONS: usize = 16;
/// How long a server may work on after its last connection. Under valgrind everything takes some fifty times as long.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// How the names of callgrind's files begin.
const COUNTS: &str = "callgrind.";
/// Bytes of the object.
const OBJECT_BYTES: u64 = 1024;

/// The instructions of one configuration of a server, user space of all its processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// Name of the configuration.
    pub configuration: String,
    /// Instructions per connection, of each interval.
    pub per_connection: Vec<f64>,
}

impl Count {
    /// Instructions per connection, over all intervals.
    pub fn mean(&self) -> f64 {
        self.per_connection.iter().sum::<f64>() / self.per_connection.len().max(1) as f64
    }

    /// The largest difference of an interval from the mean.
    pub fn spread(&self) -> f64 {
        self.per_connection.iter().map(|one| (one - self.mean()).abs()).fold(0.0, f64::max)
    }
}

/// The configurations: the untouched server first.
pub fn configurations() -> Vec<ConfigurationModel> {
    let idle = |name: &str, provider, shim| ConfigurationModel {
        name: name.to_owned(),
        idle_provider: provider,
        idle_shim: shim,
        ..ConfigurationModel::as_is()
    };
    let as_is = ConfigurationModel::as_is();
    vec![as_is, idle("provider", true, false), idle("shim", false, true), idle("provider and shim", true, true)]
}

/// Counts the instructions of a full handshake with one request on this server, in each of [`configurations`]. `say` is
/// told of each as it begins. The files that callgrind wrote (`callgrind_annotate` reads them) are left in `keep`, if
/// that is given.
///
/// # Errors
/// valgrind is not installed; a server does not start under it, or answers a client wrongly.
pub fn count(server: ServerName, keep: Option<&Path>, say: &mut dyn FnMut(&str)) -> Result<Vec<Count>> {
    let experiment = Experiment {
        server: Server { kind: server, ..Server::default() },
        tls: Tls { certificate: CertificateKind::P256, ..Tls::default() },
        workload: WorkloadSpec::Url {
            path: "/object".to_owned(),
            bytes: Some(OBJECT_BYTES),
            users: 1,
            requests_per_user: 1,
        },
        // As many processes as are kept warm by one connection after the other.
        load: Load { connections: 1, reuse_percent: Some(0.0), requests_per_connection: Some(1), ..Load::default() },
        configurations: configurations(),
        ..Experiment::default()
    };
    experiment.check()?;
    // Its pipes belong to whom the server was when it started.
    ensure!(
        !rustix::process::geteuid().is_root(),
        "a worker that becomes another user is out of valgrind's reach; run this as a plain user"
    );
    let cpus = cpus::choose(&cpus::allowed(), None, None)?;
    let mut testbed = Testbed::prepare(&experiment, cpus, &mut |_| ())?;
    let mut counts = Vec::new();
    for index in 0..testbed.servers.len() {
        let configuration = testbed.servers[index].model.name.clone();
        say(&configuration);
        let folder = tempfile::tempdir().context("make a directory for callgrind's files")?;
        let callgrind = Callgrind { folder: folder.path().to_owned() };
        testbed.servers[index].run_under(callgrind.command());
        let per_connection = count_server(&mut testbed, index, &callgrind)
            .with_context(|| format!("{} under valgrind, configuration \"{configuration}\"", server.name()))?;
        testbed.stop(index);
        if let Some(keep) = keep {
            callgrind.keep(keep, &format!("{}-{index}", server.name()))?;
        }
        counts.push(Count { configuration, per_connection });
    }
    Ok(counts)
}

fn count_server(testbed: &mut Testbed, index: usize, callgrind: &Callgrind) -> Result<Vec<f64>> {
    let (request, body_bytes) = testbed.preflight_request();
    testbed.activate(index)?;
    let checks = checks_of(testbed, index, &request, body_bytes, false)?;
    let failed: Vec<String> =
        checks.iter().filter(|check| !check.passed).map(|check| format!("{} ({})", check.name, check.seen)).collect();
    ensure!(failed.is_empty(), "checks failed: {}", failed.join("; "));
    let server = &mut testbed.servers[index];
    connect(server, &request, WARM_UP)?;
    let settled = |server: &mut ServerUnderTest| callgrind.dump(server.instance().context("the server does not run")?);
    settled(server)?;
    let mut per_connection = Vec::new();
    for _ in 0..INTERVALS {
        connect(server, &request, CONNECTIONS)?;
        per_connection.push(settled(server)? as f64 / CONNECTIONS as f64);
    }
    Ok(per_connection)
}

/// One connection after the other, each with a full handshake.
fn connect(server: &ServerUnderTest, request: &[u8], connections: usize) -> Result<()> {
    let config = compile(server.settings.as_ref().context("there is no TLS")?)?;
    for _ in 0..connections {
        let answer = exchange(server.address(), Some(&config), None, request)?;
        ensure!(answer.status == 200 && answer.body_bytes == OBJECT_BYTES, "the server answered {}", answer.status);
        ensure!(!answer.is_resumed(), "a handshake without a session was not full");
    }
    Ok(())
}

/// valgrind's tool that counts instructions by function.
struct Callgrind {
    /// Its files, and the pipes by which it is told what to do.
    folder: PathBuf,
}

impl Callgrind {
    fn option(&self, name: &str, file: &str) -> OsString {
        let mut option = OsString::from(format!("--{name}="));
        option.push(self.folder.join(file));
        option
    }

    /// What the server runs under.
    fn command(&self) -> Vec<OsString> {
        let fixed = ["valgrind", "--tool=callgrind", "--trace-children=yes"].map(OsString::from);
        let files = [
            self.option("vgdb-prefix", "pipe"),
            self.option("callgrind-out-file", &format!("{COUNTS}%p")),
            self.option("log-file", "said.%p"),
        ];
        fixed.into_iter().chain(files).collect()
    }

    /// Waits until the server has come to rest, and lets every process write what it has executed since the last call.
    /// Answers the sum.
    fn dump(&self, instance: &mut Instance) -> Result<u64> {
        let mut last = instance.cpu_ns()?;
        let limit = Instant::now() + REST_WITHIN;
        loop {
            ensure!(
                Instant::now() < limit,
                "the server still works {} s after its last connection, so that what it does for one cannot be \
                 counted; its log ends with:\n{}",
                REST_WITHIN.as_secs(),
                instance.log_tail()
            );
            std::thread::sleep(Duration::from_millis(30));
            let now = instance.cpu_ns()?;
            if now == last {
                break;
            }
            last = now;
        }
        let before = self.files()?;
        for pid in instance.pids() {
            let told = Command::new("vgdb")
                .args([&self.option("vgdb-prefix", "pipe"), &OsString::from(format!("--pid={pid}"))])
                .args(["--cmd-time-out=60", "dump"])
                .output()
                .context("run vgdb, which comes with valgrind")?;
            let said = String::from_utf8_lossy(&told.stderr);
            ensure!(told.status.success(), "vgdb could not reach process {pid}: {}", said.trim());
        }
        let new = self.files()?.into_iter().filter(|file| !before.contains(file));
        new.map(|file| instructions_in(&file)).sum()
    }

    /// What was written so far: `callgrind.PID.NUMBER`.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.folder).with_context(|| format!("read {}", self.folder.display()))?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        // Beside them lies an empty one without number.
        let is_count = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(COUNTS) && name.matches('.').count() == 2
        };
        Ok(paths.into_iter().filter(is_count).collect())
    }

    fn keep(&self, place: &Path, prefix: &str) -> Result<()> {
        for file in self.files()? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let kept = place.join(format!("{prefix}-{name}"));
            fs::copy(&file, &kept).with_context(|| format!("write {}", kept.display()))?;
        }
        Ok(())
    }
}

/// The total of one file in callgrind's profile format.
fn instructions_in(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    let total = total.with_context(|| format!("{} holds no total", file.display()))?;
    total.trim().parse().with_context(|| format!("{}: `{total}` is no count of instructions", file.display()))
}
