//! Apache with mod_ssl: a minimal configuration in a private directory, with the event or the prefork MPM. The system's
//! own configuration and service are never touched.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use askama::Template;
use rustix::process::Signal;
use tlsdyno_record::model::{ServerName, SessionCache, TicketKeys};
use tlsdyno_tls::Version;

use super::capabilities::{Capabilities, OWN_AND_SHARED, USUAL};
use super::directives::{SITE_CHAIN, SITE_KEY, SITE_TICKET_KEY, Setting, groups_with, openssl_provider, owned};
use super::driver::Driver;
use super::programs::{self, Package};
use super::reload::Reload;
use super::session_log::SessionLog;
use super::ticket_keys::{self, KEYS_FILE};
use super::worker_user::{WorkerUser, create_for_workers, worker_user_of};
use super::{InstancePlace, Prepared, SESSION_LOG_FILE, ServerSpec, ServerTls, cache_server, protocol, rendered};

const ERROR_LOG_FILE: &str = "error.log";
const CONFIG_FILE: &str = "apache.conf";
const CERTIFICATE: &str = "SSLCertificateFile";
const CERTIFICATE_KEY: &str = "SSLCertificateKeyFile";
const GROUPS: &str = "SSLOpenSSLConfCmd Groups";
const TICKET_KEY: &str = "SSLSessionTicketKeyFile";
const MODULE_DIRECTORIES: [&str; 5] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
    "/usr/local/apache2/modules",
    "/etc/httpd/modules",
];
const MODULE_ADVICE: &str = "Debian: apache2-bin; Fedora: mod_ssl";
/// Threads of each worker process of the event MPM: connections that are waited for in a handshake or a request occupy
/// one, idle ones none.
const THREADS_PER_WORKER: u32 = 128;
/// Processes of the prefork MPM beyond one for each connection: preflight and late closes.
const SPARE_PROCESSES: u32 = 16;
/// Of shared memory, for about 40,000 sessions like nginx's 10 MB.
const CACHE_BYTES: u32 = 10 << 20;

/// Name, HMAC key and AES-128 key.
const TICKET_KEY_BYTES: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mpm {
    /// Processes with threads, and a listener thread that holds idle connections.
    Event,
    /// A process for each connection.
    Prefork,
}

impl Mpm {
    const fn name(self) -> &'static str {
        match self {
            Mpm::Event => "mpm_event",
            Mpm::Prefork => "mpm_prefork",
        }
    }

    fn processes(self, spec: &ServerSpec) -> u32 {
        match self {
            Mpm::Event => spec.workers,
            Mpm::Prefork => spec.prefork_processes.unwrap_or(spec.connections + SPARE_PROCESSES),
        }
    }
}

pub const PACKAGE: Package = Package {
    title: "Apache (apache2 or httpd)",
    debian: "apache2-bin",
    service: None,
    ..Package::new(&["apache2", "httpd"])
};

const CAPABILITIES: Capabilities = Capabilities {
    name: "apache",
    session_caches: &[
        SessionCache::Off,
        SessionCache::Shared,
        SessionCache::Dbm,
        SessionCache::Memcached,
        SessionCache::Redis,
    ],
    ticket_keys: OWN_AND_SHARED,
    early_data: false,
    ..USUAL
};

pub(super) const EVENT: Driver = Driver {
    server: ServerName::ApacheEvent,
    package: Some(&PACKAGE),
    capabilities: Some(CAPABILITIES),
    no_session_log: None,
    // Its levels stand behind the module's name.
    alarms: &[":crit]", ":alert]", ":emerg]", "exit signal"],
    prepare: |spec, place| prepare(spec, Mpm::Event, place),
    lines: |setting| lines(Mpm::Event, setting),
};

pub(super) const PREFORK: Driver = Driver {
    server: ServerName::ApachePrefork,
    // mod_http2 does not work with it.
    capabilities: Some(Capabilities { process_per_connection: true, http2: false, ..CAPABILITIES }),
    prepare: |spec, place| prepare(spec, Mpm::Prefork, place),
    lines: |setting| lines(Mpm::Prefork, setting),
    ..EVENT
};

