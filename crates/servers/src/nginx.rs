//! nginx: a minimal configuration in a private directory. The system's own configuration and service are never touched.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use askama::Template;
use rustix::process::Signal;
use tlsdyno_record::model::{ServerName, SessionCache, TicketKeys};
use tlsdyno_tls::Version;

use super::capabilities::{Capabilities, USUAL};
use super::directives::{SITE_CHAIN, SITE_KEY, SITE_TICKET_KEY, Setting, groups_with, openssl_provider, owned};
use super::driver::Driver;
use super::programs::{self, Package};
use super::reload::Reload;
use super::session_log::SessionLog;
use super::worker_user::{WorkerUser, create_for_workers, worker_user_of};
use super::{
    InstancePlace, Prepared, SESSION_LOG_FILE, ServerSpec, ServerTls, open_files_max, protocol, rendered, ticket_keys,
};

pub const ERROR_LOG_FILE: &str = "error.log";
const OBJECT_LOG_FILE: &str = "objects.log";
const CONFIG_FILE: &str = "nginx.conf";
/// Most connections of a worker; fewer where the limit of open files demands it.
const WORKER_CONNECTIONS: u64 = 16_384;
const CERTIFICATE: &str = "ssl_certificate";
const CERTIFICATE_KEY: &str = "ssl_certificate_key";
const GROUPS: &str = "ssl_ecdh_curve";
const EARLY_DATA: &str = "ssl_early_data on";
const TICKET_KEY: &str = "ssl_session_ticket_key";
/// Descriptors a worker needs besides connections (listeners, logs, channels, files being served).
const OTHER_FILES: u64 = 64;

/// Ends of the names of directives whose first argument is a file that nginx looks for beside its configuration.
const OF_FILES: [&str; 16] = [
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_trusted_certificate",
    "ssl_crl",
    "ssl_password_file",
    "ssl_client_certificate",
    "ssl_dhparam",
    "ssl_session_ticket_key",
    "ssl_stapling_file",
    "auth_basic_user_file",
    "geoip_country",
    "geoip_city",
    "geoip_org",
    "xslt_stylesheet",
    "xml_entities",
    "quic_host_key",
];

pub const PACKAGE: Package = Package {
    debian: "nginx-light",
    // For `ssl_conf_command`.
    oldest: "1.19.4",
    ..Package::new(&["nginx"])
};

pub(super) const DRIVER: Driver = Driver {
    server: ServerName::Nginx,
    package: Some(&PACKAGE),
    capabilities: Some(Capabilities {
        name: "nginx",
        session_caches: &[SessionCache::Off, SessionCache::Builtin, SessionCache::Shared, SessionCache::BuiltinShared],
        ..USUAL
    }),
    no_session_log: None,
    alarms: &["[crit]", "[alert]", "[emerg]", "exited on signal"],
    prepare,
    lines,
};

/// Whether a directive's first argument is a file that nginx looks for beside its configuration.
pub fn names_file(directive: &str) -> bool {
    OF_FILES.iter().any(|end| directive.ends_with(end))
}

fn lines(setting: Setting) -> Vec<String> {
    match setting {
        Setting::Version(version) => vec![protocols(&[version]) + ";"],
        Setting::AlsoTls13 => vec![protocols(&[Version::Tls12, Version::Tls13]) + ";"],
        Setting::Suite(suite) => vec![suites(suite.version(), suite.openssl_name()) + ";"],
        Setting::Group(group) => vec![format!("{GROUPS} {};", groups_with(group))],
        Setting::Groups(list) => vec![format!("{GROUPS} {list};")],
        Setting::Ciphers(list) => vec![suites(Version::Tls12, list) + ";", "ssl_prefer_server_ciphers off;".to_owned()],
        Setting::Certificate(_) => certificate_lines(SITE_CHAIN, SITE_KEY),
        Setting::AlsoCertificate(file) => certificate_lines(&file.chain, &file.key),
        Setting::SessionTimeout(seconds) => vec![format!("ssl_session_timeout {seconds}s;")],
        Setting::Http2 => owned(&["listen 443 ssl http2;    # from nginx 1.25.1 on: http2 on;"]),
        Setting::KeepAlive(seconds) => vec![format!("keepalive_timeout {seconds}s;")],
        Setting::RecordBytes(bytes) => vec![format!("ssl_buffer_size {bytes};")],
        Setting::SessionCache(cache) => session_cache_lines(cache),
        Setting::Tickets(on) => vec![tickets(on) + ";"],
        Setting::TicketKeys(keys) => ticket_key_lines(keys),
        Setting::EarlyData => owned(&[
            &format!("{EARLY_DATA};"),
            "proxy_set_header Early-Data $ssl_early_data;    # lets an application answer 425 (RFC 8470)",
        ]),
        Setting::Processors(count) => vec![format!("worker_processes {count};")],
        Setting::Accelerator { .. } => openssl_provider(),
        Setting::KernelTls => owned(&[
            "# modprobe tls; an OpenSSL that was built with enable-ktls; nginx 1.21.4 or later",
            "ssl_conf_command Options KTLS;",
            "sendfile on;",
        ]),
    }
}

