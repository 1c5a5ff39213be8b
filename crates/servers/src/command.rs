//! The user's own server command: words, placeholders, addresses.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_record::model::{ServerName, TlsChange, without_secrets};

use super::directives::{Setting, openssl_provider};
use super::driver::Driver;
use super::includes::Tree;
use super::instance::Addresses;
use super::view::View;
use super::{DRIVERS, InstancePlace, Prepared, ServerSpec, ServerTls, held_back, programs};

pub(super) const DRIVER: Driver = Driver {
    server: ServerName::Command,
    package: None,
    capabilities: None,
    no_session_log: Some(
        "the session log of a user's own server command is not known; drop it or use nginx or the built-in server",
    ),
    // It may be any server: those of all others are looked for.
    alarms: &[],
    prepare: |spec, place| {
        let command = spec.command.as_ref().context("a server of kind `command` needs its command line")?;
        command.prepare(spec, place)
    },
    lines: |setting| match setting {
        Setting::Accelerator { .. } => openssl_provider(),
        _ => Vec::new(),
    },
};

/// A server started by a command line of the user.
///
/// The line is split into words as a shell would (quotes, backslashes), but no shell runs: nothing is expanded besides
/// the placeholders `{port}`, `{plain_port}`, `{docroot}`, `{dir}` (a private directory), `{certificate}`, `{key}`,
/// `{pem}` (both in one file), `{ca}`. Who wants a shell writes `sh -c '…'`.
#[derive(Clone, Debug, Default)]
pub struct CommandSpec {
    pub command: String,
    /// Where it serves TLS, for example `127.0.0.1:{port}`.
    pub address: String,
    /// Where it serves plain HTTP; without it no plain-HTTP share is claimed.
    pub plain_address: Option<String>,
    /// What a copy beside it is made of; the command is its program.
    pub original: Option<Arc<dyn Original>>,
}

/// The configuration of an installed server, which copies are made of.
pub trait Original: Debug + Send + Sync {
    /// Writes a copy for this program into its private directory, with ports for TLS and for plain HTTP. `tls`: what
    /// is asked, with all that goes with it. Answers the arguments that start it there in the foreground, and the copy
    /// as pages and records show it.
    fn write(
        &self,
        program: &Path,
        ports: [u16; 2],
        directory: &Path,
        tls: Option<(&TlsChange, &ServerTls, InstancePlace)>,
    ) -> Result<(Vec<String>, String)>;

    /// What a copy may write and sees, besides its private directory.
    fn view(&self) -> Result<View>;

    /// What becomes in a copy of all that the installed server does besides answering, in sentences.
    fn effects(&self) -> Result<Vec<String>>;

    /// What a message says of lines of a copy in this directory, in terms of the installed configuration.
    fn places(&self, message: &str, directory: &Path, copy: &str) -> Option<String>;
}

/// The placeholders of a server command and of the files that it names.
const PLACEHOLDERS: [&str; 8] =
    ["{port}", "{plain_port}", "{docroot}", "{dir}", "{certificate}", "{key}", "{pem}", "{ca}"];
const CONFIGURATIONS: [&str; 9] = ["conf", "cfg", "cnf", "ini", "toml", "yaml", "yml", "json", "xml"];

impl CommandSpec {
    /// The command always listens on the same port, so that its configurations must take turns.
    pub fn has_fixed_port(&self) -> bool {
        let plain_fixed = self
            .plain_address
            .as_ref()
            .is_some_and(|plain| !plain.contains("{plain_port}") && !plain.contains("{port}"));
        !self.address.contains("{port}") || !self.mentions("{port}") || plain_fixed
    }

    /// Whether a placeholder occurs in the command line, or in a file that it names or includes.
    pub fn mentions(&self, placeholder: &str) -> bool {
        if self.original.is_some() {
            return ["{port}", "{plain_port}"].contains(&placeholder);
        }
        let words = shell_words::split(&self.command).unwrap_or_default();
        self.command.contains(placeholder) || templates(&words).iter().any(|(_, file)| file.mentions(placeholder))
    }

