//! HAProxy: ends TLS in front of a plain built-in server, which is started and ended with it and accounted for apart.
//! Without TLS settings it forwards plain HTTP to the same backend, so that its own cost without TLS is known.

use std::path::Path;

use anyhow::{Context, Result};
use askama::Template;
use rustix::process::Signal;
use tlsdyno_record::model::{ServerName, SessionCache, TicketKeys};
use tlsdyno_tls::Version;

use super::capabilities::{Capabilities, USUAL};
use super::directives::{SITE_TICKET_KEY, Setting, groups_with};
use super::driver::Driver;
use super::instance::start;
use super::launch::STDOUT_FILE;
use super::programs::{self, Package};
use super::reload::Reload;
use super::session_log::SessionLog;
use super::ticket_keys::{self, KEYS_FILE, Key};
use super::worker_user::{WorkerUser, create_for_workers, worker_user_of};
use super::{Companion, InstancePlace, Origin, Prepared, ServerSpec, ServerTls, open_files_max, protocol, rendered};

const CONFIG_FILE: &str = "haproxy.cfg";
/// Chain and key in one file, as HAProxy wants them.
pub const CERTIFICATE_FILE: &str = "certificate.pem";
/// Most client connections; fewer where the limit of open files demands it.
const CONNECTIONS_MAX: u64 = 16_384;
/// Descriptors it needs besides two for each connection.
const OTHER_FILES: u64 = 256;
/// Sessions in the cache, as nginx's.
const CACHED_SESSIONS: u32 = 40_000;

pub const PACKAGE: Package = Package::new(&["haproxy"]);

pub(super) const DRIVER: Driver = Driver {
    server: ServerName::Haproxy,
    package: Some(&PACKAGE),
    capabilities: Some(Capabilities {
        name: "haproxy",
        session_caches: &[SessionCache::Off, SessionCache::Shared],
        asynchronous: true,
        ..USUAL
    }),
    no_session_log: None,
    alarms: &["[ALERT]", "[EMERG]"],
    prepare,
    lines,
};

fn lines(setting: Setting) -> Vec<String> {
    match setting {
        Setting::Version(version) => vec![format!("{BIND} {LOWEST_VERSION} {}", protocol(version))],
        Setting::AlsoTls13 => vec![format!("{BIND} {LOWEST_VERSION} {}", protocol(Version::Tls12))],
        Setting::Suite(suite) => vec![format!("{BIND} {} {suite}", suites(suite.version()))],
        Setting::Group(group) => vec![format!("{BIND} {GROUPS} {}", groups_with(group))],
        Setting::Groups(list) => vec![format!("{BIND} {GROUPS} {list}")],
        Setting::Ciphers(list) => vec![format!("{BIND} {} {list}", suites(Version::Tls12))],
        Setting::Certificate(_) => vec![format!("{BIND}    # certificate and key in one file")],
        Setting::AlsoCertificate(file) => {
            vec![format!("{BIND} crt {}    # certificate and key in one file", file.chain)]
        }
        Setting::SessionTimeout(seconds) => global_lines(&[&session_lifetime(seconds)]),
        Setting::Http2 => vec![format!("{BIND} {HTTP2}")],
        Setting::KeepAlive(seconds) => vec![format!("timeout http-keep-alive {seconds}s")],
        Setting::RecordBytes(bytes) => global_lines(&[&format!("tune.ssl.maxrecord {bytes}")]),
        Setting::SessionCache(SessionCache::Off) => global_lines(&[&cached_sessions(0)]),
        Setting::SessionCache(_) => global_lines(&[&cached_sessions(20_000)]),
        Setting::Tickets(true) => vec![format!("{BIND}    # without {NO_TICKETS}")],
        Setting::Tickets(false) => vec![format!("{BIND} {NO_TICKETS}")],
        Setting::TicketKeys(TicketKeys::Own) => Vec::new(),
        Setting::TicketKeys(_) => vec![format!("{BIND} {TICKET_KEYS} {SITE_TICKET_KEY}    {TICKET_KEYS_ADVICE}")],
        Setting::EarlyData => {
            vec![format!("{BIND} {EARLY_DATA}"), "http-request wait-for-handshake if !METH_GET".to_owned()]
        }
        Setting::Processors(count) => global_lines(&[&threads(count)]),
        Setting::Accelerator { asynchronous: true } => global_lines(&[PROVIDERS[0], PROVIDERS[1], ASYNCHRONOUS]),
        Setting::Accelerator { asynchronous: false } => global_lines(&PROVIDERS),
        Setting::KernelTls => Vec::new(),
    }
}

