//! A PostgreSQL server of the distribution in a private directory, as an ordinary user: it refuses root.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tlsdyno::model::CertificateKind;
use tlsdyno::servers::certificates;

/// `nobody`, where the tests are root.
const NOBODY: u32 = 65534;
pub const PASSWORD: &str = "an open: secret";

pub struct Postgres {
    directory: TempDir,
    programs: PathBuf,
    pub port: u16,
    pub child: Option<Child>,
    /// From its next start on.
    pub speaks_tls: bool,
    /// The root that vouches for it.
    pub ca_file: PathBuf,
}

impl Postgres {
    pub fn start() -> Postgres {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let files = certificates::create(CertificateKind::P256, path).unwrap();
        let ca_file = files.ca.clone();
        let mut server = Postgres { programs: programs(), port: 0, child: None, speaks_tls: true, ca_file, directory };
        let path = server.directory.path().to_owned();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let home = path.join("home");
        fs::create_dir(&home).unwrap();
        for (from, name) in [(&files.chain, "server.crt"), (&files.key, "server.key")] {
            fs::copy(from, home.join(name)).unwrap();
        }
        fs::write(home.join("password"), PASSWORD).unwrap();
        for name in ["server.crt", "server.key", "password"] {
            fs::set_permissions(home.join(name), fs::Permissions::from_mode(0o600)).unwrap();
            own(&home.join(name));
        }
        own(&home);
        let made = server
            .command("initdb")
            .args(["--username=robot", "--auth=scram-sha-256", "--pwfile=password", "--no-sync", "--no-locale"])
            .args(["--encoding=UTF8", "data"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.go();
        server
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.home()).env("LC_ALL", "C").stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts it, and waits until it answers.
    pub fn go(&mut self) {
        let limit = Instant::now() + Duration::from_secs(60);
        while !self.try_to_go() {
            assert!(Instant::now() < limit, "{}", fs::read_to_string(self.home().join("log")).unwrap_or_default());
        }
    }

    /// Another program may have the port, or what was killed may still hold the memory.
    fn try_to_go(&mut self) -> bool {
        if self.port == 0 {
            self.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        }
        let log = fs::File::create(self.home().join("log")).unwrap();
        let settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=.",
            "fsync=off",
            if self.speaks_tls { "ssl=on" } else { "ssl=off" },
            "ssl_cert_file=../server.crt",
            "ssl_key_file=../server.key",
            "shared_buffers=8MB",
        ];
        let child = self
            .command("postgres")
            .args(["-D", "data", "-p", &self.port.to_string()])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        loop {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                std::thread::sleep(Duration::from_millis(100));
                return false;
            }
            if self.sql("postgres", "SELECT 1").status.success() {
                return true;
            }
        }
    }

    /// Statements, as the tests give them.
    pub fn sql(&self, database: &str, text: &str) -> std::process::Output {
        let mut command = self.command("psql");
        command.env("PGPASSWORD", PASSWORD).args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        command.args(["-p", &self.port.to_string(), "-U", "robot", "-d", database, "-c", text]).output().unwrap()
    }

    /// What one query answers.
    pub fn ask(&self, database: &str, query: &str) -> String {
        let output = self.sql(database, query);
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A new database; answers its URL, without a password.
    pub fn create(&self, database: &str) -> String {
        self.ask("postgres", &format!("CREATE DATABASE {database}"));
        format!("postgres://robot@localhost:{}/{database}", self.port)
    }

    /// A file with the password, for this user only.
    pub fn password_file(&self) -> PathBuf {
        let path = self.directory.path().join("password");
        fs::write(&path, format!("{PASSWORD}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// The same in libpq's form.
    pub fn pass_file(&self) -> PathBuf {
        let path = self.directory.path().join("pgpass");
        fs::write(&path, format!("*:{}:*:robot:{}\n", self.port, PASSWORD.replace(':', "\\:"))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Stops all of its processes where they are, or lets them go on.
    pub fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        let Some(child) = &self.child else { return };
        // The first one first: stopped, it starts no other.
        super::signal(child.id(), signal);
        for process in tlsdyno::process_tree::descendants(child.id()) {
            // One may have ended meanwhile.
            let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(process.pid as i32).unwrap(), signal);
        }
    }

    /// Without a chance to end cleanly.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.freeze(false);
        if let Some(mut child) = self.child.take() {
            // SIGQUIT ends it and its children at once; killed, it would leave them a moment.
            super::signal(child.id(), rustix::process::Signal::QUIT);
            let _ = child.wait();
        }
    }
}

fn own(path: &Path) {
    if rustix::process::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Debian keeps them out of PATH, a folder for each version.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.retain(|path| path.join("initdb").exists());
    found.sort();
    found.pop().expect("PostgreSQL is installed: scripts/install-packages test")
}
