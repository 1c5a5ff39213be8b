//! The experiment as data: what TOML files hold and what flags build (`--print-experiment` shows it).
//!
//! Every table refuses unknown keys, so that a typing error never silently measures something else.

mod answers;
mod check;
mod configuration;
mod load;
mod sentences;
mod server;
mod tls;

pub use answers::{ComparisonModel, PaperModel, RemedyModel, ShareModel};
pub use configuration::{Accelerator, ConfigurationModel, Processors};
pub use load::{Load, Measure};
pub(crate) use sentences::sentences;
pub use server::{Server, ServerName};
pub use tls::{Tls, TlsChange};

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::suite::KeyExchange;
use tlsdyno_tls::{Stage, Suite};

use super::job::WorkloadSpec;
use crate::servers::CommandSpec;

/// One experiment: a question, a server, a workload and the configurations that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What the experiment is to answer, one sentence.
    pub question: String,
    /// The server under test.
    #[serde(default)]
    pub server: Server,
    /// TLS as the server is configured and as the client offers it.
    #[serde(default)]
    pub tls: Tls,
    /// What is requested.
    #[serde(default = "default_workload")]
    pub workload: WorkloadSpec,
    /// How it is requested.
    #[serde(default)]
    pub load: Load,
    /// How long and where it is measured.
    #[serde(default)]
    pub measure: Measure,
    /// What is compared. Empty: the untouched server, each stage off, all stages off, plain HTTP.
    #[serde(default, rename = "configuration")]
    pub configurations: Vec<ConfigurationModel>,
    /// Named shares of the cost of a hit, in the order of the report. Empty: what each configuration with one stage off saves.
    #[serde(default, rename = "share", skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareModel>,
    /// Questions that two configurations answer.
    #[serde(default, rename = "comparison", skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ComparisonModel>,
    /// Remedies that are ranked by what they gain over the untouched server.
    #[serde(default, rename = "remedy", skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<RemedyModel>,
    /// What a paper published for the same configurations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperModel>,
}

fn default_workload() -> WorkloadSpec {
    WorkloadSpec::Ecommerce { users: 20_000, seed: 1 }
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            question: "What does each TLS component cost this server?".to_owned(),
            server: Server::default(),
            tls: Tls::default(),
            workload: default_workload(),
            load: Load::default(),
            measure: Measure::default(),
            configurations: Vec::new(),
            shares: Vec::new(),
            comparisons: Vec::new(),
            remedies: Vec::new(),
            paper: None,
        }
    }
}

impl Experiment {
    /// Reads an experiment file that extends no other and lies in `directory`: relative paths are relative to the file.
    pub fn from_toml(text: &str, directory: &Path) -> Result<Experiment> {
        toml::from_str::<Experiment>(text)?.completed(directory)
    }

    /// What a file says, with all that follows from it. A path of a log or a recording is relative to `directory`.
    ///
    /// # Errors
    /// It asks for what cannot be.
    pub fn completed(mut self, directory: &Path) -> Result<Experiment> {
        if let WorkloadSpec::Trace { path, .. } | WorkloadSpec::Har { path, .. } = &mut self.workload {
            *path = directory.join(&*path);
        }
        // Shares and comparisons may name the configurations of an ablation.
        self.fill();
        self.check()?;
        Ok(self)
    }

    /// The experiment as a file that [`Experiment::from_toml`] reads back.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// The configurations of `ablate`: the untouched server, each stage off, all off, and plain HTTP where it can be had.
    pub fn ablation(stages: &[Stage], plain_http: bool) -> Vec<ConfigurationModel> {
        let mut configurations = vec![ConfigurationModel::as_is()];
        let without =
            |stage: &Stage| ConfigurationModel::without(&format!("no {}", spoken(*stage)), with_needed(*stage));
        configurations.extend(stages.iter().map(without));
        // Those of the shim overlap with them and with each other.
        let of_provider: Vec<Stage> = stages.iter().copied().filter(|stage| Stage::PROVIDER.contains(stage)).collect();
        if of_provider.len() > 1 {
            configurations.push(ConfigurationModel::without("all off", of_provider));
        }
        if plain_http {
            configurations.push(ConfigurationModel::plain_http());
        }
        configurations
    }

    /// Fills in the configurations where the experiment names none.
    pub fn fill(&mut self) {
        if self.configurations.is_empty() {
            let stages: Vec<Stage> = Stage::PROVIDER.into_iter().chain(self.stages_of_shim()).collect();
            if stages.contains(&Stage::Setup) {
                self.pin_suite();
            }
            self.configurations = Experiment::ablation(&stages, self.has_plain_http());
        }
    }

