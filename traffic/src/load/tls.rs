//! From a description to the lean client's configuration.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tlsdyno_tls::{ClientCertificate, Config, Effort, Session, Settings};

use tlsdyno_base::certificate_files::trust_anchors;
use tlsdyno_record::model::job::TlsSpec;

/// Compiles the client side of a target. `host`: the name sent and, at honest effort, verified; without port or
/// brackets. It offers these application protocols, and this certificate to a server that asks for one.
///
/// # Errors
/// Settings that contradict each other, roots that cannot be read, names that are empty or too long.
pub fn config(
    spec: &TlsSpec,
    host: &str,
    alpn: &[String],
    client_certificate: Option<ClientCertificate>,
) -> Result<Arc<Config>> {
    let settings = Settings {
        versions: spec.versions.clone(),
        suites: spec.suites.clone(),
        groups: spec.groups.clone(),
        server_name: Some(host.to_owned()),
        alpn: alpn.to_vec(),
        effort: spec.effort,
        stages_off: spec.noop,
        encrypt_then_mac: spec.encrypt_then_mac,
        tickets: spec.tickets,
        early_data: spec.early_data,
        small_rsa_keys: spec.small_rsa_keys,
        trust_anchors: if spec.effort == Effort::Honest { trust_anchors(spec.ca_file.as_deref())? } else { Vec::new() },
        universal: spec.universal.as_deref().map(session).transpose()?,
        scripts: spec.scripts.clone(),
        client_certificate: client_certificate.map(Arc::new),
        now_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?.as_secs(),
        ..Settings::default()
    };
    Ok(Arc::new(Config::new(settings)?))
}

/// A session that another process of this version made. It counts as received now, by this process's clock.
fn session(base64: &str) -> Result<Session> {
    let bytes = STANDARD.decode(base64).context("the universal session is not base64")?;
    Ok(Session::from_bytes(&bytes, tlsdyno_engine::sys::monotonic_ns() / 1_000_000)?)
}
