//! nginx in a private directory, on ports of the system's choice.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rcgen::KeyPair;
use tempfile::TempDir;

use crate::process;

/// A running nginx, ended when this is dropped.
pub struct Nginx {
    program: PathBuf,
    directory: TempDir,
    master: Child,
    /// One of the ports on which it listens.
    pub port: u16,
}

/// How nginx is to be.
pub struct Settings<'a> {
    /// CPU that nginx is confined to; `None`: all CPUs.
    pub cpu: Option<&'a str>,
    pub workers: u32,
    pub connections: u32,
    /// Directives for http, its servers among them.
    pub http: &'a str,
    /// A port of these servers: once it is open, nginx has started.
    pub port: u16,
}

/// A directory for the files of nginx, which is open to everybody: workers run as nobody where the master is root.
pub fn directory() -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    Ok(directory)
}

/// Ports on which nobody listens now.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    Ok(listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<std::io::Result<_>>()?)
}

impl Nginx {
    /// Starts it on the files in `directory`, which [`directory`] made.
    pub fn start(directory: TempDir, settings: &Settings) -> Result<Nginx> {
        let program = process::find("nginx").context("nginx is missing; run `scripts/install-packages bench`")?;
        fs::write(directory.path().join("nginx.conf"), configuration(settings))?;
        let mut command = Command::new(&program);
        if let Some(cpu) = settings.cpu {
            command = Command::new("taskset");
            command.args(["-c", cpu]).arg(&program);
        }
        let master =
            on_files(&mut command, &directory).stdout(Stdio::null()).spawn().context("failed to start nginx")?;
        let mut nginx = Nginx { program, directory, master, port: settings.port };
        let listens = process::comes_to_listen(&mut nginx.master, ([127, 0, 0, 1], nginx.port).into())?;
        ensure!(listens, "nginx did not start: {}", fs::read_to_string(nginx.file("error.log")).unwrap_or_default());
        Ok(nginx)
    }

    /// One that answers over TLS, with a session cache and a certificate that nobody vouches for. `http`: further
    /// directives.
    pub fn over_tls(workers: u32, connections: u32, http: &str) -> Result<Nginx> {
        let directory = directory()?;
        let key = KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
        fs::write(directory.path().join("chain.pem"), certificate.pem())?;
        fs::write(directory.path().join("key.pem"), key.serialize_pem())?;
        let port = free_ports(1)?[0];
        let http = format!(
            "keepalive_timeout 3600s; {http}
  server {{ listen 127.0.0.1:{port} ssl backlog=4096; ssl_certificate chain.pem; ssl_certificate_key key.pem;
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:s:16m; location / {{ return 200 x; }} }}"
        );
        Nginx::start(directory, &Settings { cpu: None, workers, connections, http: &http, port })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn worker(&self) -> Result<u32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.master.id()))?;
        Ok(children.split_whitespace().next().context("nginx has no worker")?.parse()?)
    }

    pub fn signal(&self, name: &str) -> Result<()> {
        let status = on_files(&mut Command::new(&self.program), &self.directory).args(["-s", name]).status()?;
        ensure!(status.success(), "nginx refused the signal {name}");
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM, so that the master takes its workers along; it may have ended, or have lost its files.
        let _ = Command::new("kill").arg(self.master.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.master.wait();
    }
}

fn on_files<'a>(command: &'a mut Command, directory: &TempDir) -> &'a mut Command {
    command.args(["-e", "error.log", "-c", "nginx.conf", "-p"]).arg(directory.path()).stderr(Stdio::null())
}

fn configuration(settings: &Settings) -> String {
    let Settings { workers, connections, http, .. } = settings;
    format!(
        "worker_processes {workers}; daemon off; pid nginx.pid; error_log error.log;
worker_rlimit_nofile 20000; events {{ worker_connections {connections}; }}
http {{
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  keepalive_requests 1000000000;
  {http}
}}
"
    )
}
