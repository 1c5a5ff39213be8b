//! Servers under test: one driver per server, and what is needed to start, watch, account for and end any of them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod apache;
mod built_in;
mod cache_server;
pub mod callgrind;
mod capabilities;
pub mod certificates;
pub mod cgroup;
pub mod command;
pub mod cpu;
pub mod database;
mod deaths;
pub mod directives;
pub mod dispatcher;
mod driver;
pub mod forwarder;
pub mod glob;
pub mod growing_log;
pub mod haproxy;
pub mod held_back;
pub mod includes;
pub mod instance;
pub mod launch;
pub mod library;
pub mod lighttpd;
pub mod mapped;
mod memory;
pub mod nginx;
mod open_listeners;
pub mod pid_namespace;
pub mod programs;
mod proxy;
pub mod quota;
mod reload;
pub mod run_directory;
pub mod session_log;
mod small_keys;
mod stunnel;
pub mod supervised;
pub mod supervisor;
mod ticket_keys;
pub mod tls_library;
pub mod view;
pub mod watch;
pub mod worker_user;

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::Resource;
use tlsdyno_engine::serve::Transaction;
use tlsdyno_tls::{Group, Suite, Version};

pub use cache_server::start_session_server;
pub use capabilities::{Capabilities, Wanted, having};
pub use certificates::CertificateFiles;
pub use command::CommandSpec;
pub use deaths::Vigil;
pub use driver::Driver;
pub use instance::{Description, Instance, start};
pub use library::Library;
pub use mapped::{MappedCode, MappedLibrary, mapped_code, mapped_libraries, refuse_secure_execution, require_mapped};
pub use proxy::{Origin, Proxy, start_proxy};
pub use run_directory::RunDirectory;
pub use session_log::SessionCounts;

use instance::Addresses;
use reload::Reload;
use session_log::SessionLog;

use tlsdyno_native::Handed;
use tlsdyno_record::model::{ServerName, SessionCache, TicketKeys, TlsChange};

/// The servers under test. A new one is a file of its own and a line here; messages name servers in this order.
pub static DRIVERS: &[Driver] = &[
    nginx::DRIVER,
    apache::EVENT,
    apache::PREFORK,
    haproxy::DRIVER,
    lighttpd::DRIVER,
    built_in::DRIVER,
    command::DRIVER,
];

pub fn driver_of(server: ServerName) -> &'static Driver {
    DRIVERS.iter().find(|driver| driver.server == server).expect("a test looks every server up")
}

pub const SESSION_LOG_FILE: &str = "sessions.log";

#[derive(Clone, Debug, Default)]
pub struct ServerSpec {
    pub kind: ServerName,
    pub command: Option<CommandSpec>,
    /// TLS settings; `None` is plain HTTP. A user's own command has its own: only `certificate` is used, for its
    /// placeholders.
    pub tls: Option<ServerTls>,
    /// It speaks HTTP/2: over TLS if clients offer it, without TLS to those that know.
    pub http2: bool,
    /// What the copy of an installed configuration has instead of its own TLS settings.
    pub asked_of_installed: TlsChange,
    pub docroot: PathBuf,
    /// Processors that its processes run on; empty: wherever tlsdyno may run.
    pub cpus: Vec<usize>,
    /// CPU time that all of it may use, in processors; `None`: no limit.
    pub quota_cpus: Option<f64>,
    /// Make a control group for quotas that come later (those of [`Instance::quota`]), where that can be.
    pub changing_quota: bool,
    /// Processor of the servers that it needs beside it (HAProxy's backend, memcached, redis), whose CPU time is
    /// counted apart.
    pub companion_cpu: Option<usize>,
    /// What the server alone is started with: variables (OPENSSL_CONF, LD_PRELOAD), and descriptors of this process.
    pub handed: Handed,
    pub library: Option<Library>,
    /// A program with its arguments that the server's own command line is given to (valgrind); empty: none.
    pub under: Vec<OsString>,
    /// Directories that it writes for real, besides its private one, where its view of the file system is its own.
    pub writable: Vec<PathBuf>,
    /// It is started in a network without anybody else, and does not see others' sockets in the file system either.
    pub apart: bool,
    /// It goes on when tlsdyno dies (not when tlsdyno ends it): others depend on it, and nothing in it is insecure.
    pub outlives_owner: bool,
    /// Write the log that [`Instance::session_counts`] reads (not while measuring; not for a user's own command).
    pub log_sessions: bool,
    /// Write the log at [`Instance::object_log`] (nginx): a line `BYTES PATH` for each response, also while measuring.
    pub log_objects: bool,
    /// Allow that a server with no-ops can be reached from other hosts, wherever its configuration, which is not ours,
    /// has it listen.
    pub allow_insecure_listen: bool,
    /// The address that it listens on; `None`: loopback. Where it is another, a server with no-ops may be reached
    /// there, and only there, by whom its shim lets in.
    pub ip: Option<IpAddr>,
    /// Worker processes (nginx, Apache event, lighttpd) or threads (HAProxy, built-in). Apache prefork has no such
    /// number.
    pub workers: u32,
    /// Go on with other connections while a private-key operation runs elsewhere (HAProxy's `ssl-mode-async`).
    pub asynchronous: bool,
    /// The most connections that clients hold open at once: Apache prefork needs a process for each of them.
    pub connections: u32,
    /// So many processes of Apache prefork, however many connections wait; `None`: as many as `connections` need.
    pub prefork_processes: Option<u32>,
    /// A memcached or redis server that runs already, which it shares with others; `None`: one of its own where it
    /// needs one.
    pub session_server: Option<SocketAddr>,
    /// Each page costs so much, and is to be had without TLS beside it (built-in server).
    pub transaction: Option<Transaction>,
    /// What requests are passed on to without TLS (HAProxy, nginx, built-in); `None`: HAProxy has a server of its own,
    /// the others serve `docroot`.
    pub origin: Option<Origin>,
    /// What the built-in server asks a PostgreSQL by for each page; `None`: it serves `docroot`.
    pub database: Option<String>,
}

