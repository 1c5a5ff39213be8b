//! Experiments that are refused, and what survives the way through a file.

use tlsdyno_record::model::{CertificateKind, Measure, Quantity, Server};
use tlsdyno_tls::Suite;

use super::*;

#[test]
fn defaults_fill_in_the_whole_ablation() {
    let experiment = Experiment::from_toml("question = \"q\"", Path::new("/")).unwrap();
    let names: Vec<_> = experiment.configurations.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"as is"));
    assert_eq!(names.last(), Some(&"plain HTTP"));
    assert_eq!(names.len(), 2 + Stage::PROVIDER.len() + 3 + 1);
    assert_eq!(names[8..11], ["perfect session cache", "unencrypted data", "no connection setup"]);
    assert!(names.contains(&"no key agreement"));
}

#[test]
fn fresh_servers_go_with_the_idle_shim_but_with_no_stage_of_it() {
    let with = |configuration: &str| {
        let as_is = "[[configuration]]\nname = \"as is\"\n[[configuration]]\nname = \"b\"\n";
        let text = format!("question = \"q\"\n[measure]\nfresh_servers = true\n{as_is}{configuration}\n");
        Experiment::from_toml(&text, Path::new("/"))
    };
    with("idle_shim = true\nidle_provider = true").unwrap();
    let error = with("noop = [\"marshalling\"]").unwrap_err();
    assert!(format!("{error:#}").contains("`measure.fresh_servers`"), "{error:#}");
}

