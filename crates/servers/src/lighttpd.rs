//! lighttpd with mod_openssl: a minimal configuration in a private directory. The system's own configuration and
//! service are never touched.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use askama::Template;
use rustix::process::Signal;
use tlsdyno_record::model::{ServerName, SessionCache, TicketKeys, TlsChange};
use tlsdyno_tls::Version;

use super::capabilities::{Capabilities, OWN_AND_SHARED, USUAL};
use super::directives::{SITE_CHAIN, SITE_KEY, SITE_TICKET_KEY, Setting, groups_with, openssl_provider, owned};
use super::driver::Driver;
use super::programs::{self, Package};
use super::reload::Reload;
use super::ticket_keys::{self, KEYS_FILE, Key};
use super::worker_user::{WorkerUser, create_for_workers, worker_user_of};
use super::{InstancePlace, Prepared, ServerSpec, ServerTls, open_files_max, protocol, rendered};

const ERROR_LOG_FILE: &str = "error.log";
const CONFIG_FILE: &str = "lighttpd.conf";
/// The certificate and its key as the workers may read them: a reload reads them after the change of user.
const CHAIN_FILE: &str = "chain.pem";
const KEY_FILE: &str = "key.pem";
const MODULE_DIRECTORIES: [&str; 3] = ["/usr/lib/lighttpd", "/usr/lib64/lighttpd", "/usr/local/lib/lighttpd"];
const CERTIFICATE: &str = "ssl.pemfile";
const CERTIFICATE_KEY: &str = "ssl.privkey";
const TICKET_KEY: &str = "ssl.stek-file";
const COMMANDS: &str = "ssl.openssl.ssl-conf-cmd";
const LOWEST_VERSION: &str = "MinProtocol";
const HIGHEST_VERSION: &str = "MaxProtocol";
const GROUPS: &str = "Groups";
const NO_TICKETS: &str = "-SessionTicket";
const FEATURES: &str = "server.feature-flags";
const HTTP2: &str = "\"server.h2proto\" => \"enable\"";
/// Without TLS, to clients that know.
const HTTP2_WITHOUT_TLS: &str = "\"server.h2c\" => \"enable\"";
const WORKERS: &str = "server.max-worker";
/// How long a ticket key may be used, in seconds: no experiment lasts longer.
const TICKET_KEY_LIFETIME_S: u32 = 10 * 365 * 86_400;
/// Most open files; fewer where the limit demands it. Connections are half of that.
const OPEN_FILES: u64 = 32_768;

pub const PACKAGE: Package = Package { debian: "lighttpd lighttpd-mod-openssl", ..Package::new(&["lighttpd"]) };

pub(super) const DRIVER: Driver = Driver {
    server: ServerName::Lighttpd,
    package: Some(&PACKAGE),
    capabilities: Some(Capabilities {
        name: "lighttpd",
        session_caches: &[SessionCache::Off, SessionCache::Builtin, SessionCache::Shared],
        workers_share_sessions: false,
        ticket_keys: OWN_AND_SHARED,
        session_timeout: false,
        early_data: false,
        ..USUAL
    }),
    no_session_log: Some("lighttpd has no variable for resumption that it could log; count on the client's side"),
    alarms: &["child exited with signal"],
    prepare,
    lines,
};

fn lines(setting: Setting) -> Vec<String> {
    match setting {
        Setting::Version(version) => vec![more_commands(&[(LOWEST_VERSION, protocol(version).to_owned())])],
        Setting::AlsoTls13 => vec![more_commands(&[(LOWEST_VERSION, protocol(Version::Tls12).to_owned())])],
        Setting::Suite(suite) => vec![more_commands(&[(suites(suite.version()), suite.to_string())])],
        Setting::Group(group) => vec![more_commands(&[(GROUPS, groups_with(group))])],
        Setting::Groups(list) => vec![more_commands(&[(GROUPS, list)])],
        Setting::Ciphers(list) => vec![more_commands(&[(suites(Version::Tls12), list.to_owned())])],
        Setting::Certificate(_) => {
            vec![format!("{CERTIFICATE} = \"{SITE_CHAIN}\""), format!("{CERTIFICATE_KEY} = \"{SITE_KEY}\"")]
        }
        Setting::Http2 => vec![format!("{FEATURES} += ({HTTP2})")],
        Setting::KeepAlive(seconds) => vec![
            format!("server.max-keep-alive-idle = {seconds}"),
            format!("server.max-keep-alive-requests = {KEPT_REQUESTS}"),
        ],
        // It shows one certificate.
        Setting::AlsoCertificate(_) | Setting::SessionTimeout(_) | Setting::RecordBytes(_) => Vec::new(),
        Setting::SessionCache(cache) => {
            let state = if cache == SessionCache::Off { "disable" } else { "enable" };
            vec![format!("{FEATURES} += ({})", session_cache(state))]
        }
        Setting::Tickets(true) => vec![more_commands(&[("Options", "SessionTicket".to_owned())])],
        Setting::Tickets(false) => vec![more_commands(&[("Options", NO_TICKETS.to_owned())])],
        Setting::TicketKeys(TicketKeys::Own) => Vec::new(),
        Setting::TicketKeys(_) => vec![format!(
            "{TICKET_KEY} = \"{SITE_TICKET_KEY}\"    # 32-bit numbers 0, begin and end of its use (Unix time), \
             then `openssl rand 80`"
        )],
        Setting::EarlyData => owned(&["# lighttpd takes no early data"]),
        Setting::Processors(count) => vec![format!("{WORKERS} = {count}")],
        Setting::Accelerator { .. } => openssl_provider(),
        Setting::KernelTls => Vec::new(),
    }
}