impl ServerSpec {
    /// A plain-HTTP server of one worker that is not changed in any way.
    pub fn new(kind: ServerName, docroot: PathBuf) -> ServerSpec {
        ServerSpec { kind, docroot, workers: 1, connections: 64, ..ServerSpec::default() }
    }

    fn ip(&self) -> IpAddr {
        self.ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    pub fn of_command(command: CommandSpec, docroot: PathBuf) -> ServerSpec {
        ServerSpec { command: Some(command), ..ServerSpec::new(ServerName::Command, docroot) }
    }

    /// The command line is the user's, and so are its environment, its configuration and its ports.
    fn is_users_own(&self) -> bool {
        self.kind == ServerName::Command
    }

    /// It always listens on the same port, so that configurations must take turns.
    pub fn has_fixed_port(&self) -> bool {
        self.command.as_ref().is_some_and(CommandSpec::has_fixed_port)
    }

    /// Its RSA key is too small to protect anything.
    pub fn has_small_key(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.certificate.kind.is_small_rsa())
    }

    /// Something is injected into the server that may switch cryptography off, or its key is too small, so that it must
    /// not be reachable.
    pub fn is_altered(&self) -> bool {
        self.has_small_key()
            || self
                .handed
                .environment
                .iter()
                .any(|(name, _)| launch::FOREIGN_VARIABLES.iter().any(|foreign| name == foreign))
    }
}

/// TLS settings of a server. Empty lists mean the server's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Versions; empty: both.
    pub versions: Vec<Version>,
    /// Suites of both versions, best first.
    pub suites: Vec<Suite>,
    /// Groups, best first.
    pub groups: Vec<Group>,
    pub certificate: CertificateFiles,
    pub tickets: bool,
    pub ticket_keys: TicketKeys,
    pub session_cache: SessionCache,
    /// How long a session can be resumed, seconds; `None`: as the driver has it.
    pub session_timeout_s: Option<u32>,
    pub early_data: bool,
    /// Accept encrypt-then-MAC (RFC 7366).
    pub encrypt_then_mac: bool,
}

impl ServerTls {
    /// Both versions, the server's default suites and groups, tickets and session cache on.
    pub fn new(certificate: CertificateFiles) -> ServerTls {
        ServerTls {
            versions: Vec::new(),
            suites: Vec::new(),
            groups: Vec::new(),
            certificate,
            tickets: true,
            ticket_keys: TicketKeys::Own,
            session_cache: SessionCache::Shared,
            session_timeout_s: None,
            early_data: false,
            encrypt_then_mac: true,
        }
    }

    /// How long a session can be resumed by a server that can be told, seconds: an hour unless something else is said,
    /// so that none expires in an experiment.
    fn session_timeout_s(&self) -> u32 {
        self.session_timeout_s.unwrap_or(3600)
    }

