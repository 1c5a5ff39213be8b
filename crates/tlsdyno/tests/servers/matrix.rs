//! Preflight and no-op matrix: every stage × protocol × {full, resumed} on the built-in server and nginx.
//!
//! For each cell the matching client passes; where the stage occurs and shows on the wire the unmatched client fails;
//! elsewhere the provider's call counters are as expected. One server for each stage speaks all protocols, the client
//! chooses.

use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::native::{Doubled, Injection};
use tlsdyno::run::instruments::Instruments;
use tlsdyno::run::preflight::{Check, Target, preflight};
use tlsdyno::servers::certificates::has_post_quantum;
use tlsdyno::servers::{self, CertificateFiles, Instance, RunDirectory, ServerSpec, ServerTls};
use tlsdyno_engine::load::Expect;
use tlsdyno_tls::{Effort, Group, Settings, Stage, StageSet, Suite, Version};

const OBJECT_BYTES: usize = 20_000;
const REQUEST: &[u8] = b"GET /object.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// One column of the matrix: what the client chooses.
struct Protocol {
    name: &'static str,
    suite: Suite,
    group: Group,
    encrypt_then_mac: bool,
    tickets: bool,
    certificate: CertificateKind,
}

const fn protocol(name: &'static str, suite: Suite) -> Protocol {
    Protocol {
        name,
        suite,
        group: Group::X25519,
        encrypt_then_mac: true,
        tickets: true,
        certificate: CertificateKind::Rsa2048,
    }
}

/// The protocols that the matrix must hold on every server.
fn wanted() -> Vec<Protocol> {
    vec![
        protocol("TLS 1.3", Suite::Tls13Aes128Gcm),
        protocol("TLS 1.2 ECDHE", Suite::EcdheRsaAes128Gcm),
        protocol("TLS 1.2 static RSA CBC, encrypt-then-MAC", Suite::RsaAes128Sha),
        Protocol {
            encrypt_then_mac: false,
            ..protocol("TLS 1.2 static RSA CBC, MAC-then-encrypt", Suite::RsaAes128Sha)
        },
        Protocol { tickets: false, ..protocol("TLS 1.2 ECDHE, session IDs", Suite::EcdheRsaAes128Gcm) },
    ]
}

/// Further suites, groups and certificates that the provider replaces.
fn further() -> Vec<Protocol> {
    let p256 = CertificateKind::P256;
    vec![
        Protocol { certificate: p256, group: Group::P256, ..protocol("TLS 1.3 ECDSA P-256", Suite::Tls13Aes256Gcm) },
        Protocol { group: Group::P384, ..protocol("TLS 1.3 ChaCha20, P-384", Suite::Tls13ChaCha20) },
        Protocol { certificate: p256, group: Group::P256, ..protocol("TLS 1.2 ECDSA", Suite::EcdheEcdsaAes256Gcm) },
        Protocol {
            certificate: CertificateKind::P384,
            group: Group::P384,
            ..protocol("TLS 1.2 P-384", Suite::EcdheEcdsaAes128Gcm)
        },
        protocol("TLS 1.2 ECDHE ChaCha20", Suite::EcdheRsaChaCha20),
        protocol("TLS 1.2 AES-256-CBC-SHA256, encrypt-then-MAC", Suite::RsaAes256Sha256),
        Protocol { encrypt_then_mac: false, ..protocol("TLS 1.2 AES-128-CBC-SHA256 stitched", Suite::RsaAes128Sha256) },
        protocol("TLS 1.2 static RSA GCM", Suite::RsaAes128Gcm),
        Protocol { certificate: CertificateKind::Ed25519, ..protocol("TLS 1.3 Ed25519", Suite::Tls13Aes128Gcm) },
        Protocol { certificate: CertificateKind::Ed25519, ..protocol("TLS 1.2 Ed25519", Suite::EcdheEcdsaAes128Gcm) },
    ]
}

