//! What of a command line no record keeps: records may be given to others.

/// What names of variables and options say of a value that is a secret.
const SECRETS: [&str; 8] = ["password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "api-key"];
/// What stands in the place of a value.
const HIDDEN: char = '…';

/// A command line without the values of variables and options that are called like a secret: `--password x`,
/// `API_TOKEN=x`.
pub fn without_secrets(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    let mut is_next = false;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start().len();
        kept.push_str(&rest[..blanks]);
        rest = &rest[blanks..];
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (name, is_given) = match rest[..end].split_once('=') {
            Some((name, _)) => (name, true),
            None => (&rest[..end], false),
        };
        let small = name.to_ascii_lowercase();
        let is_secret = SECRETS.iter().any(|secret| small.contains(secret));
        // A value may hold blanks in quotes.
        let value = if is_next { rest } else { rest.get(name.len() + 1..).unwrap_or_default() };
        if is_next && !rest.is_empty() || is_secret && is_given {
            kept.push_str(if is_next { "" } else { &rest[..=name.len()] });
            kept.push(HIDDEN);
            rest = &value[end_of(value)..];
            is_next = false;
            continue;
        }
        is_next = is_secret && name.starts_with('-');
        kept.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    kept
}

/// Where a value ends: at its quote, or at a blank.
fn end_of(value: &str) -> usize {
    let quote = value.chars().next().filter(|first| ['"', '\''].contains(first));
    let end = match quote {
        Some(quote) => value[1..].find(quote).map(|at| at + 2),
        None => value.find(char::is_whitespace),
    };
    end.unwrap_or(value.len())
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