/// Words of the configuration that both experiments and remedies have.
const LOWEST_VERSION: &str = "ssl-min-ver";
const HIGHEST_VERSION: &str = "ssl-max-ver";
const GROUPS: &str = "curves";
const NO_TICKETS: &str = "no-tls-tickets";
const TICKET_KEYS: &str = "tls-ticket-keys";
const EARLY_DATA: &str = "allow-0rtt";
const HTTP2: &str = "alpn h2,http/1.1";
const ASYNCHRONOUS: &str = "ssl-mode-async";
/// An accelerator beside OpenSSL's own provider.
const PROVIDERS: [&str; 2] = ["ssl-provider CARD", "ssl-provider default"];

const BIND: &str = "bind :443 ssl crt /etc/ssl/site.pem";
const TICKET_KEYS_ADVICE: &str = "# three lines of `openssl rand -base64 48` or more, the last but one encrypts";

fn global_lines(lines: &[&str]) -> Vec<String> {
    std::iter::once("global".to_owned()).chain(lines.iter().map(|line| format!("    {line}"))).collect()
}

fn threads(count: u32) -> String {
    format!("nbthread {count}")
}

pub fn cached_sessions_of(off: bool) -> String {
    cached_sessions(if off { 0 } else { CACHED_SESSIONS })
}

fn cached_sessions(count: u32) -> String {
    format!("tune.ssl.cachesize {count}")
}

pub fn session_lifetime(seconds: u32) -> String {
    format!("tune.ssl.lifetime {seconds}")
}

fn suites(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "ciphers",
        Version::Tls13 => "ciphersuites",
    }
}

/// The plain server behind it: the built-in one, untouched.
fn backend(spec: &ServerSpec, run: &Path) -> Result<Companion> {
    let plain = ServerSpec {
        cpus: spec.companion_cpu.into_iter().collect(),
        ..ServerSpec::new(ServerName::Builtin, spec.docroot.clone())
    };
    let instance = start(&plain, run).context("failed to start the plain server behind the proxy")?;
    Ok(Companion { name: "backend", instance })
}

/// Writes the configuration for a server in front of the origin, or of a backend of its own, which is started, and says
/// how to start it.
fn prepare(spec: &ServerSpec, place: InstancePlace) -> Result<Prepared> {
    let backend = if spec.origin.is_none() { Some(backend(spec, place.run)?) } else { None };
    let directory = place.own;
    let program = PACKAGE.require("")?;
    let user = worker_user_of(spec, directory)?;
    let mut global = vec![threads(spec.workers)];
    if let Some(tls) = &spec.tls {
        tls.certificate.write_in_one(&directory.join(CERTIFICATE_FILE))?;
        let cached = cached_sessions_of(tls.session_cache == SessionCache::Off);
        global.extend([cached, session_lifetime(tls.session_timeout_s())]);
    }
    global.extend(spec.asynchronous.then(|| ASYNCHRONOUS.to_owned()));
    let behind = backend.as_ref().map(|own| Origin::Server(own.instance.address())).or(spec.origin.clone());
    // Without TLS it knows HTTP/2 by its first bytes.
    let http2 = if spec.http2 && spec.tls.is_some() { &format!(" {HTTP2}") } else { "" };
    let config = rendered(&Configuration {
        spec,
        place,
        user: user.as_ref(),
        connections: connections_max(),
        global,
        tls: spec.tls.as_ref().map_or(Ok(String::new()), |tls| tls_parameters(tls, place))? + http2,
        origin: behind.context("there is nothing behind the proxy")?,
    })?;
    let path = place.write(CONFIG_FILE, &config)?;
    // With a master, which can reload; `-db`: in the foreground.
    let arguments = vec!["-W".into(), "-db".into(), "-f".into(), path.into()];
    let session_log = SessionLog { path: directory.join(STDOUT_FILE), mark: "session ", resumed: "1", first: "1" };
    Ok(Prepared {
        config,
        version: version(&program),
        session_log: spec.log_sessions.then_some(session_log),
        processes: 2,
        reload: Reload::NewWorkers { signal: Signal::USR2, at_least: 1, old_stop_listening: true },
        companions: backend.into_iter().collect(),
        ..Prepared::new(program, arguments)
    })
}

