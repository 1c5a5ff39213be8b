//! Where a redirect leads: a reference taken apart and resolved, RFC 3986 sections 3 and 5.2, for http and https.

use super::LOCATION_BYTES_MAX;

/// A reference from a `Location` header, taken apart (RFC 3986 appendix B); its fragment is the browser's, and left
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// The scheme, if the reference has one.
    pub scheme: Option<&'a [u8]>,
    /// Host, without the brackets of an IPv6 literal, where it has one.
    pub host: Option<&'a [u8]>,
    /// Port, where it has one that is not left empty.
    pub port: Option<u16>,
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

impl<'a> Reference<'a> {
    /// Takes a reference apart. `None`: its host is empty, or its port is no port.
    pub fn parse(text: &'a [u8]) -> Option<Reference<'a>> {
        let text = before(text, b"#");
        let (scheme, rest) = split_scheme(text);
        let (authority, rest) = match rest.strip_prefix(b"//") {
            Some(rest) => {
                let authority = before(rest, b"/?");
                (Some(authority), &rest[authority.len()..])
            }
            None => (None, rest),
        };
        let path = before(rest, b"?");
        let query = rest.get(path.len() + 1..).filter(|_| rest.len() > path.len());
        let (host, port) = match authority {
            Some(authority) => split_authority(authority).map(|(host, port)| (Some(host), port))?,
            None => (None, None),
        };
        Some(Reference { scheme, host, port, path, query })
    }

    /// The target of the request line that it leads to from `base`, the target of the request that was redirected (RFC
    /// 3986 section 5.2.2). Bytes that cannot stand on a request line are percent-encoded, as browsers do.
    pub fn target(&self, base: &[u8]) -> Vec<u8> {
        let base = before(base, b"#");
        let base_path = before(base, b"?");
        let mut query = self.query;
        let path = if self.scheme.is_some() || self.host.is_some() || self.path.starts_with(b"/") {
            without_dots(self.path)
        } else if self.path.is_empty() {
            query = query.or_else(|| base.get(base_path.len() + 1..).filter(|_| base.len() > base_path.len()));
            base_path.to_vec()
        } else {
            let directory = base_path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            without_dots(&[&base_path[..directory], self.path].concat())
        };
        let mut target = Vec::with_capacity(path.len() + 1);
        if !path.starts_with(b"/") {
            target.push(b'/');
        }
        encode(&path, &mut target);
        if let Some(query) = query {
            target.push(b'?');
            encode(query, &mut target);
        }
        target
    }
}

/// The front of `text` up to the first of these bytes.
fn before<'a>(text: &'a [u8], ends: &[u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| ends.contains(byte)).unwrap_or(text.len());
    &text[..end]
}

/// RFC 3986 section 3.1.
fn split_scheme(text: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let scheme = before(text, b":/?");
    let valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    match text.get(scheme.len()) {
        Some(b':') if valid => (Some(scheme), &text[scheme.len() + 1..]),
        _ => (None, text),
    }
}

/// Host and port; a user's name before them is not sent (RFC 9110 section 4.2.4).
fn split_authority(authority: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let user = authority.iter().rposition(|&byte| byte == b'@').map_or(0, |at| at + 1);
    let authority = &authority[user..];
    let (host, rest) = match authority.strip_prefix(b"[") {
        Some(literal) => {
            let host = before(literal, b"]");
            (host, literal.get(host.len() + 1..)?)
        }
        None => authority.split_at(before(authority, b":").len()),
    };
    if host.is_empty() {
        return None;
    }
    let port = match rest {
        [] | [b':'] => None,
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
        }
        _ => return None,
    };
    Some((host, port))
}

/// RFC 3986 section 5.2.4, on the segments of an absolute path.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let absolute = path.strip_prefix(b"/").unwrap_or(path);
    let mut segments = absolute.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                // What stands for a directory ends in a slash.
                if last {
                    kept.push(b"");
                }
            }
            _ => kept.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len().min(LOCATION_BYTES_MAX));
    for segment in kept {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    out
}

fn encode(text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if byte.is_ascii_graphic() {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The examples of RFC 3986 sections 5.4.1 and 5.4.2 that stay in http, as targets.
    const EXAMPLES: &[(&str, &str)] = &[
        ("g", "/b/c/g"),
        ("./g", "/b/c/g"),
        ("g/", "/b/c/g/"),
        ("/g", "/g"),
        ("?y", "/b/c/d;p?y"),
        ("g?y", "/b/c/g?y"),
        ("#s", "/b/c/d;p?q"),
        ("g#s", "/b/c/g"),
        ("g?y#s", "/b/c/g?y"),
        (";x", "/b/c/;x"),
        ("g;x=1/./y", "/b/c/g;x=1/y"),
        ("", "/b/c/d;p?q"),
        (".", "/b/c/"),
        ("./", "/b/c/"),
        ("..", "/b/"),
        ("../", "/b/"),
        ("../g", "/b/g"),
        ("../..", "/"),
        ("../../g", "/g"),
        ("../../../g", "/g"),
        ("/./g", "/g"),
        ("/../g", "/g"),
        ("g.", "/b/c/g."),
        ("..g", "/b/c/..g"),
        ("./../g", "/b/g"),
        ("./g/.", "/b/c/g/"),
        ("g/../h", "/b/c/h"),
        ("g;x=1/../y", "/b/c/y"),
        ("g?y/../x", "/b/c/g?y/../x"),
        ("g:h/i", "/h/i"),
        ("a b?\u{e4}\r", "/b/c/a%20b?%C3%A4%0D"),
        ("http://h", "/"),
        ("//h?x", "/?x"),
        ("https://h/a/../b", "/b"),
    ];

    #[test]
    fn references_lead_where_the_rfc_says() {
        for (text, target) in EXAMPLES {
            let reference = Reference::parse(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(reference.target(b"/b/c/d;p?q")).unwrap(), *target, "{text}");
        }
    }

    #[test]
    fn origins_are_taken_apart() {
        let origin = |text: &'static str| {
            let reference = Reference::parse(text.as_bytes())?;
            let text = |bytes| std::str::from_utf8(bytes).unwrap();
            Some((reference.scheme.map(text), reference.host.map(text), reference.port))
        };
        assert_eq!(origin("HTTPS://Example.org:8443/x"), Some((Some("HTTPS"), Some("Example.org"), Some(8443))));
        assert_eq!(origin("//me:pw@[::1]:/x"), Some((None, Some("::1"), None)));
        assert_eq!(origin("http://a?b"), Some((Some("http"), Some("a"), None)));
        assert_eq!(origin("/a:b//c"), Some((None, None, None)));
        for malformed in ["http:///x", "//", "http://a:b/", "http://a:70000/", "http://[::1/", "http://[::1]x/"] {
            assert_eq!(origin(malformed), None, "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn targets_can_stand_on_a_request_line(
            text in proptest::collection::vec(any::<u8>(), 0..60),
            base in "/[a-z/.?]{0,20}",
        ) {
            if let Some(reference) = Reference::parse(&text) {
                let target = reference.target(base.as_bytes());
                prop_assert!(target.starts_with(b"/") && target.iter().all(u8::is_ascii_graphic));
                let path = before(&target, b"?");
                let from_base = text.is_empty() || text.starts_with(b"#") || text.starts_with(b"?");
                prop_assert!(from_base || !path.split(|&byte| byte == b'/').any(|part| part == b".." || part == b"."));
            }
        }
    }
}
