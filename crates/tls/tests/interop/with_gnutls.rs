//! Interoperation with GnuTLS, in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use tlsdyno_tls::suite::{KeyExchange, Protection};
use tlsdyno_tls::{Config, Effort, Group, Session, SessionKind, Settings, Suite};

use crate::harness::{Caller, EFFORTS, KeyKind, config, is_tls13, keys_for, narrow};
use crate::processes::{Reporter, directory_with};
use crate::with_openssl::{groups_of, narrow_with_curve};

/// The server, built once per test run.
static SERVER: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gnutls_server");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/gnutls/server.c");
    let status = Command::new("cc").arg("-o").args([&program, &source]).arg("-lgnutls").status();
    let status = status.expect("this test needs a C compiler: install the package gcc");
    assert!(status.success(), "the server cannot be built; it needs GnuTLS: install the package libgnutls28-dev");
    program
});

/// How it keeps sessions of TLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Tickets,
    Ids,
}

struct GnutlsServer(Reporter);

impl GnutlsServer {
    /// One that speaks this suite only; groups in this order, and the certificate's curve.
    fn start(key: KeyKind, suite: Suite, groups: &[Group], keeps: Keeps) -> GnutlsServer {
        let directory = directory_with(key);
        let path = |name: &str| directory.path().join(name);
        let mut command = Command::new(&*SERVER);
        command
            .args([path("socket"), path("certificate.pem"), path("key.pem")])
            .arg(priority(key, suite, groups))
            .arg(if keeps == Keeps::Tickets { "tickets" } else { "ids" });
        GnutlsServer(Reporter::start(&mut command, directory))
    }

    /// What GnuTLS says of the connection must be what the client thinks.
    fn exchange(&mut self, config: &Arc<Config>, session: Option<Session>) -> Caller {
        let (caller, said) = self.0.exchange(config, session);
        let handshake = caller.handshake();
        let mut words = said.split(' ');
        let version = format!("TLS{}", handshake.version);
        assert_eq!(words.next(), Some(&version[..]));
        assert_eq!(words.next(), Some(handshake.suite.name()));
        let group = words.next();
        // In TLS 1.2 a resumed handshake agrees on no key, and GnuTLS repeats what the first one did.
        if let Some(agreed) = handshake.group {
            assert_eq!(group, Some(group_name(agreed)));
        }
        assert_eq!(words.next(), Some(&handshake.resumed.is_some().to_string()[..]));
        caller
    }
}

fn group_name(group: Group) -> &'static str {
    match group {
        Group::X25519 => "X25519",
        Group::P256 => "SECP256R1",
        Group::P384 => "SECP384R1",
        hybrid => panic!("{hybrid} is not tried with GnuTLS"),
    }
}

/// A priority string with nothing but this.
fn priority(key: KeyKind, suite: Suite, groups: &[Group]) -> String {
    let exchange = match suite.key_exchange() {
        KeyExchange::Tls13 => "+VERS-TLS1.3",
        KeyExchange::EcdheEcdsa => "+VERS-TLS1.2:+ECDHE-ECDSA",
        KeyExchange::EcdheRsa => "+VERS-TLS1.2:+ECDHE-RSA",
        KeyExchange::Rsa => "+VERS-TLS1.2:+RSA",
    };
    let protection = match suite.protection() {
        Protection::Aes128Gcm => "+AES-128-GCM:+AEAD",
        Protection::Aes256Gcm => "+AES-256-GCM:+AEAD",
        Protection::ChaCha20Poly1305 => "+CHACHA20-POLY1305:+AEAD",
        Protection::Aes128CbcSha => "+AES-128-CBC:+SHA1",
        Protection::Aes256CbcSha => "+AES-256-CBC:+SHA1",
        Protection::Aes128CbcSha256 => "+AES-128-CBC:+SHA256",
        Protection::Aes256CbcSha256 => "+AES-256-CBC:+SHA256",
    };
    let curve = match key {
        KeyKind::P256 => Some(Group::P256),
        KeyKind::P384 => Some(Group::P384),
        KeyKind::Rsa2048 => None,
    };
    let curve = curve.filter(|curve| !is_tls13(suite) && !groups.contains(curve));
    let groups: String =
        groups.iter().copied().chain(curve).map(|group| format!(":+GROUP-{}", group_name(group))).collect();
    format!("NONE:{exchange}:{protection}{groups}:+SIGN-ALL:+COMP-NULL:+CTYPE-X509")
}

/// Every suite, key, group and effort, full and resumed by every kind of session.
#[test]
fn gnutls_speaks_every_suite_full_and_resumed() {
    for &suite in Suite::ALL {
        for keeps in [Keeps::Tickets, Keeps::Ids] {
            let kind = match (is_tls13(suite), keeps) {
                (true, Keeps::Tickets) => SessionKind::Tls13Psk,
                // GnuTLS resumes TLS 1.3 by stateless tickets only.
                (true, Keeps::Ids) => continue,
                (false, Keeps::Tickets) => SessionKind::Tls12Ticket,
                (false, Keeps::Ids) => SessionKind::Tls12Id,
            };
            for (key, group) in
                keys_for(suite).iter().flat_map(|key| groups_of(suite).into_iter().map(|group| (*key, group)))
            {
                let mut server = GnutlsServer::start(key, suite, &[group], keeps);
                for effort in EFFORTS {
                    let config = config(narrow_with_curve(suite, key, group, effort));
                    let first = server.exchange(&config, None);
                    assert_eq!((first.handshake().suite, first.handshake().resumed), (suite, None));
                    let session = first.taken.sessions.last().expect("GnuTLS issues sessions").clone();
                    assert_eq!(session.kind(), kind, "{suite}");
                    let resumed = server.exchange(&config, Some(session));
                    assert_eq!(resumed.handshake().resumed, Some(kind), "{suite} {group} {effort}");
                }
            }
        }
    }
}

#[test]
fn gnutls_asks_for_another_group() {
    let mut server = GnutlsServer::start(KeyKind::P256, Suite::Tls13Aes128Gcm, &[Group::P384], Keeps::Tickets);
    let settings = narrow(Suite::Tls13Aes128Gcm, Group::X25519, Effort::Honest);
    let config = config(Settings { groups: vec![Group::X25519, Group::P384], ..settings });
    let first = server.exchange(&config, None);
    assert!(first.handshake().hello_retry);
    let session = first.taken.sessions.last().cloned();
    let resumed = server.exchange(&config, session);
    assert!(resumed.handshake().hello_retry && resumed.handshake().resumed.is_some());
}
