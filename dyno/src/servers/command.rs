//! The user's own server command: words, placeholders, addresses.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// A server started by a command line of the user.
///
/// The line is split into words as a shell would (quotes, backslashes), but no shell runs: nothing is expanded besides the placeholders
/// `{port}`, `{plain_port}`, `{docroot}`, `{dir}` (a private directory), `{certificate}`, `{key}`, `{ca}`. Who wants a shell writes `sh -c '…'`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// The command line.
    pub command: String,
    /// Where it serves TLS, for example `127.0.0.1:{port}`.
    pub address: String,
    /// Where it serves plain HTTP; without it no plain-HTTP share is claimed.
    pub plain_address: Option<String>,
}

impl CommandSpec {
    /// The command always listens on the same port, so that its configurations must take turns.
    pub fn has_fixed_port(&self) -> bool {
        let lacks = |template: &str, placeholder: &str| !template.contains(placeholder);
        let plain_fixed =
            self.plain_address.as_ref().is_some_and(|plain| lacks(plain, "{plain_port}") && lacks(plain, "{port}"));
        lacks(&self.address, "{port}") || lacks(&self.command, "{port}") || plain_fixed
    }

    /// Whether a placeholder occurs in the command line.
    pub fn mentions(&self, placeholder: &str) -> bool {
        self.command.contains(placeholder)
    }

    /// Program and arguments, placeholders filled in.
    pub fn words(&self, values: &BTreeMap<&str, String>) -> Result<Vec<String>> {
        let words = split_words(&self.command).with_context(|| format!("server command `{}`", self.command))?;
        if words.is_empty() {
            bail!("the server command is empty");
        }
        words.iter().map(|word| fill(word, values)).collect()
    }
}

/// Replaces `{name}` by its value. Braces around anything that is no name of a placeholder (`{}`, JSON, awk) are left alone.
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
            Some(name @ ("certificate" | "key" | "ca")) => {
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

/// Splits into words at blanks outside quotes; `'…'` is literal, in `"…"` and outside a backslash takes the next character literally.
fn split_words(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('\'') => break,
                        Some(inner) => text.push(inner),
                        None => bail!("a ' is not closed"),
                    }
                }
            }
            '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('"') => break,
                        Some('\\') => text.push(characters.next().context("a \" is not closed")?),
                        Some(inner) => text.push(inner),
                        None => bail!("a \" is not closed"),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next().context("it ends in a backslash")?),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(command: &str, address: &str, plain: Option<&str>) -> CommandSpec {
        CommandSpec { command: command.into(), address: address.into(), plain_address: plain.map(Into::into) }
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        let words = |line: &str| split_words(line).unwrap();
        assert_eq!(
            words("nginx -g 'daemon off;' -p \"a b\\\"\" c\\ d ''"),
            ["nginx", "-g", "daemon off;", "-p", "a b\"", "c d", ""]
        );
        assert_eq!(words("  "), Vec::<String>::new());
        for broken in ["a 'b", "a \"b", "a \"b\\", "a\\"] {
            assert!(split_words(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_kept() {
        let values = BTreeMap::from([("port", "8443".to_owned()), ("docroot", "/a b/{port}".to_owned())]);
        let words = spec("x -p {port} {docroot} {} {other} {", "a", None).words(&values).unwrap();
        assert_eq!(words, ["x", "-p", "8443", "/a b/{port}", "{}", "{other}", "{"]);
        let error = spec("x {key}", "a", None).words(&values).unwrap_err();
        assert!(error.to_string().contains("{key}"), "{error}");
        assert!(spec(" ", "a", None).words(&values).is_err());
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
