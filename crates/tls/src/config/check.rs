//! Settings that do not fit together are refused.

use tlsdyno_wire::limits;

use super::{ConfigError, Settings};
use crate::noop::Stage;
use crate::script::Script;
use crate::suite::{Effort, Version};

pub(super) fn check(settings: &Settings) -> Result<(), ConfigError> {
    for suite in &settings.suites {
        if !settings.versions.contains(&suite.version()) {
            return Err(ConfigError::SuiteWithoutVersion { suite: *suite, version: suite.version() });
        }
    }
    if let Some(hybrid) = settings.groups.iter().find(|group| group.is_hybrid())
        && !settings.versions.contains(&Version::Tls13)
    {
        return Err(ConfigError::GroupWithoutVersion(*hybrid));
    }
    for version in &settings.versions {
        if !settings.suites.iter().any(|suite| suite.version() == *version) {
            return Err(ConfigError::VersionWithoutSuite(*version));
        }
    }
    check_shim_stages(settings)?;
    no_duplicate(&settings.versions)?;
    no_duplicate(&settings.suites)?;
    no_duplicate(&settings.groups)?;
    check_alpn(&settings.alpn)?;
    if let Some(name) = &settings.server_name
        && rustls_pki_types::ServerName::try_from(name.as_str()).is_err()
    {
        return Err(ConfigError::BadServerName(name.clone()));
    }
    match settings.effort {
        Effort::Honest if settings.trust_anchors.is_empty() => {
            Err(ConfigError::NothingToVerify("trusted certificates"))
        }
        Effort::Honest if settings.server_name.is_none() => Err(ConfigError::NothingToVerify("a server name")),
        _ => Ok(()),
    }
}

/// What the stages of the shim need (docs/NOOP.md).
fn check_shim_stages(settings: &Settings) -> Result<(), ConfigError> {
    let off = |stage| settings.stages_off.contains(stage);
    let contradiction = |what| Err(ConfigError::Contradiction(what));
    if off(Stage::Setup) && settings.suites.len() != 1 {
        return Err(ConfigError::SuiteNotPinned(settings.suites.len()));
    }
    if off(Stage::Handshake) && !off(Stage::Marshalling) {
        return contradiction("a skeleton handshake agrees on no keys: switch `marshalling` off too");
    }
    if off(Stage::RoundTrip) && !(off(Stage::Marshalling) && (off(Stage::Handshake) || off(Stage::SessionCache))) {
        return contradiction("`round_trip` needs `marshalling` off, and `handshake` or `session_cache`");
    }
    if settings.early_data && (off(Stage::Marshalling) || off(Stage::Setup)) {
        return contradiction("early data need a real handshake and protected data");
    }
    if settings.client_certificate.is_some() && off(Stage::Authentication) {
        return contradiction("a client certificate needs its signature: leave `authentication` on");
    }
    if off(Stage::Handshake) && settings.scripts.is_none() {
        return Err(ConfigError::NoScript(Stage::Handshake));
    }
    let Some(scripts) = &settings.scripts else {
        return Ok(());
    };
    for (kind, script) in [("full", Some(&scripts.full)), ("resumed", scripts.resumed.as_ref())] {
        if let Some(fault) = script.and_then(Script::fault) {
            return Err(ConfigError::BadScript { kind, fault });
        }
    }
    Ok(())
}

fn no_duplicate<T: PartialEq + ToString>(list: &[T]) -> Result<(), ConfigError> {
    match list.iter().enumerate().find(|(index, item)| list[..*index].contains(item)) {
        Some((_, item)) => Err(ConfigError::Duplicate(item.to_string())),
        None => Ok(()),
    }
}

fn check_alpn(names: &[String]) -> Result<(), ConfigError> {
    let bad = names.iter().find(|name| name.is_empty() || name.len() > 255);
    let total: usize = names.iter().map(|name| name.len() + 1).sum();
    match (bad, names.last()) {
        (Some(name), _) => Err(ConfigError::BadAlpn(name.clone())),
        (None, Some(last)) if total > limits::ALPN => Err(ConfigError::BadAlpn(last.clone())),
        _ => Ok(()),
    }
}
