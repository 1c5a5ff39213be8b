//! nginx with a log of its handshakes.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::harness::KeyKind;
use crate::processes::{Process, directory_with};

/// Ports of its listeners: with nothing special, with the PROXY protocol, with another group than a client's share is
/// for, and with SHA-384.
pub const USUAL: u16 = 443;
pub const PROXIED: u16 = 444;
pub const STRICT: u16 = 445;
pub const HASHED: u16 = 446;
pub const PORTS: [u16; 4] = [USUAL, PROXIED, STRICT, HASHED];

pub struct Nginx {
    process: Process,
    log: PathBuf,
}

impl Nginx {
    /// Starts it in this thread's network namespace, and waits until it listens.
    pub fn start() -> Nginx {
        let directory = directory_with(KeyKind::P256);
        let path = directory.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name}; "))
            .concat();
        let configuration = format!(
            "daemon off; master_process off; error_log {path}/error.log; pid {path}/nginx.pid;
            events {{ worker_connections 1024; }}
            http {{
                {temporary}
                log_format kinds '$ssl_protocol $ssl_cipher $ssl_session_reused end';
                access_log {path}/log kinds;
                ssl_certificate {path}/certificate.pem; ssl_certificate_key {path}/key.pem;
                ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:all:1m; ssl_early_data on;
                server {{ listen {USUAL} ssl; return 200 'hello'; }}
                server {{ listen {PROXIED} ssl proxy_protocol; return 200 'hello'; }}
                server {{ listen {STRICT} ssl; ssl_ecdh_curve secp384r1; return 200 'hello'; }}
                server {{
                    listen {HASHED} ssl; ssl_conf_command Ciphersuites TLS_AES_256_GCM_SHA384; return 200 'hello';
                }}
            }}"
        );
        let file = directory.path().join("nginx.conf");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).arg("-e").arg(directory.path().join("error.log")).stderr(Stdio::null());
        let child = command.spawn().expect("this test needs nginx");
        let log = directory.path().join("log");
        let nginx = Nginx { process: Process { child, directory }, log };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", HASHED)).is_err() {
            let errors = fs::read_to_string(nginx.process.directory.path().join("error.log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE && !errors.contains("[emerg]"), "nginx does not listen: {errors}");
            std::thread::sleep(Duration::from_millis(5));
        }
        nginx
    }

    /// A line for each request.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}
