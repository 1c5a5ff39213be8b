//! memcached and redis as session caches of Apache: the real servers, started on private loopback ports and ended with
//! the server that uses them.

use std::path::Path;

use anyhow::{Context, Result};
use tlsdyno_record::model::{ServerName, SessionCache};

use super::instance::start_by;
use super::programs::Package;
use super::worker_user::worker_user;
use super::{Companion, Instance, InstancePlace, Prepared, ServerSpec, programs};

/// Most connections: a process of Apache's prefork MPM has its own.
const CONNECTIONS_MAX: u32 = 4_096;

const MEMCACHED: Package = Package { version: &["-V"], ..Package::new(&["memcached"]) };

const REDIS: Package = Package { version: &["--version"], ..Package::new(&["redis-server"]) };

type Arguments = fn(InstancePlace) -> Result<Vec<String>>;

/// The server that a session cache needs, and what says its arguments; `None`: it needs none.
fn server_of(cache: SessionCache) -> Option<(&'static Package, Arguments)> {
    match cache {
        SessionCache::Memcached => Some((&MEMCACHED, memcached)),
        SessionCache::Redis => Some((&REDIS, redis)),
        _ => None,
    }
}

/// The server of its own that keeps the sessions of a server, where they are kept in one and it shares none.
pub(super) fn beside(spec: &ServerSpec, run: &Path) -> Result<Option<Companion>> {
    let cache = spec.tls.as_ref().map_or(SessionCache::Off, |tls| tls.session_cache);
    let Some((package, _)) = server_of(cache).filter(|_| spec.session_server.is_none()) else { return Ok(None) };
    let started = start_session_server(cache, spec.companion_cpu, run)?;
    Ok(started.map(|instance| Companion { name: package.title, instance }))
}

/// Starts the server that keeps sessions in this way, in a directory of its own inside `run`; `None` where none is
/// needed.
pub fn start_session_server(cache: SessionCache, cpu: Option<usize>, run: &Path) -> Result<Option<Instance>> {
    let Some((package, arguments)) = server_of(cache) else { return Ok(None) };
    // Of the specification only the processor counts here.
    let plain = ServerSpec { cpus: cpu.into_iter().collect(), ..ServerSpec::new(ServerName::Builtin, run.to_owned()) };
    let started = start_by(&plain, run, |place| {
        let program = package.require("")?;
        let words = arguments(place)?;
        let version = programs::output_of(&program, package.version);
        Ok(Prepared {
            config: format!("{} {}", package.title, words.join(" ")),
            version: version.lines().next().unwrap_or(package.title).to_owned(),
            ..Prepared::new(program, words.into_iter().map(Into::into).collect())
        })
    });
    started.map(Some).with_context(|| format!("failed to start {} for the sessions", package.title))
}

/// One thread, no UDP. Root must say whom it shall run as.
fn memcached(place: InstancePlace) -> Result<Vec<String>> {
    let user = if worker_user()?.is_some() { " -u nobody" } else { "" };
    let line = format!("-l 127.0.0.1 -p {} -U 0 -t 1 -m 64 -c {CONNECTIONS_MAX}{user}", place.port);
    Ok(line.split(' ').map(str::to_owned).collect())
}

/// Nothing is written to disk.
fn redis(place: InstancePlace) -> Result<Vec<String>> {
    let settings = [
        ("bind", "127.0.0.1".to_owned()),
        ("port", place.port.to_string()),
        ("save", String::new()),
        ("appendonly", "no".to_owned()),
        ("maxclients", CONNECTIONS_MAX.to_string()),
        ("maxmemory", "64mb".to_owned()),
        ("maxmemory-policy", "allkeys-lru".to_owned()),
        ("dir", place.own.display().to_string()),
    ];
    Ok(settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect())
}
