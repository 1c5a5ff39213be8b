//! memcached and redis as session caches of Apache: the real servers, started on private loopback ports and ended with
//! the server that uses them.

use std::path::Path;

use anyhow::{Context, Result};

use super::instance::{Ports, on_free_ports, start_prepared};
use super::programs::Package;
use super::worker_user::worker_user;
use super::{Companion, Instance, Prepared, ServerSpec, programs};
use tlsdyno_record::model::{ServerName, SessionCache};

/// Most connections: a process of Apache's prefork MPM has its own.
const CONNECTIONS_MAX: u32 = 4_096;

const MEMCACHED: Package = Package {
    title: "memcached",
    programs: &["memcached"],
    version: &["-V"],
    debian: "memcached",
    service: Some("memcached"),
};

const REDIS: Package = Package {
    title: "redis-server",
    programs: &["redis-server"],
    version: &["--version"],
    debian: "redis-server",
    service: Some("redis-server"),
};

/// Which program keeps the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheServer {
    Memcached,
    Redis,
}

impl CacheServer {
    /// The one that this cache needs, if it needs one.
    const fn of(cache: SessionCache) -> Option<CacheServer> {
        match cache {
            SessionCache::Memcached => Some(CacheServer::Memcached),
            SessionCache::Redis => Some(CacheServer::Redis),
            _ => None,
        }
    }

    const fn package(self) -> &'static Package {
        match self {
            CacheServer::Memcached => &MEMCACHED,
            CacheServer::Redis => &REDIS,
        }
    }

    /// Says how to start it on `port`.
    fn prepare(self, directory: &Path, port: u16) -> Result<Prepared> {
        let package = self.package();
        let (name, program) = (package.title, package.require("")?);
        let words = match self {
            CacheServer::Memcached => memcached(port)?,
            CacheServer::Redis => redis(directory, port),
        };
        let version = programs::output_of(&program, package.version);
        Ok(Prepared {
            config: format!("{name} {}", words.join(" ")),
            version: version.lines().next().unwrap_or(name).to_owned(),
            ..Prepared::new(program, words.into_iter().map(Into::into).collect())
        })
    }
}

/// The server of its own that keeps the sessions of a server, where they are kept in one and it shares none.
pub(super) fn beside(spec: &ServerSpec, run: &Path) -> Result<Option<Companion>> {
    let cache = spec.tls.as_ref().map_or(SessionCache::Off, |tls| tls.session_cache);
    if spec.session_server.is_some() {
        return Ok(None);
    }
    let name = CacheServer::of(cache).map_or("", |server| server.package().title);
    let started = start_session_server(cache, spec.companion_cpu, run)?;
    Ok(started.map(|instance| Companion { name, instance }))
}

/// Starts the server that keeps sessions in this way, in a directory of its own inside `run`; `None` where none is
/// needed.
///
/// # Errors
/// Its program is missing (with the remedy), or it does not start.
pub fn start_session_server(cache: SessionCache, cpu: Option<usize>, run: &Path) -> Result<Option<Instance>> {
    let Some(server) = CacheServer::of(cache) else { return Ok(None) };
    // Of the specification only the processor counts here.
    let plain = ServerSpec { cpus: cpu.into_iter().collect(), ..ServerSpec::new(ServerName::Builtin, run.to_owned()) };
    let start = |own: &Path, ports: &Ports| {
        start_prepared(&plain, own, server.prepare(own, ports.port)?, ports.first(plain.ip))
    };
    let instance = on_free_ports(run, true, start);
    instance.map(Some).with_context(|| format!("failed to start {} for the sessions", server.package().title))
}

/// One thread, no UDP. Root must say whom it shall run as.
fn memcached(port: u16) -> Result<Vec<String>> {
    let mut words: Vec<String> = [
        "-l",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-U",
        "0",
        "-t",
        "1",
        "-m",
        "64",
        "-c",
        &CONNECTIONS_MAX.to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    if worker_user()?.is_some() {
        words.extend(["-u".to_owned(), "nobody".to_owned()]);
    }
    Ok(words)
}

/// Nothing is written to disk.
fn redis(directory: &Path, port: u16) -> Vec<String> {
    let settings = [
        ("bind", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("save", String::new()),
        ("appendonly", "no".to_owned()),
        ("maxclients", CONNECTIONS_MAX.to_string()),
        ("maxmemory", "64mb".to_owned()),
        ("maxmemory-policy", "allkeys-lru".to_owned()),
        ("dir", directory.display().to_string()),
    ];
    settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
}