fn certificate_lines(chain: &str, key: &str) -> Vec<String> {
    vec![format!("{CERTIFICATE} {chain};"), format!("{CERTIFICATE_KEY} {key};")]
}

fn session_cache_lines(cache: SessionCache) -> Vec<String> {
    match cache {
        SessionCache::Off => owned(&["ssl_session_cache off;"]),
        SessionCache::Builtin => {
            owned(&["ssl_session_cache builtin:20480;    # in each worker: sessions of the others are not found"])
        }
        SessionCache::BuiltinShared => owned(&["ssl_session_cache builtin:1000 shared:SSL:10m;"]),
        _ => owned(&["ssl_session_cache shared:SSL:10m;"]),
    }
}

fn ticket_key_lines(keys: TicketKeys) -> Vec<String> {
    let first = format!("{TICKET_KEY} {SITE_TICKET_KEY};    # openssl rand 80");
    match keys {
        TicketKeys::Own => Vec::new(),
        TicketKeys::Shared => vec![first],
        TicketKeys::Rotating => vec![first, format!("{TICKET_KEY} /run/tls/previous.key;")],
    }
}

/// How HTTP/2 is switched on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Http2 {
    Off,
    /// Of `listen`, where a listener without TLS then speaks nothing else.
    Parameter,
    /// From nginx 1.25.1 on.
    Directive,
}

impl Http2 {
    fn of(spec: &ServerSpec, program: &Path) -> Http2 {
        const WITH_DIRECTIVE: Package = Package { oldest: "1.25.1", ..PACKAGE };
        match spec.http2 {
            false => Http2::Off,
            true if WITH_DIRECTIVE.is_too_old(&programs::output_of(program, &["-v"])) => Http2::Parameter,
            true => Http2::Directive,
        }
    }
}

fn prepare(spec: &ServerSpec, place: InstancePlace) -> Result<Prepared> {
    let directory = place.own;
    let program = PACKAGE.require(" or use --server builtin")?;
    let user = worker_user_of(spec, directory)?;
    let config = rendered(&Configuration {
        spec,
        place,
        user: user.as_ref(),
        is_root: rustix::process::geteuid().is_root(),
        connections: worker_connections(),
        http2: Http2::of(spec, &program),
        own: escaped(directory)?,
        docroot: quoted(&spec.docroot)?,
        tls: spec.tls.as_ref().map_or(Ok(Vec::new()), |tls| tls_directives(tls, place))?,
    })?;
    let path = place.write(CONFIG_FILE, &config)?;
    let error_log = directory.join(ERROR_LOG_FILE);
    let arguments = arguments(&program, directory, &error_log, &path);
    let session_log = SessionLog { path: directory.join(SESSION_LOG_FILE), mark: "", resumed: "r", first: "1" };
    Ok(Prepared {
        config,
        version: version(&program),
        error_log: Some(error_log),
        session_log: spec.log_sessions.then_some(session_log),
        object_log: spec.log_objects.then(|| directory.join(OBJECT_LOG_FILE)),
        processes: 1 + spec.workers as usize,
        reload: Reload::NewWorkers { signal: Signal::HUP, at_least: spec.workers as usize, old_stop_listening: true },
        ..Prepared::new(program, arguments)
    })
}

pub(super) fn arguments(program: &Path, directory: &Path, error_log: &Path, config: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-p".into(), directory.into(), "-c".into(), config.into()];
    if takes_log(program) {
        arguments.extend(["-e".into(), error_log.into()]);
    }
    arguments
}

/// Whether it can be told which log it opens first: 1.19.5 and later can, others open the one of their build.
pub fn takes_log(program: &Path) -> bool {
    programs::output_of(program, &["-h"]).contains("-e filename")
}

