//! How a server keeps sessions and protects tickets.

use tlsdyno_tls::named;

named! {
    /// Where the server keeps sessions.
    #[derive(Default)]
    pub enum SessionCache: "session cache" {
        /// Nowhere.
        Off = "off",
        /// The server's usual cache, shared by its workers: nginx `shared`, Apache `shmcb`, HAProxy's and the built-in
        /// server's own.
        #[default]
        Shared = "shared",
        /// nginx, lighttpd: each worker has its own, in OpenSSL.
        Builtin = "builtin",
        /// nginx: each worker's own before the shared one.
        BuiltinShared = "builtin-shared",
        /// Apache: a DBM file.
        Dbm = "dbm",
        /// Apache: a memcached server that the experiment starts.
        Memcached = "memcached",
        /// Apache: a redis server that the experiment starts.
        Redis = "redis",
    }
}

named! {
    /// Where the keys come from that protect session tickets.
    #[derive(Default)]
    pub enum TicketKeys: "source of ticket keys" {
        /// The server draws its own.
        #[default]
        Own = "own",
        /// From a file, which several servers share.
        Shared = "shared",
        /// From a file with several keys, the first encrypts and the others still decrypt, as after a rotation.
        Rotating = "rotating",
    }
}
