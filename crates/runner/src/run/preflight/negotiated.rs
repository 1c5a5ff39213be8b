//! What a handshake came to, against what the configuration asks for: a server that has something else measures
//! something else.

use anyhow::{Result, ensure};
use tlsdyno_base::exchange::Answer;
use tlsdyno_record::model::{CertificateKind, Tls};
use tlsdyno_tls::crypto::verify::{KeyKind, public_key};
use tlsdyno_tls::{Group, Handshake, SessionKind, Stage, Suite, Version};

use super::{Attempt, Check};

const HTTP2: &str = "HTTP/2";
const HTTP1: &str = "HTTP/1.1 (in its configuration: nginx `listen … ssl http2`, Apache `Protocols h2 http/1.1`, \
                     HAProxy `alpn h2,http/1.1`; leave --http2 out, or say --http1, to measure HTTP/1.1)";

/// Required parameters of handshakes. `None`: whatever the client offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    version: Version,
    suite: Option<Suite>,
    group: Group,
    certificate: Option<CertificateKind>,
    chain_count: Option<u32>,
    tickets: Option<bool>,
    resumes: bool,
    http2: bool,
}

impl Asked {
    /// For a server that tlsdyno configures: all settings.
    pub fn of(tls: &Tls) -> Asked {
        Asked {
            version: tls.version,
            suite: tls.suite,
            group: tls.group,
            certificate: Some(tls.certificate()),
            chain_count: Some(tls.chain_count),
            tickets: Some(tls.tickets),
            resumes: tls.is_resumable(),
            http2: tls.http2,
        }
    }

    /// For a user's own server: what is offered to it, and what is required besides. `has_ours`: it shows a certificate
    /// of ours.
    pub fn of_own(tls: &Tls, has_ours: bool) -> Asked {
        let all = Asked::of(tls);
        let asked = tls.of_server();
        Asked {
            certificate: all.certificate.filter(|_| has_ours || tls.certificate.is_some()),
            chain_count: all.chain_count.filter(|_| has_ours),
            tickets: asked.tickets,
            ..all
        }
    }

    /// Differences, as `asked for certificate p-256, negotiated rsa-2048`; empty: none.
    fn missed(&self, handshake: &Handshake, chain: &[Vec<u8>]) -> Vec<String> {
        let mut missed = Vec::new();
        let mut compare = |what: &str, asked: String, seen: String| {
            if asked != seen {
                missed.push(format!("asked for {what} {asked}, negotiated {seen}"));
            }
        };
        compare("TLS", self.version.to_string(), handshake.version.to_string());
        if let Some(suite) = self.suite {
            compare("suite", suite.to_string(), handshake.suite.to_string());
        }
        if let Some(group) = handshake.group {
            compare("group", self.group.to_string(), group.to_string());
        }
        if self.http2 {
            // The first of what is offered.
            let seen = if handshake.alpn == Some(0) { HTTP2 } else { HTTP1 };
            compare("protocol", HTTP2.to_owned(), seen.to_owned());
        }
        // A resumption shows no certificate.
        if let Some(own) = chain.first() {
            if let Some(certificate) = self.certificate {
                compare("certificate", certificate.to_string(), key_text(own));
            }
            if let Some(count) = self.chain_count {
                compare("certificates in the chain:", count.to_string(), chain.len().to_string());
            }
        }
        missed
    }

    /// Refuses an answer with a difference; the error names both sides.
    pub fn require(&self, answer: &Answer) -> Result<()> {
        let missed = answer.handshake.as_ref().map_or_else(Vec::new, |of| self.missed(of, &answer.chain));
        ensure!(missed.is_empty(), "{}", missed.join("; "));
        Ok(())
    }
}

/// Checks that a handshake has the required parameters, and that its session is stored as required. A minimal set-up
/// and a skeleton negotiate nothing.
pub(super) fn checks(attempt: &Attempt) -> Vec<Check> {
    let off = attempt.settings.stages_off;
    let negotiates = !off.contains(Stage::Setup) && !off.contains(Stage::Handshake);
    let (Some(asked), Some(handshake), true) = (attempt.target.asked, &attempt.answer.handshake, negotiates) else {
        return Vec::new();
    };
    let missed = asked.missed(handshake, &attempt.answer.chain);
    let seen = if missed.is_empty() { as_text(handshake, &attempt.answer.chain) } else { missed.join("; ") };
    let mut checks = vec![attempt.check("what is negotiated is what is asked for", missed.is_empty(), seen)];
    // Stages of the shim have sessions of their own, which the other checks see.
    let is_first = attempt.session.is_none() && attempt.target.resumable && off.shim().is_empty();
    let session = attempt.answer.sessions.last().filter(|session| session.kind().version() == Version::Tls12);
    if let (Some(session), Some(tickets)) = (session.filter(|_| is_first), asked.tickets) {
        let text = |in_ticket: bool| if in_ticket { "a ticket" } else { "a session ID" };
        let (asked, seen) = (text(tickets), text(session.kind() == SessionKind::Tls12Ticket));
        let said = if asked == seen { seen.to_owned() } else { format!("asked for {asked}, negotiated {seen}") };
        checks.push(attempt.check("sessions are kept as is asked for", asked == seen, said));
    }
    checks
}

