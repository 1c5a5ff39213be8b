//! What pages ask of the connection that they are asked for on: `if ($scheme = http)`, `if ($server_port != 443)`. The
//! copy listens on other ports, and once without TLS for the same pages; they see what they would see of the original.

use super::reader::{Block, Directive, change_all};

/// nginx's variables that tell it, and those that stand for them in the copy.
const VARIABLES: [(&str, &str); 3] =
    [("scheme", "tlsdyno_scheme"), ("https", "tlsdyno_https"), ("server_port", "tlsdyno_server_port")];

/// Lets pages on these ports of the copy see TLS on `original`.
pub(super) fn adapt(http: &mut Vec<Directive>, ports: [u16; 2], original: u16) {
    let mut is_asked = false;
    change_all(http, &mut |directive| {
        for word in &mut directive.arguments {
            if let Some(new) = replaced(word) {
                *word = new;
                is_asked = true;
            }
        }
    });
    if !is_asked {
        return;
    }
    let values = ["https".to_owned(), "on".to_owned(), original.to_string()];
    for ((of_nginx, of_copy), value) in VARIABLES.iter().zip(values) {
        let mut lines: Vec<Directive> = ports.iter().map(|port| Directive::new(&port.to_string(), [&value])).collect();
        lines.push(Directive::new("default", [format!("${of_nginx}")]));
        let arguments = ["$server_port".to_owned(), format!("${of_copy}")];
        // Last: whoever sets sizes of maps must do so before the first of them.
        http.push(Directive { block: Some(Block::Data(lines)), ..Directive::new("map", arguments) });
    }
}

/// A word with the copy's variables in it; `None`: it has none.
fn replaced(word: &str) -> Option<String> {
    let mut pieces = word.split('$');
    let mut new = pieces.next()?.to_owned();
    for piece in pieces {
        let (brace, piece) = if let Some(rest) = piece.strip_prefix('{') { ("{", rest) } else { ("", piece) };
        let length = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(piece.len());
        let (name, behind) = piece.split_at(length);
        let of_copy = VARIABLES.iter().find(|(of_nginx, _)| *of_nginx == name).map_or(name, |(_, of_copy)| of_copy);
        new.extend(["$", brace, of_copy, behind]);
    }
    (new != word).then_some(new)
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