/// The first words of what `haproxy -vv` says, and the OpenSSL it runs with.
fn version(program: &Path) -> String {
    let output = programs::output_of(program, &["-vv"]);
    let first = output.lines().next().unwrap_or("HAProxy of unknown version").split(" - ").next().unwrap_or_default();
    let library = output.lines().find_map(|line| line.strip_prefix("Running on OpenSSL version : "));
    library.map_or_else(|| first.to_owned(), |library| format!("{first}, {library}"))
}

/// The whole configuration file. Everything not set here is HAProxy's default.
#[derive(Template)]
#[template(path = "haproxy.cfg", escape = "none")]
struct Configuration<'a> {
    spec: &'a ServerSpec,
    place: InstancePlace<'a>,
    user: Option<&'a WorkerUser>,
    connections: u64,
    /// Further lines of its section `global`.
    global: Vec<String>,
    tls: String,
    origin: Origin,
}

/// Client connections that the limit of open files allows.
pub(super) fn connections_max() -> u64 {
    CONNECTIONS_MAX.min(open_files_max().saturating_sub(OTHER_FILES) / 2).max(OTHER_FILES)
}

/// Parameters of `bind`. The client decides on encrypt-then-MAC: HAProxy has no switch for it.
pub fn tls_parameters(tls: &ServerTls, place: InstancePlace) -> Result<String> {
    let [lowest, highest] = tls.version_range();
    let certificate = quoted(&place.own.join(CERTIFICATE_FILE))?;
    let mut text = format!(" ssl crt {certificate} {LOWEST_VERSION} {lowest} {HIGHEST_VERSION} {highest}");
    for (name, list) in [
        (suites(Version::Tls12), tls.cipher_list()),
        (suites(Version::Tls13), tls.ciphersuites()),
        (GROUPS, tls.groups_list()),
    ] {
        if let Some(list) = list {
            text += &format!(" {name} {list}");
        }
    }
    if !tls.tickets {
        text += &format!(" {NO_TICKETS}");
    }
    if let Some(keys) = ticket_key_lines(&ticket_keys::of_run(place.run, tls.ticket_keys)?) {
        let path = place.own.join(KEYS_FILE);
        create_for_workers(&path, None, keys.as_bytes())?;
        text += &format!(" {TICKET_KEYS} {}", quoted(&path)?);
    }
    if tls.early_data {
        text += &format!(" {EARLY_DATA}");
    }
    Ok(text)
}

/// Three keys in base64, of which the last but one encrypts; `None`: HAProxy draws its own.
fn ticket_key_lines(keys: &[Key]) -> Option<String> {
    let first = keys.first()?;
    let older = keys.get(1).unwrap_or(first);
    Some([older, first, first].map(|key| openssl::base64::encode_block(key) + "\n").concat())
}

/// A path as a word in strong quotes, in which nothing is expanded.
fn quoted(path: &Path) -> Result<String> {
    Ok(format!("'{}'", programs::writable(path, "HAProxy", "'")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_but_one_of_three_ticket_keys_encrypts() {
        let keys: [Key; 2] = [[1; 80], [2; 80]];
        let written = |keys: &[Key]| -> Vec<u8> {
            let text = ticket_key_lines(keys).unwrap();
            text.lines().map(|line| openssl::base64::decode_block(line).unwrap()[79]).collect()
        };
        assert_eq!(written(&keys), [2, 1, 1]);
        assert_eq!(written(&keys[..1]), [1, 1, 1]);
        assert_eq!(ticket_key_lines(&[]), None);
    }
}
