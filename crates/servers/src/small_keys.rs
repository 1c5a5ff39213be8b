//! RSA keys below 2048 bits: OpenSSL loads them at security level 0 only, and not every server can be told so before it
//! loads its certificate (HAProxy cannot). So OpenSSL's own configuration says it, in the environment of that server.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::ServerSpec;

const VARIABLE: &str = "OPENSSL_CONF";
const FILE: &str = "openssl.cnf";
const BEGINNING: &str = "# Made by tlsdyno for one run.\nopenssl_conf = init\n";
/// Goes on in the section of what a provider's configuration has already (config(5): sections may be reopened).
const SECURITY_LEVEL: &str = "\
[init]
ssl_conf = small_keys
[small_keys]
system_default = small_keys_default
[small_keys_default]
CipherString = DEFAULT:@SECLEVEL=0
";

/// The environment of a server, with a configuration of OpenSSL in `directory` that takes its key, where that is small.
pub(super) fn environment(spec: &ServerSpec, directory: &Path) -> Result<Vec<(OsString, OsString)>> {
    let mut environment = spec.handed.environment.clone();
    // A user's own server has the configuration of its user.
    if !spec.has_small_key() || spec.is_users_own() {
        return Ok(environment);
    }
    let before = match environment.iter().position(|(name, _)| name == VARIABLE) {
        Some(at) => {
            let (_, path) = environment.swap_remove(at);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?
        }
        None => BEGINNING.to_owned(),
    };
    let path = directory.join(FILE);
    fs::write(&path, format!("{before}{SECURITY_LEVEL}")).with_context(|| format!("write {}", path.display()))?;
    environment.push((VARIABLE.into(), path.into_os_string()));
    Ok(environment)
}
