//! The experiment as data: what TOML files hold and what flags build (`--print-experiment` shows it).
//!
//! Every table refuses unknown keys, so that a typing error never silently measures something else.

mod answers;
mod check;
mod configuration;
mod load;
mod server;
mod tls;

pub use answers::{ComparisonModel, PaperModel, RemedyModel, ShareModel};
pub use configuration::{Accelerator, ConfigurationModel, Processors};
pub use load::{Load, Measure};
pub use server::{Server, ServerName};
pub use tls::{Tls, TlsChange};

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::Stage;

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
    /// Reads an experiment file, which lies in `directory`: relative paths in it are relative to the file.
    pub fn from_toml(text: &str, directory: &Path) -> Result<Experiment> {
        let mut experiment: Experiment = toml::from_str(text)?;
        if let WorkloadSpec::Trace { path, .. } = &mut experiment.workload {
            *path = directory.join(&*path);
        }
        experiment.check()?;
        experiment.fill();
        Ok(experiment)
    }

    /// The experiment as a file that [`Experiment::from_toml`] reads back.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// The configurations of `ablate`: the untouched server, each stage off, all off, and plain HTTP where it can be had.
    pub fn ablation(stages: &[Stage], plain_http: bool) -> Vec<ConfigurationModel> {
        let mut configurations = vec![ConfigurationModel::as_is()];
        configurations.extend(
            stages.iter().map(|stage| ConfigurationModel::without(&format!("no {}", spoken(*stage)), [*stage])),
        );
        if stages.len() > 1 {
            configurations.push(ConfigurationModel::without("all off", stages.iter().copied()));
        }
        if plain_http {
            configurations.push(ConfigurationModel::plain_http());
        }
        configurations
    }

    /// Fills in the configurations where the experiment names none.
    pub fn fill(&mut self) {
        if self.configurations.is_empty() {
            self.configurations = Experiment::ablation(&Stage::PROVIDER, self.has_plain_http());
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
        assert_eq!(names.len(), 2 + Stage::PROVIDER.len() + 1);
        assert!(names.contains(&"no key agreement"));
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
        for table in ["", "[server]\n", "[tls]\n", "[load]\n", "[measure]\n", "[[configuration]]\nname = \"a\"\n"] {
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
}