#[test]
fn two_libraries_are_compared_by_removing_and_no_more() {
    let with = |libraries: &str, more: &str| {
        let text = format!("question = \"q\"\n{more}\n[server]\nlibraries = {libraries}\n");
        Experiment::from_toml(&text, Path::new("/files"))
    };
    let experiment = with("[\"a\", \"/b\"]", "").unwrap();
    assert_eq!(experiment.server.libraries, [Path::new("/files/a"), Path::new("/b")]);
    assert!(with("[\"a\"]", "").unwrap().configurations.iter().all(|model| model.library.is_none()));
    for (libraries, more, why) in [
        ("[\"a\", \"b\", \"c\"]", "", "3 libraries"),
        ("[\"a\", \"a\"]", "", "both libraries are /files/a"),
        ("[\"a\", \"b\"]", "method = [\"doubling\"]", "by removing stages"),
        ("[\"a\", \"b\"]", "machines = [\"500\"]", "by removing stages"),
    ] {
        let error = format!("{:#}", with(libraries, more).unwrap_err());
        assert!(error.contains(why), "{libraries}: {error}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    const OWN: &str = "kind = \"command\"\ncommand = \"x {docroot} {port}\"\naddress = \"127.0.0.1:{port}\"\n";
    const FIXED: &str = "kind = \"command\"\ncommand = \"x {docroot}\"\naddress = \"127.0.0.1:443\"\n";
    let refused = |more: &str, server: &str, tables: &str| {
        let text = format!("question = \"q\"\n{more}\n[server]\n{server}{tables}");
        Experiment::from_toml(&text, Path::new("/")).map_or_else(|error| format!("{error:#}"), |_| String::new())
    };
    let (doubling, workers) = ("method = \"doubling\"", "[workers]\nworkers = 2\n");
    let foreign = |more: &str| format!("[foreign_traffic]\n{more}");
    assert_eq!(refused(doubling, OWN, &foreign("")), "");
    for (method, server, more, why) in [
        ("method = \"removing\"", OWN, "", "without other methods"),
        (doubling, "", "", "without a server of ours"),
        (doubling, OWN, "[[configuration]]\nname = \"as is\"\n", "no stages computed twice"),
        (doubling, &format!("{OWN}libraries = [\"/a\"]\n"), "", "without libraries"),
        (doubling, OWN, workers, "without workers"),
        (doubling, OWN, "[network]\ndelay_ms = 5\n", "without a network"),
        ("method = \"doubling\"\nmachines = [\"500\"]", OWN, "", "without `machines`"),
    ] {
        let said = refused(method, server, &foreign(more));
        assert!(said.starts_with("foreign traffic goes without") && said.contains(why), "{why}: {said}");
    }
    let counting = "method = \"counting\"";
    assert_eq!(refused(counting, "kind = \"nginx\"\n", ""), "");
    for (server, more, why) in [
        ("", "", "the built-in server"),
        (FIXED, "", "a fixed port"),
        ("kind = \"nginx\"\n", workers, "workers"),
        ("kind = \"nginx\"\n", "[network]\ndelay_ms = 5\n", "a network"),
    ] {
        let said = refused(counting, server, more);
        assert!(said.starts_with("method `counting` goes without") && said.contains(why), "{why}: {said}");
    }
    let fresh = "[measure]\nfresh_servers = true\n";
    assert!(refused("", OWN, fresh).starts_with("`measure.fresh_servers` goes without a command of your own"));
    let untouched = format!("{fresh}[[configuration]]\nname = \"as is\"\n");
    assert!(refused("machines = [\"500\"]", "", &untouched).contains("goes without `machines`"));
}

#[test]
fn an_experiment_asks_one_question() {
    let asks = |more: &str| {
        let text = format!("question = \"q\"\n{more}");
        format!("{:?}", Experiment::from_toml(&text, Path::new("/")).unwrap().asks())
    };
    assert_eq!(asks(""), "Costs");
    assert_eq!(asks("method = [\"removing\", \"counting\"]\n[server]\nkind = \"nginx\""), "Costs");
    assert_eq!(asks("method = \"counting\"\n[server]\nkind = \"nginx\""), "Counts");
    assert_eq!(asks("[server]\nlibraries = [\"/a\", \"/b\"]"), "Libraries");
    assert!(asks("machines = [\"500\"]").starts_with("Machines(["));
}

#[test]
fn an_experiment_survives_the_round_trip_through_toml() {
    let mut experiment =
        Experiment { measure: Measure { seed: Some(7), ..Measure::default() }, ..Experiment::default() };
    experiment.fill();
    let text = experiment.to_toml().unwrap();
    assert_eq!(Experiment::from_toml(&text, Path::new("/")).unwrap(), experiment);
}

#[test]
fn every_table_refuses_unknown_keys() {
    let one = "[[configuration]]\nname = \"as is\"\n";
    let under = ["[configuration.tls]\n", "[configuration.processors]\n", "[configuration.accelerator]\n"];
    let under = under.map(|table| format!("{one}{table}"));
    let tables = ["", "[server]\n", "[tls]\n", "[load]\n", "[measure]\n", one, "[paper]\n"];
    let answers = ["[[share]]\n", "[[comparison]]\n", "[[remedy]]\n"];
    for table in tables.into_iter().chain(answers).chain(under.iter().map(String::as_str)) {
        let text = format!("question = \"q\"\n{table}surprise = 1\n");
        let error = Experiment::from_toml(&text, Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("surprise"), "{table}: {error}");
    }
}

#[test]
fn impossible_combinations_are_refused_with_the_remedy() {
    let with = |edit: &dyn Fn(&mut Experiment)| {
        let mut experiment = Experiment::default();
        edit(&mut experiment);
        format!("{:#}", experiment.check().unwrap_err())
    };
    assert!(with(&|e| e.tls.suite = Some(Suite::RsaAes128Sha)).contains("--tls 1.2"));
    assert!(with(&|e| e.measure.slice_us = Some(999)).contains("1 ms to 1 s"));
    assert!(with(&|e| e.measure.slice_us = Some(1_000_001)).contains("--slice"));
    for percent in [0.0, -1.0, 100.0, f64::NAN] {
        assert!(with(&|e| e.measure.until_percent = Some(percent)).contains("until_percent"));
    }
    assert!(
        with(&|e| {
            e.tls.version = Version::Tls12;
            e.tls.suite = Some(Suite::RsaAes128Sha);
            e.tls.certificate = Some(CertificateKind::P256);
        })
        .contains("--cert rsa-2048")
    );
    assert!(
        with(&|e| {
            e.tls.version = Version::Tls12;
            e.tls.certificate = Some(CertificateKind::MlDsa65);
        })
        .contains("--tls 1.3")
    );
    assert!(with(&|e| e.tls.certificate = Some(CertificateKind::Rsa1024)).contains("--tls 1.2"));
    let dsa = Experiment::from_toml("question = \"q\"\n[tls]\ncertificate = \"dsa\"", Path::new("/")).unwrap_err();
    let said = dsa.to_string();
    assert!(["certificate = ", "`dsa`", "rsa-2048"].iter().all(|word| said.contains(word)), "{said}");
    assert!(with(&|e| e.server.kind = ServerName::Command).contains("--server-command"));
    let ports = |command: &str, address: &str, plain: Option<&str>| {
        with(&|e| {
            e.server.kind = ServerName::Command;
            e.server.command = Some(format!("{command} {{docroot}}"));
            e.server.address = Some(address.to_owned());
            e.server.plain_address = plain.map(str::to_owned);
        })
    };
    assert!(ports("x", "127.0.0.1:{port}", None).contains("put {port} where its port goes"));
    assert!(ports("x {port}", "127.0.0.1:{port}", Some("127.0.0.1:80")).contains("mix a chosen port"));
    assert!(ports("x {port}", "127.0.0.1:{port}", Some("127.0.0.1:{plain_port}")).contains("put {plain_port}"));
    assert!(ports("x {port}", "127.0.0.1:443", None).contains("is fixed: write {port} in --address"));
    assert!(ports("x {port}", "0.0.0.0:{port}", None).contains("other hosts can reach `0.0.0.0:{port}`"));
    let plain = Some("0.0.0.0:{plain_port}");
    assert!(ports("x {port} {plain_port}", "127.0.0.1:{port}", plain).contains("--allow-insecure-listen"));
    // RFC 5737: an address of nobody.
    assert!(ports("x {port}", "203.0.113.7:{port}", None).contains("can be loaded (`tlsdyno load`"));
    assert!(with(&|e| e.load.reuse_percent = Some(101.0)).contains("between 0 and 100"));
    assert!(with(&|e| e.measure.time_s = 0.1).contains("--time"));
    assert!(with(&|e| e.configurations = vec![ConfigurationModel::as_is(); 2]).contains("exactly one"));
    let twice = ConfigurationModel::without("x", [Stage::Kdf]);
    let configurations = [ConfigurationModel::as_is(), twice.clone(), twice];
    assert!(with(&|e| e.configurations = configurations.to_vec()).contains("two configurations"));
    let renamed = ConfigurationModel { name: "y".into(), idle_provider: true, ..configurations[1].clone() };
    let configurations = [configurations[0].clone(), configurations[1].clone(), renamed];
    assert!(with(&|e| e.configurations = configurations.to_vec()).contains("`x` and `y` are the same"));
}

#[test]
fn who_knows_the_network_may_listen_beyond_loopback() {
    let at = |address: &str, allow_insecure_listen, configurations| {
        let (command, address) = (Some("x {docroot} {port}".to_owned()), Some(address.to_owned()));
        let server = Server { kind: ServerName::Command, command, address, allow_insecure_listen, ..Server::default() };
        Experiment { server, configurations, ..Experiment::default() }.check()
    };
    let no_kdf = vec![ConfigurationModel::as_is(), ConfigurationModel::without("no kdf", [Stage::Kdf])];
    assert!(at("0.0.0.0:{port}", false, no_kdf.clone()).is_err());
    at("0.0.0.0:{port}", true, no_kdf.clone()).unwrap();
    at("203.0.113.7:{port}", true, no_kdf.clone()).unwrap();
    at("[::1]:{port}", false, no_kdf).unwrap();
    let untouched = vec![ConfigurationModel::as_is(), ConfigurationModel::plain_http()];
    at("0.0.0.0:{port}", false, untouched).unwrap();
}

const EVERYTHING: &str = r#"
question = "q?"
[tls]
version = "1.2"
suite = "AES128-SHA"
[[configuration]]
name = "as is"
label = "Apache+TLS"
[[configuration]]
name = "no RSA"
noop = ["authentication"]
[[configuration]]
name = "no cache"
tls = { session_cache = "off", tickets = false }
burn_us = 20.0
[[configuration]]
name = "tomorrow"
tls = { version = "1.3", certificate = "p-256" }
processors = { count = 2, speed = 0.5 }
[[configuration]]
name = "accelerator"
accelerator = { engines = 2, cpu_rates = 4.0 }
[[configuration]]
name = "plain HTTP"
plain_http = true
[[share]]
name = "RSA"
on = "as is"
off = "no RSA"
[[share]]
name = "what is left"
on = "no RSA"
[[comparison]]
question = "An accelerator or a second CPU?"
a = "accelerator"
b = "tomorrow"
paper = "about the same"
[[remedy]]
name = "ECDSA certificate"
configuration = "tomorrow"
over = "no RSA"
bound = true
[paper]
source = "Somebody 2002"
machines = ["500 MHz", "933 MHz"]
differences = ["Another server."]
[paper.hits_per_s]
"as is" = [147, nan]
[paper.shares_percent]
"RSA" = [58, 57.0]
"#;

#[test]
fn every_table_survives_the_round_trip() {
    let experiment = Experiment::from_toml(EVERYTHING, Path::new("/")).unwrap();
    // NaN equals nothing, so the texts are compared.
    let text = experiment.to_toml().unwrap();
    let again = Experiment::from_toml(&text, Path::new("/")).unwrap();
    assert_eq!(again.to_toml().unwrap(), text);
    let json = serde_json::to_string(&experiment).unwrap();
    let again: Experiment = serde_json::from_str(&json).unwrap();
    assert_eq!(again.to_toml().unwrap(), text, "JSON writes NaN as null, which is read as NaN");
    assert!(again.paper.unwrap().row(Quantity::HitsPerS, "as is").unwrap()[1].is_nan());
}

#[test]
fn names_that_nothing_bears_are_refused_with_those_that_there_are() {
    let refused = |from: &str, to: &str| {
        assert!(EVERYTHING.contains(from), "{from}");
        format!("{:#}", Experiment::from_toml(&EVERYTHING.replace(from, to), Path::new("/")).unwrap_err())
    };
    let unknown = refused("off = \"no RSA\"", "off = \"no RC4\"");
    assert!(
        unknown.contains("share `RSA` names configuration `no RC4`") && unknown.contains("`no cache`"),
        "{unknown}"
    );
    assert!(refused("off = \"no RSA\"", "off = \"as is\"").contains("with itself"));
    assert!(refused("a = \"accelerator\"", "a = \"card\"").contains("comparison `An accelerator or a second CPU?`"));
    assert!(refused("a = \"accelerator\"", "a = \"tomorrow\"").contains("with itself"));
    assert!(
        refused("configuration = \"tomorrow\"", "configuration = \"today\"").contains("remedy `ECDSA certificate`")
    );
    assert!(refused("over = \"no RSA\"", "over = \"tomorrow\"").contains("improves on itself"));
    assert!(refused("name = \"what is left\"", "name = \"RSA\"").contains("two shares are called `RSA`"));
    let of_id = "[[remedy]]\nname = \"ecdsa-certificate\"\nconfiguration = \"tomorrow\"\n\n[[remedy]]";
    assert!(refused("[[remedy]]", of_id).contains("two remedies are called `ecdsa-certificate`"));
    assert!(refused("\"as is\" = [147, nan]", "\"as is\" = [147]").contains("write nan"));
    assert!(
        refused("\"RSA\" = [58, 57.0]", "\"RC4\" = [58, 57.0]")
            .contains("`RC4`, which is not in the experiment; there are: `RSA`")
    );
    assert!(refused("[147, nan]", "[-1, nan]").contains("negative"));
    assert!(
        refused("version = \"1.3\", certificate", "certificate")
            .contains("configuration `tomorrow`: suite AES128-SHA needs")
    );
}
