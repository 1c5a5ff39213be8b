//! The matrix: every stage × protocol and suite × full and resumed. The matching client passes; an unmatched client
//! fails where the stage occurs and shows on the wire; the call counters say the rest.

use tlsdyno::native::{Counters, Injection};
use tlsdyno_tls::{Stage, StageSet};

use super::tls::{Answer, Series, Server, request, version_under_test};
use crate::build;

/// One way to negotiate, pinned on both ends: a test whose suite was not the wanted one would prove nothing.
struct Case {
    certificate: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
    /// As `openssl s_client` names it.
    suite: &'static str,
    agreement: Agreement,
}

/// How both ends come to a secret.
#[derive(Clone, Copy, PartialEq)]
enum Agreement {
    /// The pre-master secret goes by RSA encryption: no key agreement.
    StaticRsa,
    Curve,
    /// A curve joined to ML-KEM, from OpenSSL 3.5 on.
    Hybrid,
}

impl Agreement {
    /// The counters of one handshake at the server, once each.
    fn counted(self) -> &'static [&'static str] {
        match self {
            Agreement::StaticRsa => &[],
            Agreement::Curve => &["key_generate", "key_derive", "key_decode", "key_validate"],
            Agreement::Hybrid => &["key_decode", "encapsulate"],
        }
    }
}

/// Nothing off, each stage alone, the halves of records together, everything.
fn sets() -> impl Iterator<Item = StageSet> {
    let single = Stage::PROVIDER.map(|stage| StageSet::NONE.with(stage));
    [StageSet::NONE, StageSet::RECORDS, StageSet::PROVIDER].into_iter().chain(single)
}

impl Case {
    /// Whether a client without the no-ops of `off` must fail in a full handshake.
    fn shows(&self, off: StageSet) -> bool {
        let occurs = |stage| stage != Stage::KeyAgreement || self.agreement != Agreement::StaticRsa;
        off.iter().any(|stage| stage.shows() && occurs(stage))
    }

    /// The server is always of the OpenSSL under test; where that is not the system's, the client is once of the one,
    /// once of the other.
    fn check_all(&self) {
        for off in sets() {
            // What has hybrids is the OpenSSL under test.
            if self.agreement != Agreement::Hybrid {
                self.check(off, Series::System);
            }
            if build::openssl_prefix().is_some() || self.agreement == Agreement::Hybrid {
                self.check(off, Series::UnderTest);
            }
        }
    }

    fn check(&self, off_set: StageSet, client: Series) {
        let off = &off_set.to_string();
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let at_server = Injection::prepare(dirs[0].path(), off_set).unwrap();
        let at_client = Injection::prepare(dirs[1].path(), off_set).unwrap();
        let server = Server::start(Some(&at_server), self.certificate, self.server).unwrap();
        let session = dirs[1].path().join("session");
        let session = session.to_str().unwrap();

        let full = self.request(client, &server, Some(&at_client), &["-sess_out", session]);
        self.expect(&full, "New", off);
        let after_full = at_server.counters().unwrap();
        self.expect_full_counts(off_set, after_full);
        if self.agreement == Agreement::Hybrid {
            let agrees = u64::from(off_set.contains(Stage::KeyAgreement));
            let counters = at_client.counters().unwrap();
            for name in ["key_generate", "decapsulate"] {
                assert_eq!(counters.get(name), Some(agrees), "{name} at the client: {counters} ({off} off)");
            }
        }

        let resumed = self.request(client, &server, Some(&at_client), &["-sess_in", session]);
        self.expect(&resumed, "Reused", off);
        self.expect_resumed_counts(off_set, at_server.counters().unwrap() - after_full);

        let unmatched = self.request(client, &server, None, &[]);
        assert_eq!(
            unmatched.is_complete(),
            !self.shows(off_set),
            "{} with {off} off, client without it: {}",
            self.suite,
            unmatched.0
        );
        // The other way round: the injected end is the client.
        let plain = Server::start(None, self.certificate, self.server).unwrap();
        let unmatched = self.request(client, &plain, Some(&at_client), &[]);
        assert_eq!(unmatched.is_complete(), !self.shows(off_set), "{} with {off} off, server without it", self.suite);
    }

