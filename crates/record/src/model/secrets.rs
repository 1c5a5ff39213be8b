//! What of a command line no record keeps: records may be given to others.

use std::sync::LazyLock;

use regex_lite::Regex;

/// The value of a variable or an option that is called like a secret: behind `=`, or behind an option and blanks.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    let name = r"[\w-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|api-?key)[\w-]*";
    let value = r#"(?:"[^"]*"|'[^']*'|[^\s'"]*)"#;
    Regex::new(&format!(r"(?i)({name}=|(?:^|\s)-{name}\s+){value}")).expect("a test uses it")
});

/// A command line without the values of variables and options that are called like a secret: `--password x`,
/// `API_TOKEN=x`.
pub fn without_secrets(line: &str) -> String {
    SECRET.replace_all(line, "$1…").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_called_secrets_are_hidden() {
        for (line, kept) in [
            ("srv --port 1 -c a=b", "srv --port 1 -c a=b"),
            ("API_TOKEN=x srv  --db-password y --x", "API_TOKEN=… srv  --db-password … --x"),
            ("srv --secret='a b' --passwd \"c d\" e", "srv --secret=… --passwd … e"),
            ("sh -c 'APP_SECRET=x srv'", "sh -c 'APP_SECRET=… srv'"),
            ("x --note --token", "x --note --token"),
            ("srv --password", "srv --password"),
            ("srv --password=", "srv --password=…"),
        ] {
            assert_eq!(without_secrets(line), kept);
        }
    }
}
