//! What an operator writes into the configuration of a server to have a setting: the lines under a remedy.
//!
//! Paths are examples. A test (`tests/servers/directives.rs`) has each server check these lines, and starts it with those for ticket keys: nginx 1.22, Apache httpd 2.4,
//! HAProxy 2.6 and lighttpd 1.4 on Debian 12.

use crate::model::{Accelerator, ServerName, SessionCache, TicketKeys, Tls};

/// Lines for the session cache.
pub fn session_cache(server: ServerName, cache: SessionCache) -> Vec<String> {
    let apache = |provider: &str| vec![format!("SSLSessionCache {provider}")];
    match (server, cache) {
        (ServerName::Nginx, SessionCache::Off) => lines(&["ssl_session_cache off;"]),
        (ServerName::Nginx, SessionCache::Builtin) => {
            lines(&["ssl_session_cache builtin:20480;    # in each worker: sessions of the others are not found"])
        }
        (ServerName::Nginx, SessionCache::BuiltinShared) => {
            lines(&["ssl_session_cache builtin:1000 shared:SSL:10m;", "ssl_session_timeout 5m;"])
        }
        (ServerName::Nginx, _) => lines(&["ssl_session_cache shared:SSL:10m;", "ssl_session_timeout 5m;"]),
        (ServerName::ApacheEvent | ServerName::ApachePrefork, cache) => match cache {
            SessionCache::Off => apache("none"),
            SessionCache::Dbm => apache("dbm:/run/apache2/ssl_sessions"),
            SessionCache::Memcached => apache("memcache:localhost:11211"),
            SessionCache::Redis => apache("redis:localhost:6379"),
            _ => apache("shmcb:/run/apache2/ssl_sessions(512000)"),
        },
        (ServerName::Haproxy, SessionCache::Off) => lines(&["global", "    tune.ssl.cachesize 0"]),
        (ServerName::Haproxy, _) => lines(&["global", "    tune.ssl.cachesize 20000", "    tune.ssl.lifetime 300"]),
        (ServerName::Lighttpd, cache) => {
            let state = if cache == SessionCache::Off { "disable" } else { "enable" };
            vec![format!("server.feature-flags += (\"ssl.session-cache\" => \"{state}\")")]
        }
        (ServerName::Builtin, SessionCache::Off) => lines(&["tlsdyno serve --no-session-cache"]),
        (ServerName::Builtin, _) => lines(&["tlsdyno serve    # has a session cache"]),
        (ServerName::Command, _) => Vec::new(),
    }
}

/// Lines for session tickets.
pub fn tickets(server: ServerName, on: bool) -> Vec<String> {
    let text = match (server, on) {
        (ServerName::Nginx, true) => "ssl_session_tickets on;",
        (ServerName::Nginx, false) => "ssl_session_tickets off;",
        (ServerName::ApacheEvent | ServerName::ApachePrefork, true) => "SSLSessionTickets on",
        (ServerName::ApacheEvent | ServerName::ApachePrefork, false) => "SSLSessionTickets off",
        (ServerName::Haproxy, true) => "bind :443 ssl crt /etc/ssl/site.pem    # without no-tls-tickets",
        (ServerName::Haproxy, false) => "bind :443 ssl crt /etc/ssl/site.pem no-tls-tickets",
        (ServerName::Lighttpd, true) => r#"ssl.openssl.ssl-conf-cmd += ("Options" => "SessionTicket")"#,
        (ServerName::Lighttpd, false) => r#"ssl.openssl.ssl-conf-cmd += ("Options" => "-SessionTicket")"#,
        (ServerName::Builtin, true) => "tlsdyno serve    # issues tickets",
        (ServerName::Builtin, false) => "tlsdyno serve --no-tickets",
        (ServerName::Command, _) => return Vec::new(),
    };
    lines(&[text])
}

