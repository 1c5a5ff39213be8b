//! nginx: a minimal configuration in a private directory. The system's own configuration and service are never touched.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::Resource;
use tlsdyno_tls::Version;

use super::programs;
use super::{Prepared, SESSION_LOG_FILE, ServerSpec, ServerTls, SessionCache};
use crate::exit::{Exit, OrExit};

/// The error log, in the instance's directory.
pub const ERROR_LOG_FILE: &str = "error.log";
const CONFIG_FILE: &str = "nginx.conf";
/// Most connections of a worker; fewer where the limit of open files demands it.
const WORKER_CONNECTIONS: u64 = 16_384;
/// Descriptors a worker needs besides connections (listeners, logs, channels, files being served).
const OTHER_FILES: u64 = 64;

/// Writes the configuration for a server on `port` and says how to start it.
pub(super) fn prepare(spec: &ServerSpec, directory: &Path, port: u16) -> Result<Prepared> {
    let program = programs::find("nginx");
    let program = program.context(
        "nginx was not found in PATH, /usr/sbin or /usr/local/sbin; install it (Debian: `apt-get install nginx`; its service need not \
         run: `systemctl disable --now nginx`) or use --server builtin",
    );
    let program = program.or_exit(Exit::Environment)?;
    let user = worker_user()?;
    if let Some(user) = &user {
        require_readable(&spec.docroot, user)?;
        require_readable(directory, user)?;
    }
    let config = configuration(spec, directory, port, user.as_ref())?;
    let path = directory.join(CONFIG_FILE);
    fs::write(&path, &config).with_context(|| format!("write {}", path.display()))?;
    let text = |value: &str| value.to_owned().into();
    Ok(Prepared {
        program: program.clone().into_os_string(),
        arguments: vec![
            text("-p"),
            directory.as_os_str().to_owned(),
            text("-e"),
            directory.join(ERROR_LOG_FILE).into_os_string(),
            text("-c"),
            path.into_os_string(),
        ],
        config,
        version: version(&program),
        error_log: Some(directory.join(ERROR_LOG_FILE)),
        raise_open_files: true,
        grace_ms: 2_000,
    })
}

/// What `nginx -v` says, and the OpenSSL it runs with.
pub fn version(program: &Path) -> String {
    let output = match Command::new(program).arg("-V").output() {
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => return format!("nginx of unknown version ({error})"),
    };
    let lines = output.lines().filter(|line| line.starts_with("nginx version") || line.contains("OpenSSL"));
    lines.map(|line| line.trim_start_matches("nginx version: ")).collect::<Vec<_>>().join(", ")
}

/// Whom the workers run as when started by root: nobody, with its group. `None` for other users, whose workers run as themselves.
fn worker_user() -> Result<Option<WorkerUser>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    let group = fs::read_to_string("/etc/group").context("read /etc/group")?;
    let user = find_nobody(&passwd, &group).context(
        "there is no user `nobody` for nginx's workers to run as; create it, or run tlsdyno as a plain user",
    )?;
    Ok(Some(user))
}

#[derive(Debug, PartialEq, Eq)]
struct WorkerUser {
    uid: u32,
    gid: u32,
    group: String,
}

fn find_nobody(passwd: &str, groups: &str) -> Option<WorkerUser> {
    let nobody: Vec<&str> = passwd.lines().find(|line| line.starts_with("nobody:"))?.split(':').collect();
    let gid = nobody.get(3)?;
    let group = groups.lines().find(|line| line.split(':').nth(2) == Some(gid))?.split(':').next()?;
    Some(WorkerUser { uid: nobody.get(2)?.parse().ok()?, gid: gid.parse().ok()?, group: group.to_owned() })
}

/// Fails early, by name, where nginx would only answer 403.
fn require_readable(path: &Path, user: &WorkerUser) -> Result<()> {
    let path = path.canonicalize().with_context(|| format!("{} does not exist", path.display()))?;
    for ancestor in path.ancestors() {
        let metadata = fs::metadata(ancestor).with_context(|| format!("look at {}", ancestor.display()))?;
        let shift = if metadata.uid() == user.uid {
            6
        } else if metadata.gid() == user.gid {
            3
        } else {
            0
        };
        if metadata.permissions().mode() >> shift & 1 == 0 {
            bail!(
                "nginx's workers run as nobody and may not pass through {}, so they cannot read {}; `chmod o+x` it, choose another place \
                 (TMPDIR), or run tlsdyno as a plain user",
                ancestor.display(),
                path.display()
            );
        }
    }
    Ok(())
}