fn lines(mpm: Mpm, setting: Setting) -> Vec<String> {
    match setting {
        Setting::Version(version) => vec![protocols(&[version])],
        Setting::AlsoTls13 => vec![protocols(&[Version::Tls12, Version::Tls13])],
        Setting::Suite(suite) => vec![suites(suite.version(), suite.openssl_name())],
        Setting::Group(group) => vec![format!("{GROUPS} {}", groups_with(group))],
        Setting::Groups(list) => vec![format!("{GROUPS} {list}")],
        Setting::Ciphers(list) => vec![suites(Version::Tls12, list), "SSLHonorCipherOrder off".to_owned()],
        Setting::Certificate(_) => {
            vec![format!("{CERTIFICATE} {SITE_CHAIN}"), format!("{CERTIFICATE_KEY} {SITE_KEY}")]
        }
        Setting::AlsoCertificate(file) => {
            vec![format!("{CERTIFICATE} {}", file.chain), format!("{CERTIFICATE_KEY} {}", file.key)]
        }
        Setting::SessionTimeout(seconds) => vec![format!("SSLSessionCacheTimeout {seconds}")],
        Setting::Http2 => owned(&["# a2enmod http2; not with the prefork MPM", "Protocols h2 http/1.1"]),
        Setting::KeepAlive(seconds) => vec!["KeepAlive On".to_owned(), format!("KeepAliveTimeout {seconds}")],
        Setting::RecordBytes(_) => Vec::new(),
        Setting::SessionCache(cache) => vec![format!(
            "SSLSessionCache {}",
            match cache {
                SessionCache::Off => "none",
                SessionCache::Dbm => "dbm:/run/apache2/ssl_sessions",
                SessionCache::Memcached => "memcache:localhost:11211",
                SessionCache::Redis => "redis:localhost:6379",
                _ => "shmcb:/run/apache2/ssl_sessions(512000)",
            }
        )],
        Setting::Tickets(on) => vec![tickets(on)],
        Setting::TicketKeys(TicketKeys::Own) => Vec::new(),
        // Apache has no comments behind directives.
        Setting::TicketKeys(_) => vec![
            "# openssl rand 48. On OpenSSL 3 mod_ssl 2.4 may lose its MAC key: see whether a restart keeps sessions"
                .to_owned(),
            format!("{TICKET_KEY} {SITE_TICKET_KEY}"),
        ],
        Setting::EarlyData => owned(&["# mod_ssl takes no early data"]),
        Setting::Processors(count) => vec![match mpm {
            Mpm::Event => format!("# the event MPM uses all CPUs: at least ServerLimit {count}"),
            Mpm::Prefork => format!("# prefork uses all CPUs: MaxRequestWorkers well above {count}"),
        }],
        Setting::Accelerator { .. } => openssl_provider(),
        Setting::KernelTls => Vec::new(),
    }
}

/// Writes the configuration, starts the server that keeps its sessions, where it has one, and says how to start it.
fn prepare(spec: &ServerSpec, mpm: Mpm, place: InstancePlace) -> Result<Prepared> {
    let cache = cache_server::beside(spec, place.run)?;
    let cache_address = spec.session_server.or(cache.as_ref().map(|cache| cache.instance.address()));
    let directory = place.own;
    let program = PACKAGE.require("")?;
    let user = worker_user_of(spec, directory)?;
    ensure!(
        user.is_some() || !rustix::process::geteuid().is_root(),
        "Apache's workers never run as root, and as another user they are out of valgrind's reach; run tlsdyno as a \
         plain user"
    );
    let config = rendered(&Configuration {
        spec,
        place,
        modules: modules(spec, mpm, &program)?,
        user: user.as_ref(),
        processes: mpm.processes(spec),
        threads: if mpm == Mpm::Event { THREADS_PER_WORKER } else { 0 },
        own: plain(directory)?,
        docroot: plain(&spec.docroot)?,
        tls: spec.tls.as_ref().map_or(Ok(Vec::new()), |tls| tls_directives(tls, place, cache_address))?,
    })?;
    let path = place.write(CONFIG_FILE, &config)?;
    let arguments = vec!["-d".into(), directory.into(), "-f".into(), path.into(), "-DFOREGROUND".into()];
    let session_log = SessionLog { path: directory.join(SESSION_LOG_FILE), mark: "", resumed: "Resumed", first: "0" };
    Ok(Prepared {
        config,
        version: version(&program, mpm),
        error_log: Some(directory.join(ERROR_LOG_FILE)),
        session_log: spec.log_sessions.then_some(session_log),
        processes: 1 + mpm.processes(spec) as usize,
        reload: Reload::NewWorkers {
            signal: Signal::USR1,
            // Prefork replaces its processes one by one, those with a connection when that ends.
            at_least: if mpm == Mpm::Event { spec.workers as usize } else { 1 },
            old_stop_listening: mpm == Mpm::Event,
        },
        companions: cache.into_iter().collect(),
        ..Prepared::new(program, arguments)
    })
}

fn version(program: &Path, mpm: Mpm) -> String {
    let output = programs::output_of(program, &["-v"]);
    let version =
        output.lines().find_map(|line| line.strip_prefix("Server version: ")).unwrap_or("Apache of unknown version");
    format!("{version}, {}", mpm.name())
}

