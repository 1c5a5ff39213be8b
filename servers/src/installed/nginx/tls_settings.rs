//! TLS settings in the copy of an installed configuration: what an experiment asks for takes the place of what stands
//! there, in every server with TLS. All else stays.

use anyhow::Result;
use tlsdyno_record::model::TlsChange;

use super::{Directive, Nginx, has_tls};
use crate::{Place, ServerTls, nginx};

/// Directives that take the place of those with their name. Of one with several subjects (`ssl_conf_command`) only the
/// one with the same first word goes.
#[derive(Debug, Default)]
pub(super) struct TlsSettings {
    gone: Vec<String>,
    new: Vec<Directive>,
}

/// The directive whose first word says what it is about.
const CONF_COMMAND: &str = "ssl_conf_command";

impl TlsSettings {
    /// What is asked for. `tls`: the same with all that goes with it, as our certificate of that kind. Ticket keys are
    /// written into the place.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn of(asked: &TlsChange, tls: &ServerTls, place: Place) -> Result<TlsSettings> {
        let mut settings = TlsSettings::default();
        if asked.certificate.is_some() {
            settings.replace(nginx::certificate(&tls.certificate)?);
        }
        settings.replace(asked.session_cache.map(nginx::session_cache_directive));
        settings.replace(asked.tickets.map(nginx::tickets));
        settings.replace(asked.session_timeout_s.map(nginx::session_timeout));
        if let Some(keys) = asked.ticket_keys {
            settings.gone.push(nginx::TICKET_KEY.to_owned());
            settings.replace(nginx::ticket_key_files(keys, place)?);
        }
        settings.replace(asked.early_data.map(nginx::early_data));
        settings.replace(asked.version.map(|version| nginx::protocols(&[version])));
        settings.replace(asked.suite.map(|suite| nginx::suites(suite.version(), suite.openssl_name())));
        settings.replace(asked.group.and_then(|_| nginx::groups(tls)));
        Ok(settings)
    }

    /// Each in the place of all of its name.
    fn replace(&mut self, directives: impl IntoIterator<Item = String>) {
        for text in directives {
            let mut words = text.split(' ');
            let directive = Directive::of(words.next().unwrap_or_default(), words);
            if directive.name != CONF_COMMAND {
                self.gone.push(directive.name.clone());
            }
            self.new.push(directive);
        }
    }

    fn replaces(&self, old: &Directive) -> bool {
        let same_command = |new: &Directive| {
            new.name == CONF_COMMAND && old.name == CONF_COMMAND && new.arguments.first() == old.arguments.first()
        };
        self.gone.contains(&old.name) || self.new.iter().any(same_command)
    }
}

impl Nginx {
    /// Puts these settings into all servers with TLS, in the place of what they and `http` say of the same.
    pub(super) fn put(&mut self, settings: &TlsSettings) {
        let adds_command = settings.new.iter().any(|of| of.name == CONF_COMMAND);
        let https = self.directives.iter_mut().filter(|of| of.name == "http");
        for http in https.filter_map(Directive::inner_mut) {
            http.retain(|of| !settings.replaces(of));
            // nginx passes these on only to a server that has none of its own.
            let commands: Vec<Directive> = http.iter().filter(|of| of.name == CONF_COMMAND).cloned().collect();
            let servers = http.iter_mut().filter(|of| of.name == "server").filter_map(Directive::inner_mut);
            for server in servers.filter(|server| has_tls(server)) {
                let has_commands = server.iter().any(|of| of.name == CONF_COMMAND);
                server.retain(|of| !settings.replaces(of));
                server.extend(commands.iter().filter(|_| adds_command && !has_commands).cloned());
                server.extend(settings.new.iter().cloned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{IpAddr, Ipv4Addr};

    use tlsdyno_tls::{Suite, Version};

    use super::*;
    use crate::installed::Installed;
    use crate::{ServerTls, certificates};
    use tlsdyno_record::model::{CertificateKind, SessionCache, TicketKeys};

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
        let at =
            Place { run: place.path(), own: place.path(), ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 1, plain_port: 2 };
        let mut installed = Installed::read(&path, Some("nginx")).unwrap();
        installed.change_tls(asked, &ServerTls::new(certificate), at).unwrap();
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
        assert_eq!(text.matches("ssl_protocols").count(), 1, "{text}");
    }

    #[test]
    fn own_ticket_keys_are_no_file() {
        let text = changed(&TlsChange { ticket_keys: Some(TicketKeys::Own), ..TlsChange::default() });
        assert!(!text.contains("ssl_session_ticket_key") && text.contains("/old/cert.pem"), "{text}");
    }
}
