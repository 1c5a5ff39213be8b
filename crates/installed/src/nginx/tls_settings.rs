//! TLS settings in the copy of an installed configuration: what an experiment asks for takes the place of what stands
//! there, in every server with TLS. All else stays.

use anyhow::Result;
use tlsdyno_record::model::TlsChange;
use tlsdyno_tls::Version;

use super::{Directive, Nginx, has_tls};
use tlsdyno_servers::{InstancePlace, ServerTls, nginx};

/// What stands there beside others of its name, and of which a server that has one inherits none.
const CONF_COMMAND: &str = "ssl_conf_command";

const RECORDS: &str = "ssl_buffer_size";

/// Whether a directive says what is asked for otherwise, or is what is asked for.
fn is_asked(asked: &TlsChange, directive: &Directive) -> bool {
    let suite_of = |version| asked.suite.is_some_and(|suite| suite.version() == version);
    match directive.name.as_str() {
        "ssl_certificate" | "ssl_certificate_key" => asked.certificate.is_some(),
        "ssl_session_cache" => asked.session_cache.is_some(),
        "ssl_session_tickets" => asked.tickets.is_some(),
        "ssl_session_timeout" => asked.session_timeout_s.is_some(),
        "ssl_session_ticket_key" => asked.ticket_keys.is_some(),
        "ssl_early_data" => asked.early_data.is_some(),
        "keepalive_timeout" | "keepalive_requests" => asked.keep_alive_s.is_some(),
        RECORDS => asked.record_bytes.is_some(),
        "ssl_protocols" => asked.version.is_some(),
        "ssl_ecdh_curve" => asked.group.is_some(),
        "ssl_ciphers" => suite_of(Version::Tls12),
        CONF_COMMAND => suite_of(Version::Tls13) && directive.first().as_deref() == Some("Ciphersuites"),
        _ => false,
    }
}

