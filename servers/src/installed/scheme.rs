//! What pages ask of the connection that they are asked for on: `if ($scheme = http)`, `if ($server_port != 443)`. The
//! copy listens on other ports, and once without TLS for the same pages; they see what they would see of the original.

use super::reader::{Block, Directive};

/// nginx's variables that tell it, and those that stand for them in the copy.
const VARIABLES: [(&str, &str); 3] =
    [("scheme", "tlsdyno_scheme"), ("https", "tlsdyno_https"), ("server_port", "tlsdyno_server_port")];

/// Lets pages on these ports of the copy see TLS on `original`.
pub(super) fn adapt(http: &mut Vec<Directive>, ports: [u16; 2], original: u16) {
    if !are_asked_for(http) {
        return;
    }
    replace(http);
    let seen = ["https".to_owned(), "on".to_owned(), original.to_string()];
    for ((of_nginx, of_copy), seen) in VARIABLES.iter().zip(seen) {
        let mut lines: Vec<Directive> =
            ports.iter().map(|port| Directive::of(&port.to_string(), vec![seen.clone()])).collect();
        lines.push(Directive::of("default", vec![format!("${of_nginx}")]));
        let arguments = vec!["$server_port".to_owned(), format!("${of_copy}")];
        // Last: whoever sets sizes of maps must do so before the first of them.
        http.push(Directive { block: Some(Block::Directives(lines)), ..Directive::of("map", arguments) });
    }
}

/// Whether anything asks.
pub(super) fn are_asked_for(directives: &[Directive]) -> bool {
    directives.iter().any(|of| of.arguments.iter().any(|word| replaced(word).is_some()) || are_asked_for(of.inner()))
}

fn replace(directives: &mut [Directive]) {
    for directive in directives {
        for word in &mut directive.arguments {
            if let Some(new) = replaced(word) {
                *word = new;
            }
        }
        if let Some(Block::Directives(inner)) = &mut directive.block {
            replace(inner);
        }
    }
}

/// A word with the copy's variables in it; `None`: it has none.
fn replaced(word: &str) -> Option<String> {
    let (mut new, mut rest, mut found) = (String::new(), word, false);
    while let Some(at) = rest.find('$') {
        let (before, variable) = rest.split_at(at + 1);
        new.push_str(before);
        let brace = if variable.starts_with('{') { 1 } else { 0 };
        let name = &variable[brace..];
        let length = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        let (name, behind) = name.split_at(length);
        let of_copy = VARIABLES.iter().find(|(of_nginx, _)| *of_nginx == name).map(|(_, of_copy)| *of_copy);
        found |= of_copy.is_some();
        new.push_str(&variable[..brace]);
        new.push_str(of_copy.unwrap_or(name));
        rest = behind;
    }
    new.push_str(rest);
    found.then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_by_their_whole_name() {
        for (word, wanted) in [
            ("$scheme://$host$request_uri", Some("$tlsdyno_scheme://$host$request_uri")),
            ("\"${scheme}x$https\"", Some("\"${tlsdyno_scheme}x$tlsdyno_https\"")),
            ("($server_port", Some("($tlsdyno_server_port")),
            ("$schemes$http_scheme", None),
            ("a$", None),
            ("^/a$|ä", None),
            ("scheme", None),
        ] {
            assert_eq!(replaced(word).as_deref(), wanted, "{word}");
        }
    }
}