pub fn version(program: &Path) -> String {
    let output = programs::output_of(program, &["-V"]);
    if output.is_empty() {
        return "nginx of unknown version".to_owned();
    }
    let lines = output.lines().filter(|line| line.starts_with("nginx version") || line.contains("OpenSSL"));
    lines.map(|line| line.trim_start_matches("nginx version: ")).collect::<Vec<_>>().join(", ")
}

/// The whole configuration file. Everything not set here is nginx's default.
#[derive(Template)]
#[template(path = "nginx.conf", escape = "none")]
struct Configuration<'a> {
    spec: &'a ServerSpec,
    place: InstancePlace<'a>,
    user: Option<&'a WorkerUser>,
    is_root: bool,
    connections: u64,
    http2: Http2,
    own: String,
    docroot: String,
    tls: Vec<String>,
}

/// Connections of a worker that the limit of open files allows.
pub(super) fn worker_connections() -> u64 {
    WORKER_CONNECTIONS.min(open_files_max().saturating_sub(OTHER_FILES)).max(OTHER_FILES)
}

pub fn tls_directives(tls: &ServerTls, place: InstancePlace) -> Result<Vec<String>> {
    let mut directives = vec![
        format!("{CERTIFICATE} {}", quoted(&tls.certificate.chain)?),
        format!("{CERTIFICATE_KEY} {}", quoted(&tls.certificate.key)?),
        "ssl_buffer_size 16k".to_owned(),
        "ssl_prefer_server_ciphers on".to_owned(),
        format!("ssl_session_timeout {}s", tls.session_timeout_s()),
        tickets(tls.tickets),
        format!("ssl_session_cache {}", session_cache(tls.session_cache)),
        protocols(&tls.versions()),
    ];
    directives.extend(tls.cipher_list().map(|list| suites(Version::Tls12, &list)));
    directives.extend(tls.ciphersuites().map(|list| suites(Version::Tls13, &list)));
    directives.extend(tls.groups_list().map(|list| format!("{GROUPS} {list}")));
    directives.extend(ticket_key_files(tls.ticket_keys, place)?);
    directives.extend(tls.early_data.then(|| EARLY_DATA.to_owned()));
    if !tls.encrypt_then_mac {
        directives.push("ssl_conf_command Options -EncryptThenMac".to_owned());
    }
    Ok(directives)
}

/// The directives of files with ticket keys, which are written.
fn ticket_key_files(keys: TicketKeys, place: InstancePlace) -> Result<Vec<String>> {
    let keys = ticket_keys::of_run(place.run, keys)?;
    let written = keys.iter().enumerate().map(|(number, key)| {
        let path = place.own.join(format!("ticket-key-{number}"));
        create_for_workers(&path, None, key)?;
        Ok(format!("{TICKET_KEY} {}", quoted(&path)?))
    });
    written.collect()
}

fn protocols(versions: &[Version]) -> String {
    format!("ssl_protocols {}", versions.iter().map(|version| protocol(*version)).collect::<Vec<_>>().join(" "))
}

fn suites(version: Version, list: &str) -> String {
    match version {
        Version::Tls12 => format!("ssl_ciphers {list}"),
        Version::Tls13 => format!("ssl_conf_command Ciphersuites {list}"),
    }
}

fn tickets(on: bool) -> String {
    format!("ssl_session_tickets {}", if on { "on" } else { "off" })
}

/// 40,000 sessions or so in shared memory. With the cache off nginx issues no session IDs.
fn session_cache(cache: SessionCache) -> &'static str {
    match cache {
        SessionCache::Builtin => "builtin",
        SessionCache::BuiltinShared => "builtin shared:tlsdyno:10m",
        SessionCache::Shared => "shared:tlsdyno:10m",
        SessionCache::Off | SessionCache::Dbm | SessionCache::Memcached | SessionCache::Redis => "off",
    }
}

fn quoted(path: &Path) -> Result<String> {
    Ok(format!("\"{}\"", escaped(path)?))
}

/// A path inside quotes. nginx has no way to write `$` itself where it expands variables.
fn escaped(path: &Path) -> Result<String> {
    let text = programs::writable(path, "nginx", "$")?;
    Ok(text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_or_refused() {
        assert_eq!(quoted(Path::new("/a b/\"c\"")).unwrap(), "\"/a b/\\\"c\\\"\"");
        assert!(quoted(Path::new("/a$b")).is_err());
    }
}
