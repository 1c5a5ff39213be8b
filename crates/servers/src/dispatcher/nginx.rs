//! nginx's stream module: it passes TLS through, by a consistent hash of the client's address.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use askama::Template;

use super::super::growing_log::GrowingLog;
use super::super::nginx::{self, ERROR_LOG_FILE, PACKAGE, version, worker_connections};
use super::super::worker_user::{WorkerUser, worker_user};
use super::super::{InstancePlace, Prepared, programs, rendered};
use super::Made;

const CONFIG_FILE: &str = "nginx.conf";
const COUNT_FILE: &str = "upstreams.log";
const MODULE_DIRECTORIES: [&str; 3] =
    ["/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/local/nginx/modules"];

pub(super) fn program() -> Result<(PathBuf, Option<PathBuf>)> {
    let program = PACKAGE.require(" or leave nginx-hash out of --policies")?;
    if programs::output_of(&program, &["-V"]).split_whitespace().any(|word| word == "--with-stream") {
        return Ok((program, None));
    }
    let advice = "Debian: `apt-get install libnginx-mod-stream`, or leave nginx-hash out of --policies";
    let module = programs::require_module("nginx", "ngx_stream_module.so", &MODULE_DIRECTORIES, advice)?;
    Ok((program, Some(module)))
}

/// Reads nginx's log of the backend of each connection.
#[derive(Debug)]
struct Counter {
    log: GrowingLog,
    /// As the log names them.
    backends: Vec<String>,
    counts: Vec<u64>,
}

impl Counter {
    fn new(log: PathBuf, backends: &[SocketAddr]) -> Counter {
        let counts = vec![0; backends.len()];
        Counter { log: GrowingLog::new(log), backends: backends.iter().map(ToString::to_string).collect(), counts }
    }
}

impl super::Counter for Counter {
    /// A connection is logged when it ends.
    fn read(&mut self) -> Result<Vec<u64>> {
        for line in self.log.new_lines()?.lines() {
            if let Some(backend) = self.backends.iter().position(|backend| backend == line) {
                self.counts[backend] += 1;
            }
        }
        Ok(self.counts.clone())
    }
}

pub(super) fn prepare(backends: &[SocketAddr], place: InstancePlace) -> Result<Made> {
    let (program, module) = program()?;
    let (user, connections) = (worker_user()?, worker_connections());
    let config = rendered(&Configuration { backends, place, module, user, connections })?;
    let path = place.write(CONFIG_FILE, &config)?;
    let error_log = place.own.join(ERROR_LOG_FILE);
    let arguments = nginx::arguments(&program, place.own, &error_log, &path);
    let prepared = Prepared {
        config,
        version: version(&program),
        error_log: Some(error_log),
        processes: 2,
        ..Prepared::new(program, arguments)
    };
    Ok((prepared, Box::new(Counter::new(place.own.join(COUNT_FILE), backends))))
}

#[derive(Template)]
#[template(path = "dispatcher-nginx.conf", escape = "none")]
struct Configuration<'a> {
    backends: &'a [SocketAddr],
    place: InstancePlace<'a>,
    module: Option<PathBuf>,
    user: Option<WorkerUser>,
    connections: u64,
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::super::Counter as _;
    use super::*;

    fn backends() -> [SocketAddr; 2] {
        ["127.0.0.1:81".parse().unwrap(), "127.0.0.1:8".parse().unwrap()]
    }

    #[test]
    fn the_log_is_counted_once_and_by_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(COUNT_FILE);
        let mut log = File::create(&path).unwrap();
        let mut counter = Counter::new(path, &backends());
        assert_eq!(counter.read().unwrap(), [0, 0]);
        log.write_all(b"127.0.0.1:81\n127.0.0.1:8\n-\n127.0.0.1:8").unwrap();
        assert_eq!(counter.read().unwrap(), [1, 1]);
        log.write_all(b"1\n127.0.0.1:8\n").unwrap();
        assert_eq!(counter.read().unwrap(), [2, 2]);
        assert_eq!(counter.read().unwrap(), [2, 2]);
    }

    #[test]
    fn a_failed_backend_keeps_its_connections() {
        let (backends, place) = (&backends()[..], InstancePlace::example());
        let text = rendered(&Configuration { backends, place, module: None, user: None, connections: 64 }).unwrap();
        for part in ["server 127.0.0.1:81 max_fails=0;", "server 127.0.0.1:8 max_fails=0;", "proxy_next_upstream off;"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
