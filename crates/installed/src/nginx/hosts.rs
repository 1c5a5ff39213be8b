//! The names of a configuration's servers, and which of them is measured.

use super::listeners::Listeners;
use super::names::{knows, names};
use super::reader::Directive;
use crate::site::{Choice, Offer, is_chosen, split};

const EVERY_PATH: [&str; 6] = ["^", ".*", "^.*", "^.*$", "^(.*)$", "^/(.*)$"];

/// A name by which clients can ask for a server; of those for many names one. `None`: a pattern, or none at all.
fn name_to_ask(server: &[Directive]) -> Option<String> {
    let is_name = |name: &String| {
        name.contains(|c: char| c.is_ascii_alphanumeric()) && !name.contains(['*', '~', '$', '"', '\\', '^', '('])
    };
    let of_many = |name: String| {
        let name = name.strip_prefix('.').map_or(name.clone(), str::to_owned);
        let name = name.strip_prefix("*.").map_or(name.clone(), |domain| format!("www.{domain}"));
        name.strip_suffix(".*").map_or(name.clone(), |host| format!("{host}.com"))
    };
    names(server)
        .find(|name| is_name(name) && !name.starts_with('.'))
        .or_else(|| names(server).map(of_many).find(is_name))
}

/// Whether a server does nothing but send everybody elsewhere, or away.
fn only_redirects(server: &[Directive]) -> bool {
    let rejects = |directive: &Directive| directive.name == "ssl_reject_handshake" && directive.says("on");
    server.iter().any(|directive| rejects(directive) || sends_away(directive))
        || server.iter().any(|directive| is_front(directive) && directive.inner().iter().any(sends_away))
}

fn sends_away(directive: &Directive) -> bool {
    let mut values = directive.values();
    let first = values.next().unwrap_or_default();
    match directive.name.as_str() {
        "return" => first.parse::<u16>().map_or(true, |status| status >= 300),
        "rewrite" => {
            EVERY_PATH.contains(&first.as_str()) && values.any(|flag| flag == "permanent" || flag == "redirect")
        }
        _ => false,
    }
}

fn is_front(directive: &Directive) -> bool {
    directive.name == "location" && directive.values().last().is_some_and(|path| path == "/")
}

impl Choice {
    /// The one that is asked for; otherwise the default server's, or where that only sends clients elsewhere the next.
    pub(super) fn new(http: &[Directive], asked: Option<&str>) -> Choice {
        let listeners = Listeners::new(http, asked);
        let mut all: Vec<(Option<String>, bool)> = Vec::new();
        for socket in listeners.with_tls() {
            for (index, server) in listeners.servers_on(socket).into_iter().enumerate() {
                let host = name_to_ask(server).map(|name| match socket.port() {
                    None | Some(443) => name,
                    Some(port) => format!("{name}:{port}"),
                });
                // The default server answers to any name.
                if (index == 0 || host.is_some()) && all.iter().all(|(known, _)| *known != host) {
                    all.push((host, only_redirects(server)));
                }
            }
        }
        let first = || all.iter().find(|(_, only_redirects)| !only_redirects).or(all.first());
        let chosen = asked.map(str::to_owned).or_else(|| first().and_then(|(host, _)| host.clone()));
        let others = all.into_iter().filter_map(|(host, _)| host);
        let others = others.filter(|host| !is_chosen(host, chosen.as_deref())).collect();
        let name = chosen.as_deref().map_or("", |host| split(host).0);
        let is_known = listeners.measured_servers().iter().any(|server| knows(server, name));
        let any = |server: &[Directive]| name_to_ask(server).is_none() || names(server).any(|name| name.contains('~'));
        let takes_any = listeners.measured_servers().iter().any(|server| any(server));
        Choice { host: chosen, others, is_known, takes_any }
    }
}

