use std::path::Path;

use tlsdyno_ablation::{Ablation, AblationExperiment};
use tlsdyno_runner::kinds::find;
use tlsdyno_tls::Stage;

use super::*;
use crate::certificate::Certificate;

fn certificate(key: &str) -> Certificate {
    let curve_bits = key.strip_prefix("P-").map(|bits| bits.parse().unwrap());
    Certificate { key: key.to_owned(), curve_bits, chain: [2, 3000], sends_root: false, days_left: 60 }
}

fn reading(facts: Facts, key: &str) -> Reading {
    Reading {
        path: "/etc/nginx/nginx.conf".into(),
        server: ServerName::Nginx,
        host: None,
        others: Vec::new(),
        facts,
        certificates: vec![Ok(certificate(key))],
        version: "nginx/1.22.1, OpenSSL 3.0.11".to_owned(),
        log: Err("no log".to_owned()),
        hits_if_kept: None,
        cpus: 2,
    }
}

fn versions(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn groups(names: &str) -> Vec<String> {
    names.split(':').map(str::to_owned).collect()
}

/// A server without anything to improve except by a profile.
fn good() -> Facts {
    Facts {
        protocols: versions(&["TLSv1.2", "TLSv1.3"]),
        tickets: true,
        session_cache: "shared:SSL:10m".to_owned(),
        keep_alive_s: Some(75),
        http2: true,
        ..Facts::default()
    }
}

const P256: &str = "P-256";

fn tried(reading: &Reading, visitors_return: bool) -> Vec<&'static str> {
    considered(reading, visitors_return).iter().filter(|of| of.change.is_some()).map(Considered::title).collect()
}

fn named(reading: &Reading, name: &str) -> Considered {
    considered(reading, true).into_iter().find(|of| of.title() == name).unwrap()
}

const ECDSA: &str = "ECDSA P-256 certificate";
const X25519: &str = "X25519 for key agreement";
const INTERMEDIATE: &str = "TLSRef (Mozilla) intermediate";

/// An experiment refuses two configurations with the same settings.
#[test]
fn two_remedies_that_come_to_the_same_are_measured_once() {
    let tickets_off = Facts { tickets: false, session_cache: "none".to_owned(), ..good() };
    assert_eq!(tried(&reading(tickets_off.clone(), P256), true), ["session tickets", "shared session cache"]);
    let why = named(&reading(tickets_off, P256), INTERMEDIATE).why;
    assert!(why.contains("\"shared session cache\""), "{why}");
    let tls12 = Facts { tickets: false, protocols: versions(&["TLSv1.2"]), ..good() };
    assert_eq!(tried(&reading(tls12, P256), true), ["TLS 1.3"]);
}

#[test]
fn what_is_there_is_not_advised() {
    assert_eq!(tried(&reading(good(), P256), true), [INTERMEDIATE]);
    assert_eq!(tried(&reading(good(), "RSA-2048"), true), [ECDSA, INTERMEDIATE]);
    let old = Facts {
        protocols: versions(&["TLSv1.2"]),
        session_cache: "none".to_owned(),
        tickets: false,
        keep_alive_s: Some(75),
        ..Facts::default()
    };
    assert_eq!(tried(&reading(old.clone(), P256), false), ["TLS 1.3", INTERMEDIATE]);
    let all = ["TLS 1.3", "session tickets", "shared session cache", INTERMEDIATE];
    assert_eq!(tried(&reading(old, P256), true), all);
    let unset = Facts { protocols: Vec::new(), ..good() };
    assert_eq!(tried(&reading(unset.clone(), P256), true), ["TLS 1.3", INTERMEDIATE], "nginx 1.22 speaks none");
    let newer = Reading { version: "nginx/1.28.0, OpenSSL 3.0.11".to_owned(), ..reading(unset, P256) };
    assert_eq!(tried(&newer, true), [INTERMEDIATE]);
}