    /// The configuration file that the command names and that is nowhere where a server would look for it.
    pub fn missing_file(&self) -> Option<PathBuf> {
        let words = shell_words::split(&self.command).unwrap_or_default();
        let is_file = |word: &&String| {
            let ending = Path::new(word).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            CONFIGURATIONS.contains(&ending) && !word.contains(['{', ' ', '=', '*', ':', ';', '\n'])
        };
        // What is to lie in the private directory may be made by the command itself.
        if self.command.contains("{dir}") {
            return None;
        }
        let directories: Vec<&Path> = words.iter().map(Path::new).filter(|word| word.is_absolute()).collect();
        words.iter().skip(1).filter(is_file).find_map(|word| {
            // Beside a directory that the command names, there or not.
            let mut places = directories.iter().map(|at| at.join(word)).chain([PathBuf::from(word)]).rev();
            let last = directories.last().map_or_else(|| PathBuf::from(word), |at| at.join(word));
            (!places.any(|place| place.exists())).then_some(last)
        })
    }

    /// Program and arguments, placeholders filled in. Files with placeholders are filled in as copies in `{dir}`, and
    /// named there.
    pub fn command_line(&self, values: &BTreeMap<&str, String>) -> Result<Vec<String>> {
        self.words_with(values, None).map(|(words, _)| words)
    }

    /// The same, and this in the copy of an installed configuration: what is asked, with all that goes with it. Beside
    /// them the copy as pages and records show it.
    fn words_with(
        &self,
        values: &BTreeMap<&str, String>,
        tls: Option<(&TlsChange, &ServerTls, InstancePlace)>,
    ) -> Result<(Vec<String>, Option<String>)> {
        let mut words =
            shell_words::split(&self.command).with_context(|| format!("server command `{}`", self.command))?;
        ensure!(!words.is_empty(), "the server command is empty");
        let directory = || values.get("dir").context("a file with placeholders needs a directory for its copy");
        if let Some(original) = &self.original {
            let port = |name| values.get(name).and_then(|text: &String| text.parse().ok()).unwrap_or(0);
            let ports = [port("port"), port("plain_port")];
            let (more, shown) = original.write(Path::new(&words[0]), ports, Path::new(directory()?), tls)?;
            words.extend(more);
            return Ok((words, Some(shown)));
        }
        for (word, file) in templates(&words) {
            words[word] = file.write(Path::new(directory()?), &PLACEHOLDERS, values)?.display().to_string();
        }
        Ok((words.iter().map(|word| fill(word, values)).collect::<Result<_>>()?, None))
    }

    /// What it may write where the system allows a view of its own, with these directories for real.
    pub fn view(&self, writable: &[PathBuf]) -> Result<View> {
        ensure!(!writable.iter().any(|path| path == Path::new("/")), "--writable / was given");
        let layered = || Ok(View { layered: true, ..View::default() });
        let view = self.original.as_ref().map_or_else(layered, |original| original.view())?;
        Ok(View { writable: writable.to_vec(), ..view })
    }

    /// What becomes of whatever it does besides answering, in sentences.
    pub fn side_effects(&self, writable: &[PathBuf]) -> Result<Vec<String>> {
        let mut notes = self.original.as_ref().map_or(Ok(Vec::new()), |original| original.effects())?;
        let view = self.view(writable).map_err(|error| format!("{error:#}"));
        let view =
            view.as_ref().map_err(String::as_str).and_then(|view| held_back::allowed(view.layered).map(|()| view));
        notes.push(held_back::describe(view));
        Ok(notes)
    }