/// The whole configuration file. Everything not set here is nginx's default.
fn configuration(spec: &ServerSpec, directory: &Path, port: u16, user: Option<&WorkerUser>) -> Result<String> {
    let own = |name: &str| quoted(&directory.join(name));
    let ssl = if spec.tls.is_some() { " ssl" } else { "" };
    let mut main = vec!["# Generated by tlsdyno for one run.".to_owned()];
    main.extend(user.map(|user| format!("user nobody {};", user.group)));
    main.push("daemon off;".to_owned());
    main.push(format!("worker_processes {};", spec.workers));
    main.push(format!("pid {};", own("nginx.pid")?));
    main.push(format!("error_log {} warn;", own(ERROR_LOG_FILE)?));
    main.push(format!("events {{ worker_connections {}; }}", worker_connections()));
    main.push("http {".to_owned());
    for (directive, name) in [
        ("client_body_temp_path", "client_body"),
        ("proxy_temp_path", "proxy"),
        ("fastcgi_temp_path", "fastcgi"),
        ("uwsgi_temp_path", "uwsgi"),
        ("scgi_temp_path", "scgi"),
    ] {
        main.push(format!("    {directive} {};", own(name)?));
    }
    if spec.log_sessions {
        main.push(
            "    log_format sessions '$ssl_session_reused $ssl_protocol $ssl_cipher $connection_requests';".to_owned(),
        );
        main.push(format!("    access_log {} sessions;", own(SESSION_LOG_FILE)?));
    } else {
        main.push("    access_log off;".to_owned());
    }
    main.extend(HTTP_DIRECTIVES.iter().map(|directive| format!("    {directive};")));
    main.push("    server {".to_owned());
    main.push(format!("        listen 127.0.0.1:{port}{ssl} backlog=4096;"));
    main.push(format!("        root {};", quoted(&spec.docroot)?));
    // A POST to a static file is answered like a GET, as the logs that are replayed had it.
    main.push("        error_page 405 =200 $uri;".to_owned());
    // A replayed 404 is no news.
    main.push("        log_not_found off;".to_owned());
    if let Some(tls) = &spec.tls {
        main.extend(tls_directives(tls)?.iter().map(|directive| format!("        {directive};")));
    }
    main.push("    }\n}\n".to_owned());
    Ok(main.join("\n"))
}

const HTTP_DIRECTIVES: [&str; 8] = [
    "default_type application/octet-stream",
    "server_tokens off",
    "client_max_body_size 0",
    "sendfile on",
    "keepalive_timeout 600s",
    "keepalive_requests 1000000",
    "reset_timedout_connection off",
    "if_modified_since exact",
];

fn worker_connections() -> u64 {
    let open_files = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    WORKER_CONNECTIONS.min(open_files.saturating_sub(OTHER_FILES)).max(OTHER_FILES)
}

fn tls_directives(tls: &ServerTls) -> Result<Vec<String>> {
    let switch = |on: bool| if on { "on" } else { "off" };
    let mut directives = vec![
        format!("ssl_certificate {}", quoted(&tls.certificate.chain)?),
        format!("ssl_certificate_key {}", quoted(&tls.certificate.key)?),
        "ssl_buffer_size 16k".to_owned(),
        "ssl_prefer_server_ciphers on".to_owned(),
        "ssl_session_timeout 1h".to_owned(),
        format!("ssl_session_tickets {}", switch(tls.tickets)),
        // 40,000 sessions or so. With the cache off nginx issues no session IDs.
        format!(
            "ssl_session_cache {}",
            if tls.session_cache != SessionCache::Off { "shared:tlsdyno:10m" } else { "off" }
        ),
        format!(
            "ssl_protocols {}",
            tls.versions().iter().map(|version| protocol(*version)).collect::<Vec<_>>().join(" ")
        ),
    ];
    directives.extend(tls.cipher_list().map(|list| format!("ssl_ciphers {list}")));
    directives.extend(tls.ciphersuites().map(|list| format!("ssl_conf_command Ciphersuites {list}")));
    directives.extend(tls.groups_list().map(|list| format!("ssl_ecdh_curve {list}")));
    if !tls.encrypt_then_mac {
        directives.push("ssl_conf_command Options -EncryptThenMac".to_owned());
    }
    Ok(directives)
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "TLSv1.2",
        Version::Tls13 => "TLSv1.3",
    }
}

/// A path as a parameter. nginx has no way to write `$` itself where it expands variables.
fn quoted(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(text) if !text.contains(['$', '\n']) => {
            Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
        }
        _ => {
            bail!("nginx cannot be given the path {} (not UTF-8, or a $ in it); use another directory", path.display())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_nobody_is_found_with_its_group() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:nobody:/:/bin/false\n";
        let groups = "root:x:0:\nnogroup:x:65533:\n";
        let expected = WorkerUser { uid: 65_534, gid: 65_533, group: "nogroup".to_owned() };
        assert_eq!(find_nobody(passwd, groups), Some(expected));
        assert_eq!(find_nobody("root:x:0:0::/:/bin/sh\n", groups), None);
    }

    #[test]
    fn paths_are_quoted_or_refused() {
        assert_eq!(quoted(Path::new("/a b/\"c\"")).unwrap(), "\"/a b/\\\"c\\\"\"");
        assert!(quoted(Path::new("/a$b")).is_err());
    }

    #[test]
    fn unreadable_places_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let closed = directory.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = WorkerUser { uid: 4_000_000, gid: 4_000_000, group: "strangers".to_owned() };
        let error = require_readable(&closed, &stranger).unwrap_err().to_string();
        assert!(error.contains("may not pass through"), "{error}");
        require_readable(Path::new("/usr"), &stranger).unwrap();
    }
}