/// Lines for the keys of tickets.
pub fn ticket_keys(server: ServerName, keys: TicketKeys) -> Vec<String> {
    let file = "/run/tls/ticket.key";
    match (server, keys) {
        (_, TicketKeys::Own) => Vec::new(),
        (ServerName::Nginx, TicketKeys::Shared) => vec![format!("ssl_session_ticket_key {file};    # openssl rand 80")],
        (ServerName::Nginx, TicketKeys::Rotating) => {
            vec![
                format!("ssl_session_ticket_key {file};    # openssl rand 80"),
                "ssl_session_ticket_key /run/tls/previous.key;".to_owned(),
            ]
        }
        (ServerName::ApacheEvent | ServerName::ApachePrefork, _) => {
            // Apache has no comments behind directives.
            vec!["# openssl rand 48".to_owned(), format!("SSLSessionTicketKeyFile {file}")]
        }
        (ServerName::Haproxy, _) => {
            vec![format!(
                "bind :443 ssl crt /etc/ssl/site.pem tls-ticket-keys {file}    # three lines of `openssl rand -base64 48` or more, the last but one encrypts"
            )]
        }
        (ServerName::Lighttpd, _) => vec![format!(
            "ssl.stek-file = \"{file}\"    # 32-bit numbers 0, begin and end of its use (Unix time), then `openssl rand 80`"
        )],
        (ServerName::Builtin | ServerName::Command, _) => Vec::new(),
    }
}

