//! The built-in server: `tlsdyno serve` as a separate process.

use anyhow::Result;

use super::launch::own_executable;
use super::session_log::SessionLog;
use super::{Place, Prepared, SESSION_LOG_FILE, ServerSpec};
use crate::model::SessionCache;

/// Says how to start it.
pub(super) fn prepare(spec: &ServerSpec, place: Place) -> Result<Prepared> {
    let Place { own: directory, port, .. } = place;
    let mut arguments: Vec<std::ffi::OsString> = vec!["serve".into(), "--docroot".into(), spec.docroot.clone().into()];
    let mut option = |name: &str, value: std::ffi::OsString| arguments.extend([name.into(), value]);
    let listen = if spec.tls.is_some() { "--listen" } else { "--listen-plain" };
    option(listen, format!("127.0.0.1:{port}").into());
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
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let session_log = SessionLog { path: directory.join(SESSION_LOG_FILE), mark: "", resumed: "r", first: "1" };
    Ok(Prepared {
        config: format!("tlsdyno {}", words.join(" ")),
        version: format!("tlsdyno {} built-in server, {}", env!("CARGO_PKG_VERSION"), openssl::version::version()),
        session_log: spec.log_sessions.then_some(session_log),
        grace_ms: 1_000,
        ..Prepared::new(own_executable()?.get_program(), arguments)
    })
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