impl Nginx {
    /// Puts what is asked for into all servers with TLS, and takes what says the same out of these and of `http`.
    pub(super) fn put(&mut self, asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()> {
        // Of all that a server of ours would have, what is asked.
        let ours = nginx::tls_directives(tls, place)?;
        let ours = ours.iter().filter_map(|text| text.split_once(' '));
        let mut new: Vec<Directive> = ours.map(|(name, rest)| Directive::new(name, rest.split(' '))).collect();
        new.retain(|directive| is_asked(asked, directive) && directive.name != RECORDS);
        new.extend(asked.keep_alive_s.map(|seconds| Directive::new("keepalive_timeout", [format!("{seconds}s")])));
        new.extend(asked.record_bytes.map(|bytes| Directive::new(RECORDS, [bytes.to_string()])));
        let adds_command = new.iter().any(|directive| directive.name == CONF_COMMAND);
        let https = self.directives.iter_mut().filter(|directive| directive.name == "http");
        for http in https.filter_map(Directive::inner_mut) {
            http.retain(|directive| !is_asked(asked, directive));
            let commands: Vec<Directive> =
                http.iter().filter(|directive| directive.name == CONF_COMMAND).cloned().collect();
            let servers =
                http.iter_mut().filter(|directive| directive.name == "server").filter_map(Directive::inner_mut);
            for server in servers.filter(|server| has_tls(server)) {
                let has_commands = server.iter().any(|directive| directive.name == CONF_COMMAND);
                server.retain(|directive| !is_asked(asked, directive));
                server.extend(commands.iter().filter(|_| adds_command && !has_commands).cloned());
                server.extend(new.iter().cloned());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tlsdyno_tls::Suite;

    use super::*;
    use crate::Installed;
    use tlsdyno_record::model::{CertificateKind, SessionCache, TicketKeys};
    use tlsdyno_servers::certificates;

    const SITE: &str = "http { ssl_session_cache shared:old:1m; ssl_conf_command Options PrioritizeChaCha;\n\
        ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256;\n\
        server { listen 80; return 301 https://$host; }\n\
        server { listen 443 ssl; ssl_certificate /old/cert.pem; ssl_certificate /old/second.pem;\n\
        ssl_certificate_key /old/key.pem; ssl_session_ticket_key /old/ticket; ssl_protocols TLSv1.2 TLSv1.3;\n\
        ssl_dhparam /old/dh; location / { return 200 ok; } } }";

    fn changed(asked: &TlsChange) -> String {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("nginx.conf");
        fs::write(&path, SITE).unwrap();
        let certificate = certificates::create(CertificateKind::P256, place.path()).unwrap();
        let at = crate::tests::instance(place.path());
        let mut installed = Installed::read(&path, Some("nginx")).unwrap();
        let plain = ServerTls::new(certificate);
        let tls = ServerTls {
            versions: asked.version.into_iter().collect(),
            suites: asked.suite.into_iter().collect(),
            tickets: asked.tickets.unwrap_or(true),
            ticket_keys: asked.ticket_keys.unwrap_or(TicketKeys::Own),
            session_cache: asked.session_cache.unwrap_or(SessionCache::Shared),
            session_timeout_s: asked.session_timeout_s,
            early_data: asked.early_data.unwrap_or(false),
            ..plain
        };
        installed.change_tls(asked, &tls, at).unwrap();
        installed.text(1, 2, place.path()).unwrap().replace(&place.path().display().to_string(), "HERE")
    }

    #[test]
    fn nothing_asked_changes_nothing() {
        let text = changed(&TlsChange::default());
        for kept in ["/old/cert.pem", "/old/second.pem", "/old/ticket", "shared:old:1m", "TLSv1.2 TLSv1.3", "ChaCha;"] {
            assert!(text.contains(kept), "{kept} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_asked_takes_the_place_of_what_stands_there() {
        let asked = TlsChange {
            certificate: Some(CertificateKind::P256),
            session_cache: Some(SessionCache::Off),
            tickets: Some(false),
            ticket_keys: Some(TicketKeys::Rotating),
            session_timeout_s: Some(7),
            early_data: Some(true),
            version: Some(Version::Tls13),
            suite: Some(Suite::Tls13Aes128Gcm),
            keep_alive_s: Some(75),
            record_bytes: Some(16_384),
            ..TlsChange::default()
        };
        let text = changed(&asked);
        for there in [
            "ssl_certificate \"HERE/p-256.chain.pem\";",
            "ssl_certificate_key \"HERE/p-256.key.pem\";",
            "ssl_session_cache off;",
            "ssl_session_tickets off;",
            "ssl_session_timeout 7s;",
            "ssl_session_ticket_key \"HERE/ticket-key-0\";",
            "ssl_session_ticket_key \"HERE/ticket-key-1\";",
            "ssl_early_data on;",
            "ssl_protocols TLSv1.3;",
            "keepalive_timeout 75s;",
            "ssl_buffer_size 16384;",
            "ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;",
            "ssl_dhparam /old/dh;",
            "return 200 ok;",
        ] {
            assert!(text.contains(there), "{there} is not in\n{text}");
        }
        for gone in ["/old/cert", "/old/second", "/old/key", "/old/ticket", "shared:old", "TLSv1.2", "CHACHA20"] {
            assert!(!text.contains(gone), "{gone} is in\n{text}");
        }
        // Of `http`, and again in the server, which has one of its own now.
        assert_eq!(text.matches("ssl_conf_command Options PrioritizeChaCha;").count(), 2, "{text}");
        // The server without TLS has none of it.
        for once in ["ssl_protocols", "ssl_buffer_size"] {
            assert_eq!(text.matches(once).count(), 1, "{text}");
        }
    }

    #[test]
    fn own_ticket_keys_are_no_file() {
        let text = changed(&TlsChange { ticket_keys: Some(TicketKeys::Own), ..TlsChange::default() });
        assert!(!text.contains("ssl_session_ticket_key") && text.contains("/old/cert.pem"), "{text}");
    }
}
