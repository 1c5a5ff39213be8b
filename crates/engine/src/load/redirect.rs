//! Where a redirect leads, and whether it is followed: RFC 9110 section 15.4. Knows neither sockets nor clocks.

use tlsdyno_wire::http::{Reference, is_redirect};

use super::outcome::ErrorKind;

/// Which redirects are followed, and how many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Redirects {
    /// Most of them one after the other.
    pub most_count: u32,
    /// The scheme of the target is https.
    pub tls: bool,
    /// Names and addresses of the target; a redirect to another host leads elsewhere.
    pub hosts: Vec<String>,
    /// Ports of the target, likewise.
    pub ports: Vec<u16>,
}

/// A request that goes on where a redirect led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub target: Vec<u8>,
    /// It is a GET without a body now, whatever it was.
    pub to_get: bool,
    pub count: u32,
    /// When the user's request was first sent.
    pub began_ns: u64,
}

/// The request whose answer is a redirect.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub method: &'a str,
    pub target: &'a str,
    /// The redirects that it followed already.
    pub hop: Option<&'a Hop>,
    /// When it was first sent.
    pub began_ns: u64,
}

impl Redirects {
    /// What to do about a response: `None`, it is an ordinary answer; a hop to follow; or the kind of error that it
    /// counts as.
    pub fn next(&self, status: u16, location: Option<&[u8]>, asked: Asked) -> Option<Result<Hop, ErrorKind>> {
        let location = location.filter(|_| is_redirect(status))?;
        let Some(reference) = Reference::parse(location) else {
            return Some(Err(ErrorKind::RedirectMalformed));
        };
        if !self.is_here(&reference) {
            return Some(Err(ErrorKind::RedirectElsewhere));
        }
        let count = asked.hop.map_or(0, |hop| hop.count);
        if count >= self.most_count {
            return Some(Err(ErrorKind::RedirectLimit));
        }
        let base = asked.hop.map_or(asked.target.as_bytes(), |hop| &hop.target);
        let was_get = asked.hop.is_some_and(|hop| hop.to_get);
        Some(Ok(Hop {
            target: reference.target(base),
            to_get: was_get || becomes_get(status, asked.method),
            count: count + 1,
            began_ns: asked.began_ns,
        }))
    }

    /// Whether a reference stays on the server that is loaded.
    fn is_here(&self, reference: &Reference) -> bool {
        let own: &[u8] = if self.tls { b"https" } else { b"http" };
        if reference.scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case(own)) {
            return false;
        }
        let Some(host) = reference.host else {
            return true;
        };
        let port = reference.port.unwrap_or(if self.tls { 443 } else { 80 });
        self.hosts.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(host)) && self.ports.contains(&port)
    }
}

/// 303 asks for a GET, and 301 and 302 turn a POST into one, as browsers do (RFC 9110 sections 15.4.2 to 15.4.4). HEAD
/// stays what it is.
fn becomes_get(status: u16, method: &str) -> bool {
    match status {
        303 => !matches!(method, "GET" | "HEAD"),
        301 | 302 => method == "POST",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Redirects {
        let hosts = ["example.org", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        Redirects { most_count: 2, tls: true, hosts, ports: vec![443, 8443] }
    }

    fn asked(method: &str) -> Asked<'_> {
        Asked { method, target: "/a/b?c", hop: None, began_ns: 7 }
    }

    fn next(status: u16, location: &str, method: &str) -> Option<Result<Hop, ErrorKind>> {
        rules().next(status, Some(location.as_bytes()), asked(method))
    }

    #[test]
    fn what_stays_on_the_server_is_followed() {
        let hop = |target: &str, to_get| Some(Ok(Hop { target: target.into(), to_get, count: 1, began_ns: 7 }));
        assert_eq!(next(302, "x", "GET"), hop("/a/x", false));
        for origin in ["https://example.org", "HTTPS://EXAMPLE.org:8443", "//127.0.0.1", "https://[::1]:8443"] {
            assert_eq!(next(307, &format!("{origin}/x"), "POST"), hop("/x", false), "{origin}");
        }
        for elsewhere in ["http://example.org/", "https://other.example/", "https://example.org:444/", "mailto:a@b"] {
            assert_eq!(next(301, elsewhere, "GET"), Some(Err(ErrorKind::RedirectElsewhere)), "{elsewhere}");
        }
        assert_eq!(next(301, "https://example.org:x/", "GET"), Some(Err(ErrorKind::RedirectMalformed)));
        assert_eq!(next(304, "/", "GET"), None);
        assert_eq!(next(200, "/", "GET"), None);
        assert_eq!(rules().next(302, None, asked("GET")), None);
    }

    #[test]
    fn methods_change_as_in_browsers() {
        let to_get = |status, method| next(status, "/", method).unwrap().unwrap().to_get;
        for (status, method, expected) in [
            (301, "POST", true),
            (302, "POST", true),
            (303, "POST", true),
            (303, "PUT", true),
            (303, "HEAD", false),
            (302, "PUT", false),
            (302, "GET", false),
            (307, "POST", false),
            (308, "POST", false),
        ] {
            assert_eq!(to_get(status, method), expected, "{status} {method}");
        }
    }

    #[test]
    fn hops_are_counted_and_stay_what_they_became() {
        let first = next(303, "sub/", "POST").unwrap().unwrap();
        let second = rules().next(307, Some(b"x"), Asked { hop: Some(&first), ..asked("POST") }).unwrap().unwrap();
        assert_eq!(second, Hop { target: b"/a/sub/x".to_vec(), to_get: true, count: 2, began_ns: 7 });
        let third = rules().next(302, Some(b"x"), Asked { hop: Some(&second), ..asked("POST") });
        assert_eq!(third, Some(Err(ErrorKind::RedirectLimit)));
    }
}