    /// The versions, both if none was named.
    fn versions(&self) -> Vec<Version> {
        if self.versions.is_empty() { vec![Version::Tls12, Version::Tls13] } else { self.versions.clone() }
    }

    fn version_range(&self) -> [&'static str; 2] {
        let versions = self.versions();
        let has = |version| versions.contains(&version);
        [
            protocol(if has(Version::Tls12) { Version::Tls12 } else { Version::Tls13 }),
            protocol(if has(Version::Tls13) { Version::Tls13 } else { Version::Tls12 }),
        ]
    }

    /// OpenSSL's cipher list for TLS 1.2; `None`: the server's default. Security level 0, so that the experiment
    /// decides, not the distribution.
    fn cipher_list(&self) -> Option<String> {
        Some(format!("{}:@SECLEVEL=0", self.suite_names(Version::Tls12)?))
    }

    /// OpenSSL's list of TLS 1.3 suites; `None`: the server's default.
    fn ciphersuites(&self) -> Option<String> {
        self.suite_names(Version::Tls13)
    }

    fn suite_names(&self, version: Version) -> Option<String> {
        let names: Vec<_> =
            self.suites.iter().filter(|suite| suite.version() == version).map(|suite| suite.openssl_name()).collect();
        (!names.is_empty()).then(|| names.join(":"))
    }

    /// OpenSSL's list of groups; `None`: the server's default.
    fn groups_list(&self) -> Option<String> {
        let names: Vec<_> = self.groups.iter().map(ToString::to_string).collect();
        (!names.is_empty()).then(|| names.join(":"))
    }
}

fn rendered(configuration: &impl askama::Template) -> Result<String> {
    Ok(configuration.render().context("write a configuration")?.trim_end().to_owned() + "\n")
}

/// Descriptors that a server may have, which its connections take.
fn open_files_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "TLSv1.2",
        Version::Tls13 => "TLSv1.3",
    }
}

#[derive(Clone, Copy, Debug)]
pub struct InstancePlace<'a> {
    /// The directory of the run, common to all its servers.
    pub run: &'a Path,
    pub own: &'a Path,
    pub ip: IpAddr,
    pub port: u16,
    /// Where a user's own command may serve plain HTTP beside TLS.
    pub plain_port: u16,
}

impl InstancePlace<'_> {
    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Writes a file in the server's own directory.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.own.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
impl InstancePlace<'_> {
    fn example() -> InstancePlace<'static> {
        let (run, own) = (Path::new("/run"), Path::new("/run/own"));
        InstancePlace { run, own, ip: Ipv4Addr::LOCALHOST.into(), port: 1, plain_port: 2 }
    }
}

#[derive(Debug, Default)]
pub struct Prepared {
    program: OsString,
    arguments: Vec<OsString>,
    config: String,
    version: String,
    error_log: Option<PathBuf>,
    session_log: Option<SessionLog>,
    /// Where it logs the objects that it is asked for, if it was asked to.
    object_log: Option<PathBuf>,
    /// Where it serves, if that is not the port that it was given.
    addresses: Option<Addresses>,
    raise_open_files: bool,
    /// Milliseconds between SIGTERM and SIGKILL.
    grace_ms: u64,
    /// Processes that it has at least once it is ready: many servers listen before they have workers.
    processes: usize,
    reload: Reload,
    /// Servers that it needs, started before it and ended after it.
    companions: Vec<Companion>,
}

impl Prepared {
    fn new(program: impl Into<OsString>, arguments: Vec<OsString>) -> Prepared {
        Prepared {
            program: program.into(),
            arguments,
            raise_open_files: true,
            grace_ms: 2_000,
            processes: 1,
            ..Prepared::default()
        }
    }
}

#[derive(Debug)]
struct Companion {
    /// What it is to the other: `backend`, `memcached`.
    name: &'static str,
    instance: Instance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_one_driver() {
        for server in ServerName::ALL {
            assert_eq!(driver_of(server).server, server);
        }
        assert_eq!(DRIVERS.len(), ServerName::ALL.len());
    }

    #[test]
    fn the_tests_install_every_package() {
        let script = include_str!("../../../scripts/install-packages");
        for package in DRIVERS.iter().filter_map(|driver| driver.package) {
            for name in package.debian.split(' ') {
                assert!(script.contains(name), "scripts/install-packages lacks {name}");
            }
        }
    }
}
