//! What the proofs of the load process share: nginx to load, and what /proc tells of a process.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rcgen::KeyPair;
use tempfile::TempDir;

const NGINX: &str = "nginx";

/// nginx over TLS, in a private directory on a port of the system's choice.
pub struct Nginx {
    directory: TempDir,
    master: Child,
    pub port: u16,
}

impl Nginx {
    /// With so many workers of so many connections each; `http`: further directives.
    pub fn start(workers: u32, connections: u32, http: &str) -> Result<Nginx> {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        // Workers run as nobody where the master is root.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        let key = KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
        fs::write(path.join("chain.pem"), certificate.pem())?;
        fs::write(path.join("key.pem"), key.serialize_pem())?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let configuration = format!(
            "worker_processes {workers}; daemon off; pid nginx.pid; error_log error.log;
worker_rlimit_nofile 20000; events {{ worker_connections {connections}; }}
http {{
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  keepalive_requests 1000000000; keepalive_timeout 3600s; {http}
  server {{ listen 127.0.0.1:{port} ssl backlog=4096; ssl_certificate chain.pem; ssl_certificate_key key.pem;
    ssl_session_cache shared:s:16m; location / {{ return 200 x; }} }}
}}
"
        );
        fs::write(path.join("nginx.conf"), configuration)?;
        let master = Command::new(NGINX)
            .args(["-e", "error.log", "-c", "nginx.conf", "-p"])
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start nginx; is it installed?")?;
        let nginx = Nginx { directory, master, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                bail!("nginx did not start: {}", fs::read_to_string(nginx.file("error.log")).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }

    /// A file in its directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `reload`, or another of its signals.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new(NGINX)
            .args(["-e", "error.log", "-c", "nginx.conf", "-s", name, "-p"])
            .arg(self.directory.path())
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "nginx refused the signal {name}");
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // By its own means, so that the master takes its workers along.
        let _ = self.signal("stop");
        let _ = self.master.wait();
    }
}

/// The program that the environment variable TLSDYNO names, or the one beside this program, built in the same profile.
pub fn tlsdyno() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TLSDYNO") {
        return Ok(path.into());
    }
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", "tlsdyno", "--profile", profile])
        .status()
        .context("failed to run cargo")?;
    ensure!(status.success(), "tlsdyno does not build");
    let path = std::env::current_exe()?.with_file_name("tlsdyno");
    ensure!(path.is_file(), "{} is not there", path.display());
    Ok(path)
}

/// Memory of a process that is its own and not a file's, in bytes: RssAnon of /proc/PID/status.
pub fn anonymous_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).context("no RssAnon in /proc")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<u64>()? * 1024)
}

/// Sockets that a process has open.
pub fn sockets(process: u32) -> Result<u64> {
    let is_socket = |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.flatten().filter(|entry| is_socket(&entry.path())).count() as u64)
}
