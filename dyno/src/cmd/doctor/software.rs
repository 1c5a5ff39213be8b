//! Libraries and programs: OpenSSL, the no-op provider, servers.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tlsdyno_tls::StageSet;

use super::{Check, Verdict};
use crate::model::{CertificateKind, Policy};
use crate::native::Injection;
use crate::servers::{self, RunDirectory, ServerKind, ServerSpec, ServerTls, mapped, programs};

/// Everything about software.
pub fn checks() -> Vec<Check> {
    let mut checks = vec![openssl(), provider()];
    checks.extend(SERVERS.iter().map(server));
    checks.push(stream_module());
    checks
}

/// A distribution's server.
struct Distributed {
    /// Its name, as `--server` has it.
    name: &'static str,
    /// What its program is called.
    programs: &'static [&'static str],
    /// Debian's packages.
    packages: &'static str,
    /// The service that Debian starts with it.
    service: Option<&'static str>,
}

const SERVERS: [Distributed; 4] = [
    Distributed { name: "nginx", programs: &["nginx"], packages: "nginx-light", service: Some("nginx") },
    Distributed { name: "apache", programs: &["apache2", "httpd"], packages: "apache2-bin", service: None },
    Distributed { name: "haproxy", programs: &["haproxy"], packages: "haproxy", service: Some("haproxy") },
    Distributed {
        name: "lighttpd",
        programs: &["lighttpd"],
        packages: "lighttpd lighttpd-mod-openssl",
        service: Some("lighttpd"),
    },
];

/// The libssl that this program, and so the built-in server, runs with.
fn openssl() -> Check {
    let number = openssl::version::number();
    let loaded = mapped::mapped_libraries(std::process::id()).unwrap_or_default();
    let path = loaded.iter().find(|library| mapped::is_openssl(&library.path));
    let place = path.map_or("linked statically".to_owned(), |library| library.path.display().to_string());
    let finding = format!("{} ({place})", openssl::version::version());
    // 0x30000000 is 3.0.0, the first release with providers (OPENSSL_VERSION_NUMBER, openssl/opensslv.h).
    match (number >= 0x3000_0000, path) {
        (false, _) => Check::but(
            "OpenSSL",
            Verdict::Fail,
            finding,
            "install OpenSSL 3.0 or later (Debian 12: `apt-get install libssl3`)",
        ),
        (true, None) => Check::but(
            "OpenSSL",
            Verdict::Fail,
            finding,
            "build tlsdyno against the system's shared OpenSSL (without OPENSSL_STATIC and the feature `vendored`): the no-op provider \
             cannot be loaded into a static one",
        ),
        (true, Some(library)) if library.deleted => {
            Check::but("OpenSSL", Verdict::Warn, finding, "the library was upgraded while tlsdyno runs: start it anew")
        }
        _ => Check::ok("OpenSSL", finding),
    }
}

/// Starts the built-in server with the provider and nothing switched off, as every `ablate` does.
fn provider() -> Check {
    match try_provider() {
        Ok(()) => Check::ok("no-op provider", "loads into a server and serves TLS"),
        Err(error) => Check::but(
            "no-op provider",
            Verdict::Fail,
            format!("{error:#}"),
            "ablate cannot work: see the message; a TMPDIR mounted noexec keeps libraries from loading (set another), other OpenSSL \
             series than 3.0, 3.5 and 4.0 are untested",
        ),
    }
}

fn try_provider() -> Result<()> {
    let directory = RunDirectory::create()?;
    let docroot = directory.path().join("docroot");
    let own = directory.path().join("provider");
    servers::run_directory::make_passable(&docroot)?;
    servers::run_directory::make_private(&own)?;
    let injection = Injection::prepare(&own, StageSet::NONE)?;
    let mut spec = ServerSpec::new(ServerKind::BuiltIn, docroot);
    spec.tls = Some(ServerTls::new(servers::certificates::create(CertificateKind::P256, directory.path())?));
    spec.handed = injection.handed();
    let server = servers::start(&spec, directory.path())?;
    servers::require_mapped(&server.worker_pids(), injection.library_path())?;
    server.stop()
}

fn server(server: &Distributed) -> Check {
    let Some(path) = server.programs.iter().find_map(|program| programs::find(program)) else {
        let service = server.service.map_or_else(String::new, |service| {
            format!(", then `systemctl disable --now {service}` so that it does not keep running on port 80")
        });
        return Check::but(
            server.name,
            Verdict::Note,
            format!("not installed; `--server {}` will not work", server.name),
            format!("Debian: `apt-get install {}`{service}", server.packages),
        );
    };
    Check::ok(server.name, version(&path))
}

/// The module that one of the dispatchers of `tlsdyno cluster` needs.
fn stream_module() -> Check {
    match Policy::NginxHash.refuse_missing() {
        Ok(()) => Check::ok("nginx stream", "found; `tlsdyno cluster --policies nginx-hash` works"),
        Err(_) => Check::but(
            "nginx stream",
            Verdict::Note,
            "not installed; `tlsdyno cluster --policies nginx-hash` will not work",
            "Debian: `apt-get install libnginx-mod-stream`",
        ),
    }
}

/// The first line of what the program says about its version, with its path.
fn version(path: &Path) -> String {
    let said = Command::new(path).arg("-v").output().context("cannot be run").map(|output| {
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).lines().next().unwrap_or("says no version").trim().to_owned()
    });
    format!("{} ({})", said.unwrap_or_else(|error| format!("{error:#}")), path.display())
}
