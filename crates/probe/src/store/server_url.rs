//! The URL of a PostgreSQL server, how its TLS is checked, and where its password comes from: never from the URL.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};
use tlsdyno_tls::named;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

named! {
    /// What is asked of TLS to the database; the names are those of libpq.
    pub enum TlsMode: "sslmode" {
        /// No TLS.
        Disable = "disable",
        /// TLS where the server has it; nobody checks who it is.
        Prefer = "prefer",
        /// TLS; nobody checks who it is.
        Require = "require",
        /// TLS with a certificate from a trusted root.
        VerifyCa = "verify-ca",
        /// The same, for this host.
        VerifyFull = "verify-full",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    text: String,
    /// What the library for PostgreSQL understands of it.
    config: Config,
    pub(super) mode: TlsMode,
    /// Trusted roots in PEM form; without them the system's.
    pub(super) root_file: Option<PathBuf>,
    password_file: Option<PathBuf>,
}

impl ServerUrl {
    /// Whether a text is meant to be the URL of a server.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("postgres:") || text.starts_with("postgresql:")
    }

    pub fn set_password_file(&mut self, path: &Path) {
        self.password_file = Some(path.to_owned());
    }

    /// A short name for files about it.
    pub(super) fn digest(&self) -> String {
        let digest = openssl::sha::sha256(self.text.as_bytes());
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Where to connect to, with the password where there is one.
    pub(super) fn config(&self) -> Result<Config> {
        let mut config = self.config.clone();
        let password = match &self.password_file {
            Some(path) => Some(password_of_file(path)?),
            None => pass_file().map(|path| entry_of(&path, &config)).transpose()?.flatten(),
        };
        if let Some(password) = password {
            config.password(password);
        }
        Ok(config)
    }
}

impl FromStr for ServerUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<ServerUrl> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut mode, mut root_file, mut others) = (None, None, Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("sslmode", value)) => {
                    mode = Some(value.parse::<TlsMode>()?);
                }
                Some(("sslrootcert", value)) => root_file = Some(PathBuf::from(value)),
                _ => others.push(part),
            }
        }
        let bare = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        // The library's own words might repeat a password.
        const MALFORMED: &str = "malformed; write postgres://USER@HOST/DATABASE, and a password into ~/.pgpass";
        let config: Config = bare.parse().map_err(|_| Error::msg(MALFORMED))?;
        ensure!(
            config.get_password().is_none(),
            "a password is no part of the URL, where everybody can read it; write it into ~/.pgpass or into \
             a file that --store-password-file names"
        );
        if config.get_hosts().is_empty() {
            bail!(MALFORMED);
        }
        let mode = mode.unwrap_or_else(|| default_mode(&config));
        Ok(ServerUrl { text: text.to_owned(), config, mode, root_file, password_file: None })
    }
}

/// Without a word about TLS a server on another machine must prove who it is; libpq would take what comes.
fn default_mode(config: &Config) -> TlsMode {
    let is_local = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => ["localhost", "127.0.0.1", "::1"].contains(&name.as_str()),
    };
    if config.get_hosts().iter().all(is_local) { TlsMode::Prefer } else { TlsMode::VerifyFull }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// A password from a file of its own: its first line.
fn password_of_file(path: &Path) -> Result<String> {
    let text = tlsdyno_base::input::text(path)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// PGPASSFILE, else `~/.pgpass`, where it is there.
fn pass_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = set("PGPASSFILE").map(PathBuf::from).or_else(|| Some(Path::new(&set("HOME")?).join(".pgpass")))?;
    path.exists().then_some(path)
}

/// The password for that server in a file of libpq's form.
fn entry_of(path: &Path, config: &Config) -> Result<Option<String>> {
    let failed = || format!("failed to read {}", path.display());
    let mode = std::fs::metadata(path).with_context(failed)?.permissions().mode();
    anyhow::ensure!(mode & 0o077 == 0, "{} can be read by other users, and is not used: chmod 600 {0}", path.display());
    let text = tlsdyno_base::input::text(path)?;
    let user = config.get_user().map_or_else(|| std::env::var("USER").unwrap_or_default(), str::to_owned);
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .flat_map(|host| match host {
            Host::Tcp(name) => vec![name.clone()],
            Host::Unix(directory) => vec![directory.display().to_string(), "localhost".to_owned()],
        })
        .collect();
    Ok(text.lines().find_map(|line| {
        let [host, of_port, of_database, of_user, password] = fields(line)?;
        let suits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        let is_it = hosts.iter().any(|name| suits(&host, name))
            && suits(&of_port, &port)
            && suits(&of_database, &database)
            && suits(&of_user, &user);
        is_it.then_some(password)
    }))
}

/// `host:port:database:user:password`; a colon or backslash of a field stands behind a backslash.
fn fields(line: &str) -> Option<[String; 5]> {
    let mut all = [const { String::new() }; 5];
    let mut at = 0;
    let mut characters = line.chars();
    if line.starts_with('#') {
        return None;
    }
    while let Some(character) = characters.next() {
        match character {
            ':' if at < 4 => at += 1,
            '\\' => all[at].extend(characters.next()),
            other => all[at].push(other),
        }
    }
    (at == 4).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_suits_has_the_password() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pass");
        std::fs::write(&path, "# a:b\nother:*:*:*:no\ndb.example:5433:x:me:s\\:e\\\\c:ret\n*:*:*:*:last\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let password = |url: &str| entry_of(&path, &url.parse().unwrap()).unwrap().unwrap();
        assert_eq!(password("postgres://me@db.example:5433/x"), "s:e\\c:ret");
        assert_eq!(password("postgres://you@db.example:5433/x"), "last");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = entry_of(&path, &"postgres://me@db/x".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn fields_survive_a_line(all in proptest::array::uniform5("[^\\r\\n#]*")) {
            let escaped = |field: &String| field.replace('\\', "\\\\").replace(':', "\\:");
            let line: Vec<String> = all.iter().map(escaped).collect();
            proptest::prop_assert_eq!(fields(&line.join(":")), Some(all));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_password_is_repeated(text in "postgres:\\PC*", secret in "[a-z%]{9,}", host in "[a-z.:/\\[\\]@]*") {
            // Any text is a URL or told as none.
            let _ = text.parse::<ServerUrl>();
            let _ = fields(&text);
            if let Err(error) = format!("postgres://me:{secret}@{host}").parse::<ServerUrl>() {
                proptest::prop_assert!(!format!("{error:?}").contains(&secret), "{error}");
            }
        }
    }

    #[test]
    fn a_server_elsewhere_must_prove_who_it_is() {
        let mode = |text: &str| text.parse::<ServerUrl>().unwrap().mode;
        assert_eq!(mode("postgres://me@db.example/x"), TlsMode::VerifyFull);
        assert_eq!(mode("postgres://me@localhost/x"), TlsMode::Prefer);
        assert_eq!(mode("postgres://me@%2Frun%2Fpostgresql/x"), TlsMode::Prefer);
        assert_eq!(mode("postgres://me@localhost/x?sslmode=require&connect_timeout=3"), TlsMode::Require);
    }
}