/// Checks that no session is resumed where none is wanted.
pub(super) fn check_no_resumption(full: &Attempt) -> Option<Check> {
    let is_plain = full.settings.stages_off.shim().is_empty();
    full.target.asked.filter(|asked| !asked.resumes && is_plain)?;
    let resumed = full.exchange(Some(full.answer.sessions.last()?)).is_ok_and(|answer| answer.is_resumed());
    let seen = if resumed { "asked for no resumption, negotiated a resumed session" } else { "a full handshake" };
    Some(full.check("no session is resumed where none is asked for", !resumed, seen))
}

/// `TLS 1.3, TLS_AES_128_GCM_SHA256, X25519, rsa-2048`.
fn as_text(handshake: &Handshake, chain: &[Vec<u8>]) -> String {
    let first = [format!("TLS {}", handshake.version), handshake.suite.to_string()];
    let protocol = handshake.alpn.filter(|place| *place == 0).map(|_| HTTP2.to_owned());
    let group = handshake.group.map(|group| group.to_string());
    let key = chain.first().map(|own| key_text(own));
    first.into_iter().chain(group).chain(key).chain(protocol).collect::<Vec<_>>().join(", ")
}

/// The key of a certificate, as [`CertificateKind`] names it.
pub fn key_text(certificate_der: &[u8]) -> String {
    let kind = match public_key(certificate_der).map(|key| key.kind) {
        Ok(KeyKind::Rsa { modulus_bytes }) => return format!("rsa-{}", 8 * modulus_bytes),
        Ok(KeyKind::P256) => CertificateKind::P256,
        Ok(KeyKind::P384) => CertificateKind::P384,
        Ok(KeyKind::P521) => return "p-521".to_owned(),
        Ok(KeyKind::Ed25519) => CertificateKind::Ed25519,
        Ok(KeyKind::MlDsa44) => CertificateKind::MlDsa44,
        Ok(KeyKind::MlDsa65) => CertificateKind::MlDsa65,
        Ok(KeyKind::MlDsa87) => CertificateKind::MlDsa87,
        Ok(KeyKind::Other) => return "a key of another kind".to_owned(),
        Err(_) => return "a certificate that cannot be read".to_owned(),
    };
    kind.name().to_owned()
}

#[cfg(test)]
mod tests {
    use tlsdyno_tls::EarlyData;

    use super::*;
    use tlsdyno_servers::certificates;

    /// Differences from `asked` for this certificate and group.
    fn missed(asked: &Asked, certificate: CertificateKind, group: Option<Group>) -> String {
        let directory = tempfile::tempdir().unwrap();
        let files = certificates::create(certificate, directory.path()).unwrap();
        let pem = std::fs::read(&files.chain).unwrap();
        let der = openssl::x509::X509::from_pem(&pem).unwrap().to_der().unwrap();
        let handshake = Handshake {
            version: Version::Tls12,
            suite: Suite::EcdheRsaAes128Gcm,
            group,
            resumed: None,
            offered: None,
            early_data: EarlyData::NotOffered,
            hello_retry: false,
            encrypt_then_mac: false,
            extended_master_secret: true,
            certificate_requested: false,
            certificate_compressed: false,
            alpn: None,
            bytes_in: 0,
            bytes_out: 0,
        };
        asked.missed(&handshake, &[der]).join("; ")
    }

    #[test]
    fn whatever_differs_is_named() {
        use CertificateKind::{Ed25519, P256, P384, Rsa2048, Rsa3072};
        let tls = Tls { version: Version::Tls12, suite: Some(Suite::EcdheRsaAes128Gcm), ..Tls::default() };
        let asked = Asked::of(&tls);
        let x25519 = Some(Group::X25519);
        assert_eq!(missed(&asked, Rsa2048, x25519), "");
        for (certificate, seen) in [(P256, "p-256"), (P384, "p-384"), (Ed25519, "ed25519"), (Rsa3072, "rsa-3072")] {
            let wanted = format!("asked for certificate rsa-2048, negotiated {seen}");
            assert_eq!(missed(&asked, certificate, x25519), wanted);
        }
        assert_eq!(missed(&asked, Rsa2048, Some(Group::P256)), "asked for group X25519, negotiated P-256");
        assert_eq!(missed(&asked, Rsa2048, None), "", "static RSA has none");
        let other = Tls { suite: Some(Suite::Tls13Aes128Gcm), version: Version::Tls13, ..tls.clone() };
        let both = missed(&Asked::of(&other), Rsa2048, None);
        assert!(both.starts_with("asked for TLS 1.3, negotiated 1.2; asked for suite "), "{both}");
        let chain = missed(&Asked::of(&Tls { chain_count: 2, ..tls }), Rsa2048, x25519);
        assert_eq!(chain, "asked for certificates in the chain: 2, negotiated 1");
    }

    #[test]
    fn an_own_server_may_have_any_certificate_that_is_not_asked_for() {
        let tls = Tls { version: Version::Tls12, ..Tls::default() };
        let seen = |asked: Asked| missed(&asked, CertificateKind::P256, Some(Group::X25519));
        assert_eq!(seen(Asked::of_own(&tls, false)), "");
        assert_eq!(seen(Asked::of_own(&tls, true)), "asked for certificate rsa-2048, negotiated p-256");
        let named = Tls { certificate: Some(CertificateKind::Rsa2048), ..tls };
        assert_eq!(seen(Asked::of_own(&named, false)), "asked for certificate rsa-2048, negotiated p-256");
    }
}
