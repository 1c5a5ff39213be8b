//! Stock nginx with everything off, two workers and a reload: the provider is in every worker, which serve matching
//! clients and no others.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tlsdyno::native::Injection;
use tlsdyno_tls::StageSet;

use super::tls::{Series, certificate, request};
use crate::build;
use crate::place::eventually;

const WORKERS: usize = 2;

/// A running nginx; ends with this value.
pub struct Nginx {
    master: Child,
    /// `127.0.0.1:PORT`
    pub address: String,
}

impl Nginx {
    /// Starts it with the files in `dir`, and waits until it listens.
    pub fn start(dir: &Path, injection: &Injection) -> Nginx {
        // The port is free when nginx is told of it; should another take it in between, nginx says so and the test
        // fails.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let configuration = dir.join("nginx.conf");
        fs::write(&configuration, Nginx::configuration(dir, &address)).unwrap();
        let master = Command::new("nginx")
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(&configuration)
            .arg("-e")
            .arg(dir.join("error.log"))
            .envs(injection.let_children_inherit().unwrap())
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx is not installed; Debian: apt install nginx-light");
        let nginx = Nginx { master, address };
        let address = &nginx.address;
        eventually("nginx listens", || {
            std::net::TcpStream::connect(address).is_ok() && nginx.workers().len() == WORKERS
        });
        nginx
    }

    fn configuration(dir: &Path, address: &str) -> String {
        let (certificate, key) = certificate("rsa");
        format!(
            "daemon off; worker_processes {WORKERS}; pid {dir}/nginx.pid; error_log {dir}/error.log info;\n\
             events {{ }}\n\
             http {{\n\
               access_log off; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir};\n\
               uwsgi_temp_path {dir}; scgi_temp_path {dir};\n\
               server {{ listen {address} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
                 ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:S:1m; default_type text/html;\n\
                 location / {{ return 200 '<html>served</html>'; }} }}\n\
             }}\n",
            dir = dir.display(),
            certificate = certificate.display(),
            key = key.display(),
        )
    }

    /// Children of the master that serve, not those of before a reload that still shut down.
    pub fn workers(&self) -> Vec<u32> {
        let pid = self.master.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let serves = |child: &u32| {
            let title = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            title.contains("worker process") && !title.contains("shutting down")
        };
        children.split(' ').filter_map(|child| child.parse().ok()).filter(serves).collect()
    }

    fn signal(&self, name: &str) {
        build::run(Command::new("kill").args(["-s", name, &self.master.id().to_string()]));
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers on TERM; a killed one would leave them behind.
        let _ = Command::new("kill").args(["-s", "TERM", &self.master.id().to_string()]).status();
        let _ = self.master.wait();
    }
}

/// Connections of every kind; the counters show that each full handshake was one signature.
fn check_service(nginx: &Nginx, at_server: &Injection, at_client: &Injection) {
    let before = at_server.counters().unwrap();
    for _ in 0..4 {
        for version in ["-tls1_2", "-tls1_3"] {
            let answer = request(Series::System, &nginx.address, Some(at_client), &[version]);
            assert!(answer.is_complete(), "{}", answer.0);
        }
    }
    let counters = at_server.counters().unwrap() - before;
    assert_eq!(counters.get("sign"), Some(8), "{counters}");
    // From OpenSSL 3.5 on TLS 1.3 agrees on keys by a hybrid group: the server encapsulates, and derives nothing.
    let agreements = ["key_derive", "encapsulate"].map(|name| counters.get(name).unwrap());
    assert!(agreements == [8, 0] || agreements == [4, 4], "{counters}");
    let unmatched = request(Series::System, &nginx.address, None, &[]);
    assert!(!unmatched.is_complete(), "{}", unmatched.0);
    for worker in nginx.workers() {
        let maps = fs::read_to_string(format!("/proc/{worker}/maps")).unwrap();
        assert!(maps.contains(at_server.library_path().to_str().unwrap()), "not mapped in worker {worker}");
    }
}

#[test]
fn nginx_with_two_workers_and_a_reload() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let at_server = Injection::prepare(dirs[0].path(), StageSet::PROVIDER).unwrap();
    let at_client = Injection::prepare(dirs[1].path(), StageSet::PROVIDER).unwrap();
    let nginx = Nginx::start(dirs[0].path(), &at_server);
    check_service(&nginx, &at_server, &at_client);

    let old = nginx.workers();
    nginx.signal("HUP");
    eventually("new workers serve", || {
        let workers = nginx.workers();
        workers.len() == WORKERS && workers.iter().all(|worker| !old.contains(worker))
    });
    check_service(&nginx, &at_server, &at_client);

    drop(nginx);
    let log = fs::read_to_string(dirs[0].path().join("error.log")).unwrap();
    for level in ["[alert]", "[emerg]", "exited on signal"] {
        assert!(!log.contains(level), "{log}");
    }
}
