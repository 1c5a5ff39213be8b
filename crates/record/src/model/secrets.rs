//! What of a command line no record keeps: records may be given to others.

use std::sync::LazyLock;

use regex_lite::Regex;

/// What comes before a secret, the secret, and what comes behind it.
static SECRETS: LazyLock<[Regex; 4]> = LazyLock::new(|| {
    let name = r"[\w-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|api-?key|credential|jwt)[\w-]*";
    let value = r#"(?:"[^"]*"|'[^']*'|[^\s'"&]*)"#;
    let parameter = r"(?:[\w.-]*[_.-])?(?:sig|signature|key|code|auth|sid|session(?:_?id)?|otp)";
    [
        // A variable, an option with its value behind `=` or blanks, a parameter of a URL.
        format!("({name}=|(?:^|\\s)-{name}\\s+){value}()"),
        format!(r"([?&]{parameter}=)[^\s&,;)]*()"),
        r"(://[^\s/:@]+:)[^\s/@]+(@)".to_owned(),
        r#"((?:authorization|cookie|x-[\w-]*(?:key|token))\s*:\s*)[^\s'"…][^'"\r\n]*()"#.to_owned(),
    ]
    .map(|pattern| Regex::new(&format!("(?i){pattern}")).expect("a test uses it"))
});

/// A text without the values of variables, options and a URL's parameters that are called like a secret, of passwords
/// in URLs, and of headers that clients prove themselves with: `--password x`, `API_TOKEN=x`, `/feed?key=x`.
pub fn without_secrets(text: &str) -> String {
    SECRETS.iter().fold(text.to_owned(), |text, pattern| pattern.replace_all(&text, "$1…$2").into_owned())
}

/// A header without its value, which may be a password; `@FILE`, which names where one stands, as it is.
pub fn without_value(header: &str) -> String {
    match header.split_once(':') {
        Some((name, _)) if !header.starts_with('@') => format!("{name}: …"),
        _ => header.to_owned(),
    }
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
            ("get https://a/x?api_token=b&page=2&sig=c, /d?e=f", "get https://a/x?api_token=…&page=2&sig=…, /d?e=f"),
            ("app --db postgres://me:pw@db/x --at http://b:80/", "app --db postgres://me:…@db/x --at http://b:80/"),
            ("curl -H 'Authorization: Bearer b' c", "curl -H 'Authorization: …' c"),
            ("(-H 'Authorization: …')", "(-H 'Authorization: …')"),
            ("the 95 % interval & key=3; monkey=1", "the 95 % interval & key=3; monkey=1"),
        ] {
            assert_eq!(without_secrets(line), kept);
        }
    }
}
