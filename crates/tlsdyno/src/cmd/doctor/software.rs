//! Libraries and programs: OpenSSL, the no-op provider, servers.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tlsdyno_tls::StageSet;

use super::{Check, Verdict};
use crate::model::{CertificateKind, Policy, ServerName};
use crate::native::Injection;
use crate::servers::programs::Package;
use crate::servers::{self, DRIVERS, RunDirectory, ServerSpec, ServerTls, dispatcher, mapped};

pub fn checks() -> Vec<Check> {
    let mut checks = vec![openssl(), provider()];
    checks.extend(servers_to_install());
    checks.push(stream_module());
    checks
}

/// The libssl that this program, and so the built-in server, runs with.
fn openssl() -> Check {
    let loaded = mapped::mapped_libraries(std::process::id()).unwrap_or_default();
    let library = loaded.iter().find(|library| mapped::is_openssl(&library.path));
    let place = library.map_or("linked statically".to_owned(), |library| library.path.display().to_string());
    // 0x30000000 is 3.0.0, the first release with providers (OPENSSL_VERSION_NUMBER, openssl/opensslv.h).
    let is_old = openssl::version::number() < 0x3000_0000;
    let replaced = "the library was upgraded while tlsdyno runs: start it anew";
    let not_shared = "build tlsdyno against the system's shared OpenSSL (without OPENSSL_STATIC and the feature \
                      `vendored`): the no-op provider cannot be loaded into a static one";
    let old = "install OpenSSL 3.0 or later (Debian 12: `apt-get install libssl3`)";
    Check::ok("OpenSSL", format!("{} ({place})", openssl::version::version()))
        .but_if(library.is_some_and(|library| library.deleted), Verdict::Warn, replaced)
        .but_if(library.is_none(), Verdict::Fail, not_shared)
        .but_if(is_old, Verdict::Fail, old)
}

/// Starts the built-in server with the provider and nothing switched off, as every `ablate` does.
fn provider() -> Check {
    let remedy = "ablate cannot work: see the message; a TMPDIR mounted noexec keeps libraries from loading (set \
                  another), other OpenSSL series than 3.0, 3.5 and 4.0 are untested";
    match try_provider() {
        Ok(()) => Check::ok("no-op provider", "loads into a server and serves TLS"),
        Err(error) => Check::but("no-op provider", Verdict::Fail, format!("{error:#}"), remedy),
    }
}

fn try_provider() -> Result<()> {
    let directory = RunDirectory::create()?;
    let docroot = directory.path().join("docroot");
    let own = directory.path().join("provider");
    servers::run_directory::make_passable(&docroot)?;
    servers::run_directory::make_private(&own)?;
    let injection = Injection::prepare(&own, StageSet::NONE)?;
    let mut spec = ServerSpec::new(ServerName::Builtin, docroot);
    spec.tls = Some(ServerTls::new(servers::certificates::create(CertificateKind::P256, directory.path())?));
    spec.handed = injection.handed();
    let server = servers::start(&spec, directory.path())?;
    servers::require_mapped(&server.worker_pids(), injection.library_path())?;
    server.stop()
}

/// The servers that have to be installed, each program once.
fn servers_to_install() -> Vec<Check> {
    let mut packages: Vec<(&str, &Package)> = Vec::new();
    for driver in DRIVERS {
        let package = driver.package.filter(|package| packages.iter().all(|(_, known)| known != package));
        packages.extend(package.map(|package| (driver.server.name(), package)));
    }
    packages.into_iter().map(|(name, package)| server(name, package)).collect()
}

fn server(name: &'static str, package: &Package) -> Check {
    if let Some(path) = package.installed() {
        let said = version(&path, package.version);
        let old = format!(
            "`--server {name}` will not work: {} or later takes the configuration that is written for it",
            package.oldest
        );
        let is_too_old = package.is_too_old(&said);
        return Check::ok(name, said).but_if(is_too_old, Verdict::Warn, old);
    }
    let service = package.service.map_or_else(String::new, |service| {
        format!(", then `systemctl disable --now {service}` so that it does not keep running on port 80")
    });
    let remedy = format!("Debian: `apt-get install {}`{service}", package.debian);
    Check::but(name, Verdict::Note, format!("not installed; `--server {name}` will not work"), remedy)
}

/// The module that one of the dispatchers of `tlsdyno cluster` needs.
fn stream_module() -> Check {
    let (found, works) = match dispatcher::refuse_missing(Policy::NginxHash) {
        Ok(()) => ("found", "works"),
        Err(_) => ("not installed", "will not work"),
    };
    Check::ok("nginx stream", format!("{found}; `tlsdyno cluster --policies nginx-hash` {works}")).but_if(
        found != "found",
        Verdict::Note,
        "Debian: `apt-get install libnginx-mod-stream`",
    )
}

/// The first line of what the program says about its version, with its path.
fn version(path: &Path, arguments: &[&str]) -> String {
    let said = Command::new(path).args(arguments).output().context("cannot be run").map(|output| {
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).lines().next().unwrap_or("says no version").trim().to_owned()
    });
    format!("{} ({})", said.unwrap_or_else(|error| format!("{error:#}")), path.display())
}
