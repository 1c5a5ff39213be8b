//! The built-in server: `tlsdyno serve` as a separate process.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tlsdyno_base::listening;
use tlsdyno_record::model::{ServerName, SessionCache, TicketKeys};

use super::capabilities::{Capabilities, USUAL};
use super::directives::{Setting, openssl_provider, owned};
use super::driver::Driver;
use super::instance::Addresses;
use super::launch::own_executable;
use super::session_log::SessionLog;
use super::{InstancePlace, Prepared, SESSION_LOG_FILE, ServerSpec};

pub(super) const DRIVER: Driver = Driver {
    server: ServerName::Builtin,
    package: None,
    capabilities: Some(Capabilities {
        name: "builtin",
        session_caches: &[SessionCache::Off, SessionCache::Shared],
        ticket_keys: &[TicketKeys::Own],
        http2: false,
        ..USUAL
    }),
    no_session_log: None,
    // What Rust says.
    alarms: &["panicked at"],
    prepare,
    lines,
};

fn lines(setting: Setting) -> Vec<String> {
    let serve = |options: &str| vec![format!("tlsdyno serve {options}")];
    match setting {
        Setting::Version(version) => serve(&format!("--tls {version}")),
        Setting::Suite(suite) => serve(&format!("--suite {suite}")),
        Setting::Certificate(kind) => serve(&format!("--cert {kind}")),
        Setting::SessionCache(SessionCache::Off) => serve("--no-session-cache"),
        Setting::SessionCache(_) => owned(&["tlsdyno serve    # has a session cache"]),
        Setting::Tickets(true) => owned(&["tlsdyno serve    # issues tickets"]),
        Setting::Tickets(false) => serve("--no-tickets"),
        Setting::EarlyData => serve("--early-data"),
        Setting::Processors(count) => serve(&format!("--workers {count}")),
        Setting::Accelerator { .. } => openssl_provider(),
        _ => Vec::new(),
    }
}

fn pages(spec: &ServerSpec) -> Result<Vec<std::ffi::OsString>> {
    let mut arguments: Vec<std::ffi::OsString> = match &spec.origin {
        Some(origin) => {
            let origin = origin.server().context("the built-in server passes requests on to one server")?;
            vec!["--origin".into(), origin.to_string().into()]
        }
        None => vec!["--docroot".into(), spec.docroot.clone().into()],
    };
    arguments.extend(spec.database.iter().flat_map(|database| ["--database".into(), database.into()]));
    Ok(arguments)
}

fn prepare(spec: &ServerSpec, place: InstancePlace) -> Result<Prepared> {
    let InstancePlace { own: directory, ip, .. } = place;
    let mut arguments: Vec<std::ffi::OsString> = vec!["serve".into()];
    arguments.extend(pages(spec)?);
    let mut option = |name: &str, value: std::ffi::OsString| arguments.extend([name.into(), value]);
    let listen = if spec.tls.is_some() { "--listen" } else { "--listen-plain" };
    option(listen, place.address().to_string().into());
    let plain = spec.transaction.filter(|_| spec.tls.is_some()).map(|_| SocketAddr::new(ip, place.plain_port));
    if let Some(cost) = spec.transaction {
        let parts = [("cpu", cost.cpu_ns), ("wait", cost.wait_ns)].into_iter().filter(|(_, ns)| *ns > 0);
        let parts: Vec<String> = parts.map(|(what, ns)| format!("{what}:{}us", ns as f64 / 1e3)).collect();
        option("--transaction", parts.join("+").into());
    }
    if let Some(plain) = plain {
        option("--listen-plain", plain.to_string().into());
    }
    option("--workers", spec.workers.to_string().into());
    if let Some(tls) = &spec.tls {
        option("--certificate", tls.certificate.chain.clone().into());
        option("--key", tls.certificate.key.clone().into());
        option("--tls", join(&tls.versions()).into());
        if !tls.suites.is_empty() {
            option("--suite", join(&tls.suites).into());
        }
        if !tls.groups.is_empty() {
            option("--group", join(&tls.groups).into());
        }
        option("--session-timeout", tls.session_timeout_s().to_string().into());
    }
    if spec.log_sessions {
        option("--session-log", directory.join(SESSION_LOG_FILE).into());
    }
    if let Some(tls) = &spec.tls {
        for (flag, wanted) in [
            ("--no-tickets", !tls.tickets),
            ("--no-session-cache", tls.session_cache == SessionCache::Off),
            ("--no-encrypt-then-mac", !tls.encrypt_then_mac),
            ("--early-data", tls.early_data),
        ] {
            arguments.extend(wanted.then(|| flag.into()));
        }
    }
    arguments.extend((!listening::is_loopback(ip)).then(|| "--allow-insecure-listen".into()));
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let session_log = SessionLog { path: directory.join(SESSION_LOG_FILE), mark: "", resumed: "r", first: "1" };
    Ok(Prepared {
        config: format!("tlsdyno {}", words.join(" ")),
        version: format!("tlsdyno {} built-in server, {}", env!("CARGO_PKG_VERSION"), openssl::version::version()),
        session_log: spec.log_sessions.then_some(session_log),
        addresses: plain.map(|plain| Addresses { address: place.address(), plain: Some(plain) }),
        grace_ms: 1_000,
        ..Prepared::new(own_executable()?.get_program(), arguments)
    })
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
