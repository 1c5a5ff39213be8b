//! PostgreSQL behind the servers of an experiment: an instance of its own in a private directory, and pages that are
//! asked of one.

#[cfg(feature = "postgres")]
mod pages;
#[cfg(not(feature = "postgres"))]
#[path = "database/left_out.rs"]
mod pages;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::model::ServerName;

pub use self::pages::{DatabasePages, fill};
use super::instance::start_by;
use super::worker_user::worker_user;
use super::{Instance, InstancePlace, Prepared, ServerSpec, programs};

/// Debian keeps its programs out of PATH, a folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
const USER: &str = "tlsdyno";
const HOME: &str = "database";
const DATA: &str = "data";
/// The longest path of a socket, bytes (`sun_path` of unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Where its programs are: in PATH, or the newest of Debian's.
fn program(name: &str) -> Result<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    let number = |path: &PathBuf| path.iter().filter_map(|part| part.to_str()?.parse::<u32>().ok()).next_back();
    found.sort_by_key(number);
    let found = found.pop().or_else(|| programs::find(name)).with_context(|| {
        format!(
            "PostgreSQL's {name} was found neither below {VERSIONS} nor in PATH; install it (Debian: `apt-get install \
             postgresql`; its service need not run: `systemctl disable --now postgresql`), or leave out --database"
        )
    });
    found.or_fault(Fault::Environment)
}

pub fn refuse_missing() -> Result<()> {
    program("initdb").map(drop)
}

/// Starts an instance in a directory of its own inside `run`, on this processor, which only this user and the one that
/// it runs as can connect to, by a Unix socket; as root it runs as `nobody`.
pub fn start_database(cpu: Option<usize>, run: &Path) -> Result<Instance> {
    // Of the specification only the processor counts here.
    let spec = ServerSpec { cpus: cpu.into_iter().collect(), ..ServerSpec::new(ServerName::Builtin, run.to_owned()) };
    start_by(&spec, run, prepare).context("failed to start the database")
}

/// What clients of a database that was started here connect by, as libpq has it.
pub fn settings_of(database: &Instance) -> String {
    let home = database.directory.join(HOME);
    format!("host='{}' port={} user={USER} dbname=postgres", home.display(), database.address().port())
}

fn prepare(place: InstancePlace) -> Result<Prepared> {
    let (initdb, postgres) = (program("initdb")?, program("postgres")?);
    let user = worker_user()?;
    // Nobody else may pass through it to the socket.
    let home = place.own.join(HOME);
    fs::create_dir(&home).with_context(|| format!("make {}", home.display()))?;
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).context("close the database's directory")?;
    if let Some(user) = &user {
        chown(&home, Some(user.uid), Some(user.gid)).context("give the database its directory")?;
    }
    let socket = home.join(format!(".s.PGSQL.{}", place.port));
    ensure!(
        socket.as_os_str().len() <= SOCKET_PATH_MAX,
        "{} is too long for a socket; set TMPDIR to a shorter directory",
        socket.display()
    );
    let mut make = Command::new(&initdb);
    make.current_dir(&home).env("LC_ALL", "C").args(["--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8"]);
    make.args(["-U", USER, DATA]);
    if let Some(user) = &user {
        make.uid(user.uid).gid(user.gid);
    }
    let made = make.output().with_context(|| format!("run {}", initdb.display()))?;
    ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim());
    // Nobody by TCP: there the port only tells that it has started.
    fs::write(home.join(DATA).join("pg_hba.conf"), format!("local all {USER} trust\n")).context("write pg_hba.conf")?;
    let settings = [
        ("listen_addresses", place.ip.to_string()),
        ("port", place.port.to_string()),
        ("unix_socket_directories", home.display().to_string()),
        // It is made for one run.
        ("fsync", "off".to_owned()),
        ("autovacuum", "off".to_owned()),
        ("shared_buffers", "64MB".to_owned()),
    ];
    let mut words: Vec<String> = Vec::new();
    words.extend(["-D".to_owned(), home.join(DATA).display().to_string()]);
    words.extend(settings.iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]));
    let config = format!("postgres {}", words.join(" "));
    // It refuses to run as root.
    let (program, arguments) = match &user {
        None => (postgres.clone(), words),
        Some(user) => {
            let first = [format!("--reuid={}", user.uid), format!("--regid={}", user.gid), "--clear-groups".to_owned()];
            let whole = first.into_iter().chain([postgres.display().to_string()]).chain(words).collect();
            (programs::find("setpriv").context("setpriv of util-linux, which starts it as nobody, is missing")?, whole)
        }
    };
    Ok(Prepared {
        config,
        version: programs::output_of(&postgres, &["--version"]).trim().to_owned(),
        ..Prepared::new(program, arguments.into_iter().map(Into::into).collect())
    })
}