fn prepare(spec: &ServerSpec, place: InstancePlace) -> Result<Prepared> {
    let directory = place.own;
    let program = PACKAGE.require("")?;
    let user = worker_user_of(spec, directory)?;
    create_for_workers(&directory.join(ERROR_LOG_FILE), user.as_ref(), b"")?;
    if let Some(tls) = &spec.tls {
        // TLS is in a package of its own.
        let advice = "Debian: `apt-get install lighttpd-mod-openssl`";
        programs::require_module("lighttpd", "mod_openssl.so", &MODULE_DIRECTORIES, advice)?;
        for (from, name) in [(&tls.certificate.chain, CHAIN_FILE), (&tls.certificate.key, KEY_FILE)] {
            let bytes = fs::read(from).with_context(|| format!("read {}", from.display()))?;
            create_for_workers(&directory.join(name), user.as_ref(), &bytes)?;
        }
    }
    let mut features = vec!["\"server.graceful-restart-bg\" => \"enable\"".to_owned()];
    let has_cache = spec.tls.as_ref().is_some_and(|tls| tls.session_cache != SessionCache::Off);
    features.extend(has_cache.then(|| session_cache("enable")));
    features.extend([HTTP2, HTTP2_WITHOUT_TLS].into_iter().filter(|_| spec.http2).map(str::to_owned));
    let config = rendered(&Configuration {
        spec,
        place,
        user: user.as_ref(),
        open_files: OPEN_FILES.min(open_files_max()),
        own: plain(directory)?,
        docroot: plain(&spec.docroot)?,
        tls: spec.tls.as_ref().map_or(Ok(Vec::new()), |tls| tls_settings(tls, place, user.as_ref()))?,
        features: features.join(", "),
    })?;
    let path = directory.join(CONFIG_FILE);
    create_for_workers(&path, user.as_ref(), config.as_bytes())?;
    let arguments = vec!["-D".into(), "-f".into(), path.into()];
    Ok(Prepared {
        config,
        version: version(&program),
        error_log: Some(directory.join(ERROR_LOG_FILE)),
        // Several workers have a parent that watches them; one is alone.
        processes: if spec.workers == 1 { 1 } else { 1 + spec.workers as usize },
        reload: Reload::Restart { signal: Signal::USR1, says: "server started (" },
        ..Prepared::new(program, arguments)
    })
}

fn version(program: &Path) -> String {
    let output = programs::output_of(program, &["-v"]);
    output.lines().next().unwrap_or("lighttpd of unknown version").split(" - ").next().unwrap_or_default().to_owned()
}

/// The whole configuration file. Everything not set here is lighttpd's default.
#[derive(Template)]
#[template(path = "lighttpd.conf", escape = "none")]
struct Configuration<'a> {
    spec: &'a ServerSpec,
    place: InstancePlace<'a>,
    user: Option<&'a WorkerUser>,
    open_files: u64,
    own: &'a str,
    docroot: &'a str,
    tls: Vec<String>,
    features: String,
}

/// A ticket key behind version 0, begin and end of its use, as native 32-bit integers.
fn stek(key: &Key) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = u32::try_from(now).unwrap_or(u32::MAX - TICKET_KEY_LIFETIME_S);
    // Already in use at the time of writing, whichever way clocks are rounded.
    let words = [0, now - 60, now + TICKET_KEY_LIFETIME_S];
    words.into_iter().flat_map(u32::to_ne_bytes).chain(*key).collect()
}

