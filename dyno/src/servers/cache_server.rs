//! memcached and redis as session caches of Apache: the real servers, started on private loopback ports and ended with the server that uses
//! them.

use std::path::Path;

use anyhow::{Context, Result};

use super::worker_user::worker_user;
use super::{Prepared, programs};
use crate::exit::{Exit, OrExit};
use crate::model::SessionCache;

/// Most connections: a process of Apache's prefork MPM has its own.
const CONNECTIONS_MAX: u32 = 4_096;

/// Which program keeps the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheServer {
    Memcached,
    Redis,
}

impl CacheServer {
    /// The one that this cache needs, if it needs one.
    pub(super) const fn of(cache: SessionCache) -> Option<CacheServer> {
        match cache {
            SessionCache::Memcached => Some(CacheServer::Memcached),
            SessionCache::Redis => Some(CacheServer::Redis),
            _ => None,
        }
    }

    /// Its name for people, which is also that of Debian's package.
    pub(super) const fn name(self) -> &'static str {
        match self {
            CacheServer::Memcached => "memcached",
            CacheServer::Redis => "redis-server",
        }
    }

    /// Says how to start it on `port`.
    pub(super) fn prepare(self, directory: &Path, port: u16) -> Result<Prepared> {
        let name = self.name();
        let program = programs::find(name).with_context(|| {
            format!(
                "{name} was not found in PATH, /usr/sbin or /usr/local/sbin; install it (Debian: `apt-get install {name}`; its service \
                 need not run: `systemctl disable --now {name}`)"
            )
        });
        let program = program.or_exit(Exit::Environment)?;
        let words = match self {
            CacheServer::Memcached => memcached(port)?,
            CacheServer::Redis => redis(directory, port),
        };
        let version = match self {
            CacheServer::Memcached => programs::output_of(&program, &["-V"]),
            CacheServer::Redis => programs::output_of(&program, &["--version"]),
        };
        Ok(Prepared {
            config: format!("{name} {}", words.join(" ")),
            version: version.lines().next().unwrap_or(name).to_owned(),
            ..Prepared::new(program, words.into_iter().map(Into::into).collect())
        })
    }
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
