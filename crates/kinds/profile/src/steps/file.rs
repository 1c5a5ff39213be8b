//! Handshakes step by step as data (Apostolopoulos et al. 2000, Figure 6): what TOML files hold and what `tlsdyno
//! profile --keys` and `--events` build.

use std::fmt;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_record::model::tls::TlsChange;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{
    CertificateKind, ConfigurationModel, Experiment, Load, Measure, Paper, Quantity, Server, Tls,
};
use tlsdyno_runner::run::check::questions::{check_measure, check_paper};
use tlsdyno_tls::suite::KeyExchange;
use tlsdyno_tls::{Effort, StageSet, Suite, Version, named};

use crate::profile::file::Handshakes;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsExperiment {
    pub question: String,
    pub steps: Steps,
    #[serde(default)]
    pub server: Server,
    /// TLS as the server is configured and as the client offers it; its certificate is that of each cell. A suite is
    /// that of the keys that it goes with.
    #[serde(default)]
    pub tls: Tls,
    #[serde(default)]
    pub measure: Measure,
    /// A paper's numbers for the same handshakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Steps {
    pub keys: Vec<CertificateKind>,
    /// Numbers of certificates that the server sends.
    pub chains: Vec<u32>,
    /// Number of connections of each cell whose events are kept.
    pub events: u32,
    /// Effort of our own client.
    pub effort: Effort,
    #[serde(skip_serializing_if = "StepsClient::is_own")]
    pub client: StepsClient,
}

named! {
    /// The other end of the handshakes.
    #[derive(Default)]
    pub enum StepsClient: "client" {
        /// tlsdyno's own, which does as much as --effort says
        #[default]
        Own = "own",
        /// one of this system's OpenSSL, as it is
        Openssl = "openssl",
    }
}

impl StepsClient {
    fn is_own(&self) -> bool {
        *self == StepsClient::Own
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsCell {
    pub key: CertificateKind,
    /// Number of certificates that the server sends.
    pub chain_count: u32,
    pub handshakes: Handshakes,
}

/// Maximum number of certificates that a server sends: clients of today take ten at most.
const CHAIN_MAX: u32 = 5;
/// Maximum number of connections whose events are kept.
const EVENTS_MAX: u32 = 100;

impl Default for Steps {
    fn default() -> Steps {
        Steps {
            keys: vec![CertificateKind::Rsa2048],
            chains: vec![1],
            events: 0,
            effort: Effort::Honest,
            client: StepsClient::Own,
        }
    }
}

impl StepsExperiment {
    /// Refuses what cannot be measured, with the remedy.
    pub fn check(&self) -> Result<()> {
        let Steps { keys, chains, events, .. } = &self.steps;
        ensure!(!keys.is_empty(), "--keys names the server's keys, for example rsa-2048,p-256");
        let is_twice = |(index, one): (usize, &CertificateKind)| keys[..index].contains(one);
        ensure!(!keys.iter().enumerate().any(is_twice), "--keys names one of them twice");
        ensure!(!chains.is_empty(), "--chain names lengths of the certificate chain, for example 1,2,3");
        ensure!(chains.windows(2).all(|pair| pair[0] < pair[1]), "--chain must ascend");
        let fits = |length: &u32| (1..=CHAIN_MAX).contains(length);
        ensure!(chains.iter().all(fits), "--chain takes lengths between 1 and {CHAIN_MAX}");
        ensure!(*events <= EVENTS_MAX, "--events keeps those of {EVENTS_MAX} connections at most");
        check_measure(&self.measure, "servers under load; steps are those of one connection after the other")?;
        let names = Handshakes::ALL.map(Handshakes::name);
        let quantities = [Quantity::HandshakeMs, Quantity::ServerBytes, Quantity::ClientBytes];
        self.paper.as_ref().map_or(Ok(()), |paper| check_paper(paper, &quantities.map(|of| (of, &names[..]))))
    }

    pub fn cells(&self) -> Vec<StepsCell> {
        let kinds = if self.tls.is_resumable() { &Handshakes::ALL[..] } else { &Handshakes::ALL[..1] };
        let of_server = |(key, chain_count): (CertificateKind, u32)| {
            kinds.iter().map(move |handshakes| StepsCell { key, chain_count, handshakes: *handshakes })
        };
        self.servers().into_iter().flat_map(of_server).collect()
    }

    /// Keys with the lengths of their chains.
    pub fn servers(&self) -> Vec<(CertificateKind, u32)> {
        let of_key = |key: &CertificateKind| {
            let key = *key;
            self.steps.chains.iter().map(move |length| (key, *length))
        };
        self.steps.keys.iter().flat_map(of_key).collect()
    }

    /// As an experiment with a server for each key and chain, which the testbed starts.
    pub fn of_servers(&self) -> Experiment {
        let configuration = |(key, chain_count): (CertificateKind, u32)| ConfigurationModel {
            name: format!("{key}, {}", chain_name(chain_count)),
            noop: StageSet::NONE,
            tls: TlsChange {
                certificate: Some(key),
                chain_count: Some(chain_count),
                suite: self.tls.suite.filter(|suite| goes_with(*suite, key)),
                ..TlsChange::default()
            },
            ..ConfigurationModel::as_is()
        };
        Experiment {
            question: self.question.clone(),
            server: self.server.clone(),
            // A suite that not all keys go with is that of configurations.
            tls: Tls { suite: None, certificate: Some(self.steps.keys[0]), ..self.tls.clone() },
            workload: WorkloadSpec::Url {
                path: "/object".to_owned(),
                bytes: Some(1024),
                users: 1,
                requests_per_user: 1,
            },
            load: Load {
                connections: 1,
                requests_per_connection: Some(1),
                reuse_percent: Some(if self.tls.is_resumable() { 100.0 } else { 0.0 }),
                effort: self.steps.effort,
                ..Load::default()
            },
            measure: self.measure.clone(),
            configurations: self.servers().into_iter().map(configuration).collect(),
            ..Experiment::default()
        }
    }
}

/// The name of a chain of so many certificates.
pub fn chain_name(count: u32) -> String {
    format!("chain of {count}")
}

/// A server with this key can use this suite.
fn goes_with(suite: Suite, key: CertificateKind) -> bool {
    match suite.key_exchange() {
        KeyExchange::Tls13 => true,
        KeyExchange::EcdheEcdsa => !key.is_rsa(),
        KeyExchange::EcdheRsa | KeyExchange::Rsa => key.is_rsa(),
    }
}

impl StepsCell {
    /// The message whose computation uses the server's private key.
    pub fn message_of_private_key(self, version: Version, suite: Option<Suite>) -> &'static str {
        let is_static =
            suite.is_some_and(|suite| suite.key_exchange() == KeyExchange::Rsa && goes_with(suite, self.key));
        match (version, is_static) {
            (Version::Tls13, _) => "CertificateVerify",
            (Version::Tls12, true) => "ClientKeyExchange",
            (Version::Tls12, false) => "ServerKeyExchange",
        }
    }
}

impl fmt::Display for StepsCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepsCell { key, chain_count, handshakes } = self;
        write!(f, "{key}, {}, {}", chain_name(*chain_count), handshakes.name())
    }
}