/// What OpenSSL has from 3.5 on: hybrid groups and ML-DSA certificates.
fn post_quantum() -> Vec<Protocol> {
    let with = |name, group, certificate| Protocol { group, certificate, ..protocol(name, Suite::Tls13Aes128Gcm) };
    vec![
        with("X25519MLKEM768, P-256", Group::X25519MlKem768, CertificateKind::P256),
        with("X25519MLKEM768, ML-DSA-65", Group::X25519MlKem768, CertificateKind::MlDsa65),
        with("SecP256r1MLKEM768, ML-DSA-44", Group::P256MlKem768, CertificateKind::MlDsa44),
        with("SecP384r1MLKEM1024, ML-DSA-87", Group::P384MlKem1024, CertificateKind::MlDsa87),
    ]
}

struct Bench {
    directory: RunDirectory,
    kind: ServerName,
    certificates: Vec<(CertificateKind, CertificateFiles)>,
}

impl Bench {
    fn new(kind: ServerName) -> Bench {
        servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
        let directory = RunDirectory::create().unwrap();
        let docroot = directory.path().join("docroot");
        servers::run_directory::make_passable(&docroot).unwrap();
        std::fs::write(docroot.join("object.bin"), vec![7; OBJECT_BYTES]).unwrap();
        Bench { directory, kind, certificates: Vec::new() }
    }

    /// Made once for each kind: an RSA key takes its time.
    fn certificate(&mut self, kind: CertificateKind) -> CertificateFiles {
        let directory = self.directory.path();
        let made = self.certificates.iter().find(|(made, _)| *made == kind).map(|(_, files)| files.clone());
        made.unwrap_or_else(|| {
            let files = servers::certificates::create(kind, directory).unwrap();
            self.certificates.push((kind, files.clone()));
            files
        })
    }

    fn instruments(&self, stages: StageSet) -> Instruments {
        let name = format!("provider-{}", stages.to_string().replace(',', "-"));
        let directory = self.directory.path().join(name);
        servers::run_directory::make_private(&directory).unwrap();
        Instruments { provider: Some(Injection::prepare(&directory, stages).unwrap()), ..Instruments::default() }
    }

    /// A server that speaks everything, with the provider inside.
    fn start(&self, certificate: &CertificateFiles, instruments: &Instruments) -> Instance {
        let groups = Group::ALL.into_iter().filter(|group| !group.is_hybrid() || has_post_quantum()).collect();
        let suites = Suite::ALL.to_vec();
        let tls = ServerTls { suites, groups, ..ServerTls::new(certificate.clone()) };
        let spec = ServerSpec {
            tls: Some(tls),
            handed: instruments.handed(),
            ..ServerSpec::new(self.kind, self.directory.path().join("docroot"))
        };
        servers::start(&spec, self.directory.path()).unwrap()
    }

    /// Every check of one cell.
    fn check(
        &self,
        instance: &Instance,
        instruments: &Instruments,
        stages: StageSet,
        protocol: &Protocol,
        certificate: &CertificateFiles,
    ) -> Vec<Check> {
        let root = CertificateDer::from_pem_file(&certificate.ca).unwrap().to_vec();
        let mut groups = vec![protocol.group];
        // A curve behind a hybrid would get a key share.
        let others = Group::CURVES.into_iter().filter(|group| *group != protocol.group && !protocol.group.is_hybrid());
        groups.extend(others);
        let settings = Settings {
            versions: vec![protocol.suite.version()],
            suites: vec![protocol.suite],
            groups,
            server_name: Some("localhost".to_owned()),
            effort: Effort::Honest,
            stages_off: stages,
            encrypt_then_mac: protocol.encrypt_then_mac,
            tickets: protocol.tickets || protocol.suite.version() == Version::Tls13,
            small_rsa_keys: protocol.certificate.is_small_rsa(),
            trust_anchors: vec![root],
            now_unix_s: 1_800_000_000,
            ..Settings::default()
        };
        let target = Target {
            address: instance.address(),
            settings: Some(&settings),
            prior_knowledge: false,
            instruments,
            doubled: Doubled::default(),
            asked: None,
            hardware: Vec::new(),
            foreign_session: None,
            request: REQUEST,
            expect: Expect { status: Some(200), body_bytes: Some(OBJECT_BYTES as u64) },
            resumable: true,
            resumes: true,
            is_tls_client: false,
            time_limit: tlsdyno::exchange::TIME_LIMIT,
        };
        preflight(&target).unwrap()
    }
}