    fn request(&self, client: Series, server: &Server, injection: Option<&Injection>, more: &[&str]) -> Answer {
        let arguments: Vec<&str> = self.client.iter().chain(more).copied().collect();
        request(client, &server.address, injection, &arguments)
    }

    fn expect(&self, answer: &Answer, kind: &str, off: &str) {
        let wanted = format!("{kind}, Cipher is {}", self.suite);
        assert!(answer.is_complete(), "{wanted} with {off} off: {}", answer.0);
        assert_eq!(answer.negotiated(), wanted, "with {off} off");
    }

    fn expect_full_counts(&self, off: StageSet, counters: Counters) {
        let static_rsa = self.agreement == Agreement::StaticRsa;
        for (name, occurs) in [("sign", !static_rsa), ("rsa_decrypt", static_rsa)] {
            let wanted = u64::from(occurs && off.contains(Stage::Authentication));
            assert_eq!(counters.get(name), Some(wanted), "{name}: {counters} ({}, {off} off)", self.suite);
        }
        self.expect_agreement(off, counters);
        for stage in Stage::PROVIDER {
            let occurs = off.contains(stage) && !(stage == Stage::KeyAgreement && static_rsa);
            assert_eq!(counters.total(stage) > 0, occurs, "{stage}: {counters} ({}, {off} off)", self.suite);
        }
    }

    fn expect_agreement(&self, off: StageSet, counters: Counters) {
        for (_, name, calls) in counters.of_stages().filter(|(stage, _, _)| *stage == Stage::KeyAgreement) {
            let wanted = u64::from(off.contains(Stage::KeyAgreement) && self.agreement.counted().contains(&name));
            assert_eq!(calls, wanted, "{name}: {counters} ({}, {off} off)", self.suite);
        }
    }

    /// Resumption signs nothing; key agreement only in TLS 1.3 (psk_dhe_ke).
    fn expect_resumed_counts(&self, off: StageSet, counters: Counters) {
        let tls13 = self.suite.starts_with("TLS_");
        assert_eq!(counters.total(Stage::Authentication), 0, "{counters}");
        self.expect_agreement(if tls13 { off } else { off.without(Stage::KeyAgreement) }, counters);
        let of_full = [Stage::Authentication, Stage::KeyAgreement];
        for stage in Stage::PROVIDER.into_iter().filter(|stage| !of_full.contains(stage)) {
            assert_eq!(counters.total(stage) > 0, off.contains(stage), "{stage}: {counters}");
        }
    }
}

#[test]
fn tls13_rsa_aes256_gcm_x25519() {
    Case {
        certificate: "rsa",
        server: &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384", "-groups", "X25519"],
        client: &["-tls1_3"],
        suite: "TLS_AES_256_GCM_SHA384",
        agreement: Agreement::Curve,
    }
    .check_all();
}

#[test]
fn tls13_ecdsa_aes128_gcm_p256() {
    Case {
        certificate: "ec",
        server: &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256", "-groups", "P-256"],
        client: &["-tls1_3"],
        suite: "TLS_AES_128_GCM_SHA256",
        agreement: Agreement::Curve,
    }
    .check_all();
}

#[test]
fn tls13_ecdsa_chacha20_p384() {
    Case {
        certificate: "ec",
        server: &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256", "-groups", "P-384"],
        client: &["-tls1_3"],
        suite: "TLS_CHACHA20_POLY1305_SHA256",
        agreement: Agreement::Curve,
    }
    .check_all();
}

