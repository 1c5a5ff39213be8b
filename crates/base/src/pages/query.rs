//! Which page is asked for, read from the bytes of a connection. Knows no socket.

use std::net::IpAddr;

use tlsdyno_wire::http::{HEAD_BYTES_MAX, request_head, target_path};

/// What the first bytes of a connection ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    /// The request is not complete yet.
    Unfinished,
    /// A page; without its body for HEAD.
    Page { query: Query<'a>, has_body: bool },
    /// Nothing that is answered: the status, and why.
    Refused { status: u16, why: &'static str, has_body: bool },
}

/// A page that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The path, from `/` on.
    pub path: &'a str,
    /// Names and values of the query, decoded.
    pub values: Vec<(String, String)>,
}

impl Query<'_> {
    /// The first value of that name, if it is there and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.values.iter().find(|(this, _)| this == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }
}

/// Reads a request. `is_local`: it comes from this machine, and is answered under this machine's names only.
pub(super) fn asked(bytes: &[u8], is_local: bool) -> Asked<'_> {
    let refused = |status, why, has_body| Asked::Refused { status, why, has_body };
    let head = match request_head(bytes) {
        Ok(Some(head)) => head,
        Ok(None) if bytes.len() < HEAD_BYTES_MAX => return Asked::Unfinished,
        _ => return refused(400, "this is no HTTP request", true),
    };
    let has_body = match head.method {
        b"GET" => true,
        b"HEAD" => false,
        _ => return refused(405, "only GET is understood", true),
    };
    if is_local && !is_local_name(head.headers.get("Host").unwrap_or_default()) {
        return refused(421, "this server answers for its own machine's names only", has_body);
    }
    match query(head.target) {
        Some(query) => Asked::Page { query, has_body },
        None => refused(400, "there is no such page", has_body),
    }
}

fn query(target: &[u8]) -> Option<Query<'_>> {
    let path = std::str::from_utf8(target_path(target)?).ok()?;
    let query = target.iter().position(|byte| *byte == b'?').map_or(&b""[..], |at| &target[at + 1..]);
    Some(Query { path, values: form_urlencoded::parse(query).into_owned().collect() })
}

/// A page elsewhere may have its name lead here, to read in a user's browser what is meant for this machine; then the
/// name is not ours.
fn is_local_name(host: &[u8]) -> bool {
    let host = std::str::from_utf8(host).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_whatever_they_hold() {
        let found = query(b"/?site=https%3A%2F%2Fa%2F&from=&odd=a%20b+c%zz%4").unwrap();
        assert_eq!((found.path, found.get("site"), found.get("from")), ("/", Some("https://a/"), None));
        assert_eq!(found.get("odd"), Some("a b c%zz%4"));
        assert_eq!(query(b"/metrics").unwrap().path, "/metrics");
        assert!(query(b"*").is_none());
    }

    proptest::proptest! {
        #[test]
        fn values_survive_a_query(name in "[a-z]+", text in ".+") {
            let text_in_query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
            let request = format!("GET /?{name}={text_in_query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let Asked::Page { query, .. } = asked(request.as_bytes(), true) else { panic!("{request}") };
            proptest::prop_assert_eq!(query.get(&name), Some(text.as_str()));
        }
    }

    #[test]
    fn names_of_others_are_refused_on_loopback() {
        let status = |host: &str, is_local| {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            match asked(request.as_bytes(), is_local) {
                Asked::Page { .. } => 200,
                Asked::Refused { status, .. } => status,
                Asked::Unfinished => 0,
            }
        };
        for host in ["localhost:9115", "127.0.0.1:9115", "[::1]:9115", "LOCALHOST", ""] {
            assert_eq!(status(host, true), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9115", "[x]:1"] {
            assert_eq!((status(host, true), status(host, false)), (421, 200), "{host}");
        }
    }
}