/// Calls per handshake in which the stage occurs; these do not depend on the server or the version of OpenSSL
/// (docs/NOOP.md, call counters): one signature or decryption; generating, deriving, decoding and validating a key once
/// each, or with a hybrid decoding and encapsulating.
fn exact_calls(group: Group) -> [(Stage, &'static str); 2] {
    [(Stage::Authentication, "1"), (Stage::KeyAgreement, if group.is_hybrid() { "2" } else { "4" })]
}

/// What is wrong with the number of calls that a check saw, where the number is known exactly.
fn wrong_number(check: &Check, group: Group) -> Option<String> {
    let (_, wanted) = exact_calls(group).into_iter().find(|(stage, _)| check.name.contains(stage.name()))?;
    let absent = check.name.contains("does not occur");
    let wanted = if absent { "0" } else { wanted };
    let calls = check.seen.split(" calls").next()?.rsplit(' ').next()?;
    (calls != wanted).then(|| format!("{}: {calls} calls, not {wanted} ({})", check.name, check.seen))
}

/// Draws of randomness in a (full, resumed) handshake with OpenSSL 3.0, where no record and no session id draws any: as
/// observed, the same on both servers. CBC suites draw an IV for each record and so as many as there were records to
/// send.
fn draws(protocol: &Protocol) -> Option<(u64, u64)> {
    use tlsdyno_tls::suite::Protection::{Aes128Gcm, Aes256Gcm, ChaCha20Poly1305};
    let aead = matches!(protocol.suite.protection(), Aes128Gcm | Aes256Gcm | ChaCha20Poly1305);
    match protocol.suite.version() {
        _ if !openssl::version::version().starts_with("OpenSSL 3.0.") => None,
        Version::Tls13 => Some((7, 4)),
        Version::Tls12 if aead && protocol.tickets => Some((2, 1)),
        Version::Tls12 => None,
    }
}

/// What is wrong with the draws of randomness that a check saw.
fn wrong_draws(check: &Check, protocol: &Protocol) -> Option<String> {
    let kind = check.name.strip_suffix(": randomness is replaced (call counter)")?;
    let (full, resumed) = draws(protocol)?;
    let wanted = format!("{} calls", if kind == "full" { full } else { resumed });
    (check.seen != wanted).then(|| format!("{} / {}: {}, not {wanted}", protocol.name, check.name, check.seen))
}

/// Runs one row: all of `protocols` with `stages` off; returns the failures as text.
fn row(bench: &mut Bench, stages: StageSet, protocols: &[Protocol], cells: &mut usize) -> Vec<String> {
    let mut failures = Vec::new();
    let instruments = bench.instruments(stages);
    for certificate_kind in CertificateKind::ALL {
        let columns: Vec<&Protocol> =
            protocols.iter().filter(|column| column.certificate == certificate_kind).collect();
        if columns.is_empty() {
            continue;
        }
        let certificate = bench.certificate(certificate_kind);
        let instance = bench.start(&certificate, &instruments);
        for (_, library) in instruments.libraries() {
            servers::require_mapped(&instance.worker_pids(), &library).unwrap();
        }
        for column in columns {
            let checks = bench.check(&instance, &instruments, stages, column, &certificate);
            let resumed = checks.iter().filter(|check| check.name.starts_with("resumed")).count();
            assert!(
                resumed >= 2 + stages.iter().count(),
                "{}: the resumed handshake was not checked: {checks:#?}",
                column.name
            );
            *cells += 2;
            failures.extend(checks.iter().filter_map(|check| wrong_number(check, column.group)));
            failures.extend(checks.iter().filter_map(|check| wrong_draws(check, column)));
            let failed = checks.into_iter().filter(|check| !check.passed);
            failures.extend(
                failed.map(|check| {
                    format!("{:?} {stages} / {}: {} ({})", bench.kind, column.name, check.name, check.seen)
                }),
            );
        }
        let alarms = instance.error_log_alarms();
        let expected_alarm =
            |line: &String| line.contains("SSL_do_handshake() failed") || line.contains("SSL_read() failed");
        failures.extend(alarms.into_iter().filter(|line| !expected_alarm(line)));
        instance.stop().unwrap();
    }
    failures
}

fn matrix(kind: ServerName, protocols: &[Protocol]) {
    let mut bench = Bench::new(kind);
    let mut cells = 0;
    let mut failures = Vec::new();
    for stage in Stage::PROVIDER {
        failures.extend(row(&mut bench, StageSet::NONE.with(stage), protocols, &mut cells));
    }
    failures.extend(row(&mut bench, StageSet::PROVIDER, protocols, &mut cells));
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(cells, (Stage::PROVIDER.len() + 1) * protocols.len() * 2, "every cell, full and resumed");
}

#[test]
fn every_stage_on_the_built_in_server() {
    matrix(ServerName::Builtin, &wanted());
}

#[test]
fn every_stage_on_nginx() {
    matrix(ServerName::Nginx, &wanted());
}

/// On what OpenSSL 3.5 came with; `xtask distributions` runs this on Debian 13.
#[test]
fn post_quantum_on_every_server() {
    if has_post_quantum() {
        return ServerName::configured().for_each(|server| matrix(server, &post_quantum()));
    }
    let mut bench = Bench::new(ServerName::Builtin);
    let certificate = bench.certificate(CertificateKind::MlDsa65);
    let tls = ServerTls::new(certificate);
    let spec = ServerSpec { tls: Some(tls), ..ServerSpec::new(bench.kind, bench.directory.path().join("docroot")) };
    assert!(servers::start(&spec, bench.directory.path()).is_err(), "no OpenSSL before 3.5 reads such a key");
}

/// The papers' key sizes: static RSA and ECDHE with the provider idle and with the stage off.
#[test]
fn small_rsa_keys() {
    small_rsa_keys_on([ServerName::Nginx]);
}

fn small_rsa_keys_on(servers: impl IntoIterator<Item = ServerName>) {
    let columns = |certificate| {
        [Suite::RsaAes128Sha, Suite::EcdheRsaAes128Gcm]
            .map(|suite| Protocol { certificate, ..protocol(certificate.name(), suite) })
    };
    let kinds = CertificateKind::ALL.into_iter().filter(|kind| kind.is_small_rsa());
    let columns: Vec<Protocol> = kinds.flat_map(columns).collect();
    assert_eq!(columns.len(), 6);
    for server in servers {
        let mut bench = Bench::new(server);
        let mut cells = 0;
        for stages in [StageSet::NONE, StageSet::NONE.with(Stage::Authentication)] {
            let failures = row(&mut bench, stages, &columns, &mut cells);
            assert!(failures.is_empty(), "{}", failures.join("\n"));
        }
        assert_eq!(cells, 2 * 6 * 2, "{server}: every cell, full and resumed");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "every server: make test-long"]
    fn small_rsa_keys_on_every_server() {
        small_rsa_keys_on(ServerName::configured());
    }

    #[test]
    #[ignore = "the rest of the matrix: make test-long"]
    fn further_suites_groups_and_certificates() {
        matrix(ServerName::Builtin, &further());
    }
}