    fn prepare(&self, spec: &ServerSpec, place: InstancePlace) -> Result<Prepared> {
        let path = |path: &Path| path.display().to_string();
        let mut values = BTreeMap::from([
            ("port", place.port.to_string()),
            ("plain_port", place.plain_port.to_string()),
            ("docroot", path(&spec.docroot)),
            ("dir", path(place.own)),
        ]);
        if let Some(tls) = &spec.tls {
            values.insert("certificate", path(&tls.certificate.chain));
            values.insert("key", path(&tls.certificate.key));
            values.insert("ca", path(&tls.certificate.ca));
            if self.mentions("{pem}") {
                let both = place.own.join("certificate-and-key.pem");
                tls.certificate.write_in_one(&both)?;
                values.insert("pem", path(&both));
            }
        }
        let (words, shown) =
            self.words_with(&values, spec.tls.as_ref().map(|tls| (&spec.asked_of_installed, tls, place)))?;
        let resolved = |template: &str| resolve(&fill(template, &values)?);
        let addresses = Addresses {
            address: resolved(&self.address)?,
            plain: self.plain_address.as_deref().map(resolved).transpose()?,
        };
        // Of the copy of an installed configuration what may be no secret; of another the command line.
        let config = match shown {
            Some(shown) => format!("# {}\n{shown}", words.join(" ")),
            None => without_secrets(&self.command),
        };
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        Ok(Prepared {
            version: version_of(&program),
            config,
            addresses: Some(addresses),
            // HAProxy's copy writes to standard output.
            error_log: self.original.as_ref().map(|_| place.own.join("error.log")),
            raise_open_files: false,
            grace_ms: 5_000,
            ..Prepared::new(program, words.map(Into::into).collect())
        })
    }
}

/// What a program says that it is, where it is one that we know how to ask.
fn version_of(program: &str) -> String {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let known = DRIVERS.iter().filter_map(|driver| driver.package);
    let known = known.filter(|package| package.programs.iter().any(|known| *known == name));
    let text = known.map(|package| programs::output_of(Path::new(program), package.version)).next();
    let line = text.as_deref().and_then(|text| text.lines().next()).map(str::trim).filter(|line| !line.is_empty());
    // `nginx version: nginx/1.22.1`
    let line = line.map(|line| line.split_once("version: ").map_or(line, |(_, version)| version));
    line.map_or_else(|| format!("own command, program {program}"), |line| format!("own command: {line}"))
}

/// The files with placeholders among the words behind the program, with their places. A relative path may also be
/// meant relative to a directory that the command names (`nginx -p DIRECTORY -c my.conf`).
fn templates(words: &[String]) -> Vec<(usize, Tree)> {
    let directories: Vec<&Path> = words.iter().map(Path::new).filter(|path| path.is_dir()).collect();
    let found = words.iter().enumerate().skip(1).filter_map(|(word, name)| {
        let beside = directories.iter().map(|directory| directory.join(name));
        let path = std::iter::once(PathBuf::from(name)).chain(beside).find(|path| path.is_file())?;
        let path = path.canonicalize().unwrap_or(path);
        Tree::read(&path, &directories).filter(|tree| tree.mentions_any(&PLACEHOLDERS)).map(|tree| (word, tree))
    });
    found.collect()
}