impl Offer {
    /// What the socket that serves `host` offers: its default server decides, before the client's name is known.
    pub(super) fn new(http: &[Directive], host: Option<&str>) -> Offer {
        let default = Listeners::new(http, host).measured_servers().first().copied().unwrap_or_default();
        // A server's own take the place of what stands in `http`.
        let of_either = |pick: &dyn Fn(&Directive) -> Option<Vec<String>>| {
            default.iter().rev().find_map(pick).or_else(|| http.iter().rev().find_map(pick)).unwrap_or_default()
        };
        let protocols =
            of_either(&|directive| (directive.name == "ssl_protocols").then(|| directive.values().collect()));
        let groups = of_either(&|directive| {
            let mut values = directive.values();
            let first = values.next().unwrap_or_default();
            let list = match directive.name.as_str() {
                "ssl_ecdh_curve" => first,
                "ssl_conf_command" if ["groups", "curves"].contains(&&*first.to_ascii_lowercase()) => values.next()?,
                _ => return None,
            };
            Some(list.split(':').filter(|group| *group != "auto").map(str::to_owned).collect())
        });
        Offer { protocols, groups }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::directives_of;
    use super::*;

    fn choice(http: &str, asked: Option<&str>) -> (String, String) {
        let http = directives_of(http).unwrap();
        let Choice { host, others, .. } = Choice::new(&http, asked);
        (host.unwrap_or_else(|| "any".to_owned()), others.join(" "))
    }

    fn chosen((host, others): (&str, &str)) -> (String, String) {
        (host.to_owned(), others.to_owned())
    }

    #[test]
    fn the_default_server_is_measured_where_it_has_pages() {
        let two = "server { listen 443 ssl; server_name blog.example; }\n\
                   server { listen 443 ssl default_server; server_name shop.example; }";
        assert_eq!(choice(two, None), chosen(("shop.example", "blog.example")));
        assert_eq!(choice(two, Some("blog.example")), chosen(("blog.example", "shop.example")));
        let elsewhere = two.replace("443", "8443");
        assert_eq!(choice(&elsewhere, Some("blog.example")), chosen(("blog.example", "shop.example:8443")));
        let first =
            "server { listen 443 ssl; server_name a.example; } server { listen 443 ssl; server_name b.example; }";
        assert_eq!(choice(first, None), chosen(("a.example", "b.example")));
        for elsewhere in [
            "return 301 https://www.x.example$request_uri;",
            "return https://www.x.example/;",
            "rewrite ^(.*)$ https://www.x.example$1 permanent;",
            "location / { return 302 https://www.x.example/; }",
            "ssl_reject_handshake on;",
            "return 444;",
        ] {
            let canonical = format!(
                "server {{ listen 443 ssl default_server; server_name x.example; {elsewhere} }}\n\
                 server {{ listen 443 ssl; server_name www.x.example; location /old {{ return 301 /new; }} }}"
            );
            assert_eq!(choice(&canonical, None), chosen(("www.x.example", "x.example")), "{elsewhere}");
        }
        let catch_all = "server { listen 443 ssl default_server; server_name _; root /x; }";
        let takes_any = |text: &str| Choice::new(&directives_of(text).unwrap(), Some("nope")).takes_any;
        assert_eq!([two, catch_all].map(takes_any), [false, true]);
        assert_eq!(choice(catch_all, None), chosen(("any", "")));
        let ports =
            "server { listen 8443 ssl; server_name admin.example; } server { listen 443 ssl; server_name x.example; }";
        assert_eq!(choice(ports, None), chosen(("x.example", "admin.example:8443")));
    }

    #[test]
    fn servers_with_many_names_are_asked_for_by_one() {
        for (names, wanted) in [
            (".localhost", "localhost"),
            ("\"localhost\"", "localhost"),
            ("'shop.example'", "shop.example"),
            ("*.shop.example", "www.shop.example"),
            ("shop.*", "shop.com"),
            ("*.x.example x.example", "x.example"),
            ("~^(www\\.)?x\\.example$ x.example", "x.example"),
            ("_", "any"),
            ("\"\"", "any"),
            ("~^x$", "any"),
            ("$hostname", "any"),
        ] {
            let server = format!("server {{ listen 443 ssl; server_name {names}; }}");
            assert_eq!(choice(&server, None).0, wanted, "{names}");
        }
    }

    #[test]
    fn the_default_server_decides_what_is_negotiated() {
        let offer = |http: &str| Offer::new(&directives_of(http).unwrap(), Some("b"));
        let http = "ssl_protocols TLSv1.2; ssl_ecdh_curve auto;\n\
                    server { listen 443 ssl default_server; ssl_ecdh_curve secp384r1:prime256v1; }\n\
                    server { listen 443 ssl; server_name b; ssl_protocols TLSv1.3; }";
        let groups = ["secp384r1", "prime256v1"].map(str::to_owned).to_vec();
        assert_eq!(offer(http), Offer { protocols: vec!["TLSv1.2".to_owned()], groups });
        assert_eq!(offer("server { listen 443 ssl; }"), Offer::default());
        let command = offer("server { listen 443 ssl; ssl_conf_command Options x; ssl_conf_command Groups X25519; }");
        assert_eq!(command.groups, ["X25519"]);
    }
}