/// Servers that were approved although they took four to six times the CPU time that they need.
#[test]
fn dear_groups_and_certificates_are_told_apart() {
    let slow = Facts { groups: groups("secp384r1"), ..good() };
    let of = reading(slow, P256);
    let remedy = named(&of, X25519);
    assert_eq!(remedy.change.as_ref().unwrap().group, Some(Group::X25519));
    assert_eq!(remedy.lines(ServerName::Nginx), ["ssl_ecdh_curve X25519:prime256v1:secp384r1;"]);
    assert!(remedy.why.contains("only secp384r1 is taken") && remedy.price.contains("192"), "{remedy:?}");
    let profile = named(&of, INTERMEDIATE);
    assert_eq!(profile.change.unwrap().group, Some(Group::X25519));

    let of = reading(good(), "P-384");
    assert!(named(&of, ECDSA).why.contains("P-384") && named(&of, ECDSA).change.is_some());
    let slowest = reading(Facts { groups: groups("secp521r1"), ..good() }, "P-384");
    assert_eq!(named(&slowest, X25519).change.unwrap().group, Some(Group::X25519));
    let unknown = reading(Facts { groups: groups("brainpoolP256r1"), ..good() }, "P-384");
    assert_eq!(unspoken_groups(&unknown).as_deref(), Some("brainpoolP256r1"));
    let remedy = named(&unknown, X25519);
    assert_eq!((remedy.here, remedy.change), (Here::NotMeasured, None));
    assert!(tried(&unknown, true).is_empty(), "nothing can be measured with it");
    for list in ["X25519:secp521r1", "secp384r1:x25519", "X25519MLKEM768:X25519"] {
        let of = reading(Facts { groups: groups(list), ..good() }, P256);
        assert_eq!(named(&of, X25519).here, Here::There, "{list}");
    }
}

/// Whatever is advised together, a hybrid, TLS 1.3 and the RSA certificate stay.
#[test]
fn no_remedy_takes_away_what_is_stronger() {
    let lists = ["", "X25519MLKEM768:secp384r1", "SecP256r1MLKEM768:secp384r1", "secp384r1", "X25519", "prime256v1"];
    for (list, library) in lists.iter().flat_map(|list| ["3.0.11", "3.5.1"].map(|library| (*list, library))) {
        let facts = Facts { groups: if list.is_empty() { Vec::new() } else { groups(list) }, ..good() };
        for server in [ServerName::Nginx, ServerName::ApacheEvent, ServerName::Haproxy, ServerName::Lighttpd] {
            let version = format!("nginx/1.28.0, OpenSSL {library}");
            let of = Reading { server, version, ..reading(facts.clone(), "RSA-2048") };
            for remedy in considered(&of, true) {
                for setting in &remedy.settings {
                    let Setting::Groups(written) = setting else { continue };
                    let hybrids = list.split(':').filter(|group| group.contains("MLKEM"));
                    assert!(hybrids.clone().all(|group| written.split(':').any(|other| other == group)), "{written}");
                    // OpenSSL 3.5 has it on by itself, and 3.0 refuses a list with it.
                    let is_known = library == "3.5.1" || list.contains("X25519MLKEM768");
                    assert_eq!(written.starts_with("X25519MLKEM768:"), is_known, "{list} with {library}: {written}");
                }
                let replaces = remedy.settings.iter().any(|setting| matches!(setting, Setting::Certificate(_)));
                assert!(!replaces || server == ServerName::Lighttpd && remedy.is_apart, "{server}: {remedy:?}");
                let lines = remedy.lines(server);
                assert!(
                    lines.iter().all(|line| !line.contains("SSLProtocol -all +TLSv1.2 ") || line.contains("+TLSv1.3")),
                    "{lines:?}"
                );
            }
        }
    }
    let strict = reading(Facts { protocols: versions(&["TLSv1.3"]), ..good() }, P256);
    assert_eq!(named(&strict, INTERMEDIATE).here, Here::There);
    assert_eq!(
        named(&reading(good(), P256), INTERMEDIATE).lines(ServerName::Nginx)[0],
        format!("ssl_ciphers {INTERMEDIATE_CIPHERS};")
    );
}