/// Lines for another certificate.
pub fn certificate(server: ServerName, kind: &str) -> Vec<String> {
    let key = match kind {
        "p-256" => "openssl ecparam -name prime256v1 -genkey -noout -out site.key".to_owned(),
        "p-384" => "openssl ecparam -name secp384r1 -genkey -noout -out site.key".to_owned(),
        rsa => format!("openssl genrsa -out site.key {}", rsa.trim_start_matches("rsa-")),
    };
    let mut all = vec![format!("# {key}, then a certificate for it from your authority")];
    all.extend(match server {
        ServerName::Nginx => lines(&["ssl_certificate /etc/ssl/site.pem;", "ssl_certificate_key /etc/ssl/site.key;"]),
        ServerName::ApacheEvent | ServerName::ApachePrefork => {
            lines(&["SSLCertificateFile /etc/ssl/site.pem", "SSLCertificateKeyFile /etc/ssl/site.key"])
        }
        ServerName::Haproxy => lines(&["bind :443 ssl crt /etc/ssl/site.pem    # certificate and key in one file"]),
        ServerName::Lighttpd => {
            lines(&[r#"ssl.pemfile = "/etc/ssl/site.pem""#, r#"ssl.privkey = "/etc/ssl/site.key""#])
        }
        ServerName::Builtin => vec![format!("tlsdyno serve --cert {kind}")],
        ServerName::Command => Vec::new(),
    });
    all
}

/// Lines for TLS versions.
pub fn version(server: ServerName, version: &str) -> Vec<String> {
    match server {
        ServerName::Nginx => vec![format!("ssl_protocols TLSv{version};")],
        ServerName::ApacheEvent | ServerName::ApachePrefork => vec![format!("SSLProtocol -all +TLSv{version}")],
        ServerName::Haproxy => vec![format!("bind :443 ssl crt /etc/ssl/site.pem ssl-min-ver TLSv{version}")],
        ServerName::Lighttpd => vec![format!("ssl.openssl.ssl-conf-cmd += (\"MinProtocol\" => \"TLSv{version}\")")],
        ServerName::Builtin => vec![format!("tlsdyno serve --tls {version}")],
        ServerName::Command => Vec::new(),
    }
}

/// Lines for a suite of TLS 1.2 or 1.3.
pub fn suite(server: ServerName, tls: &Tls) -> Vec<String> {
    let Some(name) = &tls.suite else {
        return Vec::new();
    };
    let tls13 = tls.version == "1.3";
    match server {
        ServerName::Nginx if tls13 => vec![format!("ssl_conf_command Ciphersuites {name};")],
        ServerName::Nginx => vec![format!("ssl_ciphers {name};")],
        ServerName::ApacheEvent | ServerName::ApachePrefork if tls13 => vec![format!("SSLCipherSuite TLSv1.3 {name}")],
        ServerName::ApacheEvent | ServerName::ApachePrefork => vec![format!("SSLCipherSuite {name}")],
        ServerName::Haproxy if tls13 => vec![format!("bind :443 ssl crt /etc/ssl/site.pem ciphersuites {name}")],
        ServerName::Haproxy => vec![format!("bind :443 ssl crt /etc/ssl/site.pem ciphers {name}")],
        ServerName::Lighttpd => {
            let command = if tls13 { "Ciphersuites" } else { "CipherString" };
            vec![format!("ssl.openssl.ssl-conf-cmd += (\"{command}\" => \"{name}\")")]
        }
        ServerName::Builtin => vec![format!("tlsdyno serve --suite {name}")],
        ServerName::Command => Vec::new(),
    }
}

/// Lines for early data (RFC 9846 section 8: only requests that may be repeated are safe in it).
pub fn early_data(server: ServerName) -> Vec<String> {
    match server {
        ServerName::Nginx => lines(&[
            "ssl_early_data on;",
            "proxy_set_header Early-Data $ssl_early_data;    # lets an application answer 425 (RFC 8470)",
        ]),
        ServerName::Haproxy => {
            lines(&["bind :443 ssl crt /etc/ssl/site.pem allow-0rtt", "http-request wait-for-handshake if !METH_GET"])
        }
        ServerName::ApacheEvent | ServerName::ApachePrefork => lines(&["# mod_ssl takes no early data"]),
        ServerName::Lighttpd => lines(&["# lighttpd takes no early data"]),
        ServerName::Builtin => lines(&["tlsdyno serve --early-data"]),
        ServerName::Command => Vec::new(),
    }
}

/// Lines for so many processors.
pub fn processors(server: ServerName, count: u32) -> Vec<String> {
    match server {
        ServerName::Nginx => vec![format!("worker_processes {count};")],
        ServerName::ApacheEvent => vec![format!("# the event MPM uses all CPUs: at least ServerLimit {count}")],
        ServerName::ApachePrefork => vec![format!("# prefork uses all CPUs: MaxRequestWorkers well above {count}")],
        ServerName::Haproxy => lines(&["global"]).into_iter().chain([format!("    nbthread {count}")]).collect(),
        ServerName::Lighttpd => vec![format!("server.max-worker = {count}")],
        ServerName::Builtin => vec![format!("tlsdyno serve --workers {count}")],
        ServerName::Command => Vec::new(),
    }
}

/// Lines for an accelerator, which comes as a provider of OpenSSL 3.
pub fn accelerator(server: ServerName, accelerator: &Accelerator) -> Vec<String> {
    let openssl = lines(&[
        "# in the openssl.cnf that the server reads; CARD is what the maker calls its provider",
        "[provider_sect]",
        "CARD = card_sect",
        "default = default_sect",
        "[card_sect]",
        "activate = 1",
        // Comes by itself only where no other provider is named.
        "[default_sect]",
        "activate = 1",
    ]);
    let mut haproxy = lines(&["global", "    ssl-provider CARD", "    ssl-provider default"]);
    haproxy.extend(accelerator.asynchronous.then(|| "    ssl-mode-async".to_owned()));
    if server == ServerName::Haproxy { haproxy } else { openssl }
}

/// Lines for kernel TLS, which plain data bounds.
pub fn kernel_tls(server: ServerName) -> Vec<String> {
    match server {
        ServerName::Nginx => lines(&[
            "# modprobe tls; an OpenSSL that was built with enable-ktls; nginx 1.21.4 or later",
            "ssl_conf_command Options KTLS;",
            "sendfile on;",
        ]),
        _ => Vec::new(),
    }
}

fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
