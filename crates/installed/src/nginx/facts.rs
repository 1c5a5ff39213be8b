//! What an installed configuration says of TLS, connections and logs of one of its servers. Nothing runs.

use super::http_of;
use super::listeners::Listeners;
use super::names::knows;
use super::reader::{Directive, all};
use crate::site::{AccessLog, Facts, seconds, split};

impl Facts {
    /// What the configuration says of the server that answers for `host`.
    pub(super) fn new(main: &[Directive], host: Option<&str>) -> Facts {
        let http = http_of(main);
        let events = main.iter().find(|directive| directive.name == "events").map_or(&[][..], Directive::inner);
        let number = |block: &[Directive], name: &str| {
            block
                .iter()
                .find(|directive| directive.name == name)
                .map(|directive| directive.first().unwrap_or_default().parse().ok())
        };
        let listeners = Listeners::new(http, host);
        let servers = listeners.measured_servers();
        let name = host.map_or("", |host| split(host).0);
        let server = servers.iter().find(|server| knows(server, name)).or(servers.first()).copied().unwrap_or_default();
        let scope = Scope { server, http };
        let offer = super::Offer::new(http, host);
        let keep_alive = [scope.value("keepalive_timeout", "75s"), scope.value("keepalive_requests", "1000")];
        let front =
            || all(server).filter(|directive| directive.name.ends_with("_pass") && directive.name != "fastcgi_pass");
        Facts {
            certificates: scope.each("ssl_certificate").filter_map(Directive::first).collect(),
            protocols: offer.protocols,
            groups: offer.groups,
            ciphers: scope.value("ssl_ciphers", ""),
            weak_suites: Vec::new(),
            session_cache: scope.value("ssl_session_cache", "none"),
            session_timeout: scope.value("ssl_session_timeout", "5m"),
            session_timeout_s: seconds(&scope.value("ssl_session_timeout", "5m"), 1.0),
            tickets: scope.value("ssl_session_tickets", "on") == "on",
            ticket_key_files: scope.each("ssl_session_ticket_key").count(),
            early_data: scope.value("ssl_early_data", "off") == "on",
            stapling: scope.value("ssl_stapling", "off") == "on",
            http2: scope.value("http2", "off") == "on" || listeners.have_http2(),
            keep_alive_s: if keep_alive[1] == "0" { Some(0) } else { seconds(&keep_alive[0], 1.0) },
            keep_alive,
            record_bytes: bytes(&scope.value("ssl_buffer_size", "")),
            workers: number(main, "worker_processes").unwrap_or(Some(1)),
            connections_count: number(events, "worker_connections").flatten(),
            passes_on: front().next().map(|_| {
                http.iter()
                    .filter(|directive| directive.name == "upstream")
                    .flat_map(Directive::inner)
                    .any(|directive| directive.name == "keepalive")
            }),
            access_logs: scope.access_logs(),
        }
    }
}

/// Parses `4k` or `16384`.
fn bytes(text: &str) -> Option<u32> {
    match text.strip_suffix(['k', 'K']) {
        Some(number) => number.parse::<u32>().ok()?.checked_mul(1024),
        None => text.parse().ok(),
    }
}

/// A server in its `http`: what it says itself takes the place of what stands around it.
struct Scope<'a> {
    server: &'a [Directive],
    http: &'a [Directive],
}

impl<'a> Scope<'a> {
    /// All directives of this name that hold for the server.
    fn each(&self, name: &'a str) -> impl Iterator<Item = &'a Directive> {
        let named = |directive: &&Directive| directive.name == name;
        let own = self.server.iter().any(|directive| named(&directive));
        let scope = if own { self.server } else { self.http };
        scope.iter().filter(move |directive| directive.name == name)
    }

    fn value(&self, name: &'a str, otherwise: &str) -> String {
        self.each(name).last().and_then(Directive::first).unwrap_or_else(|| otherwise.to_owned())
    }

    fn access_logs(&self) -> Vec<AccessLog> {
        let format = |name: &str| {
            let directive = self
                .http
                .iter()
                .find(|directive| directive.name == "log_format" && directive.first().as_deref() == Some(name));
            directive.map(|directive| directive.values().skip(1).collect::<Vec<_>>().concat()).unwrap_or_default()
        };
        let log = |directive: &Directive| {
            let mut values = directive.values();
            let path = values.next().filter(|path| path != "off" && !path.starts_with("syslog:"))?;
            let name = values.find(|word| !word.contains('=')).unwrap_or_default();
            Some(AccessLog { path, format: format(&name) })
        };
        self.each("access_log").filter_map(log).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::directives_of;
    use super::*;

    #[test]
    fn a_server_s_own_settings_come_before_those_around_it() {
        let main = "worker_processes auto; events { worker_connections 64; }\n\
            http { ssl_session_cache shared:SSL:10m; ssl_session_tickets off; keepalive_timeout 30;\n\
            log_format timed '$remote_addr [$time_local] ' '$ssl_session_reused';\n\
            access_log /var/log/all.log;\n\
            upstream app { server 127.0.0.1:8000; keepalive 8; }\n\
            server { listen 443 ssl http2; server_name a.example; ssl_certificate /a.pem; ssl_certificate /b.pem;\n\
              ssl_session_tickets on; ssl_protocols TLSv1.2; access_log /var/log/a.log timed;\n\
              location / { proxy_pass http://app; } }\n\
            server { listen 443 ssl; server_name b.example; ssl_certificate /c.pem;\n\
              keepalive_timeout 1m 50s; ssl_buffer_size 1k; } }";
        let main = directives_of(main).unwrap();
        let facts = Facts::new(&main, Some("a.example"));
        assert_eq!((facts.workers, facts.connections_count, facts.record_bytes), (None, Some(64), None));
        assert_eq!(facts.keep_alive_s, Some(30));
        assert_eq!(facts.certificates, ["/a.pem", "/b.pem"]);
        assert_eq!((facts.session_cache.as_str(), facts.tickets, facts.http2), ("shared:SSL:10m", true, true));
        assert_eq!((facts.protocols, facts.passes_on), (vec!["TLSv1.2".to_owned()], Some(true)));
        assert_eq!(facts.access_logs[0].path, "/var/log/a.log");
        assert_eq!(facts.access_logs[0].format, "$remote_addr [$time_local] $ssl_session_reused");
        let other = Facts::new(&main, Some("b.example"));
        assert_eq!((other.keep_alive_s, other.record_bytes), (Some(60), Some(1024)));
        assert_eq!((other.certificates, other.tickets, other.passes_on), (vec!["/c.pem".to_owned()], false, None));
        assert_eq!(other.access_logs, [AccessLog { path: "/var/log/all.log".to_owned(), format: String::new() }]);
        assert_eq!(other.keep_alive, ["1m", "1000"]);
        assert!(other.http2, "its socket speaks it");
    }

    #[test]
    fn what_nobody_says_is_nginx_s_own_choice() {
        let main = directives_of("http { server { listen 443 ssl; ssl_certificate /c.pem; } }").unwrap();
        let facts = Facts::new(&main, None);
        assert_eq!((facts.workers, facts.connections_count, facts.keep_alive_s), (Some(1), None, Some(75)));
        let Facts { tickets, early_data, stapling, http2, .. } = facts;
        assert_eq!((tickets, early_data, stapling, http2), (true, false, false, false));
        assert_eq!((facts.session_cache.as_str(), facts.session_timeout.as_str()), ("none", "5m"));
        assert!(facts.protocols.is_empty() && facts.access_logs.is_empty());
    }
}