#[test]
fn tls13_ed25519() {
    Case {
        certificate: "ed25519",
        server: &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256", "-groups", "X25519"],
        client: &["-tls1_3"],
        suite: "TLS_AES_128_GCM_SHA256",
        agreement: Agreement::Curve,
    }
    .check_all();
}

#[test]
fn tls13_hybrids() {
    const GROUPS: [&[&str]; 3] = [
        &["-tls1_3", "-groups", "X25519MLKEM768"],
        &["-tls1_3", "-groups", "SecP256r1MLKEM768"],
        &["-tls1_3", "-groups", "SecP384r1MLKEM1024"],
    ];
    let version = version_under_test();
    for groups in GROUPS {
        if version < (3, 5) {
            let refused = Server::start(None, "ec", groups).err().expect("no hybrids before OpenSSL 3.5");
            assert!(refused.contains("groups"), "{refused}");
            continue;
        }
        Case {
            certificate: "ec",
            server: groups,
            client: groups,
            suite: "TLS_AES_256_GCM_SHA384",
            agreement: Agreement::Hybrid,
        }
        .check_all();
    }
}

#[test]
fn tls12_ecdhe_rsa_aes128_gcm_p256() {
    Case {
        certificate: "rsa",
        server: &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256", "-groups", "P-256"],
        client: &["-tls1_2"],
        suite: "ECDHE-RSA-AES128-GCM-SHA256",
        agreement: Agreement::Curve,
    }
    .check_all();
}

#[test]
fn tls12_ecdhe_ecdsa_chacha20_x25519() {
    Case {
        certificate: "ec",
        server: &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305", "-groups", "X25519"],
        client: &["-tls1_2"],
        suite: "ECDHE-ECDSA-CHACHA20-POLY1305",
        agreement: Agreement::Curve,
    }
    .check_all();
}

const STATIC_RSA_SHA: &[&str] = &["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"];
const STATIC_RSA_SHA_NO_ETM: &[&str] = &["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0", "-no_etm"];
const STATIC_RSA_SHA256_NO_ETM: &[&str] = &["-tls1_2", "-cipher", "AES256-SHA256:@SECLEVEL=0", "-no_etm"];

#[test]
fn tls12_static_rsa_cbc_encrypt_then_mac() {
    let case = Case {
        certificate: "rsa",
        server: STATIC_RSA_SHA,
        client: STATIC_RSA_SHA,
        suite: "AES128-SHA",
        agreement: Agreement::StaticRsa,
    };
    case.check_all();
}

#[test]
fn tls12_static_rsa_cbc_sha1_mac_then_encrypt() {
    Case {
        certificate: "rsa",
        server: STATIC_RSA_SHA_NO_ETM,
        client: STATIC_RSA_SHA_NO_ETM,
        suite: "AES128-SHA",
        agreement: Agreement::StaticRsa,
    }
    .check_all();
}

#[test]
fn tls12_static_rsa_cbc_sha256_mac_then_encrypt() {
    Case {
        certificate: "rsa",
        server: STATIC_RSA_SHA256_NO_ETM,
        client: STATIC_RSA_SHA256_NO_ETM,
        suite: "AES256-SHA256",
        agreement: Agreement::StaticRsa,
    }
    .check_all();
}

/// What the two cases above rest on: encrypt-then-MAC is negotiated in the one and not in the other.
#[test]
fn encrypt_then_mac_is_negotiated_as_pinned() {
    for (arguments, wanted) in [(STATIC_RSA_SHA, true), (STATIC_RSA_SHA_NO_ETM, false)] {
        let server = Server::start(None, "rsa", arguments).unwrap();
        let client: Vec<&str> = arguments.iter().copied().chain(["-tlsextdebug"]).collect();
        let answer = request(Series::System, &server.address, None, &client);
        assert!(answer.is_complete(), "{}", answer.0);
        assert_eq!(answer.0.contains("encrypt-then-mac"), wanted, "{}", answer.0);
    }
}