    /// The stages of the shim that make sense beside those of the provider without further thought.
    fn stages_of_shim(&self) -> Vec<Stage> {
        let resumes = self.tls.is_resumable() && self.load.reuse_percent != Some(0.0);
        let protected = !self.tls.early_data;
        // What suite an own command would choose is not known: it may refuse any that is named here.
        let pinned = self.tls.suite.is_some() || self.server.kind != ServerName::Command;
        [(Stage::SessionCache, resumes), (Stage::Marshalling, protected), (Stage::Setup, protected && pinned)]
            .into_iter()
            .filter(|(_, sensible)| *sensible)
            .map(|(stage, _)| stage)
            .collect()
    }

    /// Names a suite where none is named: the first that the client would offer and the certificate can serve.
    pub fn pin_suite(&mut self) {
        let rsa = self.tls.certificate.starts_with("rsa");
        let fits = |suite: &Suite| match suite.key_exchange() {
            KeyExchange::Tls13 => true,
            KeyExchange::EcdheRsa | KeyExchange::Rsa => rsa,
            KeyExchange::EcdheEcdsa => !rsa,
        };
        if self.tls.suite.is_none() {
            let suites = self.tls.suites().unwrap_or_default();
            self.tls.suite = suites.iter().find(|suite| fits(suite)).map(ToString::to_string);
        }
    }

    /// Whether the server can serve the same objects without TLS.
    pub fn has_plain_http(&self) -> bool {
        self.server.kind != ServerName::Command || self.server.plain_address.is_some()
    }

    /// The server command as its driver sees it.
    pub fn command_spec(&self) -> CommandSpec {
        let server = self.server.clone();
        CommandSpec {
            command: server.command.unwrap_or_default(),
            address: server.address.unwrap_or_default(),
            plain_address: server.plain_address,
        }
    }
}

/// A stage with those that must be off where it is (docs/NOOP.md).
fn with_needed(stage: Stage) -> Vec<Stage> {
    match stage {
        Stage::Handshake => vec![Stage::Marshalling, Stage::Handshake],
        Stage::RoundTrip => vec![Stage::SessionCache, Stage::Marshalling, Stage::RoundTrip],
        stage => vec![stage],
    }
}

fn spoken(stage: Stage) -> String {
    stage.name().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_fill_in_the_whole_ablation() {
        let experiment = Experiment::from_toml("question = \"q\"", Path::new("/")).unwrap();
        let names: Vec<_> = experiment.configurations.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.first(), Some(&"as is"));
        assert_eq!(names.last(), Some(&"plain HTTP"));
        assert_eq!(names.len(), 2 + Stage::PROVIDER.len() + 3 + 1);
        assert_eq!(names[8..11], ["no session cache", "no marshalling", "no setup"]);
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
        assert!(with(&|e| e.tls.suite = Some("AES128-SHA".into())).contains("--tls 1.2"));
        assert!(
            with(&|e| {
                e.tls.version = "1.2".into();
                e.tls.suite = Some("AES128-SHA".into());
                e.tls.certificate = "p-256".into();
            })
            .contains("--cert rsa-2048")
        );
        assert!(with(&|e| e.tls.certificate = "dsa".into()).contains("rsa-2048"));
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
            let server =
                Server { kind: ServerName::Command, command, address, allow_insecure_listen, ..Server::default() };
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

    /// An experiment with every table.
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
        assert!(again.paper.unwrap().hits_per_s["as is"][1].is_nan());
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
        assert!(
            refused("a = \"accelerator\"", "a = \"card\"").contains("comparison `An accelerator or a second CPU?`")
        );
        assert!(refused("a = \"accelerator\"", "a = \"tomorrow\"").contains("with itself"));
        assert!(
            refused("configuration = \"tomorrow\"", "configuration = \"today\"").contains("remedy `ECDSA certificate`")
        );
        assert!(refused("over = \"no RSA\"", "over = \"tomorrow\"").contains("improves on itself"));
        assert!(refused("name = \"what is left\"", "name = \"RSA\"").contains("two shares are called `RSA`"));
        assert!(refused("\"as is\" = [147, nan]", "\"as is\" = [147]").contains("write nan"));
        assert!(refused("\"RSA\" = [58, 57.0]", "\"RC4\" = [58, 57.0]").contains("none of the experiment's shares"));
        assert!(refused("[147, nan]", "[-1, nan]").contains("negative"));
        assert!(
            refused("version = \"1.3\", certificate", "certificate")
                .contains("configuration `tomorrow`: suite AES128-SHA needs")
        );
    }
}
