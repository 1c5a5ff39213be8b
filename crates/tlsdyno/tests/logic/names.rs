//! Names in files, records and flags.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tlsdyno_engine::dispatch::{CheckKind, Policy as Rule, ProxyHeader};
use tlsdyno_engine::load::{Arrivals, Connections, ErrorKind, Phase, Resumption};
use tlsdyno_tls::names::Named;
use tlsdyno_tls::{Effort, Group, Script, Scripts, Stage, StageSet, Suite, Version};

use tlsdyno::choice::choice;
use tlsdyno::model::{Card, CertificateKind, Method, Policy, ServerName, SessionCache, TicketKeys};
use tlsdyno_cluster::cluster::file::Sharing;

/// These are the names in files and records that people have: they must not change.
fn names<T: Named + Debug + Serialize + DeserializeOwned>(all: impl IntoIterator<Item = T>, known: &str) {
    let all: Vec<T> = all.into_iter().collect();
    assert_eq!(all.iter().map(|value| value.name()).collect::<Vec<_>>().join(" "), known);
    for value in all {
        assert_eq!(value.name().to_uppercase().parse(), Ok(value));
        assert_eq!(serde_json::to_value(value).unwrap(), value.name());
        assert_eq!(serde_json::from_value::<T>(value.name().into()).unwrap(), value);
        assert!(!value.about().is_empty() && !value.about().contains("  "), "{value:?}");
    }
    let said = serde_json::from_str::<T>("\"RC4\"").unwrap_err().to_string();
    assert!(said.contains("`RC4`") && said.contains(known.split(' ').next().unwrap()), "{said}");
}

#[test]
fn names_are_the_same_everywhere_and_stay() {
    names(Version::ALL, "1.2 1.3");
    names(Group::ALL, "X25519MLKEM768 SecP256r1MLKEM768 SecP384r1MLKEM1024 X25519 P-256 P-384 P-521");
    names(Effort::ALL, "honest lean floor");
    // `crates/tls/src/noop.rs` holds which these are.
    names(Stage::ALL, &Stage::ALL.map(Stage::name).join(" "));
    let kinds = "rsa-512 rsa-768 rsa-1024 rsa-2048 rsa-3072 rsa-4096 p-256 p-384 ed25519 ml-dsa-44 ml-dsa-65 ml-dsa-87";
    names(CertificateKind::ALL, kinds);
    names(ServerName::ALL, "builtin nginx apache apache-prefork haproxy lighttpd command");
    names(SessionCache::ALL, "off shared builtin builtin-shared dbm memcached redis");
    names(TicketKeys::ALL, "own shared rotating");
    names(Method::ALL, "removing doubling counting");
    names(Sharing::ALL, "own ticket-keys memcached redis");
    let own = "round-robin least-connections source-address session session+address lard";
    names(Rule::ALL, own);
    names(Card::ALL, "axl300");
    names(Policy::all(), &format!("{own} haproxy-round-robin haproxy-source haproxy-stick nginx-hash uri-hash direct"));
    names(ProxyHeader::ALL, "none v1 v2");
    names(CheckKind::ALL, "none tcp hello");
    names(Arrivals::ALL, "constant poisson");
    names(Phase::ALL, "tcp_connect full_handshake resumed_handshake first_byte whole_response scheduled_response");
    assert!(ErrorKind::ALL.iter().all(|kind| kind.name().parse() == Ok(*kind)));
    for suite in Suite::ALL {
        assert_eq!(serde_json::to_value(suite).unwrap(), suite.openssl_name());
        assert_eq!(serde_json::from_value::<Suite>(suite.name().into()).unwrap(), *suite, "the IANA name");
    }
}

#[test]
fn plain_data_of_engine_and_client_are_written_as_ever() {
    fn written<T: Debug + PartialEq + Serialize + DeserializeOwned>(value: T, json: &str) {
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), value);
    }
    written(StageSet::NONE.with(Stage::Mac).with(Stage::Cipher), r#"["cipher","mac"]"#);
    written(Resumption::Always, r#""always""#);
    written(Resumption::ShareOfEach(0.5), r#"{"share_of_each":0.5}"#);
    let script = Script { flights: vec![243, 1363, 80], ready_after: 3 };
    let json = r#"{"full":{"flights":[243,1363,80],"ready_after":3},"resumed":null}"#;
    written(Scripts { full: script, resumed: None }, json);
    let json = r#"{"total":64,"per_user":4,"first_alone":true,"requests_each":null,"timeout_ns":1,"batch_ns":0}"#;
    let (total, per_user, first_alone, timeout_ns) = (64, 4, true, 1);
    let requests_each = None;
    written(Connections { total, per_user, first_alone, requests_each, timeout_ns, batch_ns: 0 }, json);
    assert!(serde_json::from_str::<Connections>(&json.replace("total", "all")).is_err());
}

#[test]
fn flags_take_their_own_choice_only_and_list_it() {
    #[derive(Debug, clap::Parser)]
    struct Flags {
        #[arg(long, value_parser = choice(ServerName::configured()))]
        server: ServerName,
    }
    let parse = |name: &str| <Flags as clap::Parser>::try_parse_from(["x", "--server", name]);
    assert_eq!(parse("nginx").unwrap().server, ServerName::Nginx);
    for name in ["command", "iis"] {
        let said = parse(name).unwrap_err().to_string();
        assert!(said.contains(&format!("'{name}' for '--server")) && said.contains("haproxy"), "{said}");
        assert!(!said.contains(", command"), "{said}");
    }
    let help = <Flags as clap::CommandFactory>::command().render_long_help().to_string();
    assert!(help.contains("- apache-prefork:") && !help.contains("- command"), "{help}");
}