/// The steps of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsRecord {
    pub experiment: StepsExperiment,
    pub cells: Vec<StepsCell>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> StepsExperiment {
        StepsExperiment {
            question: "?".to_owned(),
            steps: Steps {
                keys: vec![CertificateKind::Rsa512, CertificateKind::P256],
                chains: vec![1, 3],
                ..Steps::default()
            },
            server: Server::default(),
            tls: Tls { version: Version::Tls12, suite: Some(Suite::RsaAes128Sha), ..Tls::default() },
            measure: Measure::default(),
            paper: None,
        }
    }

    #[test]
    fn each_key_and_chain_is_a_server_with_a_suite_that_it_goes_with() {
        let experiment = experiment();
        experiment.check().unwrap();
        let names: Vec<String> = experiment.cells().iter().map(StepsCell::to_string).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[3], "rsa-512, chain of 3, resumed");
        let servers = experiment.of_servers();
        let suites: Vec<Option<Suite>> = servers.configurations.iter().map(|of| of.tls.suite).collect();
        assert_eq!(suites, [Some(Suite::RsaAes128Sha), Some(Suite::RsaAes128Sha), None, None]);
        let cell = experiment.cells()[0];
        let message = |suite| cell.message_of_private_key(Version::Tls12, suite);
        assert_eq!([message(Some(Suite::RsaAes128Sha)), message(None)], ["ClientKeyExchange", "ServerKeyExchange"]);
        let read: StepsExperiment = toml::from_str(&toml::to_string(&experiment).unwrap()).unwrap();
        assert_eq!(read, experiment);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_flag() {
        let refused = |change: &dyn Fn(&mut Steps), word: &str| {
            let mut experiment = experiment();
            change(&mut experiment.steps);
            let said = experiment.check().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        };
        refused(&|of| of.keys.clear(), "--keys");
        refused(&|of| of.keys = vec![CertificateKind::P256; 2], "twice");
        refused(&|of| of.chains = vec![2, 1], "ascend");
        refused(&|of| of.chains = vec![0, 1], "between 1");
        refused(&|of| of.chains = vec![9], "between 1");
        refused(&|of| of.events = 1_000, "--events");
    }
}