/// `LoadModule` lines for what is needed and not compiled in.
fn modules(spec: &ServerSpec, mpm: Mpm, program: &Path) -> Result<Vec<String>> {
    let compiled_in = programs::output_of(program, &["-l"]);
    let mut needed = vec![mpm.name(), "unixd", "authz_core", "dir"];
    if spec.log_sessions {
        needed.push("log_config");
    }
    needed.extend(spec.http2.then_some("http2"));
    if let Some(tls) = &spec.tls {
        needed.extend(cache_module(tls.session_cache));
        needed.push("ssl");
    }
    let missing = needed
        .into_iter()
        .filter(|name| !compiled_in.contains(&format!("mod_{name}.c")) && !compiled_in.contains(&format!(" {name}.c")));
    missing
        .map(|name| {
            let path =
                programs::require_module("Apache", &format!("mod_{name}.so"), &MODULE_DIRECTORIES, MODULE_ADVICE)?;
            Ok(format!("LoadModule {name}_module {}", quoted(&path)?))
        })
        .collect()
}

const fn cache_module(cache: SessionCache) -> Option<&'static str> {
    match cache {
        SessionCache::Shared => Some("socache_shmcb"),
        SessionCache::Dbm => Some("socache_dbm"),
        SessionCache::Memcached => Some("socache_memcache"),
        SessionCache::Redis => Some("socache_redis"),
        SessionCache::Off | SessionCache::Builtin | SessionCache::BuiltinShared => None,
    }
}

/// The argument of SSLSessionCache. `server`: the one that keeps the sessions, where there is one.
fn session_cache(cache: SessionCache, directory: &Path, server: Option<SocketAddr>) -> Result<String> {
    let path = directory.join("session-cache");
    let server = || server.context("there is no server for the session cache");
    Ok(match cache {
        SessionCache::Shared => format!("\"shmcb:{}({CACHE_BYTES})\"", plain(&path)?),
        SessionCache::Dbm => format!("\"dbm:{}\"", plain(&path)?),
        SessionCache::Memcached => format!("memcache:{}", server()?),
        SessionCache::Redis => format!("redis:{}", server()?),
        SessionCache::Off | SessionCache::Builtin | SessionCache::BuiltinShared => "none".to_owned(),
    })
}

/// The whole configuration file. Everything not set here is Apache's default.
#[derive(Template)]
#[template(path = "apache.conf", escape = "none")]
struct Configuration<'a> {
    spec: &'a ServerSpec,
    place: InstancePlace<'a>,
    modules: Vec<String>,
    user: Option<&'a WorkerUser>,
    processes: u32,
    /// Of each process; 0: those of prefork have none.
    threads: u32,
    own: &'a str,
    docroot: &'a str,
    tls: Vec<String>,
}

pub fn tls_directives(tls: &ServerTls, place: InstancePlace, cache: Option<SocketAddr>) -> Result<Vec<String>> {
    let mut lines = vec![
        "SSLEngine on".to_owned(),
        format!("{CERTIFICATE} {}", quoted(&tls.certificate.chain)?),
        format!("{CERTIFICATE_KEY} {}", quoted(&tls.certificate.key)?),
        protocols(&tls.versions()),
        "SSLHonorCipherOrder on".to_owned(),
        format!("SSLSessionCache {}", session_cache(tls.session_cache, place.own, cache)?),
        format!("SSLSessionCacheTimeout {}", tls.session_timeout_s()),
        tickets(tls.tickets),
    ];
    lines.extend(tls.cipher_list().map(|list| suites(Version::Tls12, &list)));
    lines.extend(tls.ciphersuites().map(|list| suites(Version::Tls13, &list)));
    lines.extend(tls.groups_list().map(|list| format!("{GROUPS} {list}")));
    if let Some(key) = ticket_keys::of_run(place.run, tls.ticket_keys)?.first() {
        let path = place.own.join(KEYS_FILE);
        create_for_workers(&path, None, &key[..TICKET_KEY_BYTES])?;
        lines.push(format!("{TICKET_KEY} {}", quoted(&path)?));
    }
    if !tls.encrypt_then_mac {
        lines.push("SSLOpenSSLConfCmd Options -EncryptThenMac".to_owned());
    }
    Ok(lines)
}

fn protocols(versions: &[Version]) -> String {
    let names: Vec<String> = versions.iter().map(|version| format!("+{}", protocol(*version))).collect();
    format!("SSLProtocol -all {}", names.join(" "))
}

fn suites(version: Version, list: &str) -> String {
    match version {
        Version::Tls12 => format!("SSLCipherSuite {list}"),
        Version::Tls13 => format!("SSLCipherSuite TLSv1.3 {list}"),
    }
}

fn tickets(on: bool) -> String {
    format!("SSLSessionTickets {}", if on { "on" } else { "off" })
}

fn quoted(path: &Path) -> Result<String> {
    Ok(format!("\"{}\"", plain(path)?))
}

/// A path inside quotes. Apache expands `${…}` everywhere and has no way to write it itself.
fn plain(path: &Path) -> Result<&str> {
    programs::writable(path, "Apache", "$ \" \\ ( )")
}