fn tls_settings(tls: &ServerTls, place: InstancePlace, user: Option<&WorkerUser>) -> Result<Vec<String>> {
    let directory = place.own;
    let [lowest, highest] = tls.version_range();
    let mut options = vec!["ServerPreference"];
    options.extend((!tls.tickets).then_some(NO_TICKETS));
    options.extend((!tls.encrypt_then_mac).then_some("-EncryptThenMac"));
    let mut commands = vec![
        (LOWEST_VERSION, lowest.to_owned()),
        (HIGHEST_VERSION, highest.to_owned()),
        ("Options", options.join(",")),
    ];
    commands.extend(tls.cipher_list().map(|list| (suites(Version::Tls12), list)));
    commands.extend(tls.ciphersuites().map(|list| (suites(Version::Tls13), list)));
    commands.extend(tls.groups_list().map(|list| (GROUPS, list)));
    let mut lines = vec![
        "ssl.engine = \"enable\"".to_owned(),
        format!("{CERTIFICATE} = \"{}\"", plain(&directory.join(CHAIN_FILE))?),
        format!("{CERTIFICATE_KEY} = \"{}\"", plain(&directory.join(KEY_FILE))?),
        format!("{COMMANDS} = ( {} )", pairs(&commands)),
    ];
    if let Some(key) = ticket_keys::of_run(place.run, tls.ticket_keys)?.first() {
        let path = directory.join(KEYS_FILE);
        // Read again as the worker user.
        create_for_workers(&path, user, &stek(key))?;
        lines.push(format!("{TICKET_KEY} = \"{}\"", plain(&path)?));
    }
    Ok(lines)
}

/// Requests of a kept connection: lighttpd's own number.
const KEPT_REQUESTS: u32 = 1000;

#[derive(Debug, Default)]
pub struct AskedSettings {
    pub settings: Vec<(&'static str, String)>,
    pub commands: Vec<(&'static str, String)>,
}

/// The settings for that. `tls`: the same with all that goes with it.
pub fn asked_settings(asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<AskedSettings> {
    let mut new = AskedSettings::default();
    let mut file = |name, path: &Path| {
        new.settings.push((name, format!("\"{}\"", plain(path)?)));
        anyhow::Ok(())
    };
    if asked.certificate.is_some() {
        file(CERTIFICATE, &tls.certificate.chain)?;
        file(CERTIFICATE_KEY, &tls.certificate.key)?;
    }
    if let Some(keys) = asked.ticket_keys
        && let Some(key) = ticket_keys::of_run(place.run, keys)?.first()
    {
        let path = place.own.join(KEYS_FILE);
        create_for_workers(&path, None, &stek(key))?;
        file(TICKET_KEY, &path)?;
    }
    if let Some(seconds) = asked.keep_alive_s {
        new.settings.push(("server.max-keep-alive-idle", seconds.to_string()));
        new.settings.push(("server.max-keep-alive-requests", KEPT_REQUESTS.to_string()));
    }
    let versions = [LOWEST_VERSION, HIGHEST_VERSION].into_iter();
    new.commands.extend(
        asked
            .version
            .into_iter()
            .flat_map(|version| versions.clone().map(move |name| (name, protocol(version).to_owned()))),
    );
    new.commands.extend(asked.suite.map(|suite| (suites(suite.version()), suite.openssl_name().to_owned())));
    new.commands.extend(asked.group.and_then(|_| tls.groups_list()).map(|list| (GROUPS, list)));
    new.commands.extend(asked.tickets.map(|on| ("Options", if on { "SessionTicket" } else { NO_TICKETS }.to_owned())));
    Ok(new)
}

/// Further commands to OpenSSL, as an operator adds them.
fn more_commands(commands: &[(&str, String)]) -> String {
    format!("{COMMANDS} += ({})", pairs(commands))
}

fn pairs(commands: &[(&str, String)]) -> String {
    let pairs: Vec<String> = commands.iter().map(|(name, value)| format!("\"{name}\" => \"{value}\"")).collect();
    pairs.join(", ")
}

/// The command that suites of this version are told with.
fn suites(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "CipherString",
        Version::Tls13 => "Ciphersuites",
    }
}

fn session_cache(state: &str) -> String {
    format!("\"ssl.session-cache\" => \"{state}\"")
}

fn plain(path: &Path) -> Result<&str> {
    programs::writable(path, "lighttpd", "\" \\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_key_stands_behind_three_numbers() {
        let written = stek(&[7; 80]);
        assert_eq!((written.len(), &written[..4], &written[12..]), (92, &[0; 4][..], &[7; 80][..]));
    }

    #[test]
    fn numbers_fit_16_bits() {
        let settings = include_str!("../templates/lighttpd.conf").lines();
        let numbers = settings.filter_map(|line| line.split_once(" = ")?.1.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.chain([OPEN_FILES, OPEN_FILES / 2]).collect();
        assert!(numbers.len() >= 7 && numbers.iter().all(|&number| u16::try_from(number).is_ok()), "{numbers:?}");
    }
}
