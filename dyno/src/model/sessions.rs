//! How a server keeps sessions and protects tickets.

use serde::{Deserialize, Serialize};

/// Where the server keeps sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SessionCache {
    /// Nowhere.
    Off,
    /// The server's usual cache, shared by its workers: nginx `shared`, Apache `shmcb`, HAProxy's and the built-in
    /// server's own.
    #[default]
    Shared,
    /// nginx, lighttpd: each worker has its own, in OpenSSL.
    Builtin,
    /// nginx: each worker's own before the shared one.
    BuiltinShared,
    /// Apache: a DBM file.
    Dbm,
    /// Apache: a memcached server that the experiment starts.
    Memcached,
    /// Apache: a redis server that the experiment starts.
    Redis,
}

impl SessionCache {
    /// The name in experiments and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SessionCache::Off => "off",
            SessionCache::Shared => "shared",
            SessionCache::Builtin => "builtin",
            SessionCache::BuiltinShared => "builtin-shared",
            SessionCache::Dbm => "dbm",
            SessionCache::Memcached => "memcached",
            SessionCache::Redis => "redis",
        }
    }
}

/// Where the keys come from that protect session tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TicketKeys {
    /// The server draws its own.
    #[default]
    Own,
    /// From a file, which several servers share.
    Shared,
    /// From a file with several keys, the first encrypts and the others still decrypt, as after a rotation.
    Rotating,
}

impl TicketKeys {
    /// The name in experiments and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            TicketKeys::Own => "own",
            TicketKeys::Shared => "shared",
            TicketKeys::Rotating => "rotating",
        }
    }
}