/// Replaces `{name}` by its value. Braces around anything that is no name of a placeholder (`{}`, JSON, awk) are left
/// alone.
///
/// Fails on a known placeholder that has no value in this configuration, for example `{key}` on a server without TLS.
pub fn fill(template: &str, values: &BTreeMap<&str, String>) -> Result<String> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let name = rest.find('}').map(|close| &rest[1..close]);
        match name {
            Some(name) if values.contains_key(name) => {
                filled.push_str(&values[name]);
                rest = &rest[name.len() + 2..];
            }
            Some(name @ ("certificate" | "key" | "pem" | "ca")) => {
                bail!("the server command uses {{{name}}}, but this configuration has no TLS settings of tlsdyno");
            }
            _ => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Resolves an address such as `127.0.0.1:8443` or `localhost:8443`.
pub fn resolve(address: &str) -> Result<SocketAddr> {
    let mut found = address
        .to_socket_addrs()
        .with_context(|| format!("`{address}` is not an address: write HOST:PORT, for example 127.0.0.1:{{port}}"))?;
    found.next().with_context(|| format!("`{address}` has no address"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn spec(command: &str, address: &str, plain: Option<&str>) -> CommandSpec {
        CommandSpec {
            command: command.into(),
            address: address.into(),
            plain_address: plain.map(Into::into),
            original: None,
        }
    }

    #[test]
    fn files_with_placeholders_are_filled_in_as_copies() {
        let place = tempfile::tempdir().unwrap();
        let site = place.path().join("site");
        let run = place.path().join("run");
        fs::create_dir(&site).unwrap();
        fs::create_dir(&run).unwrap();
        let original = "http { server { listen 127.0.0.1:{port}; root {docroot}; } }";
        fs::write(site.join("my.conf"), original).unwrap();
        fs::write(site.join("other.conf"), "nothing to fill in {}").unwrap();
        let command = format!("nginx -p {} -c my.conf -x other.conf", site.display());
        let spec = spec(&command, "127.0.0.1:{port}", None);
        assert!(spec.mentions("{port}") && spec.mentions("{docroot}") && !spec.mentions("{key}"));
        assert!(!spec.has_fixed_port());
        let run_text = run.display().to_string();
        let values = BTreeMap::from([("port", "81".to_owned()), ("docroot", "/d".to_owned()), ("dir", run_text)]);
        let words = spec.command_line(&values).unwrap();
        let copy = run.join("my.conf");
        assert_eq!(words[4], copy.display().to_string());
        assert_eq!(words[6], "other.conf");
        let filled = "http { server { listen 127.0.0.1:81; root /d; } }";
        assert_eq!(fs::read_to_string(copy).unwrap(), filled);
        assert_eq!(fs::read_to_string(site.join("my.conf")).unwrap(), original);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().display().to_string();
        fs::write(place.path().join("my.conf"), "").unwrap();
        let missing = |command: &str| spec(command, "a", None).missing_file().map(|path| path.display().to_string());
        assert_eq!(missing("nginx -p /no/site -c my.conf").as_deref(), Some("/no/site/my.conf"));
        assert_eq!(missing(&format!("nginx -p {at} -c other.conf")), Some(format!("{at}/other.conf")));
        assert_eq!(missing("haproxy -db -f here.cfg").as_deref(), Some("here.cfg"));
        for there in [format!("nginx -p {at} -c my.conf"), format!("nginx -c {at}/my.conf")] {
            assert_eq!(missing(&there), None, "{there}");
        }
        for none in
            ["x {dir}/my.conf", "sh -c 'cat a.conf'", "nginx -g 'include a.conf;'", "x --set a=b.conf", "x -c y"]
        {
            assert_eq!(missing(none), None, "{none}");
        }
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_kept() {
        let values = BTreeMap::from([("port", "8443".to_owned()), ("docroot", "/a b/{port}".to_owned())]);
        let words = spec("x -p {port} {docroot} {} {other} {", "a", None).command_line(&values).unwrap();
        assert_eq!(words, ["x", "-p", "8443", "/a b/{port}", "{}", "{other}", "{"]);
        let error = spec("x {key}", "a", None).command_line(&values).unwrap_err();
        assert!(error.to_string().contains("{key}"), "{error}");
        for broken in [" ", "x 'b", "x \"b"] {
            assert!(spec(broken, "a", None).command_line(&values).is_err(), "{broken}");
        }
    }

    #[test]
    fn fixed_ports_are_noticed() {
        assert!(!spec("x {port}", "127.0.0.1:{port}", None).has_fixed_port());
        assert!(spec("x", "127.0.0.1:8443", None).has_fixed_port());
        assert!(spec("x", "127.0.0.1:{port}", None).has_fixed_port());
        assert!(spec("x {port}", "127.0.0.1:{port}", Some("127.0.0.1:80")).has_fixed_port());
        assert!(!spec("x {port} {plain_port}", "127.0.0.1:{port}", Some("127.0.0.1:{plain_port}")).has_fixed_port());
    }

    #[test]
    fn addresses_resolve_or_explain() {
        assert_eq!(resolve("127.0.0.1:8443").unwrap(), "127.0.0.1:8443".parse().unwrap());
        assert!(resolve("8443").unwrap_err().to_string().contains("HOST:PORT"));
    }
}