#[test]
fn the_profile_writes_suites_and_its_session_time() {
    let facts = Facts { session_cache: "none".to_owned(), protocols: versions(&["TLSv1.1", "TLSv1.2"]), ..good() };
    let lines = named(&reading(facts, "RSA-2048"), INTERMEDIATE).lines(ServerName::Nginx);
    for line in [
        "ssl_protocols TLSv1.2 TLSv1.3;",
        &format!("ssl_ciphers {INTERMEDIATE_CIPHERS};"),
        "ssl_session_cache shared:SSL:10m;",
        "ssl_session_timeout 86400s;",
        "ssl_session_tickets off;",
    ] {
        assert!(lines.iter().any(|other| other == line), "{line}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.contains("ecdh") || line.contains("certificate")), "{lines:?}");
}

#[test]
fn certbot_s_user_is_told_certbot_s_switch() {
    let live = "/etc/letsencrypt/live/shop.example/fullchain.pem".to_owned();
    let facts = Facts { certificates: vec![live], ..good() };
    let lines = named(&reading(facts, "RSA-2048"), ECDSA).lines(ServerName::Nginx);
    assert!(lines[0].starts_with("# certbot certonly --key-type ecdsa --cert-name shop.example-ecdsa -d shop.example"));
    assert_eq!(lines[1], "ssl_certificate /etc/letsencrypt/live/shop.example-ecdsa/fullchain.pem;");
    let other = named(&reading(good(), "RSA-2048"), ECDSA).lines(ServerName::ApacheEvent);
    assert!(other[0].starts_with("# openssl ecparam") && other[1].starts_with("SSLCertificateFile "), "{other:?}");
}

#[test]
fn sessions_are_told_as_they_are_resumed() {
    let facts = Facts { tickets: false, ..good() };
    let remedy = named(&reading(facts.clone(), P256), "session tickets");
    assert!(remedy.change.is_none() && remedy.why.contains("resumes sessions of TLS 1.2 and of TLS 1.3"), "{remedy:?}");
    let nobody = named(&reading(Facts { session_cache: "none".to_owned(), ..facts }, P256), "session tickets");
    assert!(nobody.change.is_some() && nobody.why.contains("nobody resumes"), "{nobody:?}");
    let early = named(&reading(good(), P256), "early data");
    assert!(early.change.is_none() && !early.why.contains("no CPU time"), "{early:?}");
}

#[test]
fn connections_that_are_not_kept_long_are_a_remedy() {
    let off = reading(Facts { keep_alive_s: Some(0), keep_alive: ["0".to_owned(), "100".to_owned()], ..good() }, P256);
    assert_eq!(named(&off, "keep-alive").change.unwrap().keep_alive_s, Some(75));
    let short = Facts { keep_alive_s: Some(5), keep_alive: ["5s".to_owned(), "100".to_owned()], ..good() };
    let of = reading(short, P256);
    assert_eq!(named(&of, "keep-alive").here, Here::NotMeasured);
    assert_eq!(named(&reading(good(), P256), "keep-alive").here, Here::There);
}

#[test]
fn what_costs_no_cpu_time_is_remarked() {
    let facts =
        Facts { http2: false, workers: Some(1), connections_count: Some(64), record_bytes: Some(1024), ..good() };
    let mut of = reading(facts, P256);
    of.certificates = vec![Ok(Certificate { days_left: 3, ..certificate(P256) })];
    of.facts.weak_suites = vec!["AES128-SHA".to_owned(), "ECDHE-RSA-AES128-SHA".to_owned()];
    let remarks: Vec<String> =
        considered(&of, false).into_iter().filter(|of| of.here == Here::Remark).map(|of| of.why).collect();
    for part in ["ends in 3 days", "six connections", "1 of this machine's 2 CPUs", "64 at once", "AES128-SHA"] {
        assert!(remarks.iter().any(|why| why.contains(part)), "{part}: {remarks:?}");
    }
    assert_eq!(named(&of, "TLS records of 16 KB").change.unwrap().record_bytes, Some(16_384));
    let fine = reading(good(), P256);
    assert!(considered(&fine, false).iter().all(|of| of.here != Here::Remark));
}

#[test]
fn a_hybrid_group_is_tried_where_the_library_has_it() {
    let of = |version: &str, list: &str| {
        let facts = Facts { groups: if list.is_empty() { Vec::new() } else { groups(list) }, ..good() };
        named(&Reading { version: version.to_owned(), ..reading(facts, P256) }, "hybrid group X25519MLKEM768").here
    };
    assert_eq!(of("nginx/1.22.1, OpenSSL 3.0.11", "X25519"), Here::NotMeasured);
    assert_eq!(of("nginx/1.28.0, OpenSSL 3.5.1", "X25519"), Here::ToTry);
    assert_eq!(of("nginx/1.28.0, OpenSSL 3.5.1", ""), Here::There);
    assert_eq!(of("nginx/1.28.0", ""), Here::NotMeasured);
}

#[test]
fn remedies_are_chosen_by_a_few_words() {
    let reading = reading(Facts { protocols: versions(&["TLSv1.2"]), keep_alive_s: Some(75), ..good() }, "RSA-2048");
    let considered = considered(&reading, false);
    let chosen = |names: &[&str]| chosen(&considered, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let both = chosen(&["ECDSA certificate", " tls 1.3"]).unwrap();
    assert_eq!(both.iter().map(|of| of.title()).collect::<Vec<_>>(), [ECDSA, "TLS 1.3"]);
    let model = together(&both).unwrap();
    assert_eq!((model.tls.certificate, model.tls.version), (Some(CertificateKind::P256), Some(Version::Tls13)));
    assert_eq!(together(&both[..1]), None);
    assert_eq!(chosen(&["mozilla intermediate"]).unwrap()[0].id, RemedyId::Intermediate);
    let refused = chosen(&["ticket keys"]).unwrap_err().to_string();
    assert!(refused.contains("to try here: ECDSA P-256 certificate, TLS 1.3"), "{refused}");
    assert!(chosen(&["early data"]).unwrap_err().to_string().contains("early data is not measured"));
    assert!(chosen(&[" "]).is_err());
}

#[test]
fn each_that_is_tried_is_a_configuration_and_a_remedy() {
    let reading = reading(Facts { protocols: versions(&["TLSv1.2"]), ..good() }, "RSA-2048");
    let (configurations, remedies) = models(&considered(&reading, false));
    assert_eq!(configurations[0].tls.certificate, Some(CertificateKind::P256));
    assert_eq!(configurations[1].tls.version, Some(Version::Tls13));
    assert!(configurations.iter().zip(&remedies).all(|(of, remedy)| of.name == remedy.configuration));
}

/// `run remedies` measures what the table says.
#[test]
fn the_experiment_of_remedies_has_the_changes_of_the_table() {
    let AblationExperiment(experiment) = find(&[&Ablation], Path::new("remedies"), "one server").unwrap();
    assert_eq!(experiment.remedies.len(), 6);
    for model in &experiment.remedies {
        let remedy = model.id().expect(&model.name).remedy();
        assert_eq!(model.title(), remedy.title);
        let has = experiment.configurations.iter().find(|of| of.name == model.configuration).unwrap();
        let tls = has.tls.applied(&experiment.tls);
        assert_eq!(remedy.change.applied(&tls), tls, "{}", model.name);
        let without = has.noop.contains(Stage::Authentication).then_some(0.0);
        let faster = has.accelerator.as_ref().and_then(|of| Some(1.0 / of.cpu_rates?));
        assert_eq!(without.or(faster), remedy.signature_times, "{}", model.name);
    }
}

/// What is said of configurations that are read from files, beside what an expert says.
#[test]
fn configurations_are_advised_as_an_expert_would() {
    let place = tempfile::tempdir().unwrap();
    let chain = |kind| tlsdyno_servers::certificates::create(kind, place.path()).unwrap().chain.display().to_string();
    let [rsa, p256, p384] = [CertificateKind::Rsa2048, CertificateKind::P256, CertificateKind::P384].map(chain);
    let (mut seen, mut differ) = (0, Vec::new());
    for part in include_str!("configurations.txt").split("=== ").skip(1) {
        let (head, rest) = part.split_once('\n').unwrap();
        let (text, said) = rest.split_once("--- try:").unwrap();
        let (wanted, remarks) = said.split_once("--- remark:").unwrap();
        // lighttpd is asked once of each file.
        let path = place.path().join(format!("config-{seen}"));
        let of = |text: &str| text.replace("$RSA", &rsa).replace("$P256", &p256).replace("$P384", &p384);
        std::fs::write(&path, of(text)).unwrap();
        let server = match head.split_once(':').unwrap().0 {
            "apache" => ServerName::ApacheEvent,
            name => name.parse().unwrap(),
        };
        // lighttpd itself says what its files mean.
        if server == ServerName::Lighttpd && tlsdyno_servers::programs::find("lighttpd").is_none() {
            continue;
        }
        let mut reading = Reading::of(&path, Some(server), None, None).unwrap_or_else(|why| panic!("{head}: {why:#}"));
        let library = if text.starts_with("# 3.5") { "3.5.1" } else { "3.0.11" };
        reading.version = format!("nginx/1.28.0, OpenSSL {library}");
        reading.cpus = 4;
        let names = |is: &dyn Fn(&Considered) -> bool| {
            let all = considered(&reading, false);
            all.iter().filter(|of| is(of)).map(Considered::title).collect::<Vec<_>>().join(", ")
        };
        let said = [names(&|of| of.change.is_some()), names(&|of| of.here == Here::Remark)];
        println!("{head}: {said:?}");
        let wanted = [wanted, remarks].map(|names| names.trim().to_owned());
        differ.extend((said != wanted).then(|| format!("{head}: said {said:#?}, an expert {wanted:#?}")));
        seen += 1;
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(seen >= 30, "{seen}");
}
