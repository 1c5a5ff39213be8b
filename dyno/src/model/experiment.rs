//! One experiment: a question, a server, a workload and the configurations that are compared.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::suite::KeyExchange;
use tlsdyno_tls::{Stage, Suite};

use super::workload::WorkloadSpec;
use super::{
    ComparisonModel, ConfigurationModel, Load, Measure, PaperModel, RemedyModel, Server, ServerName, ShareModel, Tls,
};

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
    /// Named shares of the cost of a hit, in the order of the report. Empty: what each configuration with one stage
    /// off saves.
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
    /// The experiment as a file that [`Experiment::from_toml`] reads back.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// The configurations of `ablate`: the untouched server, each stage off, all off, and plain HTTP where it can be
    /// had.
    pub fn ablation(stages: &[Stage], plain_http: bool) -> Vec<ConfigurationModel> {
        let mut configurations = vec![ConfigurationModel::as_is()];
        let without = |stage: &Stage| ConfigurationModel::without(&without_in_words(*stage), with_needed(*stage));
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
        let rsa = self.tls.certificate.is_rsa();
        let fits = |suite: &Suite| match suite.key_exchange() {
            KeyExchange::Tls13 => true,
            KeyExchange::EcdheRsa | KeyExchange::Rsa => rsa,
            KeyExchange::EcdheEcdsa => !rsa,
        };
        if self.tls.suite.is_none() {
            self.tls.suite = self.tls.suites().into_iter().find(fits);
        }
    }

    /// Whether the server can serve the same objects without TLS.
    pub fn has_plain_http(&self) -> bool {
        self.server.kind != ServerName::Command || self.server.plain_address.is_some()
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

/// The server without a stage. What replaces a stage of the shim is named after what is there instead: "no session
/// cache" would be understood as a server that resumes nothing.
pub fn without_in_words(stage: Stage) -> String {
    match stage {
        Stage::SessionCache => "perfect session cache".to_owned(),
        Stage::Marshalling => "unencrypted data".to_owned(),
        Stage::Setup => "no connection setup".to_owned(),
        Stage::Handshake => "bare handshake".to_owned(),
        Stage::RoundTrip => "one round trip less".to_owned(),
        other => format!("no {}", other.name().replace('_', " ")),
    }
}
